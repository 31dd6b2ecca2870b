//! `/docs`: API reference rendered from the OpenAPI document, one page per part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::copy_block;
use super::schema_fields::{
    collect_objects, field_table, object_entry, required_badge, resolve_ref, type_name,
};
use crate::form::QueryFields;
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

impl DocumentedOperation<'_> {
    fn has_tag(&self, tag: &str) -> bool {
        list(self.own.get("tags")).iter().any(|own| own == tag)
    }

    fn name(&self) -> &str {
        text(self.own.get("operationId"))
    }
}

/// `GET /docs`: the parts, or with `?part=` one of them.
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let document = Value::Object(state.host.openapi());
    let url = state.base_url();
    let operations = operations(&document);
    let tags = list(document.get("tags"));
    let wanted = query.get("part");
    let part = tags.iter().find(|tag| text(tag.get("name")) == wanted);
    let body = html! {
        h1 { "API reference" }
        nav.contents aria-label="Parts of the reference" {
            @for tag in tags {
                @let name = text(tag.get("name"));
                @if operations.iter().any(|one| one.has_tag(name)) {
                    a href={ "/docs?part=" (name) } { (title(name)) }
                }
            }
        }
        @match part {
            Some(tag) => (part_page(&document, tag, &operations, &url)),
            None => (overview(&document, tags, &operations, &url)),
        }
    };
    Ok(with_revalidation(ok_page(&Layout::public("API reference", SiteSection::Reference), &body)))
}

