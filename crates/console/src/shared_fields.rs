//! Groups of fields that more than one form has.

use maud::{Markup, html};

use crate::form::{FieldErrors, FormInput};

/// A new password, twice, with a hint that the script brings to life.
pub(crate) fn new_password(wrongs: &FieldErrors, autofocus: bool) -> Markup {
    html! {
        (FormInput {
            name: "password",
            label: "New password",
            kind: "password",
            autocomplete: "new-password",
            required: true,
            autofocus,
            help: Some("At least 10 characters. A few random words do well."),
            show_strength: true,
            ..FormInput::default()
        }.render(wrongs))
        (FormInput {
            name: "again",
            label: "New password again",
            kind: "password",
            autocomplete: "new-password",
            required: true,
            ..FormInput::default()
        }.render(wrongs))
    }
}

/// The password somebody has, to prove that it is them.
pub(crate) fn current_password(name: &'static str, wrongs: &FieldErrors) -> Markup {
    FormInput {
        name,
        label: "Your password",
        kind: "password",
        autocomplete: "current-password",
        required: true,
        ..FormInput::default()
    }
    .render(wrongs)
}

/// The line above a form that was not taken.
pub(crate) fn error_summary(wrongs: &FieldErrors) -> Markup {
    html! {
        @if !wrongs.is_empty() {
            p.objection role="alert" {
                (wrongs.get("").unwrap_or("Some fields need another look."))
            }
        }
    }
}
