//! Linking one's account to providers of identities.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;

use super::{HERE, prove};
use crate::desk::Desk;
use crate::form::Fields;
use crate::oidc;
use crate::session::Signed;
use crate::shell::see_other;
use crate::signin;
use crate::trouble::Trouble;

/// `POST /console/account/identities/{identity}`: off to the provider, and back with its word.
pub(crate) async fn link(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let Path(name) = name.map_err(|_| Trouble::NotFound)?;
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    oidc::depart(&desk, &name, Some(&signed.account.id), "/console/account?told=identity").await
}

/// `POST /console/account/identities/remove`
pub(crate) async fn remove(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    let account = &signed.account;
    let (issuer, subject) = (fields.short("issuer", 512)?, fields.short("subject", 512)?);
    let identities = desk.store.identities_of(&account.id).await?;
    let factors = desk.store.factors_of(&account.id).await?;
    let another_way = account.password_hash.is_some()
        || identities.len() > 1
        || factors.iter().any(|factor| signin::counts(factor.kind));
    if !another_way {
        return Err(Trouble::Bad("This is your only way to sign in. Set a password first."));
    }
    if desk.store.drop_identity(&account.id, issuer, subject).await? {
        desk.note(&account.id, "identity.remove", &account.id, issuer).await;
    }
    Ok(see_other(HERE))
}
