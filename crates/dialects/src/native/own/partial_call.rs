//! A function call whose arguments arrive in pieces, each with its JSON path (`partialArgs`).

use serde_json::{Map, Value};

use crate::fields::number;
use crate::native::content::NativeCall;

/// The longest list that arguments may contain. A larger index is an attack or a bug of the
/// provider.
const MAX_LIST_ITEMS: usize = 10_000;

/// A call whose arguments are still arriving.
#[derive(Debug, Default)]
pub(crate) struct PartialCall {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) signature: Option<String>,
    args: Value,
    /// The path of the string that the next piece continues.
    open_string: Option<String>,
}

impl PartialCall {
    /// Starts a partial call.
    pub(crate) fn new(call: &NativeCall<'_>, signature: Option<String>) -> Self {
        let mut partial = Self {
            id: call.id.as_deref().map(str::to_owned),
            name: call.name.as_deref().unwrap_or_default().to_owned(),
            signature,
            ..Self::default()
        };
        partial.add(call);
        partial
    }

    /// Adds the next pieces of the arguments.
    pub(crate) fn add(&mut self, call: &NativeCall<'_>) {
        for piece in call.partial_args.iter().flatten() {
            let path = piece.json_path.as_deref().unwrap_or("$");
            let value = match (&piece.string_value, &piece.number_value, piece.bool_value) {
                (Some(text), ..) => Value::from(&**text),
                (None, Some(value), _) => value.0.map(number).unwrap_or_default(),
                (None, None, flag) => flag.map(Value::Bool).unwrap_or_default(),
            };
            self.put(path, value);
            self.open_string = piece.will_continue.unwrap_or(false).then(|| path.to_owned());
        }
    }

    fn put(&mut self, path: &str, value: Value) {
        let is_continuation = self.open_string.as_deref() == Some(path);
        match (value_at(&mut self.args, path), value) {
            (Some(Value::String(text)), Value::String(more)) if is_continuation => {
                text.push_str(&more);
            }
            (_, Value::Null) if is_continuation => {}
            (Some(at), value) => *at = value,
            (None, _) => {}
        }
    }

    /// Returns the arguments as JSON text.
    pub(crate) fn arguments(&self) -> String {
        if self.args.is_object() { self.args.to_string() } else { "{}".to_owned() }
    }
}

/// Returns the value at a path. Objects and lists on the way are created.
fn value_at<'v>(mut at: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while let Some((name, index, after)) = split_step(rest) {
        rest = after;
        at = if let Some(index) = index {
            if !at.is_array() {
                *at = Value::Array(Vec::new());
            }
            let list = at.as_array_mut()?;
            if list.len() <= index && index < MAX_LIST_ITEMS {
                list.resize(index + 1, Value::Null);
            }
            list.get_mut(index)?
        } else {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at.as_object_mut()?.entry(name).or_insert(Value::Null)
        };
    }
    Some(at)
}

/// Splits the first step off a path such as `.rows[0].name` or `['odd name']`: its name, its number
/// if it is an item of a list, and the rest of the path.
fn split_step(path: &str) -> Option<(&str, Option<usize>, &str)> {
    let Some(inner) = path.strip_prefix('[') else {
        let field = path.strip_prefix('.').unwrap_or(path);
        let end = field.find(['.', '[']).unwrap_or(field.len());
        let (name, after) = field.split_at_checked(end)?;
        return (!name.is_empty()).then_some((name, None, after));
    };
    for (quote, closing) in [("'", "']"), ("\"", "\"]")] {
        if let Some(quoted) = inner.strip_prefix(quote) {
            return quoted.split_once(closing).map(|(name, after)| (name, None, after));
        }
    }
    inner.split_once(']').map(|(name, after)| (name, name.parse().ok(), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn built(pieces: Value) -> String {
        let mut partial = PartialCall::default();
        for piece in pieces.as_array().unwrap() {
            let call = json!({"partialArgs": [piece]}).to_string();
            partial.add(&serde_json::from_str(&call).unwrap());
        }
        partial.arguments()
    }

    #[test]
    fn pieces_are_assembled_into_one_object() {
        let pieces = json!([
            {"jsonPath": "$.rows[0].name", "stringValue": "Ap", "willContinue": true},
            {"jsonPath": "$.rows[0].name", "stringValue": "ple", "willContinue": true},
            {"jsonPath": "$.rows[0].name", "stringValue": ""},
            {"jsonPath": "$.rows[0].price", "numberValue": 2.5},
            {"jsonPath": "$.rows[1]['odd.name']", "boolValue": true},
            {"jsonPath": "$.n", "numberValue": 3.0},
            {"jsonPath": "$.none", "nullValue": "NULL_VALUE"},
        ]);
        let expected =
            r#"{"rows":[{"name":"Apple","price":2.5},{"odd.name":true}],"n":3,"none":null}"#;
        assert_eq!(built(pieces), expected);
    }

    #[test]
    fn malformed_paths_are_ignored() {
        for path in ["", "$", "$..", "$[", "$[999999999999]", "$['x", "$.a[99999999].b"] {
            built(json!([{"jsonPath": path, "stringValue": "x"}]));
        }
        assert_eq!(built(json!([])), "{}");
    }
}
