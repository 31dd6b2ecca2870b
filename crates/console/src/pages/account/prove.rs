//! Re-authentication. A signed-in browser alone must not be enough to take an account over. A proof
//! or a sign-in counts for ten minutes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use maud::html;
use serde_json::json;
use store::{Factor, FactorKind};

use super::{PAGE_PATH, password_matches};
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::pages::login::passkey_fields;
use crate::pages::second_step::accept_code;
use crate::passkey::{self, PasskeyResponse};
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::current_password;
use crate::signin::PendingSignIn;
use crate::state::ConsoleState;
use crate::throttle::ClientNetwork;
use crate::urls;

const PROOF_PATH: &str = "/console/account/prove";

/// Redirects to the proof page if the user has no recent proof.
pub(crate) async fn require_proof(
    desk: &ConsoleState,
    signed: &SignedInUser,
    next: &str,
) -> Result<Option<Response>, PageError> {
    if signed.has_recent_proof(desk).await? {
        return Ok(None);
    }
    Ok(Some(redirect_to(&format!("{PROOF_PATH}?next={}", urls::escape_value(next)))))
}

fn next(fields: &FormFields) -> &str {
    urls::console_path(fields.get("next")).unwrap_or(PAGE_PATH)
}

/// `GET /console/account/prove`
pub(crate) async fn proof_form(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    QueryFields(asked): QueryFields,
) -> Result<Response, PageError> {
    form(&desk, &signed, StatusCode::OK, next(&asked), &FieldErrors::default()).await
}

/// `POST /console/account/prove`: accepts the password, or a code for accounts without one.
pub(crate) async fn submit(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &signed.account;
    let mut wrongs = FieldErrors::default();
    if account.password_hash.is_some() {
        if password_matches(&desk, &signed, fields.get("current")).await? {
            return finish(&desk, &signed, "password", next(&fields)).await;
        }
        wrongs.add("current", "This is not your password.");
    } else {
        desk.code_throttle.admit_name(&desk.store, &account.id, desk.now()).await?;
        let factors = desk.store.factors_of(&account.id).await?;
        let here = PendingSignIn::for_signed_in(account.clone(), factors);
        if accept_code(&desk, &here, fields.get_trimmed("code", 64)?).await?.is_some() {
            desk.code_throttle
                .clear_name(&desk.store, &account.id, ClientNetwork::of(None), desk.now())
                .await?;
            return finish(&desk, &signed, "code", next(&fields)).await;
        }
        wrongs.add("code", "This code is not right, or it was used before.");
    }
    form(&desk, &signed, StatusCode::FORBIDDEN, next(&fields), &wrongs).await
}

/// `POST /console/account/prove/passkey/begin`: challenge for a passkey of this account.
pub(crate) async fn begin(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
) -> Result<Response, PageError> {
    let id = &signed.account.id;
    let factors = desk.store.factors_of(id).await?;
    let passkeys = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let allowed: Vec<&str> = passkeys.map(|factor| factor.id.as_str()).collect();
    let challenge = passkey::challenge(&desk, Some(id), passkey::GET_CEREMONY).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::relying_party_id(&desk),
        "userVerification": "required",
        "allow": allowed,
    }))
    .into_response())
}

/// `POST /console/account/prove/passkey`
pub(crate) async fn passkey(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let id = &signed.account.id;
    desk.code_throttle.admit_name(&desk.store, id, desk.now()).await?;
    match passkey::verify_assertion(&desk, &PasskeyResponse::read(&fields), Some(id), true).await? {
        Some(account) if account == *id => {
            desk.code_throttle
                .clear_name(&desk.store, id, ClientNetwork::of(None), desk.now())
                .await?;
            finish(&desk, &signed, "passkey", next(&fields)).await
        }
        Some(_) | None => {
            let mut wrongs = FieldErrors::default();
            wrongs.add("", "This passkey was not accepted. Try again, or use another way.");
            form(&desk, &signed, StatusCode::FORBIDDEN, next(&fields), &wrongs).await
        }
    }
}

async fn finish(
    desk: &ConsoleState,
    signed: &SignedInUser,
    how: &str,
    next: &str,
) -> Result<Response, PageError> {
    signed.record_proof(desk).await?;
    desk.audit(&signed.account.id, "session.prove", &signed.account.id, how).await;
    Ok(redirect_to(next))
}

async fn form(
    desk: &ConsoleState,
    signed: &SignedInUser,
    status: StatusCode,
    next: &str,
    wrongs: &FieldErrors,
) -> Result<Response, PageError> {
    let account = &signed.account;
    let factors = desk.store.factors_of(&account.id).await?;
    let has = |kind| factors.iter().any(|factor: &Factor| factor.kind == kind);
    let (password, passkey) = (account.password_hash.is_some(), has(FactorKind::Passkey));
    let code = !password && (has(FactorKind::Totp) || has(FactorKind::Recovery));
    let body = html! {
        section.card {
            p.crumbs { a href=(PAGE_PATH) { "Your account" } " / once more" }
            h1 { "Is it you?" }
            p.muted { "Before the ways into this account are changed, prove once more that it is \
                yours. It holds for ten minutes." }
            @if let Some(why) = wrongs.get("") { p.objection role="alert" { (why) } }
            @if passkey {
                form hidden method="post" action={ (PROOF_PATH) "/passkey" } data-passkey="get"
                    data-begin={ (PROOF_PATH) "/passkey/begin" } {
                    (passkey_fields())
                    input type="hidden" name="next" value=(next);
                    button.button.wide.quiet[password] type="submit" { "Use your passkey" }
                    p.objection role="alert" hidden {}
                }
            }
            @if password || code {
                form method="post" action=(PROOF_PATH) {
                    input type="hidden" name="next" value=(next);
                    @if password {
                        input type="hidden" name="username" autocomplete="username"
                            value=(account.username);
                        (current_password("current", wrongs))
                    } @else {
                        (FormInput {
                            name: "code",
                            label: "Code",
                            autocomplete: "one-time-code",
                            required: true,
                            help: Some("The six digits your app shows, or one of your recovery codes."),
                            ..FormInput::default()
                        }.render(wrongs))
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
            p.beside { a href=(PAGE_PATH) { "Cancel" } }
        }
    };
    Ok(page(status, &Layout::signed_in("Is it you?", account).with_nav(PAGE_PATH), &body))
}
