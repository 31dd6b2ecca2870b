//! What all keys of an account together may spend and how fast, and the end of its sessions.

use axum::response::Response;
use canon::{Fault, Money};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountTerms, Limits};

use super::keys::{Budget, Pace, amount, terms};
use super::{Asked, admin, away, body, id_in, may_change, missing, note, thing, unchanged};
use crate::app::App;
use crate::keys::Key;

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
async fn find(app: &App, key: &Key, id: String) -> Result<(Account, Account), Fault> {
    let who = admin(app, key).await?;
    let found = app.store.account(&id).await.map_err(away)?;
    Ok((who, found.ok_or_else(|| missing("user"))?))
}

async fn of(app: &App, id: &str) -> Result<(AccountTerms, Limits), Fault> {
    let terms = app.store.account_terms().await.map_err(away)?;
    let limits = app.store.account_limits().await.map_err(away)?;
    let terms = terms.into_iter().find(|(own, _)| own == id).map(|(_, terms)| terms);
    let limits = limits.into_iter().find(|(own, _)| own == id).map(|(_, limits)| limits);
    Ok((terms.unwrap_or_default(), limits.unwrap_or_default()))
}

fn told(id: &str, (terms, limits): (AccountTerms, Limits)) -> Value {
    let (AccountTerms { cap, budget }, Limits { rpm, tpm, concurrency }) = (terms, limits);
    json!({
        "id": id,
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(|budget| json!({
            "most_usd": budget.most.to_string(), "per": budget.period.word(),
        })),
        "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
    })
}

/// With what was spent, which is no part of the tag: it changes by itself.
async fn answer(app: &App, id: &str) -> Result<Response, Fault> {
    let terms = told(id, of(app, id).await?);
    let mut response = thing(StatusCode::OK, &terms);
    let (spent, _) = app.store.account_spending(id).await.map_err(away)?;
    let mut value = terms;
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    *response.body_mut() = value.to_string().into();
    Ok(response)
}

pub(in crate::surfaces) async fn get(asked: Asked) -> Result<Response, Fault> {
    let (_, account) = find(&asked.app, &asked.key, id_in(&asked, AT, "/terms")).await?;
    answer(&asked.app, &account.id).await
}

pub(in crate::surfaces) async fn set(asked: Asked) -> Result<Response, Fault> {
    let (who, account) = find(&asked.app, &asked.key, id_in(&asked, AT, "/terms")).await?;
    let Asked { app, request, .. } = asked;
    may_change(&who, &account)?;
    let before = of(&app, &account.id).await?;
    unchanged(request.headers(), &told(&account.id, before))?;
    let Wish { cap_usd, budget, limits } = body(request).await?;
    let cap = cap_usd.map(|text| amount("cap_usd", &text)).transpose()?;
    let terms = AccountTerms { cap, budget: budget.map(terms).transpose()? };
    let limits = limits.map(Pace::limits).transpose()?.unwrap_or_default();
    if terms != before.0 {
        app.store.set_account_terms(&account.id, terms).await.map_err(away)?;
        let detail = terms.cap.as_ref().map_or_else(|| "no cap".to_owned(), Money::to_string);
        note(&app, &who, "account.terms", &account.id, &detail).await;
    }
    if limits != before.1 {
        app.store.set_account_limits(&account.id, limits).await.map_err(away)?;
        note(&app, &who, "account.limits", &account.id, "").await;
    }
    answer(&app, &account.id).await
}

pub(in crate::surfaces) async fn sign_out(asked: Asked) -> Result<Response, Fault> {
    let (who, account) = find(&asked.app, &asked.key, id_in(&asked, AT, "/sign-out")).await?;
    may_change(&who, &account)?;
    let ended = asked.app.store.drop_sessions_of(&account.id).await.map_err(away)?;
    note(&asked.app, &who, "session.end_all", &account.id, "").await;
    Ok(thing(StatusCode::OK, &json!({ "id": account.id, "ended": ended })))
}
