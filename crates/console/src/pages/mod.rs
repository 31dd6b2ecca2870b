//! Pages, one file per part of the site.

pub(crate) mod account;
pub(crate) mod activity;
pub(crate) mod admin;
mod agent_consent;
pub(crate) mod agents;
pub(crate) mod alert_fields;
pub(crate) mod alerts;
pub(crate) mod authorize;
mod call_reason;
mod call_table;
pub(crate) mod confirm;
pub(crate) mod device;
pub(crate) mod front;
pub(crate) mod identity;
mod key_form;
pub(crate) mod key_list;
mod key_scope_fields;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod mcp_servers;
pub(crate) mod members;
pub(crate) mod model;
pub(crate) mod models;
mod new_key_page;
pub(crate) mod overview;
pub(crate) mod people;
pub(crate) mod playground;
pub(crate) mod receipt;
pub(crate) mod reference;
pub(crate) mod reset;
pub(crate) mod revoke_keys;
mod schema_fields;
pub(crate) mod second_step;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod signup;
pub(crate) mod statements;
pub(crate) mod team;
pub(crate) mod teams;

use std::sync::Arc;

use axum::response::Response;
use maud::{Markup, html};
use store::Account;

use crate::layout::{self, Layout, ok_page};
use crate::mails;
use crate::state::ConsoleState;

/// A page with one message.
fn message_page(title: &str, message: &str) -> Response {
    let body = html! {
        section.card {
            h1 { (title) }
            p { (message) }
            p.beside { a href="/login" { "Back to sign in" } }
        }
    };
    ok_page(&Layout::signed_out(title), &body)
}

/// Notifies the owner of an account by mail, if the account has an address and mail is configured.
fn notify_owner(state: &ConsoleState, account: &Account, what: &str) {
    let Some(to) = account.email.as_deref().filter(|_| state.host.can_mail()) else { return };
    let mail = mails::account_changed(to, &account.username, what);
    let (host, name) = (Arc::clone(&state.host), layout::gateway_name());
    let tasks = state.host.accounts().tasks.clone();
    tasks.spawn(async move { mails::send_through(host.as_ref(), &name, mail).await });
}

/// Text with a copy button, which the script activates.
fn copy_block(id: &str, what: &str, text: &str) -> Markup {
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

/// One tab of several.
struct TabPanel {
    id: String,
    title: &'static str,
    body: Markup,
}

/// Tabs that work without a script: radio buttons, and CSS that shows the chosen panel.
fn tabs(name: &str, tabs: &[TabPanel]) -> Markup {
    html! {
        div.tabs {
            @for (index, tab) in tabs.iter().enumerate() {
                input type="radio" name=(name) id={ "tab-" (tab.id) } checked[index == 0];
                label for={ "tab-" (tab.id) } { (tab.title) }
            }
            @for tab in tabs {
                div.panel { (tab.body) }
            }
        }
    }
}
