//! Items of earlier answers with MCP servers, as calls of functions and their results.

use serde_json::{Map, Value, json};
use std::collections::HashSet;

use super::approvals::ApprovalRequests;
use super::bench::ToolBench;
use super::own_tools::OwnPlace;
use super::turn_format::{FunctionUse, text};

/// Call that the caller approved, with the id of the request for approval.
pub(super) type ApprovedUse = (FunctionUse, String);

/// Input whose items of servers are replaced.
#[derive(Default)]
pub(super) struct LoweredInput {
    pub(super) items: Vec<Value>,
    /// Places of the items in the caller's input.
    pub(super) places: Vec<OwnPlace>,
    /// Calls that the caller approved and that were not made yet.
    pub(super) approved: Vec<ApprovedUse>,
}

impl LoweredInput {
    fn add_call(&mut self, at: usize, items: [Value; 2]) {
        for item in items {
            self.items.push(item);
            self.places.push(OwnPlace::From(format!("input[{at}]")));
        }
    }
}

/// Replaces the items of servers in the input.
pub(super) fn lower_history(
    input: Vec<Value>,
    requests: &ApprovalRequests,
    bench: &ToolBench,
) -> LoweredInput {
    let made: HashSet<String> = input
        .iter()
        .filter(|item| text(item, "type") == "mcp_call")
        .map(|item| text(item, "approval_request_id").to_owned())
        .collect();
    let mut lowered = LoweredInput::default();
    let mut answered = HashSet::new();
    for (at, item) in input.into_iter().enumerate() {
        match text(&item, "type") {
            "mcp_list_tools" | "mcp_approval_request" => {}
            "mcp_call" => {
                let id = text(&item, "id").to_owned();
                let function = bench.function_of(text(&item, "server_label"), text(&item, "name"));
                let call = function_call(&id, &function, text(&item, "arguments"));
                lowered.add_call(at, [call, function_result(&id, &call_result(&item))]);
            }
            "mcp_approval_response" => {
                let request = text(&item, "approval_request_id").to_owned();
                let Some(asked) = requests.get(&request) else { continue };
                if made.contains(&request) || !answered.insert(request.clone()) {
                    continue;
                }
                let label = text(asked, "server_label");
                let function = bench.function_of(label, text(asked, "name"));
                let arguments = text(asked, "arguments").to_owned();
                if item.get("approve").and_then(Value::as_bool) == Some(true) {
                    let id = request.clone();
                    lowered.approved.push((FunctionUse { id, function, arguments }, request));
                } else {
                    let reason = text(&item, "reason");
                    let result = format!("The user did not approve this call. {reason}");
                    let call = function_call(&request, &function, &arguments);
                    lowered.add_call(at, [call, function_result(&request, result.trim_end())]);
                }
            }
            _ => {
                lowered.items.push(item);
                lowered.places.push(OwnPlace::Same(format!("input[{at}]")));
            }
        }
    }
    lowered
}

fn call_result(item: &Value) -> String {
    let error = item.get("error").filter(|error| !error.is_null());
    match (item.get("output").and_then(Value::as_str), error) {
        (Some(output), _) => output.to_owned(),
        (None, Some(error)) => format!("The tool failed: {error}"),
        (None, None) if text(item, "status") == "incomplete" => {
            "The call was not made, because the answer was cut off.".to_owned()
        }
        (None, None) => String::new(),
    }
}

fn function_call(id: &str, function: &str, arguments: &str) -> Value {
    // A call that was cut off has half of its arguments, which no provider takes.
    let is_object = dialects::json::read::<Map<String, Value>>(arguments).is_ok();
    let arguments = if is_object { arguments } else { "{}" };
    json!({ "type": "function_call", "call_id": id, "name": function, "arguments": arguments })
}

fn function_result(id: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": output })
}
