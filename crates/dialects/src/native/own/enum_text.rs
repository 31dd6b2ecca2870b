//! `responseMimeType: text/x.enum`: the reply is one bare value of an enum.
//!
//! Other formats have only JSON, and their schemas begin with an object. So the schema is wrapped
//! in an object with one field, and the value of that field is the reply.

use canon::{ExtraFields, JsonSchema};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value, json};

use crate::json_reader;
use crate::native::names::{ENUM_EXTRA, ORIGIN};
use crate::text::BorrowedText;

/// The type of a reply that is one bare value.
pub(crate) const MIME: &str = "text/x.enum";

/// The only field of the wrapper.
const FIELD: &str = "value";

/// The wrapper around the value. Other replies can be large, so they are not read into a tree.
#[derive(Deserialize)]
struct WrappedValue<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
}

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
    let wrapped = text.trim_start().starts_with('{').then(|| json_reader::read(text).ok());
    let inner = wrapped.flatten().map_or(text, |WrappedValue { value }| value.get());
    if let Ok(BorrowedText(word)) = json_reader::read(inner) {
        return word.into_owned();
    }
    let number = json_reader::read::<Number>(inner).map(|_| inner.trim());
    number.unwrap_or(text).to_owned()
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
