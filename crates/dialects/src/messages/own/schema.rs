//! Restricts a JSON Schema to the keywords this format enforces,
//! <https://docs.anthropic.com/en/docs/build-with-claude/structured-outputs>.
//!
//! Objects are closed and `oneOf` becomes `anyOf`. A keyword the format does not enforce moves into
//! the `description`, where the model can read it. A schema that already conforms stays unchanged.

use serde_json::{Map, Value};

const STRING_FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Returns the restricted schema.
pub(crate) fn restrict(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    // Keywords beside a reference are ignored.
    if let Some(target) = fields.get("$ref") {
        let defs = fields.get("$defs").map(|defs| ("$defs".to_owned(), restrict_each(defs)));
        return [("$ref".to_owned(), target.clone())].into_iter().chain(defs).collect();
    }
    let mut restricted = Map::new();
    let mut unsupported = Map::new();
    for (name, value) in fields {
        let is_enforced = match name.as_str() {
            "type" | "enum" | "const" | "required" | "title" | "description" | "default"
            | "$schema" | "$id" => true,
            "format" => value.as_str().is_some_and(|word| STRING_FORMATS.contains(&word)),
            "minItems" => matches!(value.as_u64(), Some(0 | 1)),
            "additionalProperties" => *value == Value::Bool(false),
            _ => false,
        };
        let kept = match (name.as_str(), value) {
            _ if is_enforced => value.clone(),
            ("$defs" | "definitions" | "properties", _) => restrict_each(value),
            ("items", _) => restrict(value),
            ("anyOf" | "oneOf" | "allOf", Value::Array(branches)) => {
                branches.iter().map(restrict).collect()
            }
            // An open object is closed below; the model needs no note of it.
            ("anyOf" | "oneOf" | "allOf", _) | ("additionalProperties", Value::Bool(true)) => {
                continue;
            }
            _ => {
                unsupported.insert(name.clone(), value.clone());
                continue;
            }
        };
        let name = if name == "oneOf" { "anyOf" } else { name.as_str() };
        restricted.insert(name.to_owned(), kept);
    }
    if is_object(&restricted) {
        restricted.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    if !unsupported.is_empty() {
        describe_unsupported(&mut restricted, &unsupported);
    }
    Value::Object(restricted)
}

fn restrict_each(schemas: &Value) -> Value {
    match schemas {
        Value::Object(schemas) => {
            schemas.iter().map(|(name, schema)| (name.clone(), restrict(schema))).collect()
        }
        other => other.clone(),
    }
}

fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => schema.contains_key("properties"),
    }
}

/// Appends constraints to the description, in the wording of the vendor's own SDKs.
fn describe_unsupported(restricted: &mut Map<String, Value>, unsupported: &Map<String, Value>) {
    let list: Vec<String> =
        unsupported.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let list = format!("{{{}}}", list.join(", "));
    let text = match restricted.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text}\n\n{list}"),
        _ => list,
    };
    restricted.insert("description".to_owned(), Value::String(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unsupported_constraints_move_into_the_description() {
        let schema = json!({"type": "object", "properties": {
            "age": {"type": "integer", "minimum": 0, "maximum": 150, "description": "years"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 2},
            "mail": {"type": "string", "format": "email"},
            "shade": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "link": {"$ref": "#/$defs/link", "description": "dropped"}},
            "$defs": {"link": {"type": "object", "properties": {}, "additionalProperties": true}}});
        let restricted = restrict(&schema);
        assert_eq!(
            restricted,
            json!({"type": "object", "properties": {
            "age": {"type": "integer", "description": "years\n\n{minimum: 0, maximum: 150}"},
            "tags": {"type": "array", "description": "{minItems: 2}",
                     "items": {"type": "string", "description": "{maxLength: 9}"}},
            "mail": {"type": "string", "format": "email"},
            "shade": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "link": {"$ref": "#/$defs/link"}},
            "$defs": {"link": {"type": "object", "properties": {}, "additionalProperties": false}},
            "additionalProperties": false})
        );
        assert_eq!(restrict(&restricted), restricted);
    }
}
