//! Tools in namespaces, for formats that know only flat names.
//!
//! A tool `spawn` in the namespace `agents` is `agents__spawn` in canon, in declarations, calls and
//! choices alike; the declaration keeps its namespace in its extras, so that a call to it can be
//! written with its two names again, and the group be put together again. A call whose namespace
//! is its own name (the service does that for tools found by a search) has nothing to flatten.

use canon::{Extras, Tool};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

use super::ME;

/// The extra of a tool that names its namespace.
pub(super) const NAMESPACE: &str = "portunus.namespace";
/// The field of a call that names it.
pub(super) const SPACE: &str = "namespace";

/// The name in canon of a tool in a namespace.
pub(super) fn flat(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(space) if space != name && !space.is_empty() => format!("{space}__{name}"),
        _ => name.to_owned(),
    }
}

/// The name inside its namespace of a tool with that name in canon.
pub(super) fn bare<'a>(namespace: &str, flat: &'a str) -> &'a str {
    flat.strip_prefix(namespace).and_then(|rest| rest.strip_prefix("__")).unwrap_or(flat)
}

/// What the caller's declarations say about the names in a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Namespaces by flat name.
    spaced: HashMap<String, String>,
    custom: HashSet<String>,
}

impl Names {
    /// The names of those tools.
    pub(super) fn of(tools: &[Tool]) -> Self {
        let mut names = Self::default();
        for tool in tools {
            let (name, extras) = match tool {
                Tool::Function(tool) => (&tool.name, &tool.extras),
                Tool::Custom { name, extras, .. } => {
                    names.custom.insert(name.clone());
                    (name, extras)
                }
                Tool::Search(_) | Tool::Code(_) | Tool::Fetch(_) | Tool::Foreign { .. } => continue,
            };
            if let Some(space) = space_of(extras) {
                names.spaced.entry(name.clone()).or_insert_with(|| space.to_owned());
            }
        }
        names
    }

    /// The namespace, if any, and the name a caller knows a tool by.
    pub(super) fn split<'a>(&'a self, flat: &'a str) -> (Option<&'a str>, &'a str) {
        match self.spaced.get(flat) {
            Some(space) => (Some(space), bare(space, flat)),
            None => (None, flat),
        }
    }

    /// Whether the tool takes free text.
    pub(super) fn is_custom(&self, flat: &str) -> bool {
        self.custom.contains(flat)
    }
}

/// The namespace of a declared tool.
pub(super) fn space_of(extras: &Extras) -> Option<&str> {
    extras.get(ME, NAMESPACE)?.get("name").and_then(Value::as_str)
}

/// The free text of a call whose tool was offered as a function with one string, `input`.
pub(super) fn unwrapped(arguments: &str) -> String {
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(mut object)) if object.len() == 1 => match object.remove("input") {
            Some(Value::String(text)) => text,
            _ => arguments.to_owned(),
        },
        _ => arguments.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_as_they_were_put_together() {
        assert_eq!(flat(Some("agents"), "spawn"), "agents__spawn");
        assert_eq!(bare("agents", "agents__spawn"), "spawn");
        assert_eq!(flat(Some("rate"), "rate"), "rate");
        assert_eq!(bare("rate", "rate"), "rate");
        assert_eq!(flat(None, "a__b"), "a__b");
    }

    #[test]
    fn free_text_is_unwrapped_only_when_it_was_wrapped() {
        assert_eq!(unwrapped(r#"{"input":"a\nb"}"#), "a\nb");
        assert_eq!(unwrapped(r#"{"input":"a","x":1}"#), r#"{"input":"a","x":1}"#);
        assert_eq!(unwrapped("plain"), "plain");
    }
}
