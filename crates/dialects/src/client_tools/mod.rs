//! Tools that a vendor defines and the caller runs: their functions and the names of these.
//!
//! `assets/client_tools.json` is the one table of their schemas. Each format knows its own declarations,
//! calls and results (`messages/own/client_tools.rs`, `responses/own/client_tools.rs` and
//! `native/own/client_tools.rs`) and converts them to and from the calls of these functions.

mod computer_actions;
mod custom;
mod display_size;
mod key_names;
mod lane;
mod native_actions;
mod patch_calls;
mod reply_calls;
mod screen;
mod screen_lane;

pub(crate) use computer_actions::for_responses;
pub(crate) use custom::{TOLD_GRAMMAR, custom_function};
pub(crate) use display_size::DisplaySize;
pub(crate) use lane::{OwnItems, OwnShell, for_lane, is_named};
pub(crate) use native_actions::BROWSER_FUNCTIONS;
pub use reply_calls::ClientToolCalls;
pub(crate) use screen::note_lost;
pub(crate) use screen_lane::OwnScreen;

use canon::{ClientToolKind, FunctionTool, JsonSchema, Part, PartKind, Tool, Turn};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// The name of the shell of messages, which that format fixes.
pub(crate) const BASH_NAME: &str = "bash";

static TABLE: OnceLock<Map<String, Value>> = OnceLock::new();

/// Returns a row of the table: one function, or the functions of a group by their names.
fn row(name: &str) -> Option<&'static Value> {
    let read = || serde_json::from_str(include_str!("../../assets/client_tools.json"));
    TABLE.get_or_init(|| read().unwrap_or_default()).get(name)
}

/// Returns an upper bound of the bytes that the functions of a tool add to a request, by the type or the key
/// of its declaration; zero for other tools.
pub(crate) fn function_bytes(kind: &str) -> u64 {
    static BYTES: OnceLock<HashMap<&'static str, u64>> = OnceLock::new();
    // A format adds names and frames of its own.
    const FRAME_FACTOR: u64 = 2;
    const ROWS: [(&str, &str); 13] = [
        ("bash_", "bash"),
        ("text_editor_", "text_editor_with_undo"),
        ("memory_", "memory"),
        ("computer_toolset_", "computer_toolset"),
        ("browser_toolset_", "browser_toolset"),
        ("computer_use", "computer_use"),
        ("computerUse", "computer_use"),
        ("computer_", "computer"),
        ("computer", "computer_calls"),
        ("local_shell", "local_shell"),
        ("shell", "shell"),
        ("apply_patch", "apply_patch"),
        ("tool_search", "tool_search"),
    ];
    let Some((_, name)) = ROWS.into_iter().find(|(start, _)| kind.starts_with(start)) else {
        return 0;
    };
    let bytes = BYTES.get_or_init(|| {
        let length = |name| row(name).map_or(0, |row| row.to_string().len() as u64);
        ROWS.into_iter().map(|(_, name)| (name, length(name) * FRAME_FACTOR)).collect()
    });
    bytes.get(name).copied().unwrap_or(0)
}

/// Returns the function of a row, with a note for the model behind its description.
pub(crate) fn function(name: &str, of: &str, note: Option<String>) -> FunctionTool {
    row(of).map(|row| read_row(name, row, note)).unwrap_or_default()
}

/// Returns the functions of a group in the order of the table, with their names there.
pub(crate) fn functions(group: &str) -> impl Iterator<Item = (&'static str, FunctionTool)> {
    let members = row(group).and_then(Value::as_object).into_iter().flatten();
    members.map(|(name, row)| (name.as_str(), read_row(name, row, None)))
}

fn read_row(name: &str, row: &Value, note: Option<String>) -> FunctionTool {
    let about = row.get("description").and_then(Value::as_str).unwrap_or_default();
    FunctionTool {
        name: name.to_owned(),
        description: Some(note.map_or_else(|| about.to_owned(), |note| format!("{about} {note}"))),
        parameters: row.get("parameters").cloned().map(JsonSchema::new),
        ..FunctionTool::default()
    }
}

/// Gives the functions of client tools names that no other tool of the request has, in declarations and
/// in those calls that `is_client` selects.
pub(crate) fn separate_names(
    tools: &mut [Tool],
    turns: &mut [Turn],
    is_client: impl Fn(&Part) -> bool,
) {
    if !tools.iter().any(|tool| matches!(tool, Tool::Client(_))) {
        return;
    }
    let mut used: HashSet<String> = tools.iter().filter_map(own_name).collect();
    let mut renamed = HashMap::new();
    drop_repeated(tools);
    for tool in tools {
        let Tool::Client(tool) = tool else { continue };
        if tool.kind == ClientToolKind::FoundTools {
            // The caller chose these names. A search may find a tool again.
            tool.functions.retain(|function| used.insert(function.name.clone()));
            continue;
        }
        for function in &mut tool.functions {
            let free = free_name(&function.name, &used);
            used.insert(free.clone());
            if free != function.name {
                renamed.insert(std::mem::replace(&mut function.name, free.clone()), free);
            }
        }
    }
    if renamed.is_empty() {
        return;
    }
    for part in turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        let is_own = is_client(part);
        if let PartKind::ToolCall(call) = &mut part.kind
            && is_own
            && let Some(free) = renamed.get(&call.name)
        {
            call.name.clone_from(free);
        }
    }
}

/// Leaves the functions of a tool out where it is declared again. A short declaration may stand for many.
pub(crate) fn drop_repeated(tools: &mut [Tool]) {
    let mut seen = HashSet::new();
    for tool in tools {
        if let Tool::Client(tool) = tool
            && tool.kind != ClientToolKind::FoundTools
            && !seen.insert(tool.kind)
        {
            tool.functions.clear();
        }
    }
}

/// Returns the name that the caller chose for a tool.
fn own_name(tool: &Tool) -> Option<String> {
    match tool {
        Tool::Function(FunctionTool { name, .. }) | Tool::Custom { name, .. } => Some(name.clone()),
        Tool::WebSearch(_)
        | Tool::CodeExecution(_)
        | Tool::UrlFetch(_)
        | Tool::Client(_)
        | Tool::Foreign { .. } => None,
    }
}

/// Returns the name, or one like it that is not used.
fn free_name(name: &str, used: &HashSet<String>) -> String {
    let names = (1..).map(|count| match count {
        1 => format!("{name}_tool"),
        count => format!("{name}_tool_{count}"),
    });
    let mut names = std::iter::once(name.to_owned()).chain(names);
    names.find(|name| !used.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_function_or_a_group_of_functions() {
        for of in ["bash", "text_editor", "text_editor_with_undo", "memory", "computer"] {
            assert!(function(of, of, None).parameters.is_some(), "{of}");
        }
        for of in ["shell", "local_shell", "apply_patch", "computer_calls", "tool_search"] {
            assert!(function(of, of, None).parameters.is_some(), "{of}");
        }
        for group in ["computer_toolset", "browser_toolset", "computer_use"] {
            assert!(functions(group).count() > 10, "{group}");
            assert!(functions(group).all(|(_, tool)| tool.parameters.is_some()), "{group}");
        }
        let rows = TABLE.get().map_or(0, Map::len);
        assert_eq!(rows, 13, "every row is tested");
    }

    #[test]
    fn a_used_name_gets_an_ending() {
        let used = ["shell", "shell_tool"].map(str::to_owned).into_iter().collect();
        assert_eq!(free_name("bash", &used), "bash");
        assert_eq!(free_name("shell", &used), "shell_tool_2");
    }
}
