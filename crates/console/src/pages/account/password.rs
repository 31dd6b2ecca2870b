//! Changing one's own password.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};

use super::{proved, whole};
use crate::desk::Desk;
use crate::form::{Fields, Wrongs};
use crate::pages;
use crate::session::{self, Signed};
use crate::shell::sent_to;
use crate::trouble::Trouble;
use admin::names;

/// `POST /console/account/password`: every session ends, and this browser gets a new one.
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let account = &signed.account;
    let mut wrongs = Wrongs::default();
    let known = [account.username.as_str(), account.email.as_deref().unwrap_or_default()];
    let (password, again) = (fields.get("password"), fields.get("again"));
    if let Some((field, why)) = names::password_objection(password, again, &known) {
        wrongs.add(field, why);
    }
    let mut status = StatusCode::BAD_REQUEST;
    if wrongs.is_empty() && !proved(&desk, &signed, fields.get("current")).await? {
        wrongs.add("current", "This is not your password.");
        status = StatusCode::FORBIDDEN;
    }
    if !wrongs.is_empty() {
        return whole(&desk, &signed, status, &Fields::default(), &wrongs, None).await;
    }
    let hash = desk.passwords.hash(password).await?;
    desk.store.set_password(&account.id, Some(&hash), desk.now()).await?;
    desk.note(&account.id, "account.password", &account.id, "").await;
    pages::tell_owner(&desk, account, "it has another password");
    session::start(&desk, &headers, account, "/console/account?told=password").await
}

/// `POST /console/account/password/link`: a mail with a link to set a first password.
pub(crate) async fn link(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    let account = &signed.account;
    let Some(to) = account.email.as_deref().filter(|_| desk.host.can_mail()) else {
        return Err(Trouble::Bad("This account has no address to send a link to."));
    };
    desk.mails.admit_name(&desk.store, &account.id, desk.now()).await?;
    pages::reset::mail_link(&desk, account, to).await?;
    Ok(sent_to("/console/account?told=sent"))
}
