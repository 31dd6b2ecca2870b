//! `/docs`: API reference rendered from the OpenAPI document.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::copy_block;
use crate::layout::{Layout, SiteSection, ok_page, with_revalidation};
use crate::page_error::PageError;
use crate::snippet;
use crate::state::ConsoleState;

type JsonObject = Map<String, Value>;

/// Methods in display order.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// One operation and its path.
struct DocumentedOperation<'a> {
    method: &'static str,
    path: &'a str,
    own: &'a JsonObject,
    /// Parameters shared by all operations of the path.
    shared: &'a [Value],
}

/// `GET /docs`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>) -> Result<Response, PageError> {
    let document = Value::Object(state.host.openapi());
    let url = state.base_url();
    let operations = operations(&document);
    let tags = list(document.get("tags"));
    let of = |tag: &str| -> Vec<&DocumentedOperation<'_>> {
        operations.iter().filter(|one| list(one.own.get("tags")).iter().any(|t| t == tag)).collect()
    };
    let body = html! {
        h1 { "API reference" }
        p.lead { (inline_code(text(document.pointer("/info/description")))) }
        p.muted {
            "For machines: " a href="/openapi.json" { "openapi.json" } ". The base address is "
            code { (url) } "; a key goes into " code { "Authorization: Bearer" } ", "
            code { "x-api-key" } ", " code { "x-goog-api-key" } " or " code { "x-vendor-api-key" } "."
        }
        nav.contents aria-label="Parts of the reference" {
            @for tag in tags {
                @let name = text(tag.get("name"));
                @if !of(name).is_empty() { a href={ "#" (name) } { (title(name)) } }
            }
        }
        @for tag in tags {
            @let name = text(tag.get("name"));
            @let found = of(name);
            @if !found.is_empty() {
                section id=(name) {
                    h2 { (title(name)) }
                    p.muted { (inline_code(text(tag.get("description")))) }
                    div.sheet.operations { @for one in found { (operation_entry(&document, one, &url)) } }
                }
            }
        }
    };
    Ok(with_revalidation(ok_page(&Layout::public("API reference", SiteSection::Reference), &body)))
}

fn operations(document: &Value) -> Vec<DocumentedOperation<'_>> {
    let paths = document.get("paths").and_then(Value::as_object);
    let mut all = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        for method in METHODS {
            if let Some(own) = item.get(method).and_then(Value::as_object) {
                all.push(DocumentedOperation {
                    method,
                    path,
                    own,
                    shared: list(item.get("parameters")),
                });
            }
        }
    }
    all
}

fn operation_entry(document: &Value, one: &DocumentedOperation<'_>, url: &str) -> Markup {
    let DocumentedOperation { method, path, own, shared } = one;
    let name = text(own.get("operationId"));
    let parameters = shared.iter().chain(list(own.get("parameters")));
    let parameters: Vec<&Value> = parameters.map(|given| resolve_ref(document, given)).collect();
    let schema = own.get("requestBody").and_then(|body| body.pointer("/content/application~1json"));
    let schema = schema.and_then(|content| content.get("schema"));
    let schema = schema.map(|given| resolve_ref(document, given));
    let example = schema.and_then(|schema| schema.pointer("/examples/0"));
    html! {
        details id=(name) {
            summary {
                span.method.(method) { (method.to_uppercase()) }
                code.path { (path) }
                span.what { (text(own.get("summary"))) }
            }
            div.inside {
                @if let Some(about) = own.get("description") { p { (inline_code(text(Some(about)))) } }
                @if !parameters.is_empty() { (parameter_table(&parameters)) }
                @if let Some(schema) = schema { (field_table(schema)) }
                @if let Some(example) = example {
                    (copy_block(&format!("curl-{name}"), "curl", &curl(url, path, example)))
                }
            }
        }
    }
}

fn parameter_table(parameters: &[&Value]) -> Markup {
    let row = |one: &Value| {
        let location = text(one.get("in"));
        let required = one.get("required") == Some(&Value::Bool(true));
        html! {
            tr {
                th scope="row" { code { (text(one.get("name"))) } @if required { (required_badge()) } }
                td.muted { (location) }
                td { (inline_code(text(one.get("description")))) }
            }
        }
    };
    html! {
        h3 { "Parameters" }
        table.fields { tbody { @for one in parameters { (row(one)) } } }
    }
}

/// Table of body fields; empty for bodies without a schema.
fn field_table(schema: &Value) -> Markup {
    let fields = schema.get("properties").and_then(Value::as_object);
    let required = list(schema.get("required"));
    html! {
        @if let Some(fields) = fields {
            h3 { "Body" }
            table.fields {
                tbody {
                    @for (name, field) in fields {
                        tr {
                            th scope="row" {
                                code { (name) }
                                @if required.iter().any(|one| one == name) { (required_badge()) }
                            }
                            td.muted { (type_name(field)) }
                            td { (inline_code(text(field.get("description")))) (value_range(field)) }
                        }
                    }
                }
            }
        }
    }
}

fn required_badge() -> Markup {
    html! { " " span.badge.off { "required" } }
}

/// Type of a field.
fn type_name(field: &Value) -> String {
    let plain = |word: &str| (word != "null").then(|| word.to_owned());
    match field.get("type") {
        Some(Value::String(word)) => word.clone(),
        Some(Value::Array(words)) => {
            let words: Vec<String> =
                words.iter().filter_map(Value::as_str).filter_map(plain).collect();
            words.join(" or ")
        }
        _ => {
            let forms =
                list(field.get("oneOf")).iter().map(type_name).filter(|word| word != "null");
            let forms: Vec<String> = forms.filter(|word| !word.is_empty()).collect();
            if forms.is_empty() { "object".to_owned() } else { forms.join(" or ") }
        }
    }
}

/// Allowed values of a field.
fn value_range(field: &Value) -> Markup {
    let words: Vec<&str> = list(field.get("enum")).iter().filter_map(Value::as_str).collect();
    let number = |name| field.get(name).map(Value::to_string);
    html! {
        @if !words.is_empty() {
            " " @for (index, word) in words.iter().enumerate() { @if index > 0 { ", " } code { (word) } }
        }
        @match (number("minimum"), number("maximum")) {
            (Some(least), Some(most)) => { " " (least) " to " (most) "." },
            (Some(least), None) => { " At least " (least) "." },
            (None, Some(most)) => { " At most " (most) "." },
            (None, None) => {},
        }
    }
}

fn curl(url: &str, path: &str, example: &Value) -> String {
    let body = serde_json::to_string_pretty(example).unwrap_or_default();
    format!(
        "curl {url}{path} \\\n  -H \"Authorization: Bearer {}\" \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{body}'",
        snippet::KEY_VARIABLE
    )
}

/// Resolves a `$ref` within the document.
fn resolve_ref<'a>(document: &'a Value, given: &'a Value) -> &'a Value {
    let to = given.get("$ref").and_then(Value::as_str);
    let to = to.and_then(|to| document.pointer(to.trim_start_matches('#')));
    to.unwrap_or(given)
}

/// Renders text in backquotes as code.
fn inline_code(text: &str) -> Markup {
    html! {
        @for (index, piece) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

fn title(tag: &str) -> String {
    let mut letters = tag.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
