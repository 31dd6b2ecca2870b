//! Change of the user's own password.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};

use super::{password_matches, render_page};
use crate::form::{FieldErrors, FormFields};
use crate::page_error::PageError;
use crate::pages;
use crate::redirect::redirect_to;
use crate::session::{self, SignedInUser};
use crate::state::ConsoleState;
use admin::NewPassword;

/// `POST /console/account/password`: ends every session and starts a new one for this browser.
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &user.account;
    let mut errors = FieldErrors::default();
    let known = [account.username.as_str(), account.email.as_deref().unwrap_or_default()];
    let password = NewPassword::check_form(fields.get("password"), fields.get("again"), &known);
    let password = password.map_err(|(field, why)| errors.add(field, why)).ok();
    let mut status = StatusCode::BAD_REQUEST;
    if errors.is_empty() && !password_matches(&state, &user, fields.get("current")).await? {
        errors.add("current", "This is not your password.");
        status = StatusCode::FORBIDDEN;
    }
    let Some(password) = password.filter(|_| errors.is_empty()) else {
        return render_page(&state, &user, status, &FormFields::default(), &errors, None).await;
    };
    let hash = state.passwords.hash(password).await?;
    state.host.accounts().change_own_password(&user.actor(), &hash).await?;
    pages::notify_owner(&state, account, "it has another password");
    session::start_session(&state, &headers, account, "/console/account?told=password").await
}

/// `POST /console/account/password/link`: mails a link to set a first password.
pub(crate) async fn link(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    let account = &user.account;
    let Some(to) = account.email.as_deref().filter(|_| state.host.can_mail()) else {
        return Err(PageError::BadRequest("This account has no address to send a link to."));
    };
    state.mail_throttle.admit_name(&state.store, &account.id, state.now()).await?;
    pages::reset::mail_link(&state, account, to).await?;
    Ok(redirect_to("/console/account?told=sent"))
}
