//! Converts the format's schema dialect (<https://ai.google.dev/api/caching#Schema>) to JSON
//! Schema.
//!
//! In the dialect, type names are upper case, null is a flag, numbers may be strings, and keys come
//! in both spellings. Property names belong to the caller and stay unchanged. The reverse direction
//! needs no conversion: the original is kept beside the translation, and a foreign schema goes into
//! the fields that accept JSON Schema.

use canon::JsonSchema;
use serde_json::{Map, Value};

use crate::native::names::ORIGIN;
use crate::proto_json::whole_number;
use crate::text::to_camel_case;

/// Reads a schema of the format's dialect.
pub(crate) fn read(original: Value) -> JsonSchema {
    let json = convert(original.clone());
    JsonSchema { json, verbatim: Some((ORIGIN, original)) }
}

fn convert(schema: Value) -> Value {
    let Value::Object(map) = schema else { return schema };
    let mut out = Map::new();
    let mut nullable = false;
    let mut ordering = Value::Null;
    for (name, value) in map {
        let name = to_camel_case(&name);
        let (name, value) = match &*name {
            "type" => match kind(value) {
                Some(value) => ("type", value),
                None => continue,
            },
            "nullable" => {
                nullable = value == Value::Bool(true);
                continue;
            }
            "propertyOrdering" => {
                ordering = value;
                continue;
            }
            "format" if value == "enum" => continue,
            "example" => ("examples", Value::Array(vec![value])),
            "defs" | "$defs" => ("$defs", each(value)),
            "ref" | "$ref" => ("$ref", value),
            "properties" => ("properties", each(value)),
            name @ ("items" | "additionalProperties" | "not") => (name, convert(value)),
            name @ ("anyOf" | "oneOf" | "allOf" | "prefixItems") => match value {
                Value::Array(items) => (name, items.into_iter().map(convert).collect()),
                other => (name, Value::Array(vec![convert(other)])),
            },
            name @ ("minItems" | "maxItems" | "minProperties" | "maxProperties" | "minLength"
            | "maxLength") => (name, whole_number(&value).map_or(value, Value::from)),
            name => (name, value),
        };
        out.insert(name.to_owned(), value);
    }
    if let Some(Value::Object(properties)) = out.get_mut("properties") {
        reorder(properties, &ordering);
    }
    if nullable { null_too(out) } else { Value::Object(out) }
}

/// Sorts properties as `propertyOrdering` lists them. Models of the other formats write them in the
/// order of the schema.
fn reorder(properties: &mut Map<String, Value>, ordering: &Value) {
    let mut sorted = Map::new();
    for name in ordering.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if let Some(value) = properties.get_mut(name).map(Value::take).filter(|v| !v.is_null()) {
            sorted.insert(name.to_owned(), value);
        }
    }
    if !sorted.is_empty() {
        properties.retain(|name, _| !sorted.contains_key(name));
        sorted.append(properties);
        *properties = sorted;
    }
}

/// Converts type names to lower case and drops `TYPE_UNSPECIFIED`.
fn kind(value: Value) -> Option<Value> {
    match value {
        Value::String(word) if word.eq_ignore_ascii_case("TYPE_UNSPECIFIED") => None,
        Value::String(word) => Some(Value::from(word.to_ascii_lowercase())),
        Value::Array(words) => Some(words.into_iter().filter_map(kind).collect()),
        other => Some(other),
    }
}

/// Converts a map of schemas; its keys belong to the caller.
fn each(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    map.into_iter().map(|(name, schema)| (name, convert(schema))).collect()
}

fn null_too(mut schema: Map<String, Value>) -> Value {
    let null = || Value::from("null");
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) => kinds.push(null()),
        Some(kind) => *kind = Value::Array(vec![kind.take(), null()]),
        None => {
            if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
                let mut empty = Map::new();
                empty.insert("type".to_owned(), null());
                choices.push(Value::Object(empty));
            }
        }
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dialect_becomes_json_schema_and_property_names_stay() {
        let schema = read(json!({
            "type": "OBJECT",
            "properties": {
                "first_name": {"type": "STRING", "nullable": true, "max_length": "9"},
                "type": {"type": "STRING", "format": "enum", "enum": ["a", "b"]},
                "tags": {"type": "ARRAY", "items": {"any_of": [{"type": "INTEGER"}]}, "minItems": "1"},
            },
            "required": ["first_name"],
            "property_ordering": ["first_name", "type"],
            "example": {"first_name": "x"},
        }));
        let expected = json!({
            "type": "object",
            "properties": {
                "first_name": {"type": ["string", "null"], "maxLength": 9},
                "type": {"type": "string", "enum": ["a", "b"]},
                "tags": {"type": "array", "items": {"anyOf": [{"type": "integer"}]}, "minItems": 1},
            },
            "required": ["first_name"],
            "examples": [{"first_name": "x"}],
        });
        assert_eq!(schema.json, expected);
    }

    #[test]
    fn json_schema_stays_unchanged() {
        let given = json!({
            "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            "$ref": "#/$defs/Node",
            "additionalProperties": false,
        });
        assert_eq!(read(given.clone()).json, given);
    }
}
