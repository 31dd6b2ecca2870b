//! Second step of a sign-in: TOTP code, passkey or recovery code.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use serde_json::json;
use store::{FactorKind, LinkPurpose};

use super::login::{client_network, passkey_fields};
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::passkey::{self, PasskeyResponse};
use crate::signin::{self, PendingSignIn};
use crate::state::ConsoleState;
use crate::{known_device, totp, urls};
use admin::open_totp_secret;

/// `GET /login/second`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    Ok(form(StatusCode::OK, &pending_sign_in(&state, &headers).await?, None))
}

/// Returns the pending sign-in of this browser.
async fn pending_sign_in(
    state: &ConsoleState,
    headers: &HeaderMap,
) -> Result<PendingSignIn, PageError> {
    PendingSignIn::from_request(state, headers).await?.ok_or(PageError::BadRequest(
        "This sign-in began elsewhere, or too long ago. Go to the sign-in page and begin again.",
    ))
}

/// `POST /login/second`
pub(crate) async fn submit_code(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let pending = pending_sign_in(&state, &headers).await?;
    let code = fields.get_trimmed("code", 64)?;
    if code.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &pending, Some("Enter the code.")));
    }
    let network = client_network(&extensions);
    let source =
        known_device::attempt_source(&state, &headers, Some(&pending.account), network).await?;
    let id = pending.account.id.clone();
    state.code_throttle.admit_source(&state.store, &id, &source, state.now()).await?;
    match accept_code(&state, &pending, code).await? {
        Some(how) => {
            state.code_throttle.clear_source(&state.store, &id, &source, state.now()).await?;
            pending.complete(&state, &headers, how).await
        }
        None => {
            let accounts = state.host.accounts();
            accounts.record_refused_sign_in(Some(&pending.account), "code").await?;
            let why = "This code is not right, or it was used before.";
            Ok(form(StatusCode::UNAUTHORIZED, &pending, Some(why)))
        }
    }
}

/// Accepts a TOTP code or a recovery code, each only once. Returns the method for the audit log.
pub(crate) async fn accept_code(
    state: &ConsoleState,
    pending: &PendingSignIn,
    code: &str,
) -> Result<Option<&'static str>, PageError> {
    let accounts = state.host.accounts();
    for factor in &pending.factors {
        match factor.kind {
            FactorKind::Totp => {
                if let Some(secret) = open_totp_secret(state.host.vault(), factor)
                    && let Some(step) = totp::step_of(&secret, code, state.now())
                    && state.store.use_factor(&factor.id, step, state.now()).await?
                {
                    accounts.seal_totp_if_plain(state.host.vault(), factor).await;
                    return Ok(Some("password and code"));
                }
            }
            FactorKind::Recovery => {
                if totp::matches_recovery(&factor.secret, code)
                    && accounts.use_recovery_code(&pending.account, &factor.id).await?
                {
                    return Ok(Some("password and recovery code"));
                }
            }
            FactorKind::Passkey => {}
        }
    }
    Ok(None)
}

/// `POST /login/second/passkey/begin`: challenge for a passkey of this account.
pub(crate) async fn begin_passkey(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let pending = pending_sign_in(&state, &headers).await?;
    let passkeys = pending.factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let allowed: Vec<&str> = passkeys.map(|factor| factor.id.as_str()).collect();
    let challenge =
        passkey::challenge(&state, Some(&pending.account.id), passkey::GET_CEREMONY).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::relying_party_id(&state),
        "userVerification": "preferred",
        "allow": allowed,
    }))
    .into_response())
}

/// `POST /login/second/passkey`. A signature cannot be guessed, so no attempt is counted and none
/// has to wait.
pub(crate) async fn submit_passkey(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let pending = pending_sign_in(&state, &headers).await?;
    let id = pending.account.id.clone();
    let shown = PasskeyResponse::read(&fields);
    match passkey::verify_assertion(&state, &shown, Some(&id), false).await? {
        Some(account) if account == id => {
            pending.complete(&state, &headers, "password and passkey").await
        }
        Some(_) | None => {
            let network = client_network(&extensions);
            signin::record_refusal(&state, network, Some(&pending.account), "passkey").await?;
            let why = "This passkey was not accepted. Try again, or use a code.";
            Ok(form(StatusCode::UNAUTHORIZED, &pending, Some(why)))
        }
    }
}

/// `POST /login/passkey/begin`: challenge for any passkey of this gateway. Attempts are not
/// counted, so that no wrong password keeps the owner of a passkey out.
pub(crate) async fn begin_passkey_sign_in(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
) -> Result<Response, PageError> {
    let challenge = passkey::network_challenge(&state, client_network(&extensions)).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::relying_party_id(&state),
        "userVerification": "required",
        "allow": [],
    }))
    .into_response())
}

/// `POST /login/passkey`: sign-in without a password. The device has verified the user.
pub(crate) async fn passkey_sign_in(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let next = urls::console_path(fields.get("next")).unwrap_or("/console");
    let found =
        passkey::verify_assertion(&state, &PasskeyResponse::read(&fields), None, true).await?;
    let account = match found {
        Some(id) => state.store.account(&id).await?.filter(|account| !account.disabled),
        None => None,
    };
    let Some(account) = account else {
        signin::record_refusal(&state, client_network(&extensions), None, "passkey").await?;
        return Err(PageError::SignInRefused(
            "This passkey was not accepted. Sign in another way.",
        ));
    };
    // Unused challenges expire; those of this account can be dropped now.
    state.store.drop_links_of(&account.id, LinkPurpose::Challenge).await?;
    signin::complete_sign_in(&state, &headers, &account, "passkey", next).await
}

fn form(status: StatusCode, pending: &PendingSignIn, why: Option<&str>) -> Response {
    let has = |kind| pending.factors.iter().any(|factor| factor.kind == kind);
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
                    (FormInput {
                        name: "code",
                        label: "Code",
                        autocomplete: "one-time-code",
                        required: true,
                        autofocus: true,
                        help: Some(if has(FactorKind::Totp) {
                            "The six digits your app shows, or one of your recovery codes."
                        } else {
                            "One of your recovery codes."
                        }),
                        ..FormInput::default()
                    }.render(&FieldErrors::default()))
                    button.button.wide.quiet[has(FactorKind::Passkey)] type="submit" { "Go on" }
                }
            }
            p.beside { a href="/login" { "Sign in as somebody else" } }
        }
    };
    page(status, &Layout::signed_out("One more step"), &body)
}
