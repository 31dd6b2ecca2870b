//! Management of the account's passkeys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use store::FactorKind;

use super::{render_page, totp};
use crate::form::{FieldErrors, FormFields};
use crate::page_error::PageError;
use crate::pages;
use crate::passkey::{self, PasskeyResponse};
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use admin::{MAX_PASSKEYS, passkey_name_error};

/// `POST /console/account/passkeys/begin`: options for a new passkey.
pub(crate) async fn begin(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let account = &user.account;
    let factors = state.store.factors_of(&account.id).await?;
    let known = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let known: Vec<&str> = known.map(|factor| factor.id.as_str()).collect();
    if known.len() >= MAX_PASSKEYS {
        return Err(PageError::BadRequest(
            "An account may have twenty passkeys. Remove one first.",
        ));
    }
    let challenge = passkey::challenge(&state, Some(&account.id), passkey::CREATE_CEREMONY).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::relying_party_id(&state),
        "user": { "id": account.id, "name": account.username },
        "algorithms": passkey::ALGORITHMS,
        "exclude": known,
    }))
    .into_response())
}

/// `POST /console/account/passkeys`
pub(crate) async fn add(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &user.account;
    let name = fields.get_trimmed("name", 4_096)?;
    let mut errors = FieldErrors::default();
    if let Some(why) = passkey_name_error(name) {
        errors.add("name", why);
    }
    let made =
        passkey::verify_registration(&state, &PasskeyResponse::read(&fields), &account.id).await?;
    if made.is_none() {
        errors.add("name", "The passkey was not accepted. Try once more.");
    }
    let (Some(passkey), true) = (made, errors.is_empty()) else {
        return render_page(&state, &user, StatusCode::BAD_REQUEST, &fields, &errors, None).await;
    };
    let first = state.host.accounts().add_passkey(&user.actor(), name, passkey).await?;
    pages::notify_owner(&state, account, "a passkey was added");
    if first {
        return totp::show_recovery_codes(&state, &user).await;
    }
    Ok(redirect_to("/console/account?told=passkey"))
}
