//! The answer of a dry run, beside the usual answer of each operation that takes the header.

use serde_json::{Map, Value, json};

/// Adds the answer to every operation with the parameter `dryRun`.
pub(super) fn add(document: &mut Map<String, Value>) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    let operations = paths.into_iter().flat_map(Map::values_mut);
    for operation in operations.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let parameters = operation.get("parameters").and_then(Value::as_array);
        let parameter = json!({ "$ref": "#/components/parameters/dryRun" });
        if !parameters.is_some_and(|all| all.contains(&parameter)) {
            continue;
        }
        let usual = operation.pointer_mut("/responses/200/content/application~1json/schema");
        if let Some(usual) = usual {
            let answer = json!({ "$ref": "#/components/schemas/DryRun" });
            *usual = json!({ "oneOf": [usual.take(), answer] });
        }
    }
}
