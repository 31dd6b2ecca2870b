//! Tools that this format defines and the caller runs: declarations, calls and results.
//!
//! A call is an item of its own type here, such as `shell_call`, and a function call everywhere else. Its
//! arguments are those of the item's action. The reader keeps the item for this format. Arguments of a
//! model that do not fit the item become a call that does no harm and fails, so that the model reads why.

use canon::{
    ClientTool, ClientToolKind, ExtraFields, JsonSchema, Losses, Media, MediaKind, MediaSource,
    Part, PartKind, ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::client_arguments::{
    action_of, actions_of, commands_of, operation_of, program_of, read_object,
};
use crate::client_tools::{self, DisplaySize, OwnItems, OwnScreen, OwnShell};
use crate::fields::ObjectWriter;
use crate::openai_values::read_url;
use crate::responses::names::ORIGIN;

/// Note on a call or a result: the whole item.
pub(crate) const ITEM_EXTRA: &str = "portunus.item";

/// Reads a declaration; `None` if the provider runs the tool.
pub(crate) fn read_tool(fields: &Map<String, Value>) -> Option<ClientTool> {
    let kind = declared_kind(fields)?;
    let name = type_name(kind);
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let mut function = match kind {
        ClientToolKind::ComputerPreview => {
            let mut function = client_tools::function(name, "computer_calls", screen_note(fields));
            // The call of this version has one action.
            let schema = function.parameters.as_ref();
            let action = schema.and_then(|s| s.json.pointer("/properties/actions/items").cloned());
            function.parameters = action.map(JsonSchema::new);
            function
        }
        ClientToolKind::ComputerCalls => {
            let note = "The screen has the size of the last screenshot.";
            client_tools::function(name, "computer_calls", Some(note.to_owned()))
        }
        ClientToolKind::Shell
        | ClientToolKind::LocalShell
        | ClientToolKind::ApplyPatch
        | ClientToolKind::ToolSearch
        | ClientToolKind::Bash
        | ClientToolKind::TextEditor
        | ClientToolKind::Memory
        | ClientToolKind::Computer
        | ClientToolKind::ComputerToolset
        | ClientToolKind::BrowserToolset
        | ClientToolKind::FoundTools
        | ClientToolKind::ComputerUse => client_tools::function(name, name, None),
    };
    if kind == ClientToolKind::ToolSearch {
        let schema = fields.get("parameters").filter(|schema| schema.is_object());
        function.parameters = schema.cloned().map(JsonSchema::new).or(function.parameters);
        function.description = text("description").map(str::to_owned).or(function.description);
    }
    let value = Value::Object(fields.clone());
    Some(ClientTool { kind, origin: ORIGIN, value, functions: vec![function] })
}

/// The shell of this format.
pub(crate) const OWN_SHELL: OwnShell = OwnShell {
    tool: shell_tool,
    items: Some(OwnItems { note_call: note_shell_call, note_result: note_shell_result }),
};

fn shell_tool() -> Option<ClientTool> {
    let value = json!({"type": "shell", "environment": {"type": "local"}});
    read_tool(value.as_object()?)
}

/// Makes a call of another vendor's shell one of this format's own, for a request.
fn note_shell_call(part: &mut Part) {
    let PartKind::ToolCall(call) = &part.kind else { return };
    let item = call_item(ClientToolKind::Shell, call, "", "completed").without("id");
    part.extras.insert(ORIGIN, ITEM_EXTRA, item.into());
}

/// Makes the result of such a call one of this format's own.
fn note_shell_result(part: &mut Part) {
    let PartKind::ToolResult(result) = &part.kind else { return };
    let (stdout, exit_code) = (result.as_text(), i32::from(result.is_error));
    let outcome = json!({"type": "exit", "exit_code": exit_code});
    let item = json!({
        "type": "shell_call_output",
        "call_id": result.call_id,
        "output": [{"stdout": stdout, "stderr": "", "outcome": outcome}],
    });
    part.extras.insert(ORIGIN, ITEM_EXTRA, item);
}

/// The computer of this format.
pub(crate) const OWN_SCREEN: OwnScreen = OwnScreen {
    tool: computer_tool,
    items: Some(OwnItems { note_call: note_computer_call, note_result: note_computer_result }),
    header: None,
};

/// Returns the computer. Its model counts the pixels of the screenshots, so no size is declared.
fn computer_tool(_: DisplaySize) -> Option<ClientTool> {
    read_tool(json!({"type": "computer"}).as_object()?)
}

/// Makes a call of another vendor's computer one of this format's own, for a request.
fn note_computer_call(part: &mut Part) {
    let PartKind::ToolCall(call) = &part.kind else { return };
    let item = call_item(ClientToolKind::ComputerCalls, call, "", "completed").without("id");
    part.extras.insert(ORIGIN, ITEM_EXTRA, item.into());
}

/// Makes the result of such a call, which has an image, one of this format's own.
fn note_computer_result(part: &mut Part) {
    let PartKind::ToolResult(result) = &part.kind else { return };
    let url = result.parts.iter().rev().find_map(|part| match &part.kind {
        PartKind::Media(media) => match &media.source {
            MediaSource::Inline { mime, data } => Some(format!("data:{mime};base64,{data}")),
            MediaSource::Url { url, .. } => Some(url.clone()),
            MediaSource::File { .. } | MediaSource::Text(_) => None,
        },
        _ => None,
    });
    let item = json!({
        "type": "computer_call_output",
        "call_id": result.call_id,
        "output": {"type": "computer_screenshot", "image_url": url},
    });
    part.extras.insert(ORIGIN, ITEM_EXTRA, item);
}

/// Reads a call of the shell from a reply.
pub(crate) fn read_shell_call(item: &Value) -> Option<ToolCall> {
    match read_call(item)?.kind {
        PartKind::ToolCall(call) if call.name == type_name(ClientToolKind::Shell) => Some(call),
        _ => None,
    }
}

fn declared_kind(fields: &Map<String, Value>) -> Option<ClientToolKind> {
    let is_local = || match fields.get("environment") {
        None | Some(Value::Null) => true,
        Some(place) => place.get("type").and_then(Value::as_str) == Some("local"),
    };
    let is_client = || fields.get("execution").and_then(Value::as_str) == Some("client");
    match fields.get("type")?.as_str()? {
        "shell" if is_local() => Some(ClientToolKind::Shell),
        "tool_search" if is_client() => Some(ClientToolKind::ToolSearch),
        "shell" | "tool_search" => None,
        kind => chosen_kind(kind),
    }
}

/// Returns the tool of a type in the tool choice.
pub(crate) fn chosen_kind(kind: &str) -> Option<ClientToolKind> {
    Some(match kind {
        "shell" => ClientToolKind::Shell,
        "local_shell" => ClientToolKind::LocalShell,
        "apply_patch" => ClientToolKind::ApplyPatch,
        "computer" => ClientToolKind::ComputerCalls,
        "computer_use_preview" | "computer_use" => ClientToolKind::ComputerPreview,
        "tool_search" => ClientToolKind::ToolSearch,
        _ => return None,
    })
}

/// Returns the usual name of the function of a tool.
fn type_name(kind: ClientToolKind) -> &'static str {
    match kind {
        ClientToolKind::Shell => "shell",
        ClientToolKind::LocalShell => "local_shell",
        ClientToolKind::ApplyPatch => "apply_patch",
        ClientToolKind::ToolSearch => "tool_search",
        ClientToolKind::ComputerCalls | ClientToolKind::ComputerPreview => "computer",
        // Tools of other formats.
        ClientToolKind::Bash
        | ClientToolKind::TextEditor
        | ClientToolKind::Memory
        | ClientToolKind::Computer
        | ClientToolKind::ComputerToolset
        | ClientToolKind::BrowserToolset
        | ClientToolKind::FoundTools
        | ClientToolKind::ComputerUse => "",
    }
}

