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
use admin::names;

/// `POST /console/account/password`: ends every session and starts a new one for this browser.
pub(crate) async fn change(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &signed.account;
    let mut wrongs = FieldErrors::default();
    let known = [account.username.as_str(), account.email.as_deref().unwrap_or_default()];
    let (password, again) = (fields.get("password"), fields.get("again"));
    if let Some((field, why)) = names::password_form_error(password, again, &known) {
        wrongs.add(field, why);
    }
    let mut status = StatusCode::BAD_REQUEST;
    if wrongs.is_empty() && !password_matches(&desk, &signed, fields.get("current")).await? {
        wrongs.add("current", "This is not your password.");
        status = StatusCode::FORBIDDEN;
    }
    if !wrongs.is_empty() {
        return render_page(&desk, &signed, status, &FormFields::default(), &wrongs, None).await;
    }
    let hash = desk.passwords.hash(password).await?;
    desk.store.set_password(&account.id, Some(&hash), desk.now()).await?;
    desk.audit(&account.id, "account.password", &account.id, "").await;
    pages::notify_owner(&desk, account, "it has another password");
    session::start_session(&desk, &headers, account, "/console/account?told=password").await
}

/// `POST /console/account/password/link`: mails a link to set a first password.
pub(crate) async fn link(
    State(desk): State<Arc<ConsoleState>>,
    signed: SignedInUser,
) -> Result<Response, PageError> {
    let account = &signed.account;
    let Some(to) = account.email.as_deref().filter(|_| desk.host.can_mail()) else {
        return Err(PageError::BadRequest("This account has no address to send a link to."));
    };
    desk.mail_throttle.admit_name(&desk.store, &account.id, desk.now()).await?;
    pages::reset::mail_link(&desk, account, to).await?;
    Ok(redirect_to("/console/account?told=sent"))
}
