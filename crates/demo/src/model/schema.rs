//! Lenient JSON Schema reader: several spellings, references, merged parts.

use serde_json::{Map, Value};

/// JSON types in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    Null,
}

impl JsonType {
    /// Returns the type with that word, in lower or upper case.
    fn by_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "null" => Self::Null,
            _ => return None,
        })
    }
}

/// Returns the allowed types in the order of the schema; empty if it lists none.
pub(crate) fn types(schema: &Map<String, Value>) -> Vec<JsonType> {
    let mut types: Vec<JsonType> = match schema.get("type") {
        Some(Value::String(name)) => JsonType::by_name(name).into_iter().collect(),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).filter_map(JsonType::by_name).collect()
        }
        _ => Vec::new(),
    };
    if !types.is_empty() && schema.get("nullable") == Some(&Value::Bool(true)) {
        types.push(JsonType::Null);
    }
    types
}

/// Returns the most likely type of a schema.
pub(crate) fn likely(schema: &Map<String, Value>) -> JsonType {
    let listed = types(schema);
    let solid = listed.iter().find(|kind| **kind != JsonType::Null).or(listed.first());
    if let Some(kind) = solid {
        return *kind;
    }
    let has = |names: &[&str]| names.iter().any(|name| schema.contains_key(*name));
    if has(&["properties", "required", "additionalProperties", "minProperties"]) {
        JsonType::Object
    } else if has(&["items", "prefixItems", "minItems", "uniqueItems"]) {
        JsonType::Array
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        JsonType::Number
    } else {
        JsonType::String
    }
}

/// Returns a number in a schema. The native format writes integers as strings.
pub(crate) fn number(schema: &Map<String, Value>, name: &str) -> Option<f64> {
    match schema.get(name) {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    }
}

/// Returns a count in a schema.
pub(crate) fn count(schema: &Map<String, Value>, name: &str) -> Option<usize> {
    let number = number(schema, name).filter(|number| *number >= 0.0)?;
    // Larger than anything generated, and still exact.
    Some(number.min(1e9) as usize)
}

/// The bound of a range, with true if the bound itself is excluded.
pub(crate) type RangeBound = (f64, bool);

/// Returns the lowest and the highest allowed value.
pub(crate) fn bounds(schema: &Map<String, Value>) -> (Option<RangeBound>, Option<RangeBound>) {
    let side = |plain: &str, strict: &str| {
        let old_form = schema.get(strict) == Some(&Value::Bool(true));
        match (number(schema, plain), number(schema, strict)) {
            (_, Some(border)) => Some((border, true)),
            (Some(border), None) => Some((border, old_form)),
            (None, None) => None,
        }
    };
    (side("minimum", "exclusiveMinimum"), side("maximum", "exclusiveMaximum"))
}

/// Returns the list under a name; empty if there is none.
pub(crate) fn list<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    schema.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the target of a reference inside the document.
pub(crate) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#').unwrap_or(reference);
    if pointer.is_empty() {
        return Some(root);
    }
    let named = |folder: &str| root.get(folder).and_then(|folder| folder.get(pointer));
    root.pointer(pointer).or_else(|| named("$defs")).or_else(|| named("definitions"))
}

/// Returns a schema with its reference resolved and its `allOf` merged. `None` if everything or
/// nothing is allowed, or if references form a circle: each step uses fuel, because a small schema
/// can refer to itself very often.
pub(crate) fn flat(root: &Value, schema: &Value, fuel: &mut u32) -> Option<Map<String, Value>> {
    flat_below(root, schema, fuel, 0)
}

fn flat_below(
    root: &Value,
    schema: &Value,
    fuel: &mut u32,
    deep: usize,
) -> Option<Map<String, Value>> {
    *fuel = fuel.checked_sub(1)?;
    if deep > 24 {
        return None;
    }
    let mut all = schema.as_object()?.clone();
    if let Some(Value::String(reference)) = all.shift_remove("$ref") {
        let target = flat_below(root, resolve(root, &reference)?, fuel, deep + 1)?;
        all = merge(target, all);
    }
    if let Some(Value::Array(parts)) = all.shift_remove("allOf") {
        for part in parts.iter().take(32) {
            if let Some(part) = flat_below(root, part, fuel, deep + 1) {
                all = merge(all, part);
            }
        }
    }
    Some(all)
}

/// Merges two schemas that must both hold.
pub(crate) fn merge(one: Map<String, Value>, two: Map<String, Value>) -> Map<String, Value> {
    let mut all = one;
    for (name, value) in two {
        let Some(before) = all.shift_remove(&name) else {
            all.insert(name, value);
            continue;
        };
        let merged = match (name.as_str(), before, value) {
            ("properties", Value::Object(mut mine), Value::Object(other)) => {
                for (property, schema) in other {
                    let schema = match mine.shift_remove(&property) {
                        Some(before) if before != schema => both(before, schema),
                        _ => schema,
                    };
                    mine.insert(property, schema);
                }
                Value::Object(mine)
            }
            ("required", Value::Array(mut mine), Value::Array(other)) => {
                for item in other {
                    if !mine.contains(&item) {
                        mine.push(item);
                    }
                }
                Value::Array(mine)
            }
            ("enum", Value::Array(mine), Value::Array(other)) => {
                Value::Array(mine.into_iter().filter(|item| other.contains(item)).collect())
            }
            (
                "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties",
                Value::Number(mine),
                Value::Number(other),
            ) => Value::Number(if mine.as_f64() > other.as_f64() { mine } else { other }),
            (
                "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties",
                Value::Number(mine),
                Value::Number(other),
            ) => Value::Number(if mine.as_f64() < other.as_f64() { mine } else { other }),
            (
                "items" | "additionalProperties",
                mine @ Value::Object(_),
                other @ Value::Object(_),
            ) => both(mine, other),
            (_, _, other) => other,
        };
        all.insert(name, merged);
    }
    all
}

fn both(one: Value, two: Value) -> Value {
    let mut all = Map::new();
    all.insert("allOf".to_owned(), Value::Array(vec![one, two]));
    Value::Object(all)
}
