//! Tools that this format defines and the caller runs.
//!
//! Their calls are ordinary `tool_use` blocks. A toolset is one declaration with many members: a call of
//! a member has its name and the name of the set, and its function has both names in one,
//! `computer_left_click`. See <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/overview>.

use canon::{
    ClientTool, ClientToolKind, ExtraFields, FunctionTool, Part, PartKind, PartStart, Tool,
};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

use crate::client_tools::{self, BASH_NAME, DisplaySize, OwnScreen, OwnShell};
use crate::messages::names::{BETA_HEADER, ORIGIN};
use crate::openai_values::read_cache;

/// The field of a call and a result that names the toolset of a member.
pub(crate) const TOOLSET_FIELD: &str = "toolset_name";
/// Note on a function of a toolset: the fields of its calls.
const MEMBER_EXTRA: &str = "portunus.member";

/// Members that a toolset offers only if the declaration enables them.
const DISABLED_MEMBERS: [&str; 4] =
    ["file_upload", "javascript_exec", "read_console", "read_network"];

/// Fields of a declaration that the function has in another form, or that only its caller needs.
const READ_FIELDS: [&str; 11] = [
    "type",
    "name",
    "cache_control",
    "configs",
    "defer_loading",
    "display_height_px",
    "display_number",
    "display_width_px",
    "enable_zoom",
    "max_characters",
    "strict",
];

/// The shell of this format.
pub(crate) const OWN_SHELL: OwnShell = OwnShell { tool: bash_tool, items: None };

fn bash_tool() -> Option<ClientTool> {
    const KIND: &str = "bash_20250124";
    let fields = [("type", KIND), ("name", BASH_NAME)];
    read(
        KIND,
        &fields.map(|(name, text)| (name.to_owned(), Value::from(text))).into_iter().collect(),
    )
}

/// The computer of this format.
pub(crate) const OWN_SCREEN: OwnScreen = OwnScreen {
    tool: computer_tool,
    items: None,
    header: Some((BETA_HEADER, "computer-use-2025-01-24")),
};

fn computer_tool(size: DisplaySize) -> Option<ClientTool> {
    const KIND: &str = "computer_20250124";
    let value = json!({"type": KIND, "name": "computer", "display_width_px": size.width,
        "display_height_px": size.height});
    read(KIND, value.as_object()?)
}

/// Reads a declaration; `None` if the caller does not run the tool.
pub(crate) fn read(kind: &str, fields: &Map<String, Value>) -> Option<ClientTool> {
    let (kind, row) = match kind.rsplit_once('_')? {
        ("bash", _) => (ClientToolKind::Bash, "bash"),
        ("text_editor", "20241022" | "20250124") => {
            (ClientToolKind::TextEditor, "text_editor_with_undo")
        }
        ("text_editor", _) => (ClientToolKind::TextEditor, "text_editor"),
        ("memory", _) => (ClientToolKind::Memory, "memory"),
        ("computer", _) => (ClientToolKind::Computer, "computer"),
        ("computer_toolset", _) => (ClientToolKind::ComputerToolset, "computer_toolset"),
        ("browser_toolset", _) => (ClientToolKind::BrowserToolset, "browser_toolset"),
        _ => return None,
    };
    let mut functions = match row.strip_suffix("_toolset") {
        Some(set) => members(set, row, fields.get("configs")),
        None => {
            let name = fields.get("name").and_then(Value::as_str).unwrap_or(row);
            let mut function = client_tools::function(name, row, note(fields));
            if kind == ClientToolKind::Computer {
                keep_actions(&mut function, fields);
            }
            function.deferred = fields.get("defer_loading") == Some(&Value::Bool(true));
            vec![function]
        }
    };
    if let Some(last) = functions.last_mut() {
        last.cache = fields.get("cache_control").filter(|mark| !mark.is_null()).map(read_cache);
        let rest = fields.iter().filter(|(name, value)| is_extra(name, value));
        for (name, value) in rest {
            last.extras.insert(ORIGIN, name, value.clone());
        }
    }
    Some(ClientTool { kind, origin: ORIGIN, value: Value::Object(fields.clone()), functions })
}

/// Returns true for a field that other formats cannot express.
fn is_extra(name: &str, value: &Value) -> bool {
    let is_usual = name == "allowed_callers" && *value == json!(["direct"]);
    !READ_FIELDS.contains(&name) && !value.is_null() && !is_usual
}

/// Returns the settings of a tool that its model has to know.
fn note(fields: &Map<String, Value>) -> Option<String> {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let size = number("display_width_px").zip(number("display_height_px"));
    let size = size.map(|(width, height)| format!("The screen is {width} by {height} pixels."));
    let limit = number("max_characters");
    size.or_else(|| limit.map(|most| format!("A view shows at most {most} characters.")))
}

