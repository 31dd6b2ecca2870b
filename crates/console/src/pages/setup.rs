//! The one-time set-up: whoever holds the word printed at the first start becomes the owner.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::html;
use store::{Account, Role, StoreError};

use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::guard::SETUP;
use crate::shell::{Shell, page};
use crate::trouble::Trouble;
use crate::{address, password, random, session};

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
    session::start(&desk, &headers, &account).await
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
        |account: &Account| account.role == Role::Owner && account.password_hash.is_none();
    accounts.into_iter().find(unclaimed).ok_or(Trouble::NotFound)
}

async fn become_owner(
    desk: &Desk,
    owner: Account,
    entered: &Entered<'_>,
    hash: &str,
) -> Result<Account, StoreError> {
    let email = (!entered.email.is_empty()).then_some(entered.email);
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
    if let Some(why) = username_objection(username) {
        wrongs.add("username", why);
    }
    if !email.is_empty() && !is_address(email) {
        wrongs.add("email", "This does not look like an e-mail address.");
    }
    if let Some(why) = password::objection(password, &[username, email]) {
        wrongs.add("password", why);
    } else if password != again {
        wrongs.add("again", "The two passwords differ. Type the same one twice.");
    }
    wrongs
}

fn username_objection(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        return Some("Choose a username.");
    }
    if !(2..=40).contains(&name.len()) {
        return Some("Between 2 and 40 characters, please.");
    }
    if !name.chars().all(plain) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some(
            "Letters, digits, dots, dashes and underscores only, a letter or digit first.",
        );
    }
    None
}

/// Whether a text is one plain address: what cannot be mistaken for two, or for a header.
fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"\"(),:;<>[\\]@".contains(c);
    let Some((local, domain)) = text.split_once('@') else { return false };
    let labels: Vec<&str> = domain.split('.').collect();
    let label = |l: &&str| {
        !l.is_empty()
            && l.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    text.len() <= 254
        && !local.is_empty()
        && local.len() <= 64
        && local.chars().all(plain)
        && labels.len() >= 2
        && labels.iter().all(label)
}

fn form(status: StatusCode, token: &str, entered: &Entered<'_>, wrongs: &Wrongs) -> Response {
    let body = html! {
        section.card {
            h1 { "Set up your gateway" }
            p.muted {
                "Make the account that owns this gateway. This page works once; afterwards you "
                "sign in with what you choose here."
            }
            @if !wrongs.is_empty() {
                p.objection role="alert" { "Some fields need another look." }
            }
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
                (Input {
                    name: "password",
                    label: "Password",
                    kind: "password",
                    complete: "new-password",
                    required: true,
                    help: Some("At least 10 characters. A few random words do well."),
                    ..Input::default()
                }.show(wrongs))
                (Input {
                    name: "again",
                    label: "Password again",
                    kind: "password",
                    complete: "new-password",
                    required: true,
                    ..Input::default()
                }.show(wrongs))
                button.button.wide type="submit" { "Create the owner" }
            }
        }
    };
    page(status, &Shell::outside("Set up"), &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_are_plain() {
        for bad in ["", "a", "../x", "<script>", "a b", "-a", "анна", "a@b", &"a".repeat(41)] {
            assert!(username_objection(bad).is_some(), "{bad}");
        }
        for good in ["owner", "Anna.B-2_x", "42"] {
            assert_eq!(username_objection(good), None, "{good}");
        }
    }

    #[test]
    fn an_address_is_one_address() {
        let long = format!("{}@example.com", "a".repeat(65));
        for bad in [
            "a",
            "a@b",
            "@b.c",
            "a@.c",
            "a@b.c,d@e.f",
            "a@b.c\ncc:d@e.f",
            "a b@c.d",
            "a@b@c.d",
            "\"a\"@b.c",
            "a@-b.c",
            "a@b.c.",
            &long,
        ] {
            assert!(!is_address(bad), "{bad}");
        }
        for good in ["anna@example.com", "a+tag@mail.example.co.uk", "o'neil@example.org"] {
            assert!(is_address(good), "{good}");
        }
    }
}
