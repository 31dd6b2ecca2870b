//! Fields shared by several forms.

use admin::ReadVersion;
use maud::{Markup, html};
use store::ObjectSharing;

use crate::form::{FieldErrors, FormFields, FormInput};

/// Two inputs for a new password; the script adds a strength hint.
pub(crate) fn new_password(errors: &FieldErrors, autofocus: bool) -> Markup {
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
        }.render(errors))
        (FormInput {
            name: "again",
            label: "New password again",
            kind: "password",
            autocomplete: "new-password",
            required: true,
            ..FormInput::default()
        }.render(errors))
    }
}

/// Input for the current password.
pub(crate) fn current_password(name: &'static str, errors: &FieldErrors) -> Markup {
    FormInput {
        name,
        label: "Your password",
        kind: "password",
        autocomplete: "current-password",
        required: true,
        ..FormInput::default()
    }
    .render(errors)
}

/// Input for a number that may be left out, for a form in which all may be.
pub(crate) fn number_input(
    (name, label): (&'static str, &'static str),
    input_mode: &'static str,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    FormInput {
        name,
        label,
        value: fields.get(name),
        input_mode: Some(input_mode),
        mark_optional: false,
        ..FormInput::default()
    }
    .render(errors)
}

/// Tick box with which the keys of an account or team share their objects.
pub(crate) fn share_field(fields: &FormFields) -> Markup {
    let account = ObjectSharing::Account.word();
    html! {
        label.tick {
            input type="checkbox" name="share" value=(account)
                checked[fields.get("share") == account];
            span {
                "Keys share what they store"
                span.help { "Every key reads and deletes the stored answers, tasks, replays and \
                    receipts of all. Otherwise they belong to the key that made them." }
            }
        }
    }
}

/// Reads that tick box.
pub(crate) fn read_share(fields: &FormFields) -> ObjectSharing {
    ObjectSharing::by_word(fields.get("share")).unwrap_or_default()
}

/// Message above a rejected form.
pub(crate) fn error_summary(errors: &FieldErrors) -> Markup {
    html! {
        @if !errors.is_empty() {
            p.objection role="alert" {
                (errors.get("").unwrap_or("Some fields need another look."))
            }
        }
    }
}

/// Hidden field with the version of the edited object.
const VERSION_FIELD: &str = "tag";

/// Renders the hidden field with the version of the edited object.
pub(crate) fn version_field(version: &str) -> Markup {
    html! { input type="hidden" name=(VERSION_FIELD) value=(version); }
}

/// Version the user saw, from the hidden field.
pub(crate) fn read_version(fields: &FormFields) -> ReadVersion<'_> {
    ReadVersion(Some(fields.get(VERSION_FIELD)).filter(|version| !version.is_empty()))
}