/// Removes the actions that the version of the tool does not have.
fn keep_actions(function: &mut FunctionTool, fields: &Map<String, Value>) {
    const FIRST_ACTIONS: [&str; 10] = [
        "key",
        "type",
        "mouse_move",
        "left_click",
        "left_click_drag",
        "right_click",
        "middle_click",
        "double_click",
        "screenshot",
        "cursor_position",
    ];
    let is_first = fields.get("type").and_then(Value::as_str) == Some("computer_20241022");
    let zooms = fields.get("enable_zoom") == Some(&Value::Bool(true));
    let schema = function.parameters.as_mut().map(|schema| &mut schema.json);
    let actions = schema.and_then(|schema| schema.pointer_mut("/properties/action/enum"));
    if let Some(Value::Array(actions)) = actions {
        actions.retain(|action| match action.as_str() {
            Some("zoom") => zooms,
            Some(action) => !is_first || FIRST_ACTIONS.contains(&action),
            None => false,
        });
    }
}

/// Returns the functions of the enabled members of a toolset.
fn members(set: &str, row: &str, configs: Option<&Value>) -> Vec<FunctionTool> {
    let all = client_tools::functions(row).filter_map(|(member, function)| {
        let flag = |name: &str| configs?.get(member)?.get(name)?.as_bool();
        let is_usual = !DISABLED_MEMBERS.contains(&member);
        flag("enabled").unwrap_or(is_usual).then_some(())?;
        let fields = json!({"name": member, TOOLSET_FIELD: set, "caller": {"type": "direct"}});
        let mut extras = ExtraFields::new();
        extras.insert(ORIGIN, MEMBER_EXTRA, fields);
        let deferred = flag("defer_loading").unwrap_or(false);
        Some(FunctionTool { name: format!("{set}_{member}"), deferred, extras, ..function })
    });
    all.collect()
}

/// Reads a call of a member: its function has both names.
pub(crate) fn join_names(part: &mut Part) {
    let Some(Value::String(set)) = part.extras.get(ORIGIN, TOOLSET_FIELD) else { return };
    let PartKind::ToolCall(call) = &mut part.kind else { return };
    let flat = format!("{set}_{}", call.name);
    let member = std::mem::replace(&mut call.name, flat);
    part.extras.insert(ORIGIN, MEMBER_EXTRA, Value::from(member));
}

/// Returns the name of a call in this format if it is one of a member.
pub(crate) fn member_of(part: &Part) -> Option<&str> {
    part.extras.get(ORIGIN, MEMBER_EXTRA)?.as_str()
}

/// Returns the names of the members of a toolset, as calls and the tool choice have them; `None` for another
/// tool.
pub(crate) fn member_names(kind: &str, fields: &Map<String, Value>) -> Option<Vec<String>> {
    let is_toolset = kind.rsplit_once('_').is_some_and(|(name, _)| name.ends_with("_toolset"));
    let tool = is_toolset.then(|| read(kind, fields)).flatten()?;
    Some(tool.functions.iter().filter_map(member_name).map(str::to_owned).collect())
}

fn member_name(function: &FunctionTool) -> Option<&str> {
    function.extras.get(ORIGIN, MEMBER_EXTRA)?.get("name")?.as_str()
}

/// Returns the name of the function that a tool choice means. It names a member without its toolset. A tool
/// of that name comes first.
pub(crate) fn chosen_function(name: String, tools: &[Tool]) -> String {
    if tools.iter().any(|tool| client_tools::is_named(tool, &name)) {
        return name;
    }
    let mut functions = ClientTool::all_in(tools).flat_map(|tool| &tool.functions);
    let function = functions.find(|function| member_name(function) == Some(&name));
    function.map_or(name, |function| function.name.clone())
}

/// Returns the name in a tool choice of this format, which declares the toolsets of its own callers.
pub(crate) fn chosen_member<'a>(name: &'a str, tools: &'a [Tool]) -> &'a str {
    let own = ClientTool::all_in(tools).filter(|tool| tool.origin == ORIGIN);
    let mut functions = own.flat_map(|tool| &tool.functions);
    functions.find(|function| function.name == name).and_then(member_name).unwrap_or(name)
}

/// The fields of calls of toolset members, by the names of their functions.
#[derive(Debug, Default)]
pub(crate) struct ToolsetMembers(HashMap<String, Map<String, Value>>);

impl ToolsetMembers {
    /// Collects the members that the caller declared.
    pub(crate) fn new(tools: &[Tool]) -> Self {
        let functions = ClientTool::all_in(tools).flat_map(|tool| &tool.functions);
        let members = functions.filter_map(|function| {
            let fields = function.extras.get(ORIGIN, MEMBER_EXTRA)?.as_object()?;
            Some((function.name.clone(), fields.clone()))
        });
        Self(members.collect())
    }

    /// Gives the call of a member its name in this format, and its other fields.
    pub(crate) fn split_name(&self, start: &mut PartStart, fields: &mut Map<String, Value>) {
        let PartStart::ToolCall { name, .. } = start else { return };
        let Some(member) = self.0.get(name.as_str()) else { return };
        fields.extend(member.clone());
        if let Some(Value::String(own)) = fields.shift_remove("name") {
            *name = own;
        }
    }
}
