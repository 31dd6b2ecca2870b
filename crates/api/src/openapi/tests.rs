//! The description against the route table and the request formats.

use canon::WireFormat;
use serde_json::{Map, Value, json};

use super::DOCUMENT;
use crate::routes::{path_matches, route_summaries};

fn described() -> Vec<(String, String, bool)> {
    let paths = DOCUMENT.get("paths").and_then(Value::as_object).unwrap();
    let mut all = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            if method != "parameters" {
                // A SCIM token is no key.
                let open = [json!([]), json!([{ "scimToken": [] }])]
                    .iter()
                    .any(|open| operation.get("security") == Some(open));
                all.push((method.to_uppercase(), path.clone(), !open));
            }
        }
    }
    all
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let (described, addresses) = (described(), route_summaries());
    for (method, pattern, keyed) in &addresses {
        let found = described
            .iter()
            .find(|(own, path, _)| own.as_str() == method.as_str() && path_matches(pattern, path));
        let (_, path, takes_key) =
            found.unwrap_or_else(|| panic!("{method} {pattern} is not described"));
        assert_eq!(takes_key, keyed, "{method} {path}: takes a key");
    }
    for (method, path, _) in &described {
        let real = addresses.iter().any(|(own, pattern, _)| {
            own.as_str() == method.as_str() && path_matches(pattern, path)
        });
        assert!(real, "{method} {path} is described but does not exist");
    }
}

#[test]
fn every_reference_resolves() {
    let document = Value::Object(DOCUMENT.clone());
    let mut queue = vec![&document];
    while let Some(value) = queue.pop() {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(to)) = object.get("$ref") {
                    let pointer = to.trim_start_matches('#');
                    assert!(document.pointer(pointer).is_some(), "{to} leads nowhere");
                }
                queue.extend(object.values());
            }
            Value::Array(array) => queue.extend(array),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[test]
fn operation_ids_are_unique() {
    let paths = DOCUMENT.get("paths").and_then(Value::as_object).unwrap();
    let operations = paths.values().filter_map(Value::as_object).flat_map(Map::values);
    let names: Vec<_> = operations.filter_map(|one| one.get("operationId")).collect();
    let mut single = names.clone();
    single.sort_by_key(|name| name.to_string());
    single.dedup();
    assert_eq!(names.len(), single.len());
    assert_eq!(names.len(), described().len());
}

/// Fields of requests that the gateway passes on without reading them.
const UNREAD: [&str; 8] = [
    "audio",
    "prediction",
    "stream_options",
    "prompt_cache_retention",
    "container",
    "context_management",
    "mcp_servers",
    "cache_control",
];

/// Returns a field of a schema, through references and alternatives.
fn property<'a>(document: &'a Value, schema: &'a Value, name: &str) -> Option<&'a Value> {
    if let Some(to) = schema.get("$ref").and_then(Value::as_str) {
        return property(document, document.pointer(to.trim_start_matches('#'))?, name);
    }
    let own = schema.get("properties").and_then(|fields| fields.get(name));
    let forms =
        ["oneOf", "anyOf", "allOf"].into_iter().filter_map(|key| schema.get(key)?.as_array());
    own.or_else(|| forms.flatten().find_map(|form| property(document, form, name)))
}

#[test]
fn requests_have_the_fields_that_are_read() {
    let document = Value::Object(DOCUMENT.clone());
    let formats = [
        (WireFormat::Chat, "ChatRequest"),
        (WireFormat::Responses, "ResponseRequest"),
        (WireFormat::Messages, "MessagesRequest"),
        (WireFormat::Native, "ContentRequest"),
    ];
    for (format, name) in formats {
        let schema = document.pointer(&format!("/components/schemas/{name}")).unwrap();
        let read = dialects::request_paths(format);
        assert!(read.len() > 8, "{name}");
        for path in &read {
            let field = path.split('.').try_fold(schema, |at, name| property(&document, at, name));
            assert!(field.is_some(), "{name} does not describe `{path}`");
        }
        for field in schema.get("properties").and_then(Value::as_object).unwrap().keys() {
            let is_read = read.contains(field) || UNREAD.contains(&field.as_str());
            assert!(is_read, "{name} describes `{field}`, which nothing reads");
        }
    }
}

/// Calls a function for every schema, with the path of its place.
fn each_schema(value: &Value, place: &str, visit: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            if object.get("type") == Some(&json!("object")) {
                visit(place, object);
            }
            let inner = object.iter().filter(|(name, _)| !name.starts_with("example"));
            for (name, value) in inner {
                each_schema(value, &format!("{place}/{name}"), visit);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| each_schema(value, place, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_free_object_says_why() {
    each_schema(&Value::Object(DOCUMENT.clone()), "", &mut |place, schema| {
        let says = ["properties", "additionalProperties", "description"];
        assert!(says.iter().any(|name| schema.contains_key(*name)), "{place} is any object");
    });
}

#[test]
fn every_operation_lists_its_errors() {
    let paths = DOCUMENT.get("paths").and_then(Value::as_object).unwrap();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let Some(responses) = operation.get("responses").and_then(Value::as_object) else {
                continue;
            };
            let takes_key = operation.get("security") != Some(&json!([]));
            let is_paid = operation.get("operationId") == Some(&json!("createChatCompletion"));
            assert_eq!(responses.contains_key("401"), takes_key, "{method} {path}");
            assert!(responses.contains_key("default"), "{method} {path}");
            for status in ["400", "403", "404", "409", "413", "415", "429", "500", "503", "504"] {
                assert!(!is_paid || responses.contains_key(status), "{method} {path}: {status}");
            }
        }
    }
}

#[test]
fn native_requests_take_both_spellings() {
    let document = Value::Object(DOCUMENT.clone());
    let paths = DOCUMENT.get("paths").and_then(Value::as_object).unwrap();
    let operations = paths.values().filter_map(Value::as_object).flat_map(Map::values);
    let is_native = |one: &&Value| one.pointer("/tags/0") == Some(&json!("native"));
    let bodies = operations.filter(is_native).filter_map(|one| one.get("requestBody"));
    let mut queue: Vec<(String, &Value)> = bodies.map(|body| (String::new(), body)).collect();
    let mut seen = Vec::new();
    while let Some((place, value)) = queue.pop() {
        match value {
            Value::Object(object) => {
                let required = object.get("required").and_then(Value::as_array);
                let is_closed = object.get("additionalProperties") == Some(&json!(false));
                let strict = is_closed
                    || required
                        .into_iter()
                        .flatten()
                        .any(|name| name.as_str().is_some_and(super::snake_case::has_capital));
                let fields = object.get("properties").and_then(Value::as_object);
                for name in fields.into_iter().flat_map(Map::keys).filter(|_| strict) {
                    let other = dialects::snake_case(name);
                    assert!(fields.unwrap().contains_key(&other), "{place} has no `{other}`");
                }
                if let Some(Value::String(to)) = object.get("$ref")
                    && !seen.contains(to)
                {
                    seen.push(to.clone());
                    let target = document.pointer(to.trim_start_matches('#')).unwrap();
                    queue.push((to.clone(), target));
                }
                queue.extend(object.values().map(|inner| (place.clone(), inner)));
            }
            Value::Array(list) => queue.extend(list.iter().map(|one| (place.clone(), one))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    for name in super::snake_case::STRICT_OBJECTS {
        assert!(seen.iter().any(|to| to.ends_with(&format!("/{name}"))), "{name}");
    }
}
