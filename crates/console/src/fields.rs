//! Groups of fields that more than one form has.

use maud::{Markup, html};

use crate::form::{Input, Wrongs};

/// A new password, twice, with a hint that the script brings to life.
pub(crate) fn new_password(wrongs: &Wrongs, focus: bool) -> Markup {
    html! {
        (Input {
            name: "password",
            label: "New password",
            kind: "password",
            complete: "new-password",
            required: true,
            focus,
            help: Some("At least 10 characters. A few random words do well."),
            strength: true,
            ..Input::default()
        }.show(wrongs))
        (Input {
            name: "again",
            label: "New password again",
            kind: "password",
            complete: "new-password",
            required: true,
            ..Input::default()
        }.show(wrongs))
    }
}

/// The password somebody has, to prove that it is them.
pub(crate) fn own_password(name: &'static str, wrongs: &Wrongs) -> Markup {
    Input {
        name,
        label: "Your password",
        kind: "password",
        complete: "current-password",
        required: true,
        ..Input::default()
    }
    .show(wrongs)
}

/// The line above a form that was not taken.
pub(crate) fn another_look(wrongs: &Wrongs) -> Markup {
    html! {
        @if !wrongs.is_empty() {
            p.objection role="alert" {
                (wrongs.of("").unwrap_or("Some fields need another look."))
            }
        }
    }
}
