//! A function call whose arguments arrive in pieces, each with its JSON path (`partialArgs`).

use serde_json::{Map, Value};

use super::proto_json;

/// The longest list that arguments may contain. A larger index is an attack or a bug of the
/// provider.
const MAX_LIST_ITEMS: usize = 10_000;

/// A call whose arguments are still arriving.
#[derive(Debug, Default)]
pub(super) struct PartialCall {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) signature: Option<String>,
    args: Value,
    /// The path of the string that the next piece continues.
    open_string: Option<String>,
}

/// The meaning of a function call inside a stream chunk.
pub(super) enum CallStep {
    /// The call is complete.
    Whole,
    /// A new call begins; more chunks follow.
    Begin,
    /// The open call continues; `last` is true if it ends with this chunk.
    More { last: bool },
}

/// Classifies the call of a chunk. `writing` is true while a partial call is open.
pub(super) fn step(call: &Map<String, Value>, writing: bool) -> CallStep {
    let more_follows = call.get("willContinue").and_then(Value::as_bool).unwrap_or(false);
    let named = call.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    match (named, writing) {
        (true, _) if more_follows || call.contains_key("partialArgs") => CallStep::Begin,
        (true, _) | (false, false) => CallStep::Whole,
        (false, true) => CallStep::More { last: !more_follows },
    }
}

impl PartialCall {
    /// Starts a partial call.
    pub(super) fn new(call: &Map<String, Value>, signature: Option<String>) -> Self {
        let text = |name: &str| call.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut partial = Self {
            id: text("id"),
            name: text("name").unwrap_or_default(),
            signature,
            args: Value::Null,
            open_string: None,
        };
        partial.add(call);
        partial
    }

    /// Adds the next pieces of the arguments.
    pub(super) fn add(&mut self, call: &Map<String, Value>) {
        let pieces = call.get("partialArgs").and_then(Value::as_array).into_iter().flatten();
        for piece in pieces {
            let path = piece.get("jsonPath").and_then(Value::as_str).unwrap_or("$");
            let more_follows = piece.get("willContinue").and_then(Value::as_bool).unwrap_or(false);
            let value = if let Some(text) = piece.get("stringValue") {
                text.clone()
            } else if let Some(number) = piece.get("numberValue") {
                proto_json::whole(number).map_or_else(|| number.clone(), Value::from)
            } else if let Some(flag) = piece.get("boolValue") {
                flag.clone()
            } else {
                Value::Null
            };
            self.put(path, value);
            self.open_string = more_follows.then(|| path.to_owned());
        }
    }

    fn put(&mut self, path: &str, value: Value) {
        let is_continuation = self.open_string.as_deref() == Some(path);
        let mut at = &mut self.args;
        for key in path_steps(path) {
            let next = match key {
                PathStep::Field(name) => {
                    if !at.is_object() {
                        *at = Value::Object(Map::new());
                    }
                    at.as_object_mut().map(|map| map.entry(name).or_insert(Value::Null))
                }
                PathStep::Item(index) => {
                    if !at.is_array() {
                        *at = Value::Array(Vec::new());
                    }
                    at.as_array_mut().and_then(|list| {
                        if list.len() <= index && index < MAX_LIST_ITEMS {
                            list.resize(index + 1, Value::Null);
                        }
                        list.get_mut(index)
                    })
                }
            };
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
        match (at, value) {
            (Value::String(text), Value::String(more)) if is_continuation => text.push_str(&more),
            (_, Value::Null) if is_continuation => {}
            (at, value) => *at = value,
        }
    }

    /// Returns the arguments as JSON text.
    pub(super) fn arguments(&self) -> String {
        match &self.args {
            Value::Object(_) => self.args.to_string(),
            _ => "{}".to_owned(),
        }
    }
}

enum PathStep {
    Field(String),
    Item(usize),
}

/// Splits a path such as `$.rows[0].name` or `$['odd name']` into steps.
fn path_steps(path: &str) -> Vec<PathStep> {
    let mut path_steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let closing = quote.map_or_else(|| "]".to_owned(), |quote| format!("{quote}]"));
            let inner = quote.and_then(|quote| inner.strip_prefix(quote)).unwrap_or(inner);
            let Some((name, after)) = inner.split_once(&closing) else { break };
            path_steps.push(match name.parse() {
                Ok(index) if quote.is_none() => PathStep::Item(index),
                _ => PathStep::Field(name.to_owned()),
            });
            rest = after;
        } else {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let end = field.find(['.', '[']).unwrap_or(field.len());
            let (name, after) = field.split_at_checked(end).unwrap_or((field, ""));
            if name.is_empty() {
                break;
            }
            path_steps.push(PathStep::Field(name.to_owned()));
            rest = after;
        }
    }
    path_steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn built(pieces: Value) -> String {
        let mut partial = PartialCall::default();
        for piece in pieces.as_array().unwrap() {
            let call = json!({"partialArgs": [piece]});
            partial.add(call.as_object().unwrap());
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
