//! Once more who one is: a browser left open must not be enough to take an account over. Who signed
//! in or proved it within the last minutes goes on without.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use maud::html;
use serde_json::json;
use store::{Factor, FactorKind};

use super::{HERE, proved};
use crate::address;
use crate::desk::Desk;
use crate::fields::own_password;
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::pages::login::passkey_fields;
use crate::pages::second::accepted;
use crate::passkey::{self, Shown};
use crate::session::Signed;
use crate::shell::{Shell, page, sent_to};
use crate::signin::Halfway;
use crate::throttle::Place;
use crate::trouble::Trouble;

const PLACE: &str = "/console/account/prove";

/// The way by this page, for whoever has not proved lately who they are.
pub(crate) async fn first(
    desk: &Desk,
    signed: &Signed,
    next: &str,
) -> Result<Option<Response>, Trouble> {
    if signed.is_fresh(desk).await? {
        return Ok(None);
    }
    Ok(Some(sent_to(&format!("{PLACE}?next={}", address::value(next)))))
}

fn next(fields: &Fields) -> &str {
    address::inside(fields.get("next")).unwrap_or(HERE)
}

/// `GET /console/account/prove`
pub(crate) async fn ask(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    form(&desk, &signed, StatusCode::OK, next(&asked), &Wrongs::default()).await
}

/// `POST /console/account/prove`: by the password, or by a code where there is none.
pub(crate) async fn enter(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let account = &signed.account;
    let mut wrongs = Wrongs::default();
    if account.password_hash.is_some() {
        if proved(&desk, &signed, fields.get("current")).await? {
            return done(&desk, &signed, "password", next(&fields)).await;
        }
        wrongs.add("current", "This is not your password.");
    } else {
        desk.codes.admit_name(&desk.store, &account.id, desk.now()).await?;
        let factors = desk.store.factors_of(&account.id).await?;
        let here = Halfway::once_more(account.clone(), factors);
        if accepted(&desk, &here, fields.short("code", 64)?).await?.is_some() {
            desk.codes.forgive(&desk.store, &account.id, Place::of(None), desk.now()).await?;
            return done(&desk, &signed, "code", next(&fields)).await;
        }
        wrongs.add("code", "This code is not right, or it was used before.");
    }
    form(&desk, &signed, StatusCode::FORBIDDEN, next(&fields), &wrongs).await
}

/// `POST /console/account/prove/passkey/begin`: what a passkey of this account is to sign.
pub(crate) async fn begin(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    let id = &signed.account.id;
    let factors = desk.store.factors_of(id).await?;
    let passkeys = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let allowed: Vec<&str> = passkeys.map(|factor| factor.id.as_str()).collect();
    let challenge = passkey::challenge(&desk, Some(id), passkey::GET).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::place(&desk),
        "userVerification": "required",
        "allow": allowed,
    }))
    .into_response())
}

/// `POST /console/account/prove/passkey`
pub(crate) async fn passkey(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    let id = &signed.account.id;
    desk.codes.admit_name(&desk.store, id, desk.now()).await?;
    match passkey::signed(&desk, &Shown::read(&fields), Some(id), true).await? {
        Some(account) if account == *id => {
            desk.codes.forgive(&desk.store, id, Place::of(None), desk.now()).await?;
            done(&desk, &signed, "passkey", next(&fields)).await
        }
        Some(_) | None => {
            let mut wrongs = Wrongs::default();
            wrongs.add("", "This passkey was not accepted. Try again, or use another way.");
            form(&desk, &signed, StatusCode::FORBIDDEN, next(&fields), &wrongs).await
        }
    }
}

async fn done(desk: &Desk, signed: &Signed, how: &str, next: &str) -> Result<Response, Trouble> {
    signed.prove(desk).await?;
    desk.note(&signed.account.id, "session.prove", &signed.account.id, how).await;
    Ok(sent_to(next))
}

async fn form(
    desk: &Desk,
    signed: &Signed,
    status: StatusCode,
    next: &str,
    wrongs: &Wrongs,
) -> Result<Response, Trouble> {
    let account = &signed.account;
    let factors = desk.store.factors_of(&account.id).await?;
    let has = |kind| factors.iter().any(|factor: &Factor| factor.kind == kind);
    let (password, passkey) = (account.password_hash.is_some(), has(FactorKind::Passkey));
    let code = !password && (has(FactorKind::Totp) || has(FactorKind::Recovery));
    let body = html! {
        section.card {
            p.crumbs { a href=(HERE) { "Your account" } " / once more" }
            h1 { "Is it you?" }
            p.muted { "Before the ways into this account are changed, prove once more that it is \
                yours. It holds for ten minutes." }
            @if let Some(why) = wrongs.of("") { p.objection role="alert" { (why) } }
            @if passkey {
                form hidden method="post" action={ (PLACE) "/passkey" } data-passkey="get"
                    data-begin={ (PLACE) "/passkey/begin" } {
                    (passkey_fields())
                    input type="hidden" name="next" value=(next);
                    button.button.wide.quiet[password] type="submit" { "Use your passkey" }
                    p.objection role="alert" hidden {}
                }
            }
            @if password || code {
                form method="post" action=(PLACE) {
                    input type="hidden" name="next" value=(next);
                    @if password {
                        input type="hidden" name="username" autocomplete="username"
                            value=(account.username);
                        (own_password("current", wrongs))
                    } @else {
                        (Input {
                            name: "code",
                            label: "Code",
                            complete: "one-time-code",
                            required: true,
                            help: Some("The six digits your app shows, or one of your recovery codes."),
                            ..Input::default()
                        }.show(wrongs))
                    }
                    button.button.wide type="submit" { "Go on" }
                }
            }
            @if !password && !code && !passkey {
                p { "You sign in through another place. Sign out and in again, then come back within \
                    ten minutes." }
                form method="post" action="/logout" {
                    button.button.wide type="submit" { "Sign out" }
                }
            }
            p.beside { a href=(HERE) { "Cancel" } }
        }
    };
    Ok(page(status, &Shell::signed("Is it you?", account).at(HERE), &body))
}
