//! Password reset by a mailed link.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use store::{Account, Link, LinkPurpose};

use super::login::client_network;
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, page};
use crate::links;
use crate::page_error::PageError;
use crate::state::ConsoleState;
use crate::{mails, shared_fields, signin};
use admin::{NewPassword, names};

const MAX_LOGIN_BYTES: usize = 320;

/// `GET /reset`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>) -> Response {
    login_form(&state, StatusCode::OK, "", &FieldErrors::default())
}

/// `POST /reset`: the answer is the same for known and unknown accounts, and it is sent before the
/// lookup, so its time reveals nothing.
pub(crate) async fn send(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    fields: FormFields,
) -> Result<Response, PageError> {
    let login = fields.get_single("login", MAX_LOGIN_BYTES)?;
    let mut errors = FieldErrors::default();
    if login.is_empty() {
        errors.add("login", "Enter your username or e-mail address.");
    } else if names::username_error(login).is_some() && !names::is_email_address(login) {
        errors.add("login", "This is neither a username nor an e-mail address.");
    }
    if !errors.is_empty() || !state.host.can_mail() {
        let status =
            if state.host.can_mail() { StatusCode::BAD_REQUEST } else { StatusCode::FORBIDDEN };
        return Ok(login_form(&state, status, login, &errors));
    }
    state
        .mail_throttle
        .admit(&state.store, login, client_network(&extensions), state.now())
        .await?;
    let login = login.to_owned();
    let tasks = state.host.accounts().tasks.clone();
    tasks.spawn(async move {
        if let Err(error) = send_mail(&state, &login).await {
            tracing::error!("cannot send a password reset mail: {error:?}");
        }
    });
    Ok(super::message_page(
        "Look into your mail",
        "If there is such an account and it has an address, a mail with a link is on its way to \
         it. The link works once, for half an hour.",
    ))
}

async fn send_mail(state: &ConsoleState, login: &str) -> Result<(), PageError> {
    let Some(account) = state.store.account_by_login(login).await? else { return Ok(()) };
    let Some(to) = account.email.as_deref() else { return Ok(()) };
    // Users of an identity provider have no password to reset.
    let passwordless = account.password_hash.is_none()
        && !state.store.identities_of(&account.id).await?.is_empty();
    if account.disabled || passwordless {
        return Ok(());
    }
    match state.mail_throttle.admit_name(&state.store, &account.id, state.now()).await {
        Ok(()) => {}
        Err(PageError::RateLimited(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    mail_link(state, &account, to).await
}

/// Mails the link to choose a password.
pub(crate) async fn mail_link(
    state: &ConsoleState,
    account: &Account,
    to: &str,
) -> Result<(), PageError> {
    let path = state.host.accounts().mail_password_link(account).await?;
    let url = links::absolute(state, &path);
    mails::send(state, mails::reset(to, &account.username, &url)).await;
    Ok(())
}

fn login_form(
    state: &ConsoleState,
    status: StatusCode,
    login: &str,
    errors: &FieldErrors,
) -> Response {
    let body = html! {
        section.card {
            h1 { "Reset Password" }
            @if state.host.can_mail() {
                p.muted { "We send a link to your account’s address; with it you choose another "
                    "password." }
                form method="post" action="/reset" {
                    (FormInput {
                        name: "login",
                        label: "Username or e-mail",
                        value: login,
                        autocomplete: "username",
                        required: true,
                        autofocus: true,
                        ..FormInput::default()
                    }.render(errors))
                    button.button.wide type="submit" { "Send me the link" }
                }
            } @else {
                p { "This gateway sends no mail. Ask one of its administrators for a link: they "
                    "can make one for you." }
            }
            p.beside { a href="/login" { "Back to sign in" } }
        }
    };
    page(status, &Layout::signed_out("Reset Password"), &body)
}

/// `GET /reset/new`
pub(crate) async fn new_password_page(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let (_, account) = opened_reset(&state, &headers).await?;
    Ok(form(StatusCode::OK, &account, &FieldErrors::default()))
}

/// `POST /reset/new`
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (link, account) = opened_reset(&state, &headers).await?;
    let known = [account.username.as_str(), account.email.as_deref().unwrap_or_default()];
    let password = NewPassword::check_form(fields.get("password"), fields.get("again"), &known);
    let password = match password {
        Ok(password) => password,
        Err((field, why)) => {
            let mut errors = FieldErrors::default();
            errors.add(field, why);
            return Ok(form(StatusCode::BAD_REQUEST, &account, &errors));
        }
    };
    let hash = state.passwords.hash(password).await?;
    let account = state.host.accounts().set_password_by_link(&link, &hash).await?;
    super::notify_owner(&state, &account, "it has another password");
    signin::after_password(&state, &headers, &account, "/console").await
}

async fn opened_reset(
    state: &ConsoleState,
    headers: &HeaderMap,
) -> Result<(Link, Account), PageError> {
    let link = links::from_cookie(state, headers, &[LinkPurpose::Reset]).await?;
    let account = state.host.accounts().account_of_link(&link, LinkPurpose::Reset).await?;
    Ok((link, account))
}

fn form(status: StatusCode, account: &Account, errors: &FieldErrors) -> Response {
    let body = html! {
        section.card {
            h1 { "Choose another password" }
            p.muted { "For the account " strong { bdi { (account.username) } } ". All its "
                "sessions end." }
            (shared_fields::error_summary(errors))
            form method="post" action="/reset/new" {
                // Tells password managers whose password this is.
                input type="hidden" name="username" autocomplete="username"
                    value=(account.username);
                (shared_fields::new_password(errors, true))
                button.button.wide type="submit" { "Set the password" }
            }
        }
    };
    page(status, &Layout::signed_out("Choose another password"), &body)
}
