//! Teams: list, make, change, close, and who belongs to them.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{
    Account, AccountTerms, MemberChange, RateLimits, Store, Team, TeamMember, TeamRole, TeamTotal,
};

use super::keys::{BudgetBody, LimitsBody, parse_amount, parse_budget};
use super::{
    check_if_match, invalid_field, not_found, path_id, read_body, require_admin, sent, store_fault,
    tagged_response, write_audit,
};
use crate::query::query_pairs;
use crate::request::ApiRequest;
use crate::state::ApiState;
use access::keys::budget_json;

const PATH_PREFIX: &str = "/api/admin/teams/";

/// What can be said of a team; what is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TeamBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    disabled: Option<bool>,
    /// `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    cap_usd: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    budget: Option<Option<BudgetBody>>,
    #[serde(default)]
    limits: Option<LimitsBody>,
}

impl TeamBody {
    /// What the team is to be, from what it is.
    fn apply(self, mut whole: TeamDetails) -> Result<TeamDetails, ApiError> {
        let Self { name, disabled, cap_usd, budget, limits } = self;
        if let Some(name) = name {
            if let Some(why) = ::admin::names::team_name_error(&name) {
                return Err(invalid_field("name", why));
            }
            whole.team.name = name;
        }
        if let Some(disabled) = disabled {
            whole.team.disabled = disabled;
        }
        if let Some(cap) = cap_usd {
            whole.terms.cap = cap.map(|text| parse_amount("cap_usd", &text)).transpose()?;
        }
        if let Some(budget) = budget {
            whole.terms.budget = budget.map(parse_budget).transpose()?;
        }
        if let Some(pace) = limits {
            whole.limits = pace.into_limits()?;
        }
        Ok(whole)
    }
}

/// A team with everything that can be changed about it.
#[derive(Clone)]
struct TeamDetails {
    team: Team,
    terms: AccountTerms,
    limits: RateLimits,
    members: Vec<TeamMember>,
}

impl TeamDetails {
    async fn load(store: &Store, id: &str) -> Result<Self, ApiError> {
        let team = store.team(id).await.map_err(store_fault)?.ok_or_else(|| not_found("team"))?;
        let money = store.account_terms().await.map_err(store_fault)?;
        let limits = store.account_limits().await.map_err(store_fault)?;
        let members = store.members(&team.id).await.map_err(store_fault)?;
        Ok(Self {
            terms: value_of(&money, &team.id),
            limits: value_of(&limits, &team.id),
            members,
            team,
        })
    }

    fn to_json(&self) -> Value {
        let mut value = team_json(&self.team, self.terms, self.limits);
        if let Value::Object(fields) = &mut value {
            let members = self.members.iter().map(|TeamMember { account, role, since }| {
                json!({
                    "account_id": account.id,
                    "name": account.username,
                    "role": role.word(),
                    "disabled": account.disabled,
                    "since": super::rfc3339(*since),
                })
            });
            fields.insert("members".to_owned(), members.collect());
        }
        value
    }
}

/// What is known of an account, or nothing.
fn value_of<T: Copy + Default>(all: &[(String, T)], id: &str) -> T {
    all.iter().find(|(own, _)| own == id).map(|(_, found)| *found).unwrap_or_default()
}

/// What can be changed of a team.
fn team_json(team: &Team, money: AccountTerms, limits: RateLimits) -> Value {
    let AccountTerms { cap, budget } = money;
    let RateLimits { rpm, tpm, concurrency } = limits;
    json!({
        "id": team.id,
        "name": team.name,
        "disabled": team.disabled,
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(budget_json),
        "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
        "created_at": super::rfc3339(team.created),
    })
}

pub(crate) async fn list(asked: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&asked.state, &asked.key).await?;
    let store = &asked.state.store;
    let money = store.account_terms().await.map_err(store_fault)?;
    let limits = store.account_limits().await.map_err(store_fault)?;
    let teams = store.teams().await.map_err(store_fault)?;
    let teams = teams.iter().map(|TeamTotal { team, spent, members }| {
        let mut value = team_json(team, value_of(&money, &team.id), value_of(&limits, &team.id));
        if let Value::Object(fields) = &mut value {
            fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
            fields.insert("member_count".to_owned(), Value::from(*members));
        }
        value
    });
    Ok(super::list_response(teams.collect()))
}

/// A team as it is now. What it has spent is told as well, but is no part of its tag: calls are no
/// change of the team.
async fn team_response(
    state: &ApiState,
    id: &str,
    status: StatusCode,
) -> Result<Response, ApiError> {
    let part = TeamDetails::load(&state.store, id).await?.to_json();
    let (spent, _) = state.store.account_spending(id).await.map_err(store_fault)?;
    let mut value = part.clone();
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    Ok(tagged_response(status, &value, &part))
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&asked.state, &asked.key).await?;
    team_response(&asked.state, &path_id(&asked, PATH_PREFIX, ""), StatusCode::OK).await
}

pub(crate) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let ApiRequest { state, request, .. } = asked;
    let wish: TeamBody = read_body(request).await?;
    if wish.name.is_none() {
        return Err(invalid_field("name", "is required"));
    }
    let now = state.clock().now();
    let team = Team {
        id: uuid::Uuid::now_v7().to_string(),
        name: String::new(),
        disabled: false,
        created: now,
        changed: now,
    };
    let blank = TeamDetails {
        team,
        terms: AccountTerms::default(),
        limits: RateLimits::default(),
        members: vec![],
    };
    let whole = wish.apply(blank.clone())?;
    state.store.add_team(&whole.team).await.map_err(store_fault)?;
    write_audit(&state, &who, "team.create", &whole.team.id, &whole.team.name).await;
    set_terms(&state, &who, &blank, &whole).await?;
    team_response(&state, &whole.team.id, StatusCode::CREATED).await
}

