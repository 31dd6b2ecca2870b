//! `GET /openapi.json`: the OpenAPI description of every route.
//!
//! The description is written by hand, one file per group of routes, because the wire formats have
//! no types here to generate it from. A test compares it with the route table.

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use http::Request;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

use crate::state::ApiState;
use relay::json_response;

const BASE_DOCUMENT: &str = include_str!("../assets/openapi/base.json");
const PART_DOCUMENTS: [&str; 11] = [
    include_str!("../assets/openapi/chat.json"),
    include_str!("../assets/openapi/responses.json"),
    include_str!("../assets/openapi/messages.json"),
    include_str!("../assets/openapi/native.json"),
    include_str!("../assets/openapi/caches.json"),
    include_str!("../assets/openapi/images.json"),
    include_str!("../assets/openapi/models.json"),
    include_str!("../assets/openapi/account.json"),
    include_str!("../assets/openapi/admin.json"),
    include_str!("../assets/openapi/providers.json"),
    include_str!("../assets/openapi/operations.json"),
];

/// The description without the server URL.
static DOCUMENT: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut document = crate::json_object::parse_object(BASE_DOCUMENT);
    if let Some(version) = document.get_mut("info").and_then(|info| info.get_mut("version")) {
        *version = json!(env!("CARGO_PKG_VERSION"));
    }
    for part in PART_DOCUMENTS {
        merge(&mut document, crate::json_object::parse_object(part));
    }
    document
});

/// Merges one object into another, recursively.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => merge(own, more),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// The complete description.
pub fn document(state: &ApiState) -> Map<String, Value> {
    let mut document = DOCUMENT.clone();
    document.insert("servers".to_owned(), json!([{ "url": state.config().public_url }]));
    document
}

pub(super) async fn show(state: Arc<ApiState>, _: Request<Body>) -> Result<Response, ApiError> {
    Ok(json_response(Value::Object(document(&state)).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{path_matches, route_summaries};

    fn described() -> Vec<(String, String, bool)> {
        let paths = DOCUMENT.get("paths").and_then(Value::as_object).unwrap();
        let mut all = Vec::new();
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                if method != "parameters" {
                    let open = operation.get("security") == Some(&json!([]));
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
            let found = described.iter().find(|(own, path, _)| {
                own.as_str() == method.as_str() && path_matches(pattern, path)
            });
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
}
