//! The pages, one file per part of the site.

pub(crate) mod calls;
pub(crate) mod front;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod model;
pub(crate) mod models;
pub(crate) mod overview;
pub(crate) mod playground;
pub(crate) mod reference;
pub(crate) mod setup;
pub(crate) mod usage;

use maud::{Markup, html};

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
