//! Links between an account and identity providers.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;

use super::PAGE_PATH;
use crate::form::FormFields;
use crate::oidc;
use crate::page_error::PageError;
use crate::redirect::see_other;
use crate::session::SignedInUser;
use crate::state::ConsoleState;

/// `POST /console/account/identities/{identity}`: starts the flow that links the account.
pub(crate) async fn link(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(name) = name.map_err(|_| PageError::NotFound)?;
    oidc::begin_sign_in(&state, &name, Some(&user.account.id), "/console/account?told=identity")
        .await
}

/// `POST /console/account/identities/remove`
pub(crate) async fn remove(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (issuer, subject) =
        (fields.get_trimmed("issuer", 512)?, fields.get_trimmed("subject", 512)?);
    state.host.accounts().remove_identity(&user.actor(), issuer, subject).await?;
    Ok(see_other(PAGE_PATH))
}
