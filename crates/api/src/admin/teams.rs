//! `/api/admin/teams`: list, create, change, close, and manage members.

use ::admin::{MemberKeys, TeamChange, TeamSummary, TeamView};
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use store::TeamRole;

use super::keys::{BudgetBody, LimitsBody, parse_amount, parse_budget};
use super::terms::parse_share;
use super::{
    actor, admin_error, if_match, invalid_field, not_found, path_id, read_body, sent,
    tagged_response,
};
use crate::query::query_pairs;
use crate::request::ApiRequest;

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
    /// `key` or `account`.
    #[serde(default)]
    share: Option<String>,
    /// Models that the keys may use; empty permits all.
    #[serde(default)]
    models: Option<Vec<String>>,
}

impl TeamBody {
    fn into_change(self) -> Result<TeamChange, ApiError> {
        let Self { name, disabled, cap_usd, budget, limits, share, models } = self;
        let cap = cap_usd.map(|cap| cap.map(|text| parse_amount("cap_usd", &text)).transpose());
        let budget = budget.map(|budget| budget.map(parse_budget).transpose());
        Ok(TeamChange {
            name,
            disabled,
            cap: cap.transpose()?,
            budget: budget.transpose()?,
            limits: limits.map(LimitsBody::into_limits).transpose()?,
            share: share.as_deref().map(parse_share).transpose()?,
            models,
        })
    }
}

/// Response with a team. The spent amount is shown but not covered by the entity tag, because calls
/// do not change the team.
fn team_response(status: StatusCode, view: &TeamView) -> Response {
    tagged_response(status, &view.to_json(), &view.stable_json())
}

pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let teams = incoming.state.admin.accounts.teams(&actor).await.map_err(admin_error)?;
    Ok(super::list_response(teams.iter().map(TeamSummary::to_json).collect()))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let view = incoming.state.admin.accounts.team(&actor, &id).await.map_err(admin_error)?;
    Ok(team_response(StatusCode::OK, &view))
}

pub(crate) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let change = read_body::<TeamBody>(request).await?.into_change()?;
    let view = state.admin.accounts.create_team(&actor, change).await.map_err(admin_error)?;
    Ok(team_response(StatusCode::CREATED, &view))
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let change = read_body::<TeamBody>(request).await?.into_change()?;
    let changed =
        state.admin.accounts.change_team(&actor, &id, read.as_read_version(), change).await;
    Ok(team_response(StatusCode::OK, &changed.map_err(admin_error)?))
}

pub(crate) async fn close(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let read = if_match(&incoming.request);
    let change = TeamChange { disabled: Some(true), ..TeamChange::default() };
    let accounts = &incoming.state.admin.accounts;
    let closed = accounts.change_team(&actor, &id, read.as_read_version(), change).await;
    Ok(team_response(StatusCode::OK, &closed.map_err(admin_error)?))
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
    let actor = actor(&incoming.state, &incoming.key).await?;
    let (id, account) = team_and_account(&incoming)?;
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let MemberBody { role } = read_body(request).await?;
    let role = TeamRole::by_word(&role)
        .ok_or_else(|| invalid_field("role", "write manager, member or viewer"))?;
    let accounts = &state.admin.accounts;
    let set = accounts.set_member(&actor, &id, &account, read.as_read_version(), role).await;
    Ok(team_response(StatusCode::OK, &set.map_err(admin_error)?))
}

pub(crate) async fn remove_member(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let (id, account) = team_and_account(&incoming)?;
    let query = query_pairs(incoming.request.query());
    let keys = query.into_iter().find(|(name, _)| name == "keys").map(|(_, word)| word);
    let keys = match keys.as_deref() {
        Some("revoke") => MemberKeys::Revoke,
        Some("keep") | None => MemberKeys::Keep,
        Some(_) => return Err(invalid_field("keys", "write keep or revoke")),
    };
    let read = if_match(&incoming.request);
    let accounts = &incoming.state.admin.accounts;
    let removed = accounts.remove_member(&actor, &id, &account, read.as_read_version(), keys).await;
    Ok(team_response(StatusCode::OK, &removed.map_err(admin_error)?))
}
