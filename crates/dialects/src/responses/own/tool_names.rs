//! Tools in namespaces, for formats with flat tool names.
//!
//! A tool `spawn` in the namespace `agents` becomes `agents__spawn` in canon, in declarations,
//! calls and choices. The declaration keeps its namespace in the extras, so that calls get both
//! names again and the group can be rebuilt. A call whose namespace equals its name stays as it is;
//! the service sends such calls for tools found by tool search.

use canon::{ClientTool, ClientToolKind, ExtraFields, FunctionTool, Part, PartKind, Tool};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

use crate::responses::names::{NAMESPACE_EXTRA, NAMESPACE_FIELD, ORIGIN};

/// Returns the canon name of a tool in a namespace.
pub(crate) fn flat_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(space) if space != name && !space.is_empty() => format!("{space}__{name}"),
        _ => name.to_owned(),
    }
}

/// Returns the name inside the namespace for a canon name.
pub(crate) fn bare_name<'a>(namespace: &str, flat: &'a str) -> &'a str {
    flat.strip_prefix(namespace).and_then(|rest| rest.strip_prefix("__")).unwrap_or(flat)
}

/// Names of the declared tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolNames {
    /// Namespaces by flat name.
    namespaced: HashMap<String, String>,
    custom: HashSet<String>,
    /// Tools of this format that the caller runs, with the types of their declarations.
    client: HashMap<String, (ClientToolKind, String)>,
}

impl ToolNames {
    /// Collects the names of the tools.
    pub(crate) fn new(tools: &[Tool]) -> Self {
        let mut names = Self::default();
        for tool in ClientTool::all_in(tools).filter(|tool| tool.origin == ORIGIN) {
            let declared = tool.value.get("type").and_then(Value::as_str).unwrap_or_default();
            for function in &tool.functions {
                if tool.kind == ClientToolKind::FoundTools {
                    names.add_namespace(&function.name, &function.extras);
                } else {
                    let own = (tool.kind, declared.to_owned());
                    names.client.insert(function.name.clone(), own);
                }
            }
        }
        for tool in tools {
            let (Tool::Function(FunctionTool { name, extras, .. })
            | Tool::Custom { name, extras, .. }) = tool
            else {
                continue;
            };
            if matches!(tool, Tool::Custom { .. }) {
                names.custom.insert(name.clone());
            }
            names.add_namespace(name, extras);
        }
        names
    }

    fn add_namespace(&mut self, name: &str, extras: &ExtraFields) {
        if let Some(space) = namespace_of(extras) {
            self.namespaced.entry(name.to_owned()).or_insert_with(|| space.to_owned());
        }
    }

    /// Returns the tool of this format that the caller runs and that has the function.
    pub(crate) fn client_tool(&self, flat: &str) -> Option<ClientToolKind> {
        self.client.get(flat).map(|(kind, _)| *kind)
    }

    /// Returns the type of the declaration of such a tool.
    pub(crate) fn client_type(&self, flat: &str) -> Option<&str> {
        self.client.get(flat).map(|(_, declared)| declared.as_str())
    }

    /// Returns the namespace, if any, and the name the caller declared.
    pub(crate) fn split<'a>(&'a self, flat: &'a str) -> (Option<&'a str>, &'a str) {
        match self.namespaced.get(flat) {
            Some(space) => (Some(space), bare_name(space, flat)),
            None => (None, flat),
        }
    }

    /// Returns the namespace and the name of a call. The call keeps a namespace that no tool of the
    /// request has.
    pub(crate) fn split_call<'a>(&'a self, part: &'a Part) -> (Option<&'a str>, &'a str) {
        let PartKind::ToolCall(call) = &part.kind else { return (None, "") };
        match part.extras.get(ORIGIN, NAMESPACE_FIELD).and_then(Value::as_str) {
            Some(space) => (Some(space), bare_name(space, &call.name)),
            None => self.split(&call.name),
        }
    }

    /// Returns true for a custom tool.
    pub(crate) fn is_custom(&self, flat: &str) -> bool {
        self.custom.contains(flat)
    }
}

/// Returns the namespace of a declared tool.
pub(crate) fn namespace_of(extras: &ExtraFields) -> Option<&str> {
    extras.get(ORIGIN, NAMESPACE_EXTRA)?.get("name").and_then(Value::as_str)
}

/// Returns the name of a tool in its declaration.
pub(crate) fn declared_name<'a>(extras: &ExtraFields, flat: &'a str) -> &'a str {
    namespace_of(extras).map_or(flat, |space| bare_name(space, flat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_flat_names_again() {
        assert_eq!(flat_name(Some("agents"), "spawn"), "agents__spawn");
        assert_eq!(bare_name("agents", "agents__spawn"), "spawn");
        assert_eq!(flat_name(Some("rate"), "rate"), "rate");
        assert_eq!(bare_name("rate", "rate"), "rate");
        assert_eq!(flat_name(None, "a__b"), "a__b");
    }
}