/// Lists the operations of every part.
fn overview(
    document: &Value,
    tags: &[Value],
    operations: &[DocumentedOperation<'_>],
    url: &str,
) -> Markup {
    html! {
        p.lead { (inline_code(text(document.pointer("/info/description")))) }
        p.muted {
            "For machines: " a href="/openapi.json" { "openapi.json" } ". The base address is "
            code { (url) } "; a key goes into " code { "Authorization: Bearer" } ", "
            code { "x-api-key" } ", " code { "x-goog-api-key" } " or " code { "x-vendor-api-key" } "."
        }
        @for tag in tags {
            @let name = text(tag.get("name"));
            section id=(name) {
                h2 { a href={ "/docs?part=" (name) } { (title(name)) } }
                p.muted { (inline_code(text(tag.get("description")))) }
                table.fields {
                    tbody {
                        @for one in operations.iter().filter(|one| one.has_tag(name)) {
                            tr {
                                td { span.method.(one.method) { (one.method.to_uppercase()) } }
                                th scope="row" {
                                    a href={ "/docs?part=" (name) "#" (one.name()) } { code { (one.path) } }
                                }
                                td { (text(one.own.get("summary"))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One part: its operations, the objects they lead to, and its errors.
fn part_page(
    document: &Value,
    tag: &Value,
    operations: &[DocumentedOperation<'_>],
    url: &str,
) -> Markup {
    let name = text(tag.get("name"));
    let own: Vec<_> = operations.iter().filter(|one| one.has_tag(name)).collect();
    let mut objects = BTreeSet::new();
    let mut errors = BTreeMap::new();
    for one in &own {
        if let Some(body) = one.own.get("requestBody") {
            collect_objects(document, body, &mut objects);
        }
        for (status, response) in responses(one) {
            if is_error(status) {
                errors.entry(status).or_insert_with(|| resolve_ref(document, response));
            }
            collect_objects(document, resolve_ref(document, response), &mut objects);
        }
    }
    html! {
        h2 { (title(name)) }
        p.muted { (inline_code(text(tag.get("description")))) }
        div.sheet.operations { @for one in own { (operation_entry(document, one, url)) } }
        @if !objects.is_empty() {
            h2 id="objects" { "Objects" }
            div.sheet.operations { @for name in objects { (object_entry(document, name)) } }
        }
        h2 id="errors" { "Errors" }
        div.sheet.operations {
            @for (status, response) in errors { (error_entry(status, response)) }
        }
    }
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

fn responses<'a>(
    one: &DocumentedOperation<'a>,
) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
    let all = one.own.get("responses").and_then(Value::as_object);
    all.into_iter().flatten().map(|(status, response)| (status.as_str(), response))
}

/// Returns true for the responses of one error status.
fn is_error(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

fn operation_entry(document: &Value, one: &DocumentedOperation<'_>, url: &str) -> Markup {
    let DocumentedOperation { method, path, own, shared } = one;
    let name = one.name();
    let parameters = shared.iter().chain(list(own.get("parameters")));
    let parameters: Vec<&Value> = parameters.map(|given| resolve_ref(document, given)).collect();
    let bodies = own.get("requestBody").and_then(|body| body.get("content")?.as_object());
    let errors: Vec<&str> =
        responses(one).map(|(status, _)| status).filter(|status| is_error(status)).collect();
    let examples = examples(document, own);
    let address = format!("{url}{}", example_path(path, &parameters));
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
                @for (kind, content) in bodies.into_iter().flatten() {
                    @if let Some(schema) = content.get("schema") {
                        h3 { "Body" }
                        p.muted { code { (kind) } ": " (type_name(schema)) }
                        (field_table(schema))
                    }
                }
                @for (index, (title, example)) in examples.iter().enumerate() {
                    @let command = curl(&address, method, Some(example));
                    (copy_block(&format!("curl-{name}-{index}"), title, &command))
                }
                @if examples.is_empty() && bodies.is_none() && !address.contains('{') {
                    (copy_block(&format!("curl-{name}"), "curl", &curl(&address, method, None)))
                }
                h3 { "Answers" }
                table.fields {
                    tbody {
                        @for (status, response) in responses(one).filter(|(s, _)| s.starts_with('2')) {
                            (answer_row(status, resolve_ref(document, response)))
                        }
                        @if !errors.is_empty() {
                            tr {
                                th scope="row" { "Errors" }
                                td {
                                    @for (index, status) in errors.iter().enumerate() {
                                        @if index > 0 { ", " }
                                        a href={ "#error-" (status) } { (status) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn answer_row(status: &str, response: &Value) -> Markup {
    let contents = response.get("content").and_then(Value::as_object);
    html! {
        tr {
            th scope="row" { code { (status) } }
            td {
                (inline_code(text(response.get("description"))))
                @for (kind, content) in contents.into_iter().flatten() {
                    @let schema = content.get("schema").unwrap_or(&Value::Null);
                    " " code { (kind) } ": "
                    @if kind == "text/event-stream" { "events " }
                    (type_name(schema)) "."
                }
            }
        }
    }
}

fn error_entry(status: &str, response: &Value) -> Markup {
    let content = response.pointer("/content/application~1json");
    let examples = content.and_then(|content| content.get("examples")?.as_object());
    let body = |example: &Value| {
        serde_json::to_string_pretty(example.get("value").unwrap_or(example)).unwrap_or_default()
    };
    html! {
        details id={ "error-" (status) } {
            summary {
                code.path { (status) }
                span.what { (inline_code(text(response.get("description")))) }
            }
            div.inside {
                @if let Some(schema) = content.and_then(|content| content.get("schema")) {
                    p.muted { code { "application/json" } ": " (type_name(schema)) }
                }
                @for (code, example) in examples.into_iter().flatten() {
                    (copy_block(&format!("error-{status}-{code}"), code, &body(example)))
                }
            }
        }
    }
}

/// Examples of the JSON body of an operation, with their titles.
fn examples<'a>(document: &'a Value, own: &'a JsonObject) -> Vec<(&'a str, &'a Value)> {
    let content =
        own.get("requestBody").and_then(|body| body.pointer("/content/application~1json"));
    let Some(content) = content else { return Vec::new() };
    let named = content.get("examples").and_then(Value::as_object).into_iter().flatten();
    let named = named.filter_map(|(_, one)| Some((text(one.get("summary")), one.get("value")?)));
    let schema = content.get("schema").map(|schema| resolve_ref(document, schema));
    let of_schema = schema.and_then(|schema| schema.pointer("/examples/0"));
    let found: Vec<_> = named.chain(content.get("example").map(|one| ("curl", one))).collect();
    if found.is_empty() { of_schema.map(|one| ("curl", one)).into_iter().collect() } else { found }
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

/// The path with the examples of its parameters.
fn example_path(path: &str, parameters: &[&Value]) -> String {
    let (mut path, mut query) = (path.to_owned(), Vec::new());
    for one in parameters {
        let (name, example) = (text(one.get("name")), text(one.get("example")));
        match text(one.get("in")) {
            "path" if !example.is_empty() => path = path.replace(&format!("{{{name}}}"), example),
            "query" if !example.is_empty() => query.push(format!("{name}={example}")),
            _ => {}
        }
    }
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{path}{mark}{}", query.join("&"))
}

fn curl(address: &str, method: &str, example: Option<&Value>) -> String {
    let usual = if example.is_some() { "post" } else { "get" };
    let method =
        if method == usual { String::new() } else { format!("-X {} ", method.to_uppercase()) };
    let head = format!(
        "curl {method}'{address}' \\\n  -H \"Authorization: Bearer {}\"",
        snippet::KEY_VARIABLE
    );
    let Some(example) = example else { return head };
    let body = serde_json::to_string_pretty(example).unwrap_or_default();
    format!("{head} \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'")
}

/// Renders text in backquotes as code.
pub(super) fn inline_code(text: &str) -> Markup {
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

pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
