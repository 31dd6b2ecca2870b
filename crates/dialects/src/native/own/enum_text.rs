//! `responseMimeType: text/x.enum`: the reply is one bare value of an enum.
//!
//! Other formats have only JSON, and their schemas begin with an object. So the schema is wrapped
//! in an object with one field, and the value of that field is the reply.

use canon::{ExtraFields, JsonSchema};
use serde_json::{Value, json};

use crate::json;
use crate::native::names::{ENUM_EXTRA, ORIGIN};

/// The type of a reply that is one bare value.
pub(crate) const MIME: &str = "text/x.enum";

/// The only field of the wrapper.
const FIELD: &str = "value";

/// Wraps the schema of an enum.
pub(crate) fn wrap(schema: JsonSchema) -> JsonSchema {
    let JsonSchema { json, verbatim } = schema;
    let json = json!({
        "type": "object",
        "properties": { FIELD: json },
        "required": [FIELD],
        "additionalProperties": false,
    });
    JsonSchema { json, verbatim }
}

/// Returns the schema within the wrapper, for a provider of this format.
pub(crate) fn unwrap(schema: &Value) -> &Value {
    schema.get("properties").and_then(|fields| fields.get(FIELD)).unwrap_or(schema)
}

/// Returns true if the options of a request ask for a bare value.
pub(crate) fn is_requested(extras: &ExtraFields) -> bool {
    extras.get(ORIGIN, ENUM_EXTRA).is_some()
}

/// Returns the bare value of a reply: without the wrapper, without quotes. Other text is unchanged.
pub(crate) fn bare_value(text: &str) -> String {
    let value = json::read::<Value>(text).unwrap_or_default();
    match value.get(FIELD).unwrap_or(&value) {
        Value::String(word) => word.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_value_has_neither_wrapper_nor_quotes() {
        for text in [r#"{"value":"a \"b\""}"#, r#" "a \"b\"" "#, "a \"b\""] {
            assert_eq!(bare_value(text), "a \"b\"");
        }
        assert_eq!(bare_value(r#"{"value": 7}"#), "7");
        assert_eq!(bare_value(r#"{"other": 7}"#), r#"{"other": 7}"#);
    }
}
