//! `/api/admin/users/{id}/terms`: spending terms and rate limits of an account. `/sign-out` ends
//! its sessions.

use axum::response::Response;
use canon::{ApiError, Money};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountTerms, RateLimits};

use super::keys::{BudgetBody, LimitsBody, parse_amount, parse_budget};
use super::{
    check_if_match, entity_response, not_found, path_id, read_body, require_admin,
    require_may_change, store_error, write_audit,
};
use crate::request::ApiRequest;
use crate::state::ApiState;
use access::keys::ApiKey;

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
}

/// Returns the calling account and the account in the path.
async fn find_user(
    state: &ApiState,
    key: &ApiKey,
    id: String,
) -> Result<(Account, Account), ApiError> {
    let caller = require_admin(state, key).await?;
    let found = state.store.account(&id).await.map_err(store_error)?;
    Ok((caller, found.ok_or_else(|| not_found("user"))?))
}

async fn load_terms(state: &ApiState, id: &str) -> Result<(AccountTerms, RateLimits), ApiError> {
    let terms = state.store.account_terms().await.map_err(store_error)?;
    let limits = state.store.account_limits().await.map_err(store_error)?;
    let terms = terms.into_iter().find(|(own, _)| own == id).map(|(_, terms)| terms);
    let limits = limits.into_iter().find(|(own, _)| own == id).map(|(_, limits)| limits);
    Ok((terms.unwrap_or_default(), limits.unwrap_or_default()))
}

fn terms_json(id: &str, (terms, limits): (AccountTerms, RateLimits)) -> Value {
    let (AccountTerms { cap, budget }, RateLimits { rpm, tpm, concurrency }) = (terms, limits);
    json!({
        "id": id,
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(|budget| json!({
            "most_usd": budget.limit.to_string(), "per": budget.period.word(),
        })),
        "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
    })
}

/// Response with the terms. The spent amount is shown but not covered by the entity tag.
async fn terms_response(state: &ApiState, id: &str) -> Result<Response, ApiError> {
    let terms = terms_json(id, load_terms(state, id).await?);
    let mut response = entity_response(StatusCode::OK, &terms);
    let (spent, _) = state.store.account_spending(id).await.map_err(store_error)?;
    let mut value = terms;
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    *response.body_mut() = value.to_string().into();
    Ok(response)
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (_, account) =
        find_user(&incoming.state, &incoming.key, path_id(&incoming, PATH_PREFIX, "/terms"))
            .await?;
    terms_response(&incoming.state, &account.id).await
}

pub(crate) async fn set(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (caller, account) =
        find_user(&incoming.state, &incoming.key, path_id(&incoming, PATH_PREFIX, "/terms"))
            .await?;
    let ApiRequest { state, request, .. } = incoming;
    require_may_change(&caller, &account)?;
    let before = load_terms(&state, &account.id).await?;
    check_if_match(request.headers(), &terms_json(&account.id, before))?;
    let TermsBody { cap_usd, budget, limits } = read_body(request).await?;
    let cap = cap_usd.map(|text| parse_amount("cap_usd", &text)).transpose()?;
    let terms = AccountTerms { cap, budget: budget.map(parse_budget).transpose()? };
    let limits = limits.map(LimitsBody::into_limits).transpose()?.unwrap_or_default();
    if terms != before.0 {
        state.store.set_account_terms(&account.id, terms).await.map_err(store_error)?;
        let detail = terms.cap.as_ref().map_or_else(|| "no cap".to_owned(), Money::to_string);
        write_audit(&state, &caller, "account.terms", &account.id, &detail).await;
    }
    if limits != before.1 {
        state.store.set_account_limits(&account.id, limits).await.map_err(store_error)?;
        write_audit(&state, &caller, "account.limits", &account.id, "").await;
    }
    terms_response(&state, &account.id).await
}

pub(crate) async fn sign_out(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (caller, account) =
        find_user(&incoming.state, &incoming.key, path_id(&incoming, PATH_PREFIX, "/sign-out"))
            .await?;
    require_may_change(&caller, &account)?;
    let ended = incoming.state.store.drop_sessions_of(&account.id).await.map_err(store_error)?;
    write_audit(&incoming.state, &caller, "session.end_all", &account.id, "").await;
    Ok(entity_response(StatusCode::OK, &json!({ "id": account.id, "ended": ended })))
}
