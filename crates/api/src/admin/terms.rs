//! What all keys of an account together may spend and how fast, and the end of its sessions.

use axum::response::Response;
use canon::{ApiError, Money};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountTerms, RateLimits};

use super::keys::{Budget, Pace, amount, terms};
use super::{admin, away, body, id_in, may_change, missing, note, thing, unchanged};
use crate::request::ApiRequest;
use crate::state::ApiState;
use access::keys::Key;

const AT: &str = "/api/admin/users/";

/// The whole of it: what is left out is no limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default)]
    cap_usd: Option<String>,
    #[serde(default)]
    budget: Option<Budget>,
    #[serde(default)]
    limits: Option<Pace>,
}

/// Who asks, and the account they ask for.
async fn find(state: &ApiState, key: &Key, id: String) -> Result<(Account, Account), ApiError> {
    let who = admin(state, key).await?;
    let found = state.store.account(&id).await.map_err(away)?;
    Ok((who, found.ok_or_else(|| missing("user"))?))
}

async fn of(state: &ApiState, id: &str) -> Result<(AccountTerms, RateLimits), ApiError> {
    let terms = state.store.account_terms().await.map_err(away)?;
    let limits = state.store.account_limits().await.map_err(away)?;
    let terms = terms.into_iter().find(|(own, _)| own == id).map(|(_, terms)| terms);
    let limits = limits.into_iter().find(|(own, _)| own == id).map(|(_, limits)| limits);
    Ok((terms.unwrap_or_default(), limits.unwrap_or_default()))
}

fn told(id: &str, (terms, limits): (AccountTerms, RateLimits)) -> Value {
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

/// With what was spent, which is no part of the tag: it changes by itself.
async fn answer(state: &ApiState, id: &str) -> Result<Response, ApiError> {
    let terms = told(id, of(state, id).await?);
    let mut response = thing(StatusCode::OK, &terms);
    let (spent, _) = state.store.account_spending(id).await.map_err(away)?;
    let mut value = terms;
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    *response.body_mut() = value.to_string().into();
    Ok(response)
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    let (_, account) = find(&asked.state, &asked.key, id_in(&asked, AT, "/terms")).await?;
    answer(&asked.state, &account.id).await
}

pub(crate) async fn set(asked: ApiRequest) -> Result<Response, ApiError> {
    let (who, account) = find(&asked.state, &asked.key, id_in(&asked, AT, "/terms")).await?;
    let ApiRequest { state, request, .. } = asked;
    may_change(&who, &account)?;
    let before = of(&state, &account.id).await?;
    unchanged(request.headers(), &told(&account.id, before))?;
    let Wish { cap_usd, budget, limits } = body(request).await?;
    let cap = cap_usd.map(|text| amount("cap_usd", &text)).transpose()?;
    let terms = AccountTerms { cap, budget: budget.map(terms).transpose()? };
    let limits = limits.map(Pace::limits).transpose()?.unwrap_or_default();
    if terms != before.0 {
        state.store.set_account_terms(&account.id, terms).await.map_err(away)?;
        let detail = terms.cap.as_ref().map_or_else(|| "no cap".to_owned(), Money::to_string);
        note(&state, &who, "account.terms", &account.id, &detail).await;
    }
    if limits != before.1 {
        state.store.set_account_limits(&account.id, limits).await.map_err(away)?;
        note(&state, &who, "account.limits", &account.id, "").await;
    }
    answer(&state, &account.id).await
}

pub(crate) async fn sign_out(asked: ApiRequest) -> Result<Response, ApiError> {
    let (who, account) = find(&asked.state, &asked.key, id_in(&asked, AT, "/sign-out")).await?;
    may_change(&who, &account)?;
    let ended = asked.state.store.drop_sessions_of(&account.id).await.map_err(away)?;
    note(&asked.state, &who, "session.end_all", &account.id, "").await;
    Ok(thing(StatusCode::OK, &json!({ "id": account.id, "ended": ended })))
}
