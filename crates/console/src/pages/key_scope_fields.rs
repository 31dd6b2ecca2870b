//! Fields of the key form that narrow a scope: reading alone, or parts of administration.

use maud::{Markup, html};
use store::{AdminPart, KeyGrants, KeyScope};

use crate::form::FormFields;

const READ_ONLY_FIELD: &str = "read_only";

fn part_field(part: AdminPart) -> String {
    format!("part_{}", part.word())
}

/// Reads the part of a scope that a new key is for.
pub(super) fn read_grants(scope: KeyScope, fields: &FormFields) -> KeyGrants {
    match scope {
        KeyScope::Call if fields.contains(READ_ONLY_FIELD) => KeyGrants::Read,
        KeyScope::Call => KeyGrants::All,
        KeyScope::Admin => {
            let chosen = |part: &AdminPart| fields.contains(&part_field(*part));
            let parts: Vec<AdminPart> = AdminPart::ALL.into_iter().filter(chosen).collect();
            if parts.is_empty() { KeyGrants::All } else { KeyGrants::Parts(parts) }
        }
    }
}

/// Renders the field for a key that makes no calls.
pub(super) fn render_read_only(fields: &FormFields) -> Markup {
    html! {
        label.tick {
            input type="checkbox" name=(READ_ONLY_FIELD) value="yes"
                checked[fields.contains(READ_ONLY_FIELD)];
            span {
                "Only read"
                span.help { "Scope read: it sees usage, answers and tasks, and makes no calls. \
                    It needs no quota." }
            }
        }
    }
}

/// Renders the fields for the parts of administration.
pub(super) fn render_parts(fields: &FormFields) -> Markup {
    html! {
        fieldset {
            legend { "Parts of administration" }
            p.help { "Tick what the key is for. Without a tick it is for everything." }
            @for part in AdminPart::ALL {
                @let name = part_field(part);
                label.tick {
                    input type="checkbox" name=(name) value="yes" checked[fields.contains(&name)];
                    span { (part.word()) }
                }
            }
        }
    }
}
