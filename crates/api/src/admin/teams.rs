//! `/api/admin/teams`: list, create, change, close, and manage members.

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
    check_if_match, invalid_field, not_found, path_id, read_body, require_admin, sent, store_error,
    tagged_response, write_audit,
};
use crate::query::query_pairs;
use crate::request::ApiRequest;
use crate::state::ApiState;
use access::keys::budget_json;

const PATH_PREFIX: &str = "/api/admin/teams/";

/// Body of a new team or of a change. An absent field stays unchanged.
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
    /// Applies the change to a team.
    fn apply(self, mut details: TeamDetails) -> Result<TeamDetails, ApiError> {
        let Self { name, disabled, cap_usd, budget, limits } = self;
        if let Some(name) = name {
            if let Some(why) = ::admin::names::team_name_error(&name) {
                return Err(invalid_field("name", why));
            }
            details.team.name = name;
        }
        if let Some(disabled) = disabled {
            details.team.disabled = disabled;
        }
        if let Some(cap) = cap_usd {
            details.terms.cap = cap.map(|text| parse_amount("cap_usd", &text)).transpose()?;
        }
        if let Some(budget) = budget {
            details.terms.budget = budget.map(parse_budget).transpose()?;
        }
        if let Some(pace) = limits {
            details.limits = pace.into_limits()?;
        }
        Ok(details)
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
        let team = store.team(id).await.map_err(store_error)?.ok_or_else(|| not_found("team"))?;
        let money = store.account_terms().await.map_err(store_error)?;
        let limits = store.account_limits().await.map_err(store_error)?;
        let members = store.members(&team.id).await.map_err(store_error)?;
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

/// Returns the value of an account, or the default.
fn value_of<T: Copy + Default>(all: &[(String, T)], id: &str) -> T {
    all.iter().find(|(own, _)| own == id).map(|(_, found)| *found).unwrap_or_default()
}

/// JSON of the part of a team that can be changed.
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

pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let store = &incoming.state.store;
    let money = store.account_terms().await.map_err(store_error)?;
    let limits = store.account_limits().await.map_err(store_error)?;
    let teams = store.teams().await.map_err(store_error)?;
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

/// Response with a team. The spent amount is shown but not covered by the entity tag, because calls
/// do not change the team.
async fn team_response(
    state: &ApiState,
    id: &str,
    status: StatusCode,
) -> Result<Response, ApiError> {
    let part = TeamDetails::load(&state.store, id).await?.to_json();
    let (spent, _) = state.store.account_spending(id).await.map_err(store_error)?;
    let mut value = part.clone();
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    Ok(tagged_response(status, &value, &part))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    team_response(&incoming.state, &path_id(&incoming, PATH_PREFIX, ""), StatusCode::OK).await
}

pub(crate) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let body: TeamBody = read_body(request).await?;
    if body.name.is_none() {
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
    let details = body.apply(blank.clone())?;
    state.store.add_team(&details.team).await.map_err(store_error)?;
    write_audit(&state, &caller, "team.create", &details.team.id, &details.team.name).await;
    set_terms(&state, &caller, &blank, &details).await?;
    team_response(&state, &details.team.id, StatusCode::CREATED).await
}

/// Stores the changed terms and limits of a team.
async fn set_terms(
    state: &ApiState,
    caller: &Account,
    before: &TeamDetails,
    details: &TeamDetails,
) -> Result<(), ApiError> {
    let id = &details.team.id;
    let mut changes = Vec::new();
    if details.terms != before.terms {
        state.store.set_account_terms(id, details.terms).await.map_err(store_error)?;
        changes.push(details.terms.to_string());
    }
    if details.limits != before.limits {
        state.store.set_account_limits(id, details.limits).await.map_err(store_error)?;
        changes.push("limits".to_owned());
    }
    if !changes.is_empty() {
        write_audit(state, caller, "team.terms", id, &changes.join(", ")).await;
    }
    Ok(())
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let id = path_id(&incoming, PATH_PREFIX, "");
    let ApiRequest { state, request, .. } = incoming;
    let before = TeamDetails::load(&state.store, &id).await?;
    check_if_match(request.headers(), &before.to_json())?;
    let details = read_body::<TeamBody>(request).await?.apply(before.clone())?;
    let now = state.clock().now();
    if details.team.name != before.team.name {
        let name = &details.team.name;
        state.store.rename_account(&id, name, None, now).await.map_err(store_error)?;
        write_audit(&state, &caller, "team.rename", &id, name).await;
    }
    set_terms(&state, &caller, &before, &details).await?;
    set_disabled(&state, &caller, &before.team, details.team.disabled).await?;
    team_response(&state, &id, StatusCode::OK).await
}

/// Closes or reopens a team. The change applies to its keys at once.
async fn set_disabled(
    state: &ApiState,
    caller: &Account,
    team: &Team,
    disabled: bool,
) -> Result<(), ApiError> {
    if team.disabled == disabled {
        return Ok(());
    }
    state.store.set_disabled(&team.id, disabled, state.clock().now()).await.map_err(store_error)?;
    let action = if disabled { "team.disable" } else { "team.enable" };
    write_audit(state, caller, action, &team.id, &team.name).await;
    for key in state.store.keys_of(&team.id).await.map_err(store_error)? {
        state.admin.accounts.key_changed(key);
    }
    Ok(())
}

pub(crate) async fn close(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let id = path_id(&incoming, PATH_PREFIX, "");
    let details = TeamDetails::load(&incoming.state.store, &id).await?;
    check_if_match(incoming.request.headers(), &details.to_json())?;
    set_disabled(&incoming.state, &caller, &details.team, true).await?;
    team_response(&incoming.state, &id, StatusCode::OK).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberBody {
    role: String,
}

/// Returns the team id and the account id in the path.
fn team_and_account(incoming: &ApiRequest) -> Result<(String, String), ApiError> {
    let rest = path_id(incoming, PATH_PREFIX, "");
    let both = rest.split_once("/members/").ok_or_else(|| not_found("team"))?;
    Ok((both.0.to_owned(), both.1.to_owned()))
}

pub(crate) async fn put_member(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let (id, account) = team_and_account(&incoming)?;
    let ApiRequest { state, request, .. } = incoming;
    check_if_match(request.headers(), &TeamDetails::load(&state.store, &id).await?.to_json())?;
    let MemberBody { role } = read_body(request).await?;
    let role = TeamRole::by_word(&role)
        .ok_or_else(|| invalid_field("role", "write manager, member or viewer"))?;
    set_member_role(&state, &caller, &id, &account, Some(role)).await?;
    team_response(&state, &id, StatusCode::OK).await
}

pub(crate) async fn remove_member(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let (id, account) = team_and_account(&incoming)?;
    let query = query_pairs(incoming.request.uri().query().unwrap_or_default());
    let keys = query.into_iter().find(|(name, _)| name == "keys").map(|(_, word)| word);
    let revokes = match keys.as_deref() {
        Some("revoke") => true,
        Some("keep") | None => false,
        Some(_) => return Err(invalid_field("keys", "write keep or revoke")),
    };
    let state = incoming.state;
    check_if_match(
        incoming.request.headers(),
        &TeamDetails::load(&state.store, &id).await?.to_json(),
    )?;
    set_member_role(&state, &caller, &id, &account, None).await?;
    if revokes {
        let keys = state.store.keys_created_by(&account).await.map_err(store_error)?;
        for key in keys.iter().filter(|key| key.account_id == id) {
            if state.store.revoke_key(&key.id, state.clock().now()).await.map_err(store_error)? {
                write_audit(&state, &caller, "key.revoke", &key.id, &key.name).await;
                if let Some(record) = state.store.key(&key.id).await.map_err(store_error)? {
                    state.admin.accounts.key_changed(record);
                }
            }
        }
    }
    team_response(&state, &id, StatusCode::OK).await
}

async fn set_member_role(
    state: &ApiState,
    caller: &Account,
    team: &str,
    account: &str,
    role: Option<TeamRole>,
) -> Result<(), ApiError> {
    let now = state.clock().now();
    match state.store.set_member(team, account, role, true, now).await.map_err(store_error)? {
        MemberChange::Done => {}
        MemberChange::Missing | MemberChange::LastManager => return Err(not_found("member")),
    }
    match role {
        Some(role) => {
            write_audit(state, caller, "team.member", team, &format!("{account} {}", role.word()))
                .await;
        }
        None => write_audit(state, caller, "team.remove_member", team, account).await,
    }
    Ok(())
}
