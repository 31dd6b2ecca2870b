//! Lenient ProtoJSON as real clients write it (<https://protobuf.dev/programming-guides/json/>),
//! and extras under dotted names.
//!
//! Keys are converted to camelCase one object at a time, by the code that reads that object. Opaque
//! values (arguments, results, schemas, labels) are never entered, so their keys are never renamed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use canon::{ApiError, ExtraFields};
use serde_json::{Map, Value};
use std::borrow::Cow;

use super::names::ORIGIN;
use crate::envelope;
use crate::fields::{JsonPath, ObjectReader, ObjectWriter};

/// Prefixes of extras that belong to nested objects, longer prefixes first.
const SCOPES: [&str; 10] = [
    "toolConfig.functionCallingConfig.",
    "generationConfig.thinkingConfig.",
    "generationConfig.",
    "toolConfig.",
    "usageMetadata.",
    "functionResponse.",
    "functionCall.",
    "codeExecutionResult.",
    "inlineData.",
    "fileData.",
];

/// Converts a field name to camelCase.
pub(crate) fn to_camel_case(name: &str) -> Cow<'_, str> {
    if !name.contains('_') || name.starts_with('_') {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut raise = false;
    for letter in name.chars() {
        match letter {
            '_' => raise = true,
            _ if raise => {
                out.push(letter.to_ascii_uppercase());
                raise = false;
            }
            _ => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// Converts the keys of one object to camelCase; values are left alone.
pub(super) fn camel_keys(map: Map<String, Value>) -> Map<String, Value> {
    if map.keys().all(|name| !name.contains('_')) {
        return map;
    }
    map.into_iter().map(|(name, value)| (to_camel_case(&name).into_owned(), value)).collect()
}

/// Starts reading an object. Any other value is an error.
pub(super) fn fields<'p>(
    value: Value,
    path: &'p JsonPath<'p>,
) -> Result<ObjectReader<'p>, ApiError> {
    match value {
        Value::Object(map) => Ok(ObjectReader::of(camel_keys(map), path)),
        _ => Err(path.fault(format!("`{path}` must be an object"))),
    }
}

/// Takes a list, or one object in place of a list of one.
pub(super) fn list(fields: &mut ObjectReader<'_>, name: &str) -> Result<Vec<Value>, ApiError> {
    match fields.take(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(one @ Value::Object(_)) => Ok(vec![one]),
        Some(_) => Err(fields.fault(name, "must be a list")),
    }
}

/// Takes a list of strings, or one string.
pub(super) fn strings(fields: &mut ObjectReader<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    match fields.take(name) {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one]),
        Some(Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Ok(text),
                _ => Err(fields.fault(name, "must be a list of strings")),
            })
            .collect(),
        Some(_) => Err(fields.fault(name, "must be a list of strings")),
    }
}

/// Takes a whole number, also written as a string or as a float without a fraction.
pub(super) fn integer(fields: &mut ObjectReader<'_>, name: &str) -> Result<Option<i64>, ApiError> {
    match fields.take(name) {
        None => Ok(None),
        Some(value) => match whole(&value) {
            Some(number) => Ok(Some(number)),
            None => Err(fields.fault(name, "must be a whole number")),
        },
    }
}

/// Reads a whole number in any spelling that ProtoJSON allows.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
            #[expect(clippy::cast_possible_truncation, reason = "checked to be within range")]
            (float.abs() < 9.0e15).then_some(float as i64)
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Takes an enum value, in upper case.
pub(super) fn word(fields: &mut ObjectReader<'_>, name: &str) -> Result<Option<String>, ApiError> {
    Ok(fields.string(name)?.map(|word| word.to_ascii_uppercase()))
}

/// Converts base64 (RFC 4648) to the standard alphabet with padding.
pub(super) fn standard(data: String) -> String {
    if !data.contains(['-', '_']) && data.len().is_multiple_of(4) {
        return data;
    }
    envelope::decode(&data).map_or(data, |bytes| STANDARD.encode(bytes))
}

/// Keeps the remaining fields of a nested object under dotted names.
pub(super) fn keep(extras: &mut ExtraFields, scope: &str, rest: ObjectReader<'_>) {
    for (name, value) in rest.remaining() {
        extras.insert(ORIGIN, &format!("{scope}.{name}"), value);
    }
}

/// Writes the extras of one object without overwriting its fields. An empty scope is the outermost
/// object.
pub(super) fn restore(object: ObjectWriter, extras: &ExtraFields, scope: &str) -> ObjectWriter {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_are_read_in_either_spelling() {
        for (name, expected) in [
            ("inline_data", "inlineData"),
            ("inlineData", "inlineData"),
            ("parameters_json_schema", "parametersJsonSchema"),
            ("_private", "_private"),
            ("top_k", "topK"),
        ] {
            assert_eq!(to_camel_case(name), expected);
        }
    }

    #[test]
    fn whole_numbers_are_read_in_three_spellings() {
        for (value, expected) in [
            (Value::from(3), Some(3)),
            (Value::from(3.0), Some(3)),
            (Value::from("3"), Some(3)),
            (Value::from(3.5), None),
            (Value::from("x"), None),
        ] {
            assert_eq!(whole(&value), expected);
        }
    }

    #[test]
    fn base64_is_converted_to_the_standard_alphabet() {
        assert_eq!(standard("_-8=".to_owned()), "/+8=");
        assert_eq!(standard("_-8".to_owned()), "/+8=");
        assert_eq!(standard("/+8=".to_owned()), "/+8=");
        assert_eq!(standard("not base64".to_owned()), "not base64");
    }
}
