//! The one-time set-up: whoever holds the word printed at the first start becomes the owner.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::html;
use store::{Account, AccountRole, StoreError};

use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::guard::SETUP;
use crate::shell::{Shell, page};
use crate::trouble::Trouble;
use crate::{address, fields, session};
use admin::{names, random};

const LONGEST: usize = 4_096;

/// What was entered.
struct Entered<'a> {
    username: &'a str,
    email: &'a str,
    password: &'a str,
    again: &'a str,
}

/// `GET /console/setup/{token}`
pub(crate) async fn show(Path(token): Path<String>) -> Response {
    let entered = Entered { username: "", email: "", password: "", again: "" };
    form(StatusCode::OK, &token, &entered, &Wrongs::default())
}

/// `POST /console/setup/{token}`
pub(crate) async fn claim(
    State(desk): State<Arc<Desk>>,
    Path(token): Path<String>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let entered = Entered {
        username: fields.short("username", LONGEST)?,
        email: fields.short("email", LONGEST)?,
        password: fields.get("password"),
        again: fields.get("again"),
    };
    let mut wrongs = objections(&entered);
    let owner = unclaimed_owner(&desk).await?;
    for (field, login) in [("username", entered.username), ("email", entered.email)] {
        let taken = desk.store.account_by_login(login).await?;
        if !login.is_empty() && taken.is_some_and(|account| account.id != owner.id) {
            wrongs.add(field, "This is taken by another account.");
        }
    }
    if !wrongs.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &token, &entered, &wrongs));
    }
    let hash = desk.passwords.hash(entered.password).await?;
    take(&desk, &token).await?;
    let made = become_owner(&desk, owner, &entered, &hash).await;
    let account = match made {
        Ok(account) => account,
        Err(error) => {
            // Nobody owns the gateway yet: the link must go on working.
            desk.store.put_setting(SETUP, &token).await?;
            let StoreError::Conflict(_) = error else { return Err(error.into()) };
            wrongs.add("username", "This username or e-mail address is taken.");
            return Ok(form(StatusCode::BAD_REQUEST, &token, &entered, &wrongs));
        }
    };
    desk.note(&account.id, "account.setup", &account.id, "").await;
    let (email, host) = (entered.email.to_owned(), Arc::clone(&desk));
    if !email.is_empty() && account.email.is_none() {
        let account = account.clone();
        tokio::spawn(async move {
            if let Err(trouble) = super::confirm::ask(&host, &account, &email).await {
                tracing::error!("a mail to confirm an address could not be written: {trouble:?}");
            }
        });
    }
    session::start(&desk, &headers, &account, "/console").await
}

/// Takes the word out of the store; of all who try at once, one gets it.
async fn take(desk: &Desk, token: &str) -> Result<(), Trouble> {
    match desk.store.take_setting(SETUP).await? {
        Some(word) if random::same(&word, token) => Ok(()),
        Some(other) => {
            // Another word was put there since the guard looked. It is not this request's to use.
            desk.store.put_setting(SETUP, &other).await?;
            Err(Trouble::NotFound)
        }
        None => Err(Trouble::NotFound),
    }
}

/// The account made at the first start, which has no password until somebody claims it.
async fn unclaimed_owner(desk: &Desk) -> Result<Account, Trouble> {
    let accounts = desk.store.accounts().await?;
    let unclaimed =
        |account: &Account| account.role == AccountRole::Owner && account.password_hash.is_none();
    accounts.into_iter().find(unclaimed).ok_or(Trouble::NotFound)
}

async fn become_owner(
    desk: &Desk,
    owner: Account,
    entered: &Entered<'_>,
    hash: &str,
) -> Result<Account, StoreError> {
    // Where mail can be sent, an address counts once it is confirmed.
    let email = (!entered.email.is_empty() && !desk.host.can_mail()).then_some(entered.email);
    let now = desk.now();
    let renamed = desk.store.rename_account(&owner.id, entered.username, email, now).await?;
    if !renamed || !desk.store.set_password(&owner.id, Some(hash), now).await? {
        return Err(StoreError::Missing("account"));
    }
    Ok(Account { username: entered.username.to_owned(), email: email.map(str::to_owned), ..owner })
}

fn objections(entered: &Entered<'_>) -> Wrongs {
    let Entered { username, email, password, again } = entered;
    let mut wrongs = Wrongs::default();
    if let Some(why) = names::username_objection(username) {
        wrongs.add("username", why);
    }
    if !email.is_empty() && !names::is_address(email) {
        wrongs.add("email", "This does not look like an e-mail address.");
    }
    if let Some((field, why)) = names::password_objection(password, again, &[username, email]) {
        wrongs.add(field, why);
    }
    wrongs
}

fn form(status: StatusCode, token: &str, entered: &Entered<'_>, wrongs: &Wrongs) -> Response {
    let body = html! {
        section.card {
            h1 { "Set up your gateway" }
            p.muted {
                "Make the account that owns this gateway. This page works once; afterwards you "
                "sign in with what you choose here."
            }
            (fields::another_look(wrongs))
            form method="post" action={ "/console/setup/" (address::value(token)) } {
                (Input {
                    name: "username",
                    label: "Username",
                    value: entered.username,
                    complete: "username",
                    required: true,
                    focus: true,
                    ..Input::default()
                }.show(wrongs))
                (Input {
                    name: "email",
                    label: "E-mail",
                    kind: "email",
                    value: entered.email,
                    complete: "email",
                    help: Some("You can sign in with it, too."),
                    ..Input::default()
                }.show(wrongs))
                (fields::new_password(wrongs, false))
                button.button.wide type="submit" { "Create the owner" }
            }
        }
    };
    page(status, &Shell::outside("Set up"), &body)
}
