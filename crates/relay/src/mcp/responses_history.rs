//! Items of earlier answers with MCP servers, as calls of functions and their results.

use canon::ApiError;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

use super::bench::ToolBench;
use super::turn_format::{FunctionUse, text};

/// Call that the caller approved, with the id of the request for approval.
pub(super) type ApprovedUse = (FunctionUse, String);

/// Replaces the items of servers in the input. Returns also the calls that the caller approved and that were
/// not made yet, each with the id of its request for approval.
pub(super) fn lower_history(
    input: Vec<Value>,
    bench: &ToolBench,
) -> Result<(Vec<Value>, Vec<ApprovedUse>), ApiError> {
    let requests: HashMap<String, Value> = input
        .iter()
        .filter(|item| text(item, "type") == "mcp_approval_request")
        .map(|item| (text(item, "id").to_owned(), item.clone()))
        .collect();
    let made: HashSet<String> = input
        .iter()
        .filter(|item| text(item, "type") == "mcp_call")
        .map(|item| text(item, "approval_request_id").to_owned())
        .collect();
    let (mut lowered, mut approved) = (Vec::with_capacity(input.len()), Vec::new());
    let mut answered = HashSet::new();
    for (at, item) in input.into_iter().enumerate() {
        match text(&item, "type") {
            "mcp_list_tools" | "mcp_approval_request" => {}
            "mcp_call" => {
                let id = text(&item, "id").to_owned();
                let function = bench.function_of(text(&item, "server_label"), text(&item, "name"));
                let result = call_result(&item);
                lowered.push(function_call(&id, &function, text(&item, "arguments")));
                lowered.push(function_result(&id, &result));
            }
            "mcp_approval_response" => {
                let request = text(&item, "approval_request_id").to_owned();
                let Some(asked) = requests.get(&request) else {
                    let path = format!("input[{at}].approval_request_id");
                    let message =
                        format!("`{path}` answers no `mcp_approval_request` of the input");
                    return Err(ApiError::invalid(&path, message));
                };
                if made.contains(&request) || !answered.insert(request.clone()) {
                    continue;
                }
                let label = text(asked, "server_label");
                let function = bench.function_of(label, text(asked, "name"));
                let arguments = text(asked, "arguments").to_owned();
                if item.get("approve").and_then(Value::as_bool) == Some(true) {
                    let id = request.clone();
                    approved.push((FunctionUse { id, function, arguments }, request));
                } else {
                    let reason = text(&item, "reason");
                    let result = format!("The user did not approve this call. {reason}");
                    lowered.push(function_call(&request, &function, &arguments));
                    lowered.push(function_result(&request, result.trim_end()));
                }
            }
            _ => lowered.push(item),
        }
    }
    Ok((lowered, approved))
}

fn call_result(item: &Value) -> String {
    let error = item.get("error").filter(|error| !error.is_null());
    match (item.get("output").and_then(Value::as_str), error) {
        (Some(output), _) => output.to_owned(),
        (None, Some(error)) => format!("The tool failed: {error}"),
        (None, None) => String::new(),
    }
}

fn function_call(id: &str, function: &str, arguments: &str) -> Value {
    let arguments = if arguments.is_empty() { "{}" } else { arguments };
    json!({ "type": "function_call", "call_id": id, "name": function, "arguments": arguments })
}

fn function_result(id: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": output })
}
