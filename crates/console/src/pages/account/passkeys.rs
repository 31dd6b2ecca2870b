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
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
) -> Result<Response, PageError> {
    if let Some(way) = prove::require_proof(&desk, &signed, PAGE_PATH).await? {
        return Ok(way);
    }
    let account = &signed.account;
    let factors = desk.store.factors_of(&account.id).await?;
    let known = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let known: Vec<&str> = known.map(|factor| factor.id.as_str()).collect();
    if known.len() >= MAX_PASSKEYS {
        return Err(PageError::BadRequest(
            "An account may have twenty passkeys. Remove one first.",
        ));
    }
    let challenge = passkey::challenge(&desk, Some(&account.id), passkey::CREATE_CEREMONY).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::relying_party_id(&desk),
        "user": { "id": account.id, "name": account.username },
        "algorithms": passkey::ALGORITHMS,
        "exclude": known,
    }))
    .into_response())
}

/// `POST /console/account/passkeys`
pub(crate) async fn add(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    if let Some(way) = prove::require_proof(&desk, &signed, PAGE_PATH).await? {
        return Ok(way);
    }
    let account = &signed.account;
    let name = fields.get_trimmed("name", 4_096)?;
    let mut wrongs = FieldErrors::default();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || has_hidden_characters(name) {
        wrongs.add("name", format!("A name of 1 to {MAX_NAME_CHARS} characters, please."));
    }
    let made =
        passkey::verify_registration(&desk, &PasskeyResponse::read(&fields), &account.id).await?;
    if made.is_none() {
        wrongs.add("name", "The passkey was not accepted. Try once more.");
    }
    let (Some((id, secret)), true) = (made, wrongs.is_empty()) else {
        return render_page(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs, None).await;
    };
    let first = !desk
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
        created: desk.now(),
        used: None,
    };
    match desk.store.add_factor(&factor).await {
        Ok(()) => {}
        Err(StoreError::Conflict(_)) => {
            return Err(PageError::BadRequest("This passkey is known already."));
        }
        Err(error) => return Err(error.into()),
    }
    desk.audit(&account.id, "factor.add", &factor.id, "passkey").await;
    pages::notify_owner(&desk, account, "a passkey was added");
    if first {
        return totp::show_recovery_codes(&desk, account).await;
    }
    Ok(redirect_to("/console/account?told=passkey"))
}
