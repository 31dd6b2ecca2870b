//! Authenticator apps (TOTP) and recovery codes.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use qrcodegen::{QrCode, QrCodeEcc};
use store::{Account, FactorKind};

use super::PAGE_PATH;
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, ok_page, page};
use crate::page_error::PageError;
use crate::pages::copy_block;
use crate::redirect::see_other;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::{pages, passkey, shared_fields, totp};
use admin::is_second_factor;

/// `GET /console/account/totp`
pub(crate) async fn new_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    if user.account.password_hash.is_none() || has_totp(&state, &user.account).await? {
        return Ok(see_other(PAGE_PATH));
    }
    let secret = totp::new_secret()?;
    form(&state, StatusCode::OK, &user.account, &secret, &FieldErrors::default())
}

/// `POST /console/account/totp`: stores the secret once a code proves that the app has it.
pub(crate) async fn add(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &user.account;
    if account.password_hash.is_none() || has_totp(&state, account).await? {
        return Ok(see_other(PAGE_PATH));
    }
    let text = fields.get_trimmed("secret", 64)?;
    let secret = totp::from_base32(text).filter(|secret| secret.len() == 20);
    let secret = secret.ok_or(PageError::BadRequest("`secret` is not one of ours."))?;
    let mut errors = FieldErrors::default();
    let step = totp::step_of(&secret, fields.get_trimmed("code", 64)?, state.now());
    if step.is_none() {
        errors.add("code", "This is not the code the app shows now. Try the next one.");
    }
    let Some(step) = step else {
        return form(&state, StatusCode::BAD_REQUEST, account, text, &errors);
    };
    state.host.accounts().add_totp(&user.actor(), state.host.vault(), secret, step).await?;
    pages::notify_owner(&state, account, "an app with codes was added as a second step");
    show_recovery_codes(&state, &user).await
}

/// `POST /console/account/recovery`: replaces the recovery codes.
pub(crate) async fn recovery(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let factors = state.store.factors_of(&user.account.id).await?;
    if !factors.iter().any(|factor| is_second_factor(factor.kind)) {
        return Ok(see_other(PAGE_PATH));
    }
    show_recovery_codes(&state, &user).await
}

/// Creates recovery codes and shows them once.
pub(super) async fn show_recovery_codes(
    state: &ConsoleState,
    user: &SignedInUser,
) -> Result<Response, PageError> {
    let codes = totp::recovery_codes()?;
    let digests = codes.iter().map(|code| totp::recovery_digest(code)).collect();
    state.host.accounts().replace_recovery_codes(&user.actor(), digests).await?;
    let body = html! {
        section.card.broad {
            h1 { "Your recovery codes" }
            p { "Each of them replaces your second step once, should your device be lost. Keep "
                "them where you would keep a spare key. They are shown this once." }
            (copy_block("codes", "Recovery codes", &codes.join("\n")))
            p.actions { a.button href=(PAGE_PATH) { "I have kept them" } }
        }
    };
    Ok(ok_page(&Layout::signed_in("Your recovery codes", &user.account).with_nav(PAGE_PATH), &body))
}

async fn has_totp(state: &ConsoleState, account: &Account) -> Result<bool, PageError> {
    let factors = state.store.factors_of(&account.id).await?;
    Ok(factors.iter().any(|factor| factor.kind == FactorKind::Totp))
}

fn form(
    state: &ConsoleState,
    status: StatusCode,
    account: &Account,
    secret: &str,
    errors: &FieldErrors,
) -> Result<Response, PageError> {
    let uri = totp::otpauth_uri(&account.username, &passkey::relying_party_id(state), secret);
    let body = html! {
        section.card {
            p.crumbs { a href=(PAGE_PATH) { "Your account" } " / Second step" }
            h1 { "Add an app with codes" }
            p { "Scan this with your authenticator app, or type the secret, then enter the code "
                "it shows." }
            (qr_code(&uri).ok_or(PageError::Internal)?)
            (copy_block("secret-text", "Secret", secret))
            (shared_fields::error_summary(errors))
            form method="post" action={ (PAGE_PATH) "/totp" } {
                input type="hidden" name="secret" value=(secret);
                (FormInput {
                    name: "code",
                    label: "Code",
                    autocomplete: "one-time-code",
                    input_mode: Some("numeric"),
                    required: true,
                    autofocus: true,
                    help: Some("Six digits."),
                    ..FormInput::default()
                }.render(errors))
                div.actions {
                    button.button type="submit" { "Add it" }
                    a.button.quiet href=(PAGE_PATH) { "Cancel" }
                }
            }
        }
    };
    Ok(page(
        status,
        &Layout::signed_in("Add an app with codes", account).with_nav(PAGE_PATH),
        &body,
    ))
}

/// Draws a QR code as one SVG path.
fn qr_code(text: &str) -> Option<Markup> {
    const QUIET_ZONE_MODULES: i32 = 4;
    let code = QrCode::encode_text(text, QrCodeEcc::Medium).ok()?;
    let mut path = String::new();
    for y in 0..code.size() {
        for x in 0..code.size() {
            if code.get_module(x, y) {
                path.push_str(&format!(
                    "M{} {}h1v1h-1z",
                    x + QUIET_ZONE_MODULES,
                    y + QUIET_ZONE_MODULES
                ));
            }
        }
    }
    let side = code.size() + 2 * QUIET_ZONE_MODULES;
    Some(html! {
        svg.qr viewBox={ "0 0 " (side) " " (side) } role="img" aria-label="QR code of the secret"
            shape-rendering="crispEdges" {
            rect width=(side) height=(side) fill="#ffffff" {}
            path d=(path) fill="#000000" {}
        }
    })
}
