//! Teams: list, make, change, close, and who belongs to them.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountTerms, RateLimits, TeamMember, MemberChange, Store, Team, TeamRole, TeamTotal};

use super::keys::{Budget, Pace, amount, terms};
use super::{admin, away, body, id_in, invalid, missing, note, sent, tagged, unchanged};
use crate::query::pairs;
use crate::request::ApiRequest;
use crate::state::ApiState;
use access::keys::described_budget;

const AT: &str = "/api/admin/teams/";

/// What can be said of a team; what is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    disabled: Option<bool>,
    /// `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    cap_usd: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    budget: Option<Option<Budget>>,
    #[serde(default)]
    limits: Option<Pace>,
}

impl Wish {
    /// What the team is to be, from what it is.
    fn apply(self, mut whole: Whole) -> Result<Whole, ApiError> {
        let Self { name, disabled, cap_usd, budget, limits } = self;
        if let Some(name) = name {
            if let Some(why) = ::admin::names::team_objection(&name) {
                return Err(invalid("name", why));
            }
            whole.team.name = name;
        }
        if let Some(disabled) = disabled {
            whole.team.disabled = disabled;
        }
        if let Some(cap) = cap_usd {
            whole.money.cap = cap.map(|text| amount("cap_usd", &text)).transpose()?;
        }
        if let Some(budget) = budget {
            whole.money.budget = budget.map(terms).transpose()?;
        }
        if let Some(pace) = limits {
            whole.limits = pace.limits()?;
        }
        Ok(whole)
    }
}

/// A team with everything that can be changed about it.
#[derive(Clone)]
struct Whole {
    team: Team,
    money: AccountTerms,
    limits: RateLimits,
    members: Vec<TeamMember>,
}

impl Whole {
    async fn of(store: &Store, id: &str) -> Result<Self, ApiError> {
        let team = store.team(id).await.map_err(away)?.ok_or_else(|| missing("team"))?;
        let money = store.account_terms().await.map_err(away)?;
        let limits = store.account_limits().await.map_err(away)?;
        let members = store.members(&team.id).await.map_err(away)?;
        Ok(Self { money: of(&money, &team.id), limits: of(&limits, &team.id), members, team })
    }

    fn told(&self) -> Value {
        let mut value = told(&self.team, self.money, self.limits);
        if let Value::Object(fields) = &mut value {
            let members = self.members.iter().map(|TeamMember { account, role, since }| {
                json!({
                    "account_id": account.id,
                    "name": account.username,
                    "role": role.word(),
                    "disabled": account.disabled,
                    "since": super::time(*since),
                })
            });
            fields.insert("members".to_owned(), members.collect());
        }
        value
    }
}

/// What is known of an account, or nothing.
fn of<T: Copy + Default>(all: &[(String, T)], id: &str) -> T {
    all.iter().find(|(own, _)| own == id).map(|(_, found)| *found).unwrap_or_default()
}

/// What can be changed of a team.
fn told(team: &Team, money: AccountTerms, limits: RateLimits) -> Value {
    let AccountTerms { cap, budget } = money;
    let RateLimits { rpm, tpm, concurrency } = limits;
    json!({
        "id": team.id,
        "name": team.name,
        "disabled": team.disabled,
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(described_budget),
        "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
        "created_at": super::time(team.created),
    })
}

pub(crate) async fn list(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    let store = &asked.state.store;
    let money = store.account_terms().await.map_err(away)?;
    let limits = store.account_limits().await.map_err(away)?;
    let teams = store.teams().await.map_err(away)?;
    let teams = teams.iter().map(|TeamTotal { team, spent, members }| {
        let mut value = told(team, of(&money, &team.id), of(&limits, &team.id));
        if let Value::Object(fields) = &mut value {
            fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
            fields.insert("member_count".to_owned(), Value::from(*members));
        }
        value
    });
    Ok(super::list(teams.collect()))
}

/// A team as it is now. What it has spent is told as well, but is no part of its tag: calls are no
/// change of the team.
async fn fresh(state: &ApiState, id: &str, status: StatusCode) -> Result<Response, ApiError> {
    let part = Whole::of(&state.store, id).await?.told();
    let (spent, _) = state.store.account_spending(id).await.map_err(away)?;
    let mut value = part.clone();
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    Ok(tagged(status, &value, &part))
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    fresh(&asked.state, &id_in(&asked, AT, ""), StatusCode::OK).await
}

pub(crate) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let ApiRequest { state, request, .. } = asked;
    let wish: Wish = body(request).await?;
    if wish.name.is_none() {
        return Err(invalid("name", "is required"));
    }
    let now = state.clock().now();
    let team = Team {
        id: uuid::Uuid::now_v7().to_string(),
        name: String::new(),
        disabled: false,
        created: now,
        changed: now,
    };
    let blank =
        Whole { team, money: AccountTerms::default(), limits: RateLimits::default(), members: vec![] };
    let whole = wish.apply(blank.clone())?;
    state.store.add_team(&whole.team).await.map_err(away)?;
    note(&state, &who, "team.create", &whole.team.id, &whole.team.name).await;
    set_terms(&state, &who, &blank, &whole).await?;
    fresh(&state, &whole.team.id, StatusCode::CREATED).await
}

