//! Choosing another password by a link in a mail.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use store::{Account, Link, LinkPurpose};

use super::login::place;
use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::links::{self, LIFE, Note};
use crate::shell::{Shell, page};
use crate::trouble::Trouble;
use crate::{fields, mails, signin};
use admin::names;

const LONGEST_LOGIN: usize = 320;

/// `GET /reset`
pub(crate) async fn show(State(desk): State<Arc<Desk>>) -> Response {
    ask(&desk, StatusCode::OK, "", &Wrongs::default())
}

/// `POST /reset`: whether there is such an account or not, the answer is the same, and it comes
/// before anything was looked up.
pub(crate) async fn send(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    fields: Fields,
) -> Result<Response, Trouble> {
    let login = fields.one("login", LONGEST_LOGIN)?;
    let mut wrongs = Wrongs::default();
    if login.is_empty() {
        wrongs.add("login", "Enter your username or e-mail address.");
    } else if names::username_objection(login).is_some() && !names::is_address(login) {
        wrongs.add("login", "This is neither a username nor an e-mail address.");
    }
    if !wrongs.is_empty() || !desk.host.can_mail() {
        let status =
            if desk.host.can_mail() { StatusCode::BAD_REQUEST } else { StatusCode::FORBIDDEN };
        return Ok(ask(&desk, status, login, &wrongs));
    }
    desk.mails.admit(&desk.store, login, place(&extensions), desk.now()).await?;
    let login = login.to_owned();
    tokio::spawn(async move {
        if let Err(trouble) = write(&desk, &login).await {
            tracing::error!("a mail to reset a password could not be written: {trouble:?}");
        }
    });
    Ok(super::told(
        "Look into your mail",
        "If there is such an account and it has an address, a mail with a link is on its way to \
         it. The link works once, for half an hour.",
    ))
}

async fn write(desk: &Desk, login: &str) -> Result<(), Trouble> {
    let Some(account) = desk.store.account_by_login(login).await? else { return Ok(()) };
    let Some(to) = account.email.as_deref() else { return Ok(()) };
    // Who comes in by a provider of identities has no password that could be forgotten.
    let passwordless =
        account.password_hash.is_none() && !desk.store.identities_of(&account.id).await?.is_empty();
    if account.disabled || passwordless {
        return Ok(());
    }
    match desk.mails.admit_name(&desk.store, &account.id, desk.now()).await {
        Ok(()) => {}
        Err(Trouble::TooOften(_)) => return Ok(()),
        Err(trouble) => return Err(trouble),
    }
    mail_link(desk, &account, to).await
}

/// Sends the link to choose a password.
pub(crate) async fn mail_link(desk: &Desk, account: &Account, to: &str) -> Result<(), Trouble> {
    let id = Some(account.id.as_str());
    let word = links::make(desk, LinkPurpose::Reset, id, &Note::default(), LIFE.reset).await?;
    mails::send(desk, mails::reset(to, &account.username, &links::url(desk, &word))).await;
    Ok(())
}

fn ask(desk: &Desk, status: StatusCode, login: &str, wrongs: &Wrongs) -> Response {
    let body = html! {
        section.card {
            h1 { "Reset Password" }
            @if desk.host.can_mail() {
                p.muted { "We send a link to your account’s address; with it you choose another "
                    "password." }
                form method="post" action="/reset" {
                    (Input {
                        name: "login",
                        label: "Username or e-mail",
                        value: login,
                        complete: "username",
                        required: true,
                        focus: true,
                        ..Input::default()
                    }.show(wrongs))
                    button.button.wide type="submit" { "Send me the link" }
                }
            } @else {
                p { "This gateway sends no mail. Ask one of its administrators for a link: they "
                    "can make one for you." }
            }
            p.beside { a href="/login" { "Back to sign in" } }
        }
    };
    page(status, &Shell::outside("Reset Password"), &body)
}

/// `GET /reset/new`
pub(crate) async fn choose(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let (_, account) = opened(&desk, &headers).await?;
    Ok(form(StatusCode::OK, &account, &Wrongs::default()))
}

/// `POST /reset/new`
pub(crate) async fn change(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let (link, account) = opened(&desk, &headers).await?;
    let (password, again) = (fields.get("password"), fields.get("again"));
    let known = [account.username.as_str(), account.email.as_deref().unwrap_or_default()];
    let mut wrongs = Wrongs::default();
    if let Some((field, why)) = names::password_objection(password, again, &known) {
        wrongs.add(field, why);
        return Ok(form(StatusCode::BAD_REQUEST, &account, &wrongs));
    }
    let hash = desk.passwords.hash(password).await?;
    links::take(&desk, &link).await?;
    desk.store.set_password(&account.id, Some(&hash), desk.now()).await?;
    desk.note(&account.id, "account.password", &account.id, "by link").await;
    super::tell_owner(&desk, &account, "it has another password");
    signin::password_right(&desk, &headers, &account, "/console").await
}

async fn opened(desk: &Desk, headers: &HeaderMap) -> Result<(Link, Account), Trouble> {
    let link = links::opened(desk, headers, &[LinkPurpose::Reset]).await?;
    let id = link.account_id.as_deref().ok_or(Trouble::DeadLink)?;
    let account = desk.store.account(id).await?.filter(|account| !account.disabled);
    Ok((link, account.ok_or(Trouble::DeadLink)?))
}

fn form(status: StatusCode, account: &Account, wrongs: &Wrongs) -> Response {
    let body = html! {
        section.card {
            h1 { "Choose another password" }
            p.muted { "For the account " strong { bdi { (account.username) } } ". Whoever is "
                "signed in with it anywhere is signed out." }
            (fields::another_look(wrongs))
            form method="post" action="/reset/new" {
                // Tells password managers whose password this is.
                input type="hidden" name="username" autocomplete="username"
                    value=(account.username);
                (fields::new_password(wrongs, true))
                button.button.wide type="submit" { "Set the password" }
            }
        }
    };
    page(status, &Shell::outside("Choose another password"), &body)
}