fn screen_note(fields: &Map<String, Value>) -> Option<String> {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let (width, height) = number("display_width").zip(number("display_height"))?;
    Some(format!("The screen is {width} by {height} pixels."))
}

/// Returns the item that a call or a result was read from.
pub(crate) fn own_item(extras: &ExtraFields) -> Option<&Value> {
    extras.get(ORIGIN, ITEM_EXTRA)
}

/// Reads a call that the caller has run; `None` for other items.
pub(crate) fn read_call(item: &Value) -> Option<Part> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let action = |name: &str| item.get(name).filter(|value| value.is_object());
    let (name, arguments) = match text("type")? {
        "shell_call" => {
            let place = item.get("environment").and_then(|place| place.get("type"));
            let is_local = place.is_none_or(|kind| kind.as_str() == Some("local"));
            ("shell", without_nulls(action("action").filter(|_| is_local)?))
        }
        "local_shell_call" => {
            let mut action = without_nulls(action("action")?);
            action.shift_remove("type");
            // The field is required there, even if it is empty.
            if action.get("env").and_then(Value::as_object).is_some_and(Map::is_empty) {
                action.shift_remove("env");
            }
            ("local_shell", action)
        }
        "apply_patch_call" => {
            let operation = without_nulls(action("operation")?);
            ("apply_patch", Map::from_iter([("operation".to_owned(), operation.into())]))
        }
        "computer_call" => match item.get("actions") {
            Some(Value::Array(actions)) => {
                let actions = Value::Array(actions.clone());
                ("computer", Map::from_iter([("actions".to_owned(), actions)]))
            }
            _ => ("computer", without_nulls(action("action")?)),
        },
        "tool_search_call" if text("execution") == Some("client") => {
            ("tool_search", action("arguments").map(without_nulls).unwrap_or_default())
        }
        _ => return None,
    };
    let id = text("call_id").or_else(|| text("id"))?.to_owned();
    let arguments = Value::Object(arguments).to_string();
    let call = ToolCall { id, name: name.to_owned(), arguments, custom: false };
    Some(with_item(PartKind::ToolCall(call), item))
}

