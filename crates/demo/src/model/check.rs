//! JSON Schema validation, for the part of the standard that the demo model supports.

use serde_json::{Map, Value};
use std::cell::Cell;

use super::schema::{self, JsonType};

/// Depth beyond which a value is not checked.
const MAX_DEPTH: usize = 64;
/// Maximum number of schemas visited.
const MAX_SCHEMAS: u32 = 20_000;

/// Returns true if the value fits. Unsupported keywords (`not`, `if`, `pattern`) are ignored.
pub(crate) fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    look(&SchemaRoot { root, fuel: Cell::new(MAX_SCHEMAS) }, schema, value, 0)
}

/// The document that references point into, and the number of schemas that may still be visited: a
/// small schema can refer to itself very often.
struct SchemaRoot<'a> {
    root: &'a Value,
    fuel: Cell<u32>,
}

fn look(root: &SchemaRoot<'_>, schema: &Value, value: &Value, deep: usize) -> bool {
    if let Value::Bool(allowed) = schema {
        return *allowed;
    }
    let Some(object) = schema.as_object() else { return true };
    let Some(fuel) = root.fuel.get().checked_sub(1).filter(|_| deep <= MAX_DEPTH) else {
        return true;
    };
    root.fuel.set(fuel);
    let one = |part: &Value| look(root, part, value, deep + 1);
    let referred = match object.get("$ref").and_then(Value::as_str) {
        Some(reference) => schema::resolve(root.root, reference).is_none_or(one),
        None => true,
    };
    let parts = |name: &str| schema::list(object, name);
    referred
        && parts("allOf").iter().all(one)
        && (parts("anyOf").is_empty() || parts("anyOf").iter().any(one))
        && (parts("oneOf").is_empty()
            || parts("oneOf").iter().filter(|part| one(part)).count() == 1)
        && object.get("const").is_none_or(|only| same(only, value))
        && (!object.contains_key("enum") || parts("enum").iter().any(|item| same(item, value)))
        && fits_type(object, value)
        && match value {
            Value::Object(fields) => fits_object(root, object, fields, deep),
            Value::Array(items) => fits_array(root, object, items, deep),
            Value::String(text) => fits_text(object, text),
            Value::Number(number) => fits_number(object, number.as_f64().unwrap_or(f64::NAN)),
            Value::Bool(_) | Value::Null => true,
        }
}

/// Equal as JSON: `1` and `1.0` are the same number.
fn same(one: &Value, two: &Value) -> bool {
    one == two || (one.is_number() && one.as_f64() == two.as_f64())
}

fn fits_type(schema: &Map<String, Value>, value: &Value) -> bool {
    let types = schema::types(schema);
    types.is_empty()
        || types.iter().any(|kind| match kind {
            JsonType::Object => value.is_object(),
            JsonType::Array => value.is_array(),
            JsonType::String => value.is_string(),
            JsonType::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            JsonType::Number => value.is_number(),
            JsonType::Boolean => value.is_boolean(),
            JsonType::Null => value.is_null(),
        })
}

fn fits_object(
    root: &SchemaRoot<'_>,
    schema: &Map<String, Value>,
    fields: &Map<String, Value>,
    deep: usize,
) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = schema.get("additionalProperties");
    let required = schema::list(schema, "required").iter().filter_map(Value::as_str);
    required.into_iter().all(|name| fields.contains_key(name))
        && fields.len() >= schema::count(schema, "minProperties").unwrap_or(0)
        && fields.len() <= schema::count(schema, "maxProperties").unwrap_or(usize::MAX)
        && fields.iter().all(|(name, value)| {
            match (properties.and_then(|all| all.get(name)), others) {
                (Some(property), _) => look(root, property, value, deep + 1),
                (None, Some(other)) => look(root, other, value, deep + 1),
                (None, None) => true,
            }
        })
}

fn fits_array(
    root: &SchemaRoot<'_>,
    schema: &Map<String, Value>,
    items: &[Value],
    deep: usize,
) -> bool {
    let front = schema::list(schema, "prefixItems");
    let rest = schema.get("items");
    let unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
    items.len() >= schema::count(schema, "minItems").unwrap_or(0)
        && items.len() <= schema::count(schema, "maxItems").unwrap_or(usize::MAX)
        && items.iter().enumerate().all(|(at, item)| match (front.get(at), rest) {
            (Some(schema), _) | (None, Some(schema)) => look(root, schema, item, deep + 1),
            (None, None) => true,
        })
        && (!unique
            || items
                .iter()
                .enumerate()
                .all(|(at, item)| items.iter().take(at).all(|other| !same(other, item))))
}

fn fits_text(schema: &Map<String, Value>, text: &str) -> bool {
    let length = text.chars().count();
    length >= schema::count(schema, "minLength").unwrap_or(0)
        && length <= schema::count(schema, "maxLength").unwrap_or(usize::MAX)
}

fn fits_number(schema: &Map<String, Value>, number: f64) -> bool {
    let (low, high) = schema::bounds(schema);
    let above = low.is_none_or(|(low, open)| if open { number > low } else { number >= low });
    let below = high.is_none_or(|(high, open)| if open { number < high } else { number <= high });
    let step = schema::number(schema, "multipleOf").filter(|step| *step > 0.0);
    let whole = step.is_none_or(|step| {
        let times = number / step;
        (times - times.round()).abs() < 1e-9 * times.abs().max(1.0)
    });
    above && below && whole
}
