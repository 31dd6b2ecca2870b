//! Tools in namespaces, for formats with flat tool names.
//!
//! A tool `spawn` in the namespace `agents` becomes `agents__spawn` in canon, in declarations,
//! calls and choices. The declaration keeps its namespace in the extras, so that calls get both
//! names again and the group can be rebuilt. A call whose namespace equals its name stays as it is;
//! the service sends such calls for tools found by tool search.

use canon::{Extras, Tool};
use serde_json::Value;

use super::ME;

/// Extras key of a tool for its namespace.
pub(super) const NAMESPACE: &str = "portunus.namespace";
/// Field of a call for its namespace.
pub(super) const SPACE: &str = "namespace";

/// Returns the canon name of a tool in a namespace.
pub(super) fn flat(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(space) if space != name && !space.is_empty() => format!("{space}__{name}"),
        _ => name.to_owned(),
    }
}

/// Returns the name inside the namespace for a canon name.
pub(super) fn bare<'a>(namespace: &str, flat: &'a str) -> &'a str {
    flat.strip_prefix(namespace).and_then(|rest| rest.strip_prefix("__")).unwrap_or(flat)
}

/// Names of the declared tools.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Pairs of flat name and namespace.
    spaced: Vec<(String, String)>,
    custom: Vec<String>,
}

impl Names {
    /// Collects the names of the tools.
    pub(super) fn of(tools: &[Tool]) -> Self {
        let mut names = Self::default();
        for tool in tools {
            let (name, extras) = match tool {
                Tool::Function(tool) => (&tool.name, &tool.extras),
                Tool::Custom { name, extras, .. } => {
                    names.custom.push(name.clone());
                    (name, extras)
                }
                Tool::Search(_) | Tool::Code(_) | Tool::Fetch(_) | Tool::Foreign { .. } => continue,
            };
            if let Some(space) = space_of(extras) {
                names.spaced.push((name.clone(), space.to_owned()));
            }
        }
        names
    }

    /// Returns the namespace, if any, and the name the caller declared.
    pub(super) fn split<'a>(&'a self, flat: &'a str) -> (Option<&'a str>, &'a str) {
        match self.spaced.iter().find(|(name, _)| name == flat) {
            Some((_, space)) => (Some(space), bare(space, flat)),
            None => (None, flat),
        }
    }

    /// Returns true for a custom tool.
    pub(super) fn is_custom(&self, flat: &str) -> bool {
        self.custom.iter().any(|name| name == flat)
    }
}

/// Returns the namespace of a declared tool.
pub(super) fn space_of(extras: &Extras) -> Option<&str> {
    extras.get(ME, NAMESPACE)?.get("name").and_then(Value::as_str)
}

/// Returns the input of a custom tool that was offered as a function with one string, `input`.
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
