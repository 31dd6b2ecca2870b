//! Schemas of the OpenAPI document as tables of fields, for `/docs`.

use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeSet;

use super::reference::{inline_code, list, text};

/// Depth of nested objects that one table shows.
const MAX_DEPTH: usize = 6;

/// Resolves a `$ref` within the document.
pub(super) fn resolve_ref<'a>(document: &'a Value, given: &'a Value) -> &'a Value {
    let to = given.get("$ref").and_then(Value::as_str);
    let to = to.and_then(|to| document.pointer(to.trim_start_matches('#')));
    to.unwrap_or(given)
}

/// Returns the name of the object that a schema refers to.
pub(super) fn object_name(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")
}

/// Returns the alternatives of a schema, without null.
fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let forms = ["oneOf", "anyOf"].into_iter().flat_map(|key| list(schema.get(key)));
    forms.filter(|form| text(form.get("type")) != "null")
}

/// Adds the names of all objects that a schema leads to.
pub(super) fn collect_objects<'a>(
    document: &'a Value,
    schema: &'a Value,
    names: &mut BTreeSet<&'a str>,
) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = object_name(schema)
                && names.insert(name)
            {
                collect_objects(document, resolve_ref(document, schema), names);
            }
            let inner = fields.iter().filter(|(name, _)| !name.starts_with("example"));
            inner.for_each(|(_, value)| collect_objects(document, value, names));
        }
        Value::Array(items) => items.iter().for_each(|one| collect_objects(document, one, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One row of a table: a field, or a field of an object inside.
struct FieldRow<'a> {
    path: String,
    is_required: bool,
    schema: &'a Value,
}

fn collect_rows<'a>(schema: &'a Value, prefix: &str, depth: usize, rows: &mut Vec<FieldRow<'a>>) {
    let fields = schema.get("properties").and_then(Value::as_object);
    let required = list(schema.get("required"));
    for (name, field) in fields.into_iter().flatten().filter(|_| depth < MAX_DEPTH) {
        let path = format!("{prefix}{name}");
        let is_required = required.iter().any(|one| one == name);
        // Objects without a name of their own are shown in place.
        let items = field.get("items");
        let inner = items.unwrap_or(field);
        let inside = format!("{path}{}", if items.is_some() { "[]." } else { "." });
        rows.push(FieldRow { path, is_required, schema: field });
        collect_rows(inner, &inside, depth + 1, rows);
        for form in alternatives(inner).filter(|form| object_name(form).is_none()) {
            let form = form.get("items").unwrap_or(form);
            collect_rows(form, &inside, depth + 1, rows);
        }
    }
    for part in list(schema.get("allOf")) {
        collect_rows(part, prefix, depth + 1, rows);
    }
}

/// Table of the fields of a schema; empty for a schema without fields.
pub(super) fn field_table(schema: &Value) -> Markup {
    let mut rows = Vec::new();
    collect_rows(schema, "", 0, &mut rows);
    html! {
        @if !rows.is_empty() {
            table.fields {
                tbody {
                    @for row in &rows {
                        tr {
                            th scope="row" {
                                code { (row.path) }
                                @if row.is_required { (required_badge()) }
                            }
                            td.muted { (type_name(row.schema)) }
                            td {
                                (inline_code(text(row.schema.get("description"))))
                                (value_range(row.schema))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A named object: its fields, or its alternatives.
pub(super) fn object_entry(document: &Value, name: &str) -> Markup {
    let schema = document.pointer(&format!("/components/schemas/{name}")).unwrap_or(&Value::Null);
    let parts = list(schema.get("allOf")).iter().filter_map(object_name);
    let forms: Vec<&Value> = alternatives(schema).collect();
    html! {
        details id=(name) {
            summary { code.path { (name) } span.what { (inline_code(text(schema.get("description")))) } }
            div.inside {
                @for part in parts { p { "The fields of " (object_link(part)) ", and:" } }
                (field_table(schema))
                @if !forms.is_empty() {
                    p { "One of:" }
                    ul {
                        @for form in forms {
                            li {
                                (type_name(form)) " " (inline_code(text(form.get("description"))))
                                (field_table(form))
                            }
                        }
                    }
                }
                (value_range(schema))
            }
        }
    }
}

fn object_link(name: &str) -> Markup {
    html! { a href={ "#" (name) } { (name) } }
}

pub(super) fn required_badge() -> Markup {
    html! { " " span.badge.off { "required" } }
}

/// Type of a field, with links to named objects.
pub(super) fn type_name(schema: &Value) -> Markup {
    if let Some(name) = object_name(schema) {
        return object_link(name);
    }
    let forms: Vec<&Value> = alternatives(schema).collect();
    let word = |word: &str| match (word, schema.get("items"), schema.get("additionalProperties")) {
        ("array", Some(items), _) => html! { "list of " (type_name(items)) },
        ("object", _, Some(values @ Value::Object(_))) => html! { "map of " (type_name(values)) },
        _ => html! { (word) },
    };
    let words: Vec<Markup> = match schema.get("type") {
        Some(Value::String(one)) => vec![word(one)],
        Some(Value::Array(several)) => {
            let several = several.iter().filter_map(Value::as_str);
            several.filter(|one| *one != "null").map(word).collect()
        }
        _ => forms.into_iter().map(type_name).collect(),
    };
    html! {
        @for (index, word) in words.iter().enumerate() { @if index > 0 { " or " } (word) }
        @if words.is_empty() { "any value" }
    }
}

/// Allowed values of a field.
fn value_range(field: &Value) -> Markup {
    let inner = field.get("items").unwrap_or(field);
    let words = list(inner.get("enum")).iter().chain(inner.get("const"));
    let forms = alternatives(inner).flat_map(|form| list(form.get("enum")));
    let words: Vec<&str> = words.chain(forms).filter_map(Value::as_str).collect();
    let number = |name| field.get(name).map(Value::to_string);
    html! {
        @if !words.is_empty() {
            " " @for (index, word) in words.iter().enumerate() { @if index > 0 { ", " } code { (word) } }
        }
        @match (number("minimum"), number("maximum")) {
            (Some(least), Some(most)) => { " " (least) " to " (most) "." },
            (Some(least), None) if least != "0" => { " At least " (least) "." },
            (None, Some(most)) => { " At most " (most) "." },
            (Some(_) | None, None) => {},
        }
        @if let Some(most) = number("maxItems") { " At most " (most) " entries." }
        @if let Some(value) = field.get("default") { " Default: " code { (plain(value)) } "." }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
