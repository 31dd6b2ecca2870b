//! The second spelling of names in native requests: snake_case beside camelCase.
//!
//! Most objects are open, so that a second spelling fits them. Here are those that are not.

use dialects::snake_case;
use serde_json::{Map, Value, json};

/// Objects of native requests that are closed, or that require a name with a capital letter.
pub(super) const STRICT_OBJECTS: [&str; 4] = ["Part", "Blob", "FileReference", "NewCachedContent"];

/// Adds the second spelling to these objects.
pub(super) fn add(document: &mut Map<String, Value>) {
    let components = document.get_mut("components").and_then(Value::as_object_mut);
    let schemas = components.and_then(|all| all.get_mut("schemas")?.as_object_mut());
    let Some(schemas) = schemas else { return };
    for name in STRICT_OBJECTS {
        if let Some(schema) = schemas.get_mut(name).and_then(Value::as_object_mut) {
            add_to_object(schema);
        }
    }
}

fn add_to_object(schema: &mut Map<String, Value>) {
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let camel: Vec<(String, Value)> = fields
            .iter()
            .filter(|(name, _)| has_capital(name))
            .map(|(name, field)| (name.clone(), field.clone()))
            .collect();
        for (name, mut field) in camel {
            if let Some(field) = field.as_object_mut() {
                let same = format!("Other spelling of `{name}`.");
                field.insert("description".to_owned(), json!(same));
            }
            fields.insert(snake_case(&name), field);
        }
    }
    let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) else { return };
    let mut spellings = Vec::new();
    required.retain(|name| match name.as_str().filter(|name| has_capital(name)) {
        Some(name) => {
            let either = json!([{ "required": [name] }, { "required": [snake_case(name)] }]);
            spellings.push(json!({ "anyOf": either }));
            false
        }
        None => true,
    });
    if required.is_empty() {
        schema.remove("required");
    }
    if !spellings.is_empty() {
        schema.insert("allOf".to_owned(), Value::Array(spellings));
    }
}

pub(super) fn has_capital(name: &str) -> bool {
    name.bytes().any(|byte| byte.is_ascii_uppercase())
}
