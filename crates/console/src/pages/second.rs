//! The second step of a sign-in: a code, a passkey, or a recovery code.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use serde_json::json;
use store::{FactorKind, LinkPurpose};

use super::login::{passkey_fields, place};
use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::passkey::{self, Shown};
use crate::shell::{Shell, page};
use crate::signin::{self, Halfway};
use crate::trouble::Trouble;
use crate::{address, generators, totp};

/// `GET /login/second`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    Ok(form(StatusCode::OK, &halfway(&desk, &headers).await?, None))
}

/// Who passed the first step in this browser.
async fn halfway(desk: &Desk, headers: &HeaderMap) -> Result<Halfway, Trouble> {
    Halfway::of(desk, headers).await?.ok_or(Trouble::Bad(
        "This sign-in began elsewhere, or too long ago. Go to the sign-in page and begin again.",
    ))
}

/// `POST /login/second`
pub(crate) async fn enter(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let halfway = halfway(&desk, &headers).await?;
    let code = fields.short("code", 64)?;
    if code.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &halfway, Some("Enter the code.")));
    }
    let place = place(&extensions);
    let id = halfway.account.id.clone();
    desk.codes.admit(&desk.store, &id, place, desk.now()).await?;
    match accepted(&desk, &halfway, code).await? {
        Some(how) => {
            desk.codes.forgive(&desk.store, &id, place, desk.now()).await?;
            halfway.welcome(&desk, &headers, how).await
        }
        None => {
            tracing::info!("a second step of a sign-in was refused");
            let why = "This code is not right, or it was used before.";
            Ok(form(StatusCode::UNAUTHORIZED, &halfway, Some(why)))
        }
    }
}

/// What a code is worth: one of the generator's, or one of the paper's, each good once.
pub(crate) async fn accepted(
    desk: &Desk,
    halfway: &Halfway,
    code: &str,
) -> Result<Option<&'static str>, Trouble> {
    for factor in &halfway.factors {
        match factor.kind {
            FactorKind::Totp => {
                if let Some(secret) = generators::open(desk, factor)
                    && let Some(step) = totp::step_of(&secret, code, desk.now())
                    && desk.store.use_factor(&factor.id, step, desk.now()).await?
                {
                    generators::close(desk, factor).await;
                    return Ok(Some("password and code"));
                }
            }
            FactorKind::Recovery => {
                if totp::is_recovery(&factor.secret, code)
                    && desk.store.drop_factor(&halfway.account.id, &factor.id).await?
                {
                    return Ok(Some("password and recovery code"));
                }
            }
            FactorKind::Passkey => {}
        }
    }
    Ok(None)
}

/// `POST /login/second/passkey/begin`: what a passkey of this account is to sign.
pub(crate) async fn begin_second(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let halfway = halfway(&desk, &headers).await?;
    let passkeys = halfway.factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let allowed: Vec<&str> = passkeys.map(|factor| factor.id.as_str()).collect();
    let challenge = passkey::challenge(&desk, Some(&halfway.account.id), passkey::GET).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::place(&desk),
        "userVerification": "preferred",
        "allow": allowed,
    }))
    .into_response())
}

/// `POST /login/second/passkey`
pub(crate) async fn enter_second(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let halfway = halfway(&desk, &headers).await?;
    let id = halfway.account.id.clone();
    desk.codes.admit(&desk.store, &id, place(&extensions), desk.now()).await?;
    let shown = Shown::read(&fields);
    match passkey::signed(&desk, &shown, Some(&id), false).await? {
        Some(account) if account == id => {
            desk.codes.forgive(&desk.store, &id, place(&extensions), desk.now()).await?;
            halfway.welcome(&desk, &headers, "password and passkey").await
        }
        Some(_) | None => {
            let why = "This passkey was not accepted. Try again, or use a code.";
            Ok(form(StatusCode::UNAUTHORIZED, &halfway, Some(why)))
        }
    }
}

/// `POST /login/passkey/begin`: what any passkey of this gateway is to sign.
pub(crate) async fn begin(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
) -> Result<Response, Trouble> {
    desk.throttle.admit_place(&desk.store, place(&extensions), desk.now()).await?;
    let challenge = passkey::challenge(&desk, None, passkey::GET).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::place(&desk),
        "userVerification": "required",
        "allow": [],
    }))
    .into_response())
}

/// `POST /login/passkey`: in without a password. The device has asked for a finger or a number.
pub(crate) async fn passkey(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let next = address::inside(fields.get("next")).unwrap_or("/console");
    let found = passkey::signed(&desk, &Shown::read(&fields), None, true).await?;
    let account = match found {
        Some(id) => desk.store.account(&id).await?.filter(|account| !account.disabled),
        None => None,
    };
    let Some(account) = account else {
        tracing::info!("a sign-in was refused");
        return Err(Trouble::Refused("This passkey was not accepted. Sign in another way."));
    };
    // Counted when it was begun.
    desk.throttle.forgive_place(&desk.store, place(&extensions), desk.now()).await?;
    // Challenges that were not used end by themselves; those of this account can go now.
    desk.store.drop_links_of(&account.id, LinkPurpose::Challenge).await?;
    signin::welcome(&desk, &headers, &account, "passkey", next).await
}

fn form(status: StatusCode, halfway: &Halfway, why: Option<&str>) -> Response {
    let has = |kind| halfway.factors.iter().any(|factor| factor.kind == kind);
    let body = html! {
        section.card {
            h1 { "One more step" }
            @if let Some(why) = why { p.objection role="alert" { (why) } }
            @if has(FactorKind::Passkey) {
                form hidden method="post" action="/login/second/passkey" data-passkey="get"
                    data-begin="/login/second/passkey/begin" {
                    (passkey_fields())
                    button.button.wide type="submit" { "Use your passkey" }
                    p.objection role="alert" hidden {}
                }
            }
            @if has(FactorKind::Totp) || has(FactorKind::Recovery) {
                form method="post" action="/login/second" {
                    (Input {
                        name: "code",
                        label: "Code",
                        complete: "one-time-code",
                        required: true,
                        focus: true,
                        help: Some(if has(FactorKind::Totp) {
                            "The six digits your app shows, or one of your recovery codes."
                        } else {
                            "One of your recovery codes."
                        }),
                        ..Input::default()
                    }.show(&Wrongs::default()))
                    button.button.wide.quiet[has(FactorKind::Passkey)] type="submit" { "Go on" }
                }
            }
            p.beside { a href="/login" { "Sign in as somebody else" } }
        }
    };
    page(status, &Shell::outside("One more step"), &body)
}