/// Gives a team what of its terms is new.
async fn set_terms(
    state: &ApiState,
    who: &Account,
    before: &Whole,
    whole: &Whole,
) -> Result<(), ApiError> {
    let id = &whole.team.id;
    let mut what = Vec::new();
    if whole.money != before.money {
        state.store.set_account_terms(id, whole.money).await.map_err(away)?;
        what.push(whole.money.to_string());
    }
    if whole.limits != before.limits {
        state.store.set_account_limits(id, whole.limits).await.map_err(away)?;
        what.push("limits".to_owned());
    }
    if !what.is_empty() {
        note(state, who, "team.terms", id, &what.join(", ")).await;
    }
    Ok(())
}

pub(crate) async fn change(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let id = id_in(&asked, AT, "");
    let ApiRequest { state, request, .. } = asked;
    let before = Whole::of(&state.store, &id).await?;
    unchanged(request.headers(), &before.told())?;
    let whole = body::<Wish>(request).await?.apply(before.clone())?;
    let now = state.clock().now();
    if whole.team.name != before.team.name {
        let name = &whole.team.name;
        state.store.rename_account(&id, name, None, now).await.map_err(away)?;
        note(&state, &who, "team.rename", &id, name).await;
    }
    set_terms(&state, &who, &before, &whole).await?;
    set_disabled(&state, &who, &before.team, whole.team.disabled).await?;
    fresh(&state, &id, StatusCode::OK).await
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
    state.store.set_disabled(&team.id, disabled, state.clock().now()).await.map_err(away)?;
    let action = if disabled { "team.disable" } else { "team.enable" };
    note(state, who, action, &team.id, &team.name).await;
    for key in state.store.keys_of(&team.id).await.map_err(away)? {
        state.admin.accounts.key_changed(key);
    }
    Ok(())
}

pub(crate) async fn close(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let id = id_in(&asked, AT, "");
    let whole = Whole::of(&asked.state.store, &id).await?;
    unchanged(asked.request.headers(), &whole.told())?;
    set_disabled(&asked.state, &who, &whole.team, true).await?;
    fresh(&asked.state, &id, StatusCode::OK).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    role: String,
}

/// The team and the account in a path.
fn both_in(asked: &ApiRequest) -> Result<(String, String), ApiError> {
    let rest = id_in(asked, AT, "");
    let both = rest.split_once("/members/").ok_or_else(|| missing("team"))?;
    Ok((both.0.to_owned(), both.1.to_owned()))
}

pub(crate) async fn put_member(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let (id, account) = both_in(&asked)?;
    let ApiRequest { state, request, .. } = asked;
    unchanged(request.headers(), &Whole::of(&state.store, &id).await?.told())?;
    let Place { role } = body(request).await?;
    let role = TeamRole::by_word(&role)
        .ok_or_else(|| invalid("role", "write manager, member or viewer"))?;
    seat(&state, &who, &id, &account, Some(role)).await?;
    fresh(&state, &id, StatusCode::OK).await
}

pub(crate) async fn remove_member(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let (id, account) = both_in(&asked)?;
    let query = pairs(asked.request.uri().query().unwrap_or_default());
    let keys = query.into_iter().find(|(name, _)| name == "keys").map(|(_, word)| word);
    let revokes = match keys.as_deref() {
        Some("revoke") => true,
        Some("keep") | None => false,
        Some(_) => return Err(invalid("keys", "write keep or revoke")),
    };
    let state = asked.state;
    unchanged(asked.request.headers(), &Whole::of(&state.store, &id).await?.told())?;
    seat(&state, &who, &id, &account, None).await?;
    if revokes {
        let keys = state.store.keys_created_by(&account).await.map_err(away)?;
        for key in keys.iter().filter(|key| key.account_id == id) {
            if state.store.revoke_key(&key.id, state.clock().now()).await.map_err(away)? {
                note(&state, &who, "key.revoke", &key.id, &key.name).await;
                if let Some(record) = state.store.key(&key.id).await.map_err(away)? {
                    state.admin.accounts.key_changed(record);
                }
            }
        }
    }
    fresh(&state, &id, StatusCode::OK).await
}

async fn seat(
    state: &ApiState,
    who: &Account,
    team: &str,
    account: &str,
    role: Option<TeamRole>,
) -> Result<(), ApiError> {
    let now = state.clock().now();
    match state.store.set_member(team, account, role, true, now).await.map_err(away)? {
        MemberChange::Done => {}
        MemberChange::Missing | MemberChange::LastManager => return Err(missing("member")),
    }
    match role {
        Some(role) => {
            note(state, who, "team.member", team, &format!("{account} {}", role.word())).await;
        }
        None => note(state, who, "team.remove_member", team, account).await,
    }
    Ok(())
}
