//! Sign-up with a confirmed e-mail address or an invitation.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use store::{Link, LinkPurpose};

use super::login::client_network;
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, page};
use crate::links;
use crate::page_error::PageError;
use crate::signup::SignUpMode;
use crate::state::ConsoleState;
use crate::{mails, shared_fields, signin};
use admin::{AdminError, NewPassword, names};

const MAX_FIELD_BYTES: usize = 4_096;
const SIGNUP_PURPOSES: [LinkPurpose; 2] = [LinkPurpose::SignUp, LinkPurpose::Invite];

/// `GET /signup`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>) -> Result<Response, PageError> {
    Ok(match closed_reason(&state).await? {
        Some(why) => closed_page(why),
        None => email_form(StatusCode::OK, "", &FieldErrors::default()),
    })
}

/// `POST /signup`: the answer is the same for known and unknown addresses.
pub(crate) async fn send(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    fields: FormFields,
) -> Result<Response, PageError> {
    if let Some(why) = closed_reason(&state).await? {
        return Ok(closed_page(why));
    }
    let email = fields.get_single("email", MAX_FIELD_BYTES)?;
    if !names::is_email_address(email) {
        let mut errors = FieldErrors::default();
        errors.add("email", "This does not look like an e-mail address.");
        return Ok(email_form(StatusCode::BAD_REQUEST, email, &errors));
    }
    state
        .mail_throttle
        .admit(&state.store, email, client_network(&extensions), state.now())
        .await?;
    let to = email.to_owned();
    let tasks = state.host.accounts().tasks.clone();
    tasks.spawn(async move {
        if let Err(error) = send_mail(&state, &to).await {
            tracing::error!("cannot send a sign-up mail: {error:?}");
        }
    });
    Ok(super::message_page(
        "Look into your mail",
        "If this address can have an account here, a mail with a link is on its way to it. The \
         link works once, for a day.",
    ))
}

async fn send_mail(state: &ConsoleState, to: &str) -> Result<(), PageError> {
    let mail = match state.store.account_by_login(to).await? {
        Some(account) if account.disabled => return Ok(()),
        Some(account) => {
            mails::account_exists(to, &account.username, &format!("{}/login", state.base_url()))
        }
        None => {
            let path = state.host.accounts().mail_sign_up_link(to).await?;
            mails::signup(to, &state.base_url(), &links::absolute(state, &path))
        }
    };
    mails::send(state, mail).await;
    Ok(())
}

/// Reason why sign-up is closed, if it is.
async fn closed_reason(state: &ConsoleState) -> Result<Option<&'static str>, PageError> {
    Ok(match SignUpMode::load(&state.store).await? {
        SignUpMode::Open if state.host.can_mail() => None,
        SignUpMode::Open => {
            Some("This gateway cannot send mail yet, so that nobody can prove an address.")
        }
        SignUpMode::Invited => Some(
            "Accounts are made by invitation here. Ask an administrator of this gateway for one.",
        ),
        SignUpMode::Closed => Some("This gateway takes no new accounts."),
    })
}

fn closed_page(why: &'static str) -> Response {
    let body = html! {
        section.card {
            h1 { "Sign up" }
            p { (why) }
            p.beside { a href="/login" { "Sign in" } }
        }
    };
    page(StatusCode::FORBIDDEN, &Layout::signed_out("Sign up"), &body)
}

fn email_form(status: StatusCode, email: &str, errors: &FieldErrors) -> Response {
    let body = html! {
        section.card {
            h1 { "Create an account" }
            p.muted { "We send a link to your address; with it you choose your password." }
            form method="post" action="/signup" {
                (FormInput {
                    name: "email",
                    label: "E-mail",
                    kind: "email",
                    value: email,
                    autocomplete: "email",
                    required: true,
                    autofocus: true,
                    ..FormInput::default()
                }.render(errors))
                button.button.wide type="submit" { "Send me the link" }
            }
            p.beside { a href="/login" { "I have an account" } }
        }
    };
    page(status, &Layout::signed_out("Sign up"), &body)
}

/// `GET /signup/new`
pub(crate) async fn new_account_page(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let link = links::from_cookie(&state, &headers, &SIGNUP_PURPOSES).await?;
    state.host.accounts().sign_up_role(&link).await?;
    Ok(form(StatusCode::OK, &link, "", &FieldErrors::default()))
}

/// `POST /signup/new`
pub(crate) async fn create(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let link = links::from_cookie(&state, &headers, &SIGNUP_PURPOSES).await?;
    state.host.accounts().sign_up_role(&link).await?;
    let email = links::link_data(&link).email;
    let username = fields.get_trimmed("username", MAX_FIELD_BYTES)?;
    let mut errors = FieldErrors::default();
    if let Some(why) = names::new_username_error(username) {
        errors.add("username", why);
    } else if state.store.account_by_login(username).await?.is_some() {
        errors.add("username", "This username is taken. Choose another.");
    }
    let known = [username, email.as_deref().unwrap_or_default()];
    let password = NewPassword::check_form(fields.get("password"), fields.get("again"), &known);
    let password = match password {
        Ok(password) if errors.is_empty() => password,
        checked => {
            if let Err((field, why)) = checked {
                errors.add(field, why);
            }
            return Ok(form(StatusCode::BAD_REQUEST, &link, username, &errors));
        }
    };
    let hash = state.passwords.hash(password).await?;
    let account = match state.host.accounts().sign_up(&link, username, &hash).await {
        Ok(account) => account,
        Err(AdminError::Invalid { field, message }) => {
            errors.add(&field, message);
            return Ok(form(StatusCode::BAD_REQUEST, &link, username, &errors));
        }
        Err(error) => return Err(error.into()),
    };
    signin::complete_sign_in(&state, &headers, &account, link.purpose.word(), "/console").await
}

fn form(status: StatusCode, link: &Link, username: &str, errors: &FieldErrors) -> Response {
    let email = links::link_data(link).email;
    let body = html! {
        section.card {
            h1 { "Make your account" }
            @if let Some(email) = &email {
                p.muted { "For " strong { bdi { (email) } } "." }
            }
            (shared_fields::error_summary(errors))
            form method="post" action="/signup/new" {
                (FormInput {
                    name: "username",
                    label: "Username",
                    value: username,
                    autocomplete: "username",
                    required: true,
                    autofocus: true,
                    ..FormInput::default()
                }.render(errors))
                (shared_fields::new_password(errors, false))
                button.button.wide type="submit" { "Create the account" }
            }
        }
    };
    page(status, &Layout::signed_out("Make your account"), &body)
}
