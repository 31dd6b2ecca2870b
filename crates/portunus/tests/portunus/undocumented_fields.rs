//! Fields of answers that no schema of the API description names.

use serde_json::Value;

use crate::answer_schemas::AnswerSchemas;

/// Adds the paths of all fields of a value that the schemas for it do not name. An object whose fields
/// are somebody else's (arguments, metadata) has a schema without fields, and is not looked into.
pub(crate) fn undocumented_fields(
    description: &AnswerSchemas,
    schemas: &[&Value],
    value: &Value,
    path: &str,
    found: &mut Vec<String>,
) {
    let forms = all_forms(description, schemas);
    match value {
        Value::Object(fields) => {
            let named = |form: &&Value| form.get("properties").is_some();
            let is_free = |form: &&Value| {
                let is_object = form["type"] == "object" || form["type"][0] == "object";
                form.as_object().is_some_and(serde_json::Map::is_empty)
                    || form["additionalProperties"].is_object()
                    || form["additionalProperties"] == true
                    || (is_object && !named(form))
            };
            if forms.is_empty() || forms.iter().any(is_free) {
                return;
            }
            for (name, value) in fields {
                let own = forms.iter().filter_map(|form| form["properties"].get(name));
                let own: Vec<&Value> = own.collect();
                let path = format!("{path}.{name}");
                match own.is_empty() {
                    true => found.push(path),
                    false => undocumented_fields(description, &own, value, &path, found),
                }
            }
        }
        Value::Array(values) => {
            let items: Vec<&Value> = forms.iter().filter_map(|form| form.get("items")).collect();
            for value in values {
                undocumented_fields(description, &items, value, &format!("{path}[]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schemas with their references and alternatives.
fn all_forms<'a>(description: &'a AnswerSchemas, schemas: &[&'a Value]) -> Vec<&'a Value> {
    let mut queue: Vec<&Value> = schemas.to_vec();
    let mut forms = Vec::new();
    while let Some(schema) = queue.pop() {
        let target = description.resolved(schema);
        for key in ["oneOf", "anyOf", "allOf"] {
            queue.extend(target[key].as_array().into_iter().flatten());
        }
        forms.push(target);
    }
    forms
}

#[test]
fn a_field_that_no_schema_names_is_found() {
    let description = AnswerSchemas::embedded();
    let schemas = &description.document()["components"]["schemas"];
    let mut reply = schemas["Message"]["examples"][0].clone();
    let schema = serde_json::json!({ "$ref": "#/components/schemas/Message" });
    let fields = |reply: &Value| {
        let mut found = Vec::new();
        undocumented_fields(description, &[&schema], reply, "", &mut found);
        found
    };
    assert_eq!(fields(&reply), Vec::<String>::new());
    reply["usage"]["moons"] = 2.into();
    reply["content"][0]["colour"] = "blue".into();
    assert_eq!(fields(&reply), [".content[].colour", ".usage.moons"]);
}
