//! Tools that this format defines and the caller runs.
//!
//! `computerUse` offers predefined functions. Their calls and results are those of ordinary functions:
//! <https://ai.google.dev/gemini-api/docs/computer-use#supported-actions>.

use canon::{ClientTool, ClientToolKind, FunctionTool, Tool};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

use crate::client_tools::{self, BROWSER_FUNCTIONS, DisplaySize, OwnScreen};
use crate::native::names::ORIGIN;

/// The tool that operates a screen.
const COMPUTER_USE: &str = "computerUse";
/// Predefined functions that the caller does not want.
const EXCLUDED: [&str; 2] = ["excludedPredefinedFunctions", "excluded_predefined_functions"];

/// The computer of this format.
pub(crate) const OWN_SCREEN: OwnScreen =
    OwnScreen { tool: computer_tool, items: None, header: None };

/// Returns the computer without the functions that only a browser has. Its grid fits any size.
fn computer_tool(_: DisplaySize) -> Option<ClientTool> {
    let settings = json!({"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": BROWSER_FUNCTIONS});
    match read(COMPUTER_USE, &settings)? {
        Tool::Client(tool) => Some(*tool),
        _ => None,
    }
}

/// Reads a tool that is not described; `None` if the caller does not run it.
pub(crate) fn read(name: &str, settings: &Value) -> Option<Tool> {
    if !matches!(name, COMPUTER_USE | "computer_use") {
        return None;
    }
    let excluded = EXCLUDED.iter().filter_map(|name| settings.get(name)?.as_array()).flatten();
    let excluded: Vec<&str> = excluded.filter_map(Value::as_str).collect();
    let functions = client_tools::functions("computer_use");
    let functions = functions.filter(|(name, _)| !excluded.contains(name));
    let value = Map::from_iter([(name.to_owned(), settings.clone())]);
    Some(Tool::Client(Box::new(ClientTool {
        kind: ClientToolKind::ComputerUse,
        origin: ORIGIN,
        value: Value::Object(value),
        functions: functions.map(|(_, function)| function).collect(),
    })))
}

/// Leaves out the predefined functions that the caller declares with the same name.
pub(crate) fn drop_replaced(tools: &mut [Tool]) {
    if !tools.iter().any(|tool| matches!(tool, Tool::Client(_))) {
        return;
    }
    client_tools::drop_repeated(tools);
    let own: HashSet<String> = tools
        .iter()
        .filter_map(|tool| match tool {
            Tool::Function(FunctionTool { name, .. }) => Some(name.clone()),
            _ => None,
        })
        .collect();
    for tool in tools {
        if let Tool::Client(tool) = tool {
            tool.functions.retain(|function| !own.contains(&function.name));
        }
    }
}