/// Reads the result of such a call; `None` for other items.
pub(crate) fn read_result(item: &Value) -> Option<Part> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    let output = || item.get("output").filter(|output| !output.is_null());
    let parts = match text("type")? {
        "shell_call_output" | "local_shell_call_output" => match output()? {
            Value::String(output) => vec![Part::text(output.clone())],
            output => vec![Part::text(output.to_string())],
        },
        "apply_patch_call_output" => {
            let status = text("status").unwrap_or("completed");
            let output = text("output").filter(|output| !output.is_empty());
            vec![Part::text(json!({"status": status, "output": output}).to_string())]
        }
        "computer_call_output" => vec![read_screenshot(output()?)?],
        "tool_search_output" if text("execution") == Some("client") => {
            let tools = item.get("tools").and_then(Value::as_array).into_iter().flatten();
            let names: Vec<Value> = tools.map(found_names).collect();
            vec![Part::text(json!({"tools": names}).to_string())]
        }
        _ => return None,
    };
    let call_id = text("call_id").or_else(|| text("id"))?.to_owned();
    let result = ToolResult { call_id, name: None, parts, object: None, is_error: false };
    Some(with_item(PartKind::ToolResult(result), item))
}

fn read_screenshot(output: &Value) -> Option<Part> {
    let text = |name: &str| output.get(name).and_then(Value::as_str);
    let source = match (text("image_url"), text("file_id")) {
        (Some(url), _) => read_url(url),
        (None, Some(id)) => MediaSource::File { origin: ORIGIN, id: id.to_owned() },
        (None, None) => return None,
    };
    Some(Part::new(PartKind::Media(Media::new(MediaKind::Image, source))))
}