/// Gives a team what of its terms is new.
async fn set_terms(
    state: &ApiState,
    who: &Account,
    before: &TeamDetails,
    whole: &TeamDetails,
) -> Result<(), ApiError> {
    let id = &whole.team.id;
    let mut what = Vec::new();
    if whole.terms != before.terms {
        state.store.set_account_terms(id, whole.terms).await.map_err(store_fault)?;
        what.push(whole.terms.to_string());
    }
    if whole.limits != before.limits {
        state.store.set_account_limits(id, whole.limits).await.map_err(store_fault)?;
        what.push("limits".to_owned());
    }
    if !what.is_empty() {
        write_audit(state, who, "team.terms", id, &what.join(", ")).await;
    }
    Ok(())
}

pub(crate) async fn change(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let id = path_id(&asked, PATH_PREFIX, "");
    let ApiRequest { state, request, .. } = asked;
    let before = TeamDetails::load(&state.store, &id).await?;
    check_if_match(request.headers(), &before.to_json())?;
    let whole = read_body::<TeamBody>(request).await?.apply(before.clone())?;
    let now = state.clock().now();
    if whole.team.name != before.team.name {
        let name = &whole.team.name;
        state.store.rename_account(&id, name, None, now).await.map_err(store_fault)?;
        write_audit(&state, &who, "team.rename", &id, name).await;
    }
    set_terms(&state, &who, &before, &whole).await?;
    set_disabled(&state, &who, &before.team, whole.team.disabled).await?;
    team_response(&state, &id, StatusCode::OK).await
}

/// Closes a team or opens it again; its keys stop or work at once.
async fn set_disabled(
    state: &ApiState,
    who: &Account,
    team: &Team,
    disabled: bool,
) -> Result<(), ApiError> {
    if team.disabled == disabled {
        return Ok(());
    }
    state.store.set_disabled(&team.id, disabled, state.clock().now()).await.map_err(store_fault)?;
    let action = if disabled { "team.disable" } else { "team.enable" };
    write_audit(state, who, action, &team.id, &team.name).await;
    for key in state.store.keys_of(&team.id).await.map_err(store_fault)? {
        state.admin.accounts.key_changed(key);
    }
    Ok(())
}

pub(crate) async fn close(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let id = path_id(&asked, PATH_PREFIX, "");
    let whole = TeamDetails::load(&asked.state.store, &id).await?;
    check_if_match(asked.request.headers(), &whole.to_json())?;
    set_disabled(&asked.state, &who, &whole.team, true).await?;
    team_response(&asked.state, &id, StatusCode::OK).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberBody {
    role: String,
}

/// The team and the account in a path.
fn team_and_account(asked: &ApiRequest) -> Result<(String, String), ApiError> {
    let rest = path_id(asked, PATH_PREFIX, "");
    let both = rest.split_once("/members/").ok_or_else(|| not_found("team"))?;
    Ok((both.0.to_owned(), both.1.to_owned()))
}

pub(crate) async fn put_member(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let (id, account) = team_and_account(&asked)?;
    let ApiRequest { state, request, .. } = asked;
    check_if_match(request.headers(), &TeamDetails::load(&state.store, &id).await?.to_json())?;
    let MemberBody { role } = read_body(request).await?;
    let role = TeamRole::by_word(&role)
        .ok_or_else(|| invalid_field("role", "write manager, member or viewer"))?;
    set_member_role(&state, &who, &id, &account, Some(role)).await?;
    team_response(&state, &id, StatusCode::OK).await
}

pub(crate) async fn remove_member(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let (id, account) = team_and_account(&asked)?;
    let query = query_pairs(asked.request.uri().query().unwrap_or_default());
    let keys = query.into_iter().find(|(name, _)| name == "keys").map(|(_, word)| word);
    let revokes = match keys.as_deref() {
        Some("revoke") => true,
        Some("keep") | None => false,
        Some(_) => return Err(invalid_field("keys", "write keep or revoke")),
    };
    let state = asked.state;
    check_if_match(
        asked.request.headers(),
        &TeamDetails::load(&state.store, &id).await?.to_json(),
    )?;
    set_member_role(&state, &who, &id, &account, None).await?;
    if revokes {
        let keys = state.store.keys_created_by(&account).await.map_err(store_fault)?;
        for key in keys.iter().filter(|key| key.account_id == id) {
            if state.store.revoke_key(&key.id, state.clock().now()).await.map_err(store_fault)? {
                write_audit(&state, &who, "key.revoke", &key.id, &key.name).await;
                if let Some(record) = state.store.key(&key.id).await.map_err(store_fault)? {
                    state.admin.accounts.key_changed(record);
                }
            }
        }
    }
    team_response(&state, &id, StatusCode::OK).await
}

async fn set_member_role(
    state: &ApiState,
    who: &Account,
    team: &str,
    account: &str,
    role: Option<TeamRole>,
) -> Result<(), ApiError> {
    let now = state.clock().now();
    match state.store.set_member(team, account, role, true, now).await.map_err(store_fault)? {
        MemberChange::Done => {}
        MemberChange::Missing | MemberChange::LastManager => return Err(not_found("member")),
    }
    match role {
        Some(role) => {
            write_audit(state, who, "team.member", team, &format!("{account} {}", role.word()))
                .await;
        }
        None => write_audit(state, who, "team.remove_member", team, account).await,
    }
    Ok(())
}
