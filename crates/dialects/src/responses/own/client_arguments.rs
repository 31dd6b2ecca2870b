//! Arguments of a model for the calls of `client_tools`, and what becomes of those that do not fit.
//!
//! `None` for the arguments means that they have not come yet, and `Some(None)` that they are not an
//! object.

use serde_json::{Map, Value, json};

use crate::client_tools::for_responses;

/// Arguments as they were read.
type GivenArguments<'a> = Option<&'a Option<Map<String, Value>>>;

/// Message of a call whose arguments do not fit. It has no characters that a shell changes.
const INVALID: &str = "the arguments of this call do not fit the tool";
/// Path of a patch whose arguments do not fit. No file has it.
const INVALID_PATH: &str = "invalid-arguments";

/// Command in place of a new session, which another vendor's shell has.
const RESTART_COMMAND: &str = "echo this shell keeps no session, so there is nothing to restart";

fn is_restart(fields: &Map<String, Value>) -> bool {
    fields.get("restart") == Some(&Value::Bool(true))
}

/// Reads arguments; `None` if they are not a JSON object.
pub(super) fn read_object(arguments: &str) -> Option<Map<String, Value>> {
    match canon::read_value(arguments.as_bytes())? {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

/// Returns the command that tells the model what was wrong.
fn failing_command() -> String {
    format!("echo {INVALID} 1>&2 && exit 2")
}

/// Returns the action of a `shell_call`.
pub(super) fn commands_of(given: GivenArguments<'_>) -> Value {
    let none = Map::new();
    let (fields, commands) = match given {
        None => (&none, Some(Vec::new())),
        Some(None) => (&none, None),
        Some(Some(fields)) => {
            let list = fields.get("commands").or_else(|| fields.get("command"));
            let restart = || is_restart(fields).then(|| vec![RESTART_COMMAND.to_owned()]);
            (fields, list.and_then(read_commands).or_else(restart))
        }
    };
    let commands = commands.unwrap_or_else(|| vec![failing_command()]);
    let number = |name: &str| fields.get(name).filter(|value| value.is_u64()).cloned();
    json!({
        "commands": commands,
        "timeout_ms": number("timeout_ms"),
        "max_output_length": number("max_output_length"),
    })
}

/// Reads a list of commands. Models also send one command as a text.
fn read_commands(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(command) => Some(vec![command.clone()]),
        Value::Array(list) if !list.is_empty() => texts(list),
        _ => None,
    }
}

fn texts(list: &[Value]) -> Option<Vec<String>> {
    list.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Returns the action of a `local_shell_call`.
pub(super) fn program_of(given: GivenArguments<'_>) -> Value {
    let none = Map::new();
    let shell = |command: String| vec!["sh".to_owned(), "-c".to_owned(), command];
    let (fields, command) = match given {
        None => (&none, Some(Vec::new())),
        Some(None) => (&none, None),
        Some(Some(fields)) => {
            let command = match fields.get("command").or_else(|| fields.get("commands")) {
                Some(Value::Array(list)) if !list.is_empty() => texts(list),
                Some(Value::String(command)) => Some(shell(command.clone())),
                _ => None,
            };
            (fields, command)
        }
    };
    let command = command.unwrap_or_else(|| shell(failing_command()));
    let mut action = json!({"type": "exec", "command": command, "env": {}});
    if let Value::Object(action) = &mut action {
        let is_env =
            |value: &Value| value.as_object().is_some_and(|env| env.values().all(Value::is_string));
        for name in ["env", "timeout_ms", "user", "working_directory"] {
            let fits = |value: &&Value| match name {
                "env" => is_env(value),
                "timeout_ms" => value.is_u64(),
                _ => value.is_string(),
            };
            if let Some(value) = fields.get(name).filter(fits) {
                action.insert(name.to_owned(), value.clone());
            }
        }
    }
    action
}

/// Returns the operation of an `apply_patch_call`. One that does not fit changes a file that is not
/// there, with the arguments as its diff.
pub(super) fn operation_of(given: GivenArguments<'_>, arguments: &str) -> Value {
    let operation = |kind: &str, path: &str, diff: &str| match kind {
        "delete_file" => json!({"type": kind, "path": path}),
        _ => json!({"type": kind, "path": path, "diff": diff}),
    };
    let Some(given) = given else { return operation("update_file", "", "") };
    let read = || {
        let fields = given.as_ref()?;
        let inner = fields.get("operation").and_then(Value::as_object).unwrap_or(fields);
        let text = |name: &str| inner.get(name).and_then(Value::as_str);
        let path = text("path").filter(|path| !path.is_empty())?;
        match (text("type")?, text("diff")) {
            (kind @ ("create_file" | "update_file"), Some(diff)) => {
                Some(operation(kind, path, diff))
            }
            ("delete_file", _) => Some(operation("delete_file", path, "")),
            _ => None,
        }
    };
    read().unwrap_or_else(|| operation("update_file", INVALID_PATH, arguments))
}

/// Returns the actions of a `computer_call`. Actions that do not fit are left out; if none is left, a
/// screenshot shows the model that nothing has happened.
pub(super) fn actions_of(given: GivenArguments<'_>) -> Vec<Value> {
    let Some(given) = given else { return Vec::new() };
    let fields = given.as_ref();
    let list = match fields.and_then(|fields| fields.get("actions")) {
        Some(Value::Array(list)) => list.iter().filter_map(read_action).collect(),
        Some(one @ Value::Object(_)) => read_action(one).into_iter().collect(),
        _ => fields.and_then(read_fields).into_iter().collect::<Vec<_>>(),
    };
    if list.is_empty() { vec![screenshot()] } else { list }
}

/// Returns the only action of a `computer_call` of the preview.
pub(super) fn action_of(given: GivenArguments<'_>) -> Value {
    actions_of(given).into_iter().next().unwrap_or_else(screenshot)
}

fn screenshot() -> Value {
    json!({"type": "screenshot"})
}

fn read_action(action: &Value) -> Option<Value> {
    read_fields(action.as_object()?)
}

/// Returns the fields that an action has, if the required ones are there.
fn read_fields(given: &Map<String, Value>) -> Option<Value> {
    let given = match given.get("action") {
        Some(Value::Object(action)) => action,
        // The words of another vendor.
        Some(Value::String(_)) => return for_responses(given),
        _ => given,
    };
    let kind = given.get("type")?.as_str()?;
    let whole = |name: &str| {
        let number = given.get(name)?;
        number.as_i64().or_else(|| number.as_f64().map(|number| number.round() as i64))
    };
    let keys = given.get("keys").and_then(Value::as_array).and_then(|keys| texts(keys));
    let mut action = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    let mut set = |name: &str, value: Value| drop(action.insert(name.to_owned(), value));
    match kind {
        "click" | "double_click" | "move" | "scroll" => {
            if kind == "click" {
                let button = given.get("button").and_then(Value::as_str).unwrap_or("left");
                set("button", Value::from(button));
            }
            set("x", whole("x")?.into());
            set("y", whole("y")?.into());
            if kind == "scroll" {
                set("scroll_x", whole("scroll_x").unwrap_or(0).into());
                set("scroll_y", whole("scroll_y").unwrap_or(0).into());
            }
            if let Some(keys) = keys {
                set("keys", keys.into());
            }
        }
        "drag" => {
            let path = given.get("path")?.as_array()?;
            let point = |point: &Value| {
                let at = |name: &str| point.get(name)?.as_i64();
                Some(json!({"x": at("x")?, "y": at("y")?}))
            };
            set("path", path.iter().map(point).collect::<Option<Value>>()?);
            if let Some(keys) = keys {
                set("keys", keys.into());
            }
        }
        "keypress" => set("keys", keys?.into()),
        "type" => set("text", given.get("text")?.as_str()?.into()),
        "screenshot" | "wait" => {}
        _ => return None,
    }
    Some(Value::Object(action))
}
