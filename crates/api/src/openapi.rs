//! `GET /openapi.json`: what every address takes and gives.
//!
//! Written by hand beside the formats' own definitions, one file per surface: the wire formats have
//! no types here that it could be drawn from. A test compares it with the route table.

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use http::Request;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

use crate::state::ApiState;
use relay::json_response;

const BASE_DOCUMENT: &str = include_str!("../assets/openapi/base.json");
const PART_DOCUMENTS: [&str; 10] = [
    include_str!("../assets/openapi/chat.json"),
    include_str!("../assets/openapi/responses.json"),
    include_str!("../assets/openapi/messages.json"),
    include_str!("../assets/openapi/native.json"),
    include_str!("../assets/openapi/images.json"),
    include_str!("../assets/openapi/models.json"),
    include_str!("../assets/openapi/account.json"),
    include_str!("../assets/openapi/admin.json"),
    include_str!("../assets/openapi/places.json"),
    include_str!("../assets/openapi/operations.json"),
];

/// The description, but for the address it is served at.
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

/// Puts the members of one object into another, and those of objects in both likewise.
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

/// The whole description.
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
    fn every_address_is_described_and_nothing_else() {
        let (described, addresses) = (described(), route_summaries());
        for (method, pattern, keyed) in &addresses {
            let found = described.iter().find(|(own, path, _)| {
                own.as_str() == method.as_str() && path_matches(pattern, path)
            });
            let (_, path, told) =
                found.unwrap_or_else(|| panic!("{method} {pattern} is not told of"));
            assert_eq!(told, keyed, "{method} {path}: whether it takes a key");
        }
        for (method, path, _) in &described {
            let real = addresses.iter().any(|(own, pattern, _)| {
                own.as_str() == method.as_str() && path_matches(pattern, path)
            });
            assert!(real, "{method} {path} is told of but not there");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = Value::Object(DOCUMENT.clone());
        let mut left = vec![&document];
        while let Some(value) = left.pop() {
            match value {
                Value::Object(object) => {
                    if let Some(Value::String(to)) = object.get("$ref") {
                        let pointer = to.trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{to} leads nowhere");
                    }
                    left.extend(object.values());
                }
                Value::Array(array) => left.extend(array),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
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
