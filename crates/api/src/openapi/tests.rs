//! The description against the route table and the request formats.

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
