//! Small helpers for JSON objects.

use serde_json::{Map, Value};

/// Parses a JSON object the gateway wrote itself; empty if it is none.
pub(crate) fn parse_object(text: impl AsRef<[u8]>) -> Map<String, Value> {
    dialects::json::read_bytes(text.as_ref()).unwrap_or_default()
}

pub(crate) fn set_fields<const N: usize>(
    object: &mut Map<String, Value>,
    fields: [(&str, Value); N],
) {
    for (name, value) in fields {
        object.insert(name.to_owned(), value);
    }
}

/// Returns a text field of an object; empty if absent.
pub(crate) fn text_field<'a>(object: &'a Map<String, Value>, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}
