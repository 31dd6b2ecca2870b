//! Fields of nested objects that canon has no place for, kept under dotted names
//! (`generationConfig.speechConfig`), so that a loss names the field and not its container.

use canon::ExtraFields;

use crate::fields::ObjectWriter;
use crate::native::names::ORIGIN;
use crate::wire_object::{UnknownFields, raw_value};

/// Prefixes of extras that belong to nested objects, longer prefixes first.
const SCOPES: [&str; 11] = [
    "toolConfig.functionCallingConfig.",
    "generationConfig.thinkingConfig.",
    "generationConfig.",
    "toolConfig.",
    "usageMetadata.",
    "functionResponse.",
    "functionCall.",
    "executableCode.",
    "codeExecutionResult.",
    "inlineData.",
    "fileData.",
];

/// Keeps the unread fields of a nested object under dotted names. An empty scope is the outermost
/// object.
pub(crate) fn keep(extras: &mut ExtraFields, scope: &str, rest: &UnknownFields<'_>) {
    for (name, value) in rest.present() {
        match scope {
            "" => extras.insert(ORIGIN, name, raw_value(value)),
            _ => extras.insert(ORIGIN, &format!("{scope}.{name}"), raw_value(value)),
        }
    }
}

/// Writes the extras of one object without overwriting its fields. An empty scope is the outermost
/// object.
pub(crate) fn restore(object: ObjectWriter, extras: &ExtraFields, scope: &str) -> ObjectWriter {
    let fields = extras.for_format(ORIGIN).into_iter().flatten();
    object.with_fields(fields.filter_map(|(name, value)| Some((own_name(name, scope)?, value))))
}

/// Returns the bare field name if the extra belongs directly into the scope.
fn own_name<'a>(name: &'a str, scope: &str) -> Option<&'a str> {
    let home = SCOPES.into_iter().find(|prefix| name.starts_with(prefix));
    match home {
        // Notes that a reader left for the writer are not part of the format.
        None if scope.is_empty() && !name.starts_with("portunus.") => Some(name),
        Some(prefix) if prefix.strip_suffix('.') == Some(scope) => name.strip_prefix(prefix),
        _ => None,
    }
}
