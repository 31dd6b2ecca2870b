//! Passkeys, as the second step and instead of a password.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use store::{Factor, FactorKind, StoreError};

use super::{HERE, prove, totp, whole};
use crate::desk::Desk;
use crate::form::{Fields, Wrongs};
use crate::passkey::{self, Shown};
use crate::session::Signed;
use crate::shell::sent_to;
use crate::trouble::Trouble;
use crate::{pages, signin};
use admin::names::disguised;

/// How many passkeys an account may have.
const MOST: usize = 20;
const LONGEST_NAME: usize = 60;

/// `POST /console/account/passkeys/begin`: what a new passkey is to be made of.
pub(crate) async fn begin(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    let account = &signed.account;
    let factors = desk.store.factors_of(&account.id).await?;
    let known = factors.iter().filter(|factor| factor.kind == FactorKind::Passkey);
    let known: Vec<&str> = known.map(|factor| factor.id.as_str()).collect();
    if known.len() >= MOST {
        return Err(Trouble::Bad("An account may have twenty passkeys. Remove one first."));
    }
    let challenge = passkey::challenge(&desk, Some(&account.id), passkey::CREATE).await?;
    Ok(Json(json!({
        "challenge": challenge,
        "rpId": passkey::place(&desk),
        "user": { "id": account.id, "name": account.username },
        "algorithms": passkey::ALGORITHMS,
        "exclude": known,
    }))
    .into_response())
}

/// `POST /console/account/passkeys`
pub(crate) async fn add(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    let account = &signed.account;
    let name = fields.short("name", 4_096)?;
    let mut wrongs = Wrongs::default();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || disguised(name) {
        wrongs.add("name", format!("A name of 1 to {LONGEST_NAME} characters, please."));
    }
    let made = passkey::made(&desk, &Shown::read(&fields), &account.id).await?;
    if made.is_none() {
        wrongs.add("name", "The passkey was not accepted. Try once more.");
    }
    let (Some((id, secret)), true) = (made, wrongs.is_empty()) else {
        return whole(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs, None).await;
    };
    let first =
        !desk.store.factors_of(&account.id).await?.iter().any(|factor| signin::counts(factor.kind));
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
            return Err(Trouble::Bad("This passkey is known already."));
        }
        Err(error) => return Err(error.into()),
    }
    desk.note(&account.id, "factor.add", &factor.id, "passkey").await;
    pages::tell_owner(&desk, account, "a passkey was added");
    if first {
        return totp::papers(&desk, account).await;
    }
    Ok(sent_to("/console/account?told=passkey"))
}
