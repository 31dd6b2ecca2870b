//! The pages, one file per part of the site.

pub(crate) mod account;
pub(crate) mod admin;
pub(crate) mod calls;
pub(crate) mod confirm;
pub(crate) mod front;
pub(crate) mod identity;
mod key_form;
mod key_shown;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod members;
pub(crate) mod model;
pub(crate) mod models;
pub(crate) mod overview;
pub(crate) mod people;
pub(crate) mod playground;
pub(crate) mod reference;
pub(crate) mod reset;
pub(crate) mod second;
pub(crate) mod setup;
pub(crate) mod signup;
pub(crate) mod team;
pub(crate) mod teams;
pub(crate) mod usage;

use std::sync::Arc;

use axum::response::Response;
use maud::{Markup, html};
use store::Account;

use crate::desk::Desk;
use crate::mails;
use crate::shell::{self, Shell, good};

/// A page that says one thing.
fn told(title: &str, says: &str) -> Response {
    let body = html! {
        section.card {
            h1 { (title) }
            p { (says) }
            p.beside { a href="/login" { "Back to sign in" } }
        }
    };
    good(&Shell::outside(title), &body)
}

/// Tells the owner of an account what happened to it, where there is an address and mail.
fn tell_owner(desk: &Desk, account: &Account, what: &str) {
    let Some(to) = account.email.as_deref().filter(|_| desk.host.can_mail()) else { return };
    let mail = mails::changed(to, &account.username, what);
    let (host, name) = (Arc::clone(&desk.host), shell::name());
    tokio::spawn(async move { mails::send_by(host.as_ref(), &name, mail).await });
}

/// Text to copy, with a button that the script brings to life.
fn copyable(id: &str, what: &str, text: &str) -> Markup {
    html! {
        div.snippet {
            div.strip {
                span { (what) }
                button.copy type="button" hidden data-copy=(id) { "Copy" }
            }
            pre tabindex="0" { code id=(id) { (text) } }
        }
    }
}

/// One tab of several: its title and what it shows.
struct Tab {
    id: String,
    title: &'static str,
    body: Markup,
}

/// Tabs that work without a script: radio buttons, and a stylesheet that shows the chosen panel.
fn tabs(name: &str, tabs: &[Tab]) -> Markup {
    html! {
        div.tabs {
            @for (place, tab) in tabs.iter().enumerate() {
                input type="radio" name=(name) id={ "tab-" (tab.id) } checked[place == 0];
                label for={ "tab-" (tab.id) } { (tab.title) }
            }
            @for tab in tabs {
                div.panel { (tab.body) }
            }
        }
    }
}
