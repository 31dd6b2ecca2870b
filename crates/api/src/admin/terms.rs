//! `/api/admin/users/{id}/terms`: spending terms and rate limits of an account.

use ::admin::TermsView;
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use store::{AccountTerms, ObjectSharing};

use super::keys::{BudgetBody, LimitsBody, parse_amount, parse_budget};
use super::{actor, admin_error, if_match, invalid_field, path_id, read_body, tagged_response};
use crate::request::ApiRequest;

const PATH_PREFIX: &str = "/api/admin/users/";

/// Complete terms. An absent field means no limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TermsBody {
    #[serde(default)]
    cap_usd: Option<String>,
    #[serde(default)]
    budget: Option<BudgetBody>,
    #[serde(default)]
    limits: Option<LimitsBody>,
    /// `key` or `account`; `key` if absent.
    #[serde(default)]
    share: Option<String>,
    /// Models that the keys may use; all if absent or empty.
    #[serde(default)]
    models: Vec<String>,
}

/// Reads the sharing of an account or a team.
pub(super) fn parse_share(word: &str) -> Result<ObjectSharing, ApiError> {
    ObjectSharing::by_word(word).ok_or_else(|| invalid_field("share", "write key or account"))
}

/// Response with the terms. The spent amount is shown but not covered by the entity tag.
fn terms_response(view: &TermsView) -> Response {
    tagged_response(StatusCode::OK, &view.to_json(), &view.stable_json())
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, "/terms"));
    let view = incoming.state.admin.accounts.account_terms(&actor, &id).await;
    Ok(terms_response(&view.map_err(admin_error)?))
}

pub(crate) async fn set(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, "/terms"));
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let TermsBody { cap_usd, budget, limits, share, models } = read_body(request).await?;
    let cap = cap_usd.map(|text| parse_amount("cap_usd", &text)).transpose()?;
    let terms = AccountTerms {
        cap,
        budget: budget.map(parse_budget).transpose()?,
        share: share.as_deref().map(parse_share).transpose()?.unwrap_or_default(),
        models,
    };
    let limits = limits.map(LimitsBody::into_limits).transpose()?.unwrap_or_default();
    let accounts = &state.admin.accounts;
    let set = accounts.set_account_terms(&actor, &id, read.as_read_version(), terms, limits).await;
    Ok(terms_response(&set.map_err(admin_error)?))
}
