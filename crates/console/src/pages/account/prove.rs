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
    state: &ConsoleState,
    user: &SignedInUser,
    next: &str,
) -> Result<Option<Response>, PageError> {
    if user.has_recent_proof(state).await? {
        return Ok(None);
    }
    Ok(Some(redirect_to(&format!("{PROOF_PATH}?next={}", urls::escape_value(next)))))
}

fn next(fields: &FormFields) -> &str {
    urls::console_path(fields.get("next")).unwrap_or(PAGE_PATH)
}

/// `GET /console/account/prove`
pub(crate) async fn proof_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    form(&state, &user, StatusCode::OK, next(&query), &FieldErrors::default()).await
}

/// `POST /console/account/prove`: accepts the password, or a code for accounts without one.
pub(crate) async fn submit(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &user.account;
    let mut errors = FieldErrors::default();
    if account.password_hash.is_some() {
        if password_matches(&state, &user, fields.get("current")).await? {
            return finish(&state, &user, "password", next(&fields)).await;
        }
        errors.add("current", "This is not your password.");
    } else {
        let throttle = &state.proof_throttle;
        throttle.admit_name(&state.store, &account.id, state.now()).await?;
        let factors = state.store.factors_of(&account.id).await?;
        let here = PendingSignIn::for_signed_in(account.clone(), factors);
        if accept_code(&state, &here, fields.get_trimmed("code", 64)?).await?.is_some() {
            let network = ClientNetwork::of(None);
            throttle.clear_name(&state.store, &account.id, network, state.now()).await?;
            return finish(&state, &user, "code", next(&fields)).await;
        }
        state.host.accounts().record_refused_proof(account, "code").await?;
        errors.add("code", "This code is not right, or it was used before.");
    }
    form(&state, &user, StatusCode::FORBIDDEN, next(&fields), &errors).await
}

/// `POST /console/account/prove/passkey/begin`: challenge for a passkey of this account.
pub(crate) async fn begin(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let id = &user.account.id;
    let factors = state.store.factors_of(id).await?;
    let passkeys = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let allowed: Vec<&str> = passkeys.map(|factor| factor.id.as_str()).collect();
    let challenge = passkey::challenge(&state, Some(id), passkey::GET_CEREMONY).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::relying_party_id(&state),
        "userVerification": "required",
        "allow": allowed,
    }))
    .into_response())
}

/// `POST /console/account/prove/passkey`. A signature cannot be guessed, so no attempt is counted.
pub(crate) async fn passkey(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let id = &user.account.id;
    match passkey::verify_assertion(&state, &PasskeyResponse::read(&fields), Some(id), true).await?
    {
        Some(account) if account == *id => finish(&state, &user, "passkey", next(&fields)).await,
        Some(_) | None => {
            let mut errors = FieldErrors::default();
            errors.add("", "This passkey was not accepted. Try again, or use another way.");
            form(&state, &user, StatusCode::FORBIDDEN, next(&fields), &errors).await
        }
    }
}

async fn finish(
    state: &ConsoleState,
    user: &SignedInUser,
    how: &str,
    next: &str,
) -> Result<Response, PageError> {
    state.host.accounts().record_proof(&user.account, how).await?;
    user.record_proof(state).await?;
    Ok(redirect_to(next))
}

async fn form(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    next: &str,
    errors: &FieldErrors,
) -> Result<Response, PageError> {
    let account = &user.account;
    let factors = state.store.factors_of(&account.id).await?;
    let has = |kind| factors.iter().any(|factor: &Factor| factor.kind == kind);
    let (password, passkey) = (account.password_hash.is_some(), has(FactorKind::Passkey));
    let code = !password && (has(FactorKind::Totp) || has(FactorKind::Recovery));
    let body = html! {
        section.card {
            p.crumbs { a href=(PAGE_PATH) { "Your account" } " / once more" }
            h1 { "Is it you?" }
            p.muted { "Before you change this, prove once more that it is you. It holds for ten \
                minutes." }
            @if let Some(why) = errors.get("") { p.objection role="alert" { (why) } }
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
                        (current_password("current", errors))
                    } @else {
                        (FormInput {
                            name: "code",
                            label: "Code",
                            autocomplete: "one-time-code",
                            required: true,
                            help: Some("The six digits your app shows, or one of your recovery codes."),
                            ..FormInput::default()
                        }.render(errors))
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
