//! Management of the account's passkeys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use store::{Factor, FactorKind, StoreError};

use super::{PAGE_PATH, prove, render_page, totp};
use crate::form::{FieldErrors, FormFields};
use crate::page_error::PageError;
use crate::passkey::{self, PasskeyResponse};
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::{pages, signin};
use admin::names::has_hidden_characters;

const MAX_PASSKEYS: usize = 20;
const MAX_NAME_CHARS: usize = 60;

/// `POST /console/account/passkeys/begin`: options for a new passkey.
pub(crate) async fn begin(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    if let Some(redirect) = prove::require_proof(&state, &user, PAGE_PATH).await? {
        return Ok(redirect);
    }
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
    if let Some(redirect) = prove::require_proof(&state, &user, PAGE_PATH).await? {
        return Ok(redirect);
    }
    let account = &user.account;
    let name = fields.get_trimmed("name", 4_096)?;
    let mut errors = FieldErrors::default();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || has_hidden_characters(name) {
        errors.add("name", format!("A name of 1 to {MAX_NAME_CHARS} characters, please."));
    }
    let made =
        passkey::verify_registration(&state, &PasskeyResponse::read(&fields), &account.id).await?;
    if made.is_none() {
        errors.add("name", "The passkey was not accepted. Try once more.");
    }
    let (Some((id, secret)), true) = (made, errors.is_empty()) else {
        return render_page(&state, &user, StatusCode::BAD_REQUEST, &fields, &errors, None).await;
    };
    let first = !state
        .store
        .factors_of(&account.id)
        .await?
        .iter()
        .any(|factor| signin::is_second_factor(factor.kind));
    let factor = Factor {
        id,
        account_id: account.id.clone(),
        kind: FactorKind::Passkey,
        name: name.to_owned(),
        secret,
        sealed_by: None,
        counter: 0,
        created: state.now(),
        used: None,
    };
    match state.store.add_factor(&factor).await {
        Ok(()) => {}
        Err(StoreError::Conflict(_)) => {
            return Err(PageError::BadRequest("This passkey is known already."));
        }
        Err(error) => return Err(error.into()),
    }
    state.audit(&account.id, "factor.add", &factor.id, "passkey").await;
    pages::notify_owner(&state, account, "a passkey was added");
    if first {
        return totp::show_recovery_codes(&state, account).await;
    }
    Ok(redirect_to("/console/account?told=passkey"))
}
