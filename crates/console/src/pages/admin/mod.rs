//! Administration pages over the use cases of `admin`, which check all rights.

pub(crate) mod audit;
pub(crate) mod gateway_alerts;
pub(crate) mod managed_settings;
pub(crate) mod model;
pub(crate) mod models;
pub(crate) mod person;
mod price_form;
pub(crate) mod provider;
pub(crate) mod provider_form;
pub(crate) mod providers;
mod recent_usage;
pub(crate) mod settings;
pub(crate) mod system;
mod terms_form;

use axum::response::Response;
use maud::{Markup, html};

use crate::form::{FieldErrors, field_notes, note_ids};
use crate::layout::{Layout, ok_page};
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::{read_version, version_field};

/// Renders a selection; each option has a value and a label.
fn select(
    (name, label): (&str, &str),
    chosen: &str,
    options: &[(&str, &str)],
    errors: &FieldErrors,
) -> Markup {
    let wrong = errors.get(name);
    html! {
        div.field.wrong[wrong.is_some()] {
            label for=(name) { (label) }
            select id=(name) name=(name) aria-invalid=[wrong.map(|_| "true")]
                aria-describedby=[note_ids(name, wrong, None)] {
                @for (word, label) in options {
                    option value=(word) selected[*word == chosen] { (label) }
                }
            }
            (field_notes(name, wrong, None))
        }
    }
}

/// Renders a multi-line input.
fn text_area((name, label): (&str, &str), value: &str, help: &str, errors: &FieldErrors) -> Markup {
    let wrong = errors.get(name);
    html! {
        div.field.wrong[wrong.is_some()] {
            label for=(name) { (label) }
            textarea id=(name) name=(name) rows="4" autocomplete="off" autocapitalize="none"
                spellcheck="false" aria-invalid=[wrong.map(|_| "true")]
                aria-describedby=[note_ids(name, wrong, Some(help))] { (value) }
            (field_notes(name, wrong, Some(help)))
        }
    }
}

/// Redirects after a change, or first shows its warnings.
fn redirect_with_warnings(
    user: &SignedInUser,
    here: &'static str,
    warnings: &[String],
    next: &str,
) -> Response {
    if warnings.is_empty() {
        return redirect_to(next);
    }
    let body = html! {
        section.card.broad {
            h1 { "Saved, but" }
            ul { @for warning in warnings { li { (warning) } } }
            p.actions { a.button href=(next) { "Go on" } }
        }
    };
    ok_page(&Layout::signed_in("Saved, but", &user.account).with_nav(here), &body)
}

/// Checkbox that makes the script refresh a part of the page; checked from the start.
fn live_toggle(id: &str, help: &str) -> Markup {
    html! {
        label.tick hidden data-live=(id) {
            input type="checkbox" checked;
            span { "Live" span.help { (help) } }
        }
    }
}
