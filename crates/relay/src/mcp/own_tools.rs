//! Names and places of the caller's own tools, beside which the functions of servers stand in a turn.

use canon::ApiError;
use serde_json::Value;
use std::collections::HashSet;

use super::turn_format::text;

/// Returns the names under which a model may call the caller's own tools: those of the request, of its
/// namespaces, and of items that bring tools.
pub(super) fn own_names(tools: &[Value], input: &[Value]) -> HashSet<String> {
    let mut names = HashSet::new();
    add_names(tools, None, &mut names);
    for item in input {
        if matches!(text(item, "type"), "additional_tools" | "tool_search_output")
            && let Some(tools) = item.get("tools").and_then(Value::as_array)
        {
            add_names(tools, None, &mut names);
        }
    }
    names
}

fn add_names(tools: &[Value], space: Option<&str>, names: &mut HashSet<String>) {
    for tool in tools {
        let name = text(tool, "name");
        if text(tool, "type") == "namespace" {
            let inner = tool.get("tools").and_then(Value::as_array);
            // A space inside a space is refused by the rules of the format.
            if let Some(inner) = inner.filter(|_| space.is_none()) {
                add_names(inner, Some(name), names);
            }
        } else if !name.is_empty() {
            names.insert(name.to_owned());
            // The name of such a tool in formats without namespaces.
            names.extend(space.map(|space| format!("{space}__{name}")));
        }
    }
}

/// Place in the caller's request that an item of a list of a turn comes from.
#[derive(Clone, Debug)]
pub(super) enum OwnPlace {
    /// The same item, at this path.
    Same(String),
    /// Something else at this path, which has none of the fields of the item.
    From(String),
}

/// Places in the caller's request of the items of one list of a turn.
#[derive(Debug)]
pub(super) struct OwnPlaces {
    pub(super) list: &'static str,
    pub(super) places: Vec<OwnPlace>,
}

impl OwnPlaces {
    /// Returns an error with the path in the caller's request.
    pub(super) fn restore_path(&self, error: ApiError) -> ApiError {
        let path = error.param().unwrap_or_default().to_owned();
        let place = path.strip_prefix(self.list).and_then(|rest| rest.strip_prefix('['));
        let Some((at, rest)) = place.and_then(|rest| rest.split_once(']')) else { return error };
        let Ok(at) = at.parse::<usize>() else { return error };
        let own = match self.places.get(at) {
            Some(OwnPlace::Same(own)) => format!("{own}{rest}"),
            Some(OwnPlace::From(own)) => own.clone(),
            // An item of a later turn.
            None => self.list.to_owned(),
        };
        let message = error.message().replace(&path, &own);
        error.with_message(message).with_param(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_in_spaces_and_items_are_taken() {
        let space = json!({ "type": "namespace", "name": "crm",
                            "tools": [{ "type": "function", "name": "find" }] });
        let item = json!({ "type": "additional_tools",
                           "tools": [{ "type": "function", "name": "late" }] });
        let other = json!({ "type": "message", "tools": [{ "name": "no" }] });
        let names = own_names(&[space, json!({ "type": "mcp" })], &[item, other]);
        let want = ["find", "crm__find", "late"].map(str::to_owned);
        assert_eq!(names, HashSet::from(want));
    }
}