/// Returns the names of a found tool, which the model can call from now on.
fn found_names(tool: &Value) -> Value {
    let name = tool.get("name").cloned().unwrap_or_default();
    match tool.get("tools").and_then(Value::as_array) {
        Some(members) => {
            let space = name.as_str().unwrap_or_default();
            let members = members.iter().filter_map(|tool| tool.get("name")?.as_str());
            members.map(|name| format!("{space}__{name}")).collect()
        }
        None => name,
    }
}

fn without_nulls(object: &Value) -> Map<String, Value> {
    let fields = object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn with_item(kind: PartKind, item: &Value) -> Part {
    let mut part = Part::new(kind);
    part.extras.insert(ORIGIN, ITEM_EXTRA, item.clone());
    part
}

/// Returns the prefix of ids of the items of a tool.
pub(crate) const fn id_prefix(kind: ClientToolKind) -> &'static str {
    match kind {
        ClientToolKind::ApplyPatch => "apc",
        ClientToolKind::ComputerCalls | ClientToolKind::ComputerPreview => "cu",
        ClientToolKind::LocalShell => "lsh",
        ClientToolKind::ToolSearch => "tsc",
        ClientToolKind::Shell
        | ClientToolKind::Bash
        | ClientToolKind::TextEditor
        | ClientToolKind::Memory
        | ClientToolKind::Computer
        | ClientToolKind::ComputerToolset
        | ClientToolKind::BrowserToolset
        | ClientToolKind::FoundTools
        | ClientToolKind::ComputerUse => "sh",
    }
}

/// Names the loss of an action in another vendor's words that this format's computer does not have.
pub(crate) fn note_lost_action(call: &ToolCall, losses: &mut Losses) {
    let Some(given) = read_object(&call.arguments) else { return };
    let is_foreign = given.get("action").is_some_and(Value::is_string);
    if is_foreign && client_tools::for_responses(&given).is_none() {
        client_tools::note_lost(&Value::Object(given), losses);
    }
}

/// Writes a call as the item of a response. One that is in progress has no arguments yet.
pub(crate) fn call_item(
    kind: ClientToolKind,
    call: &ToolCall,
    id: &str,
    status: &str,
) -> ObjectWriter {
    let given = if status == "in_progress" { None } else { Some(read_object(&call.arguments)) };
    let item = |name: &str| {
        ObjectWriter::typed(name)
            .set("id", id)
            .set("call_id", call.id.as_str())
            .set("status", status)
    };
    match kind {
        ClientToolKind::LocalShell => {
            item("local_shell_call").set("action", program_of(given.as_ref()))
        }
        ClientToolKind::ApplyPatch => {
            // The item has no status for one that was cut.
            let status = if status == "incomplete" { "in_progress" } else { status };
            let operation = operation_of(given.as_ref(), &call.arguments);
            item("apply_patch_call").set("status", status).set("operation", operation)
        }
        ClientToolKind::ComputerCalls => item("computer_call")
            .set("actions", actions_of(given.as_ref()))
            .set("pending_safety_checks", Vec::<Value>::new()),
        ClientToolKind::ComputerPreview => item("computer_call")
            .set("action", action_of(given.as_ref()))
            .set("pending_safety_checks", Vec::<Value>::new()),
        ClientToolKind::ToolSearch => {
            let arguments = given.flatten().unwrap_or_default();
            item("tool_search_call").set("execution", "client").set("arguments", arguments)
        }
        ClientToolKind::Shell
        | ClientToolKind::Bash
        | ClientToolKind::TextEditor
        | ClientToolKind::Memory
        | ClientToolKind::Computer
        | ClientToolKind::ComputerToolset
        | ClientToolKind::BrowserToolset
        | ClientToolKind::FoundTools
        | ClientToolKind::ComputerUse => item("shell_call")
            .set("action", commands_of(given.as_ref()))
            .set("environment", ObjectWriter::typed("local")),
    }
}
