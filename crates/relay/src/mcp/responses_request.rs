//! Request of the responses format: its servers, and their tools as functions.

use canon::ApiError;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use telemetry::ToolTrace;

use super::bench::{NamedServer, ToolBench, ToolFilter};
use super::named_servers::{
    add_callers_headers, add_token, offered_endpoint, offered_server, read_headers, remote_endpoint,
};
use super::turn_format::text;
use crate::call::Call;

pub(super) fn is_server(tool: &Value) -> bool {
    text(tool, "type") == "mcp"
}

/// Reads a tool of the type `mcp`.
pub(super) fn read_server(call: &Call, tool: &Value, at: usize) -> Result<NamedServer, ApiError> {
    let field = |name: &str| format!("tools[{at}].{name}");
    let label = text(tool, "server_label").to_owned();
    if label.is_empty() {
        let path = field("server_label");
        return Err(ApiError::invalid(&path, format!("`{path}` is missing")));
    }
    let mut headers = read_headers(tool.get("headers"), &field("headers"))?;
    add_token(&mut headers, tool.get("authorization"), &field("authorization"))?;
    let mut allowed = vec![read_filter(tool.get("allowed_tools"), &field("allowed_tools"))?];
    let approval = read_approval(tool.get("require_approval"), &field("require_approval"))?;
    let (endpoint, path, offered) = match (text(tool, "server_url"), text(tool, "connector_id")) {
        ("", "") => {
            let path = field("server_url");
            let message = format!("`{path}` is missing: it is the address of the MCP server");
            return Err(ApiError::invalid(&path, message));
        }
        ("", connector) => {
            let path = field("connector_id");
            let server = offered_server(call, &path, connector)?;
            allowed.push(ToolFilter::Offered(Arc::clone(server)));
            let (parts, account) = ((&*call.engine, &*call.config), &call.key.record.account_id);
            let trace = call.trace.map(ToolTrace::below);
            let mut endpoint = offered_endpoint(parts, server, account, trace);
            // The caller's own token takes the place of the operator's.
            if headers.contains_key(AUTHORIZATION) {
                endpoint.tokens = None;
            }
            let token = tool.get("authorization").filter(|token| !token.is_null());
            let token_path = token.map(|_| field("authorization"));
            let paths = (&*field("headers"), token_path.as_deref());
            add_callers_headers(&mut endpoint.headers, headers, paths)?;
            (endpoint, path, Some(Arc::clone(server)))
        }
        (url, _) => {
            let path = field("server_url");
            (remote_endpoint(call, &path, url, headers)?, path, None)
        }
    };
    Ok(NamedServer { label, path, endpoint, allowed, approval, offered })
}

/// Refuses servers among the tools of items, which a later turn may have lost.
pub(super) fn check_added_tools(input: &[Value]) -> Result<(), ApiError> {
    for (at, item) in input.iter().enumerate() {
        let tools = item.get("tools").and_then(Value::as_array);
        let is_added = text(item, "type") == "additional_tools";
        let found = tools.filter(|_| is_added).and_then(|all| all.iter().position(is_server));
        if let Some(index) = found {
            let path = format!("input[{at}].tools[{index}]");
            let message = format!("`{path}`: an MCP server must stand in `tools` of the request");
            return Err(ApiError::invalid(&path, message));
        }
    }
    Ok(())
}

/// Reads `allowed_tools`: a list of names, or an object of rules.
fn read_filter(given: Option<&Value>, path: &str) -> Result<ToolFilter, ApiError> {
    let wrong = || {
        let message = format!("`{path}` must be a list of names, or an object with `tool_names`");
        ApiError::invalid(path, message)
    };
    match given {
        None | Some(Value::Null) => Ok(ToolFilter::All),
        Some(Value::Array(names)) => Ok(ToolFilter::Named(read_names(names).ok_or_else(wrong)?)),
        Some(Value::Object(rule)) => match (rule.get("tool_names"), rule.get("read_only")) {
            (Some(Value::Array(names)), _) => {
                Ok(ToolFilter::Named(read_names(names).ok_or_else(wrong)?))
            }
            (_, Some(Value::Bool(read_only))) => Ok(ToolFilter::ReadOnly(*read_only)),
            (None | Some(Value::Null), None | Some(Value::Null)) => Ok(ToolFilter::All),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

fn read_names(names: &[Value]) -> Option<HashSet<String>> {
    names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Reads `require_approval`. All tools need approval unless the request says otherwise.
fn read_approval(given: Option<&Value>, path: &str) -> Result<ToolFilter, ApiError> {
    match given {
        None | Some(Value::Null) => Ok(ToolFilter::All),
        Some(Value::String(word)) if word == "always" => Ok(ToolFilter::All),
        Some(Value::String(word)) if word == "never" => Ok(ToolFilter::none()),
        Some(Value::Object(rules)) => {
            let rule = |name: &str| rules.get(name).filter(|rule| !rule.is_null());
            match (rule("never"), rule("always")) {
                (Some(never), _) => match read_filter(Some(never), &format!("{path}.never"))? {
                    ToolFilter::Named(names) => Ok(ToolFilter::Except(names)),
                    ToolFilter::ReadOnly(wanted) => Ok(ToolFilter::ReadOnly(!wanted)),
                    ToolFilter::All | ToolFilter::Except(_) | ToolFilter::Offered(_) => {
                        Ok(ToolFilter::none())
                    }
                },
                (None, Some(always)) => read_filter(Some(always), &format!("{path}.always")),
                (None, None) => Ok(ToolFilter::All),
            }
        }
        Some(_) => {
            let message = format!("`{path}` must be `always`, `never` or an object of rules");
            Err(ApiError::invalid(path, message))
        }
    }
}

/// Replaces the servers among the tools by the functions of their tools.
pub(super) fn lower_tools(tools: Vec<Value>, bench: &ToolBench) -> Value {
    let mut lowered = Vec::new();
    for tool in tools {
        if !is_server(&tool) {
            lowered.push(tool);
            continue;
        }
        for (name, tool) in bench.functions(text(&tool, "server_label")) {
            lowered.push(json!({
                "type": "function",
                "name": name,
                "description": tool.description(),
                "parameters": tool.input_schema(),
                "strict": false,
            }));
        }
    }
    Value::from(lowered)
}

/// Replaces tools of servers in `tool_choice` by their functions.
pub(super) fn lower_choice(choice: &mut Value, bench: &ToolBench) {
    let functions = |tool: &Value| -> Vec<Value> {
        let label = text(tool, "server_label");
        let names: Vec<String> = match tool.get("name").and_then(Value::as_str) {
            Some(name) => vec![bench.function_of(label, name)],
            None => bench.functions(label).into_iter().map(|(name, _)| name).collect(),
        };
        names.iter().map(|name| json!({ "type": "function", "name": name })).collect()
    };
    if is_server(choice) {
        let tools = functions(choice);
        *choice = match tools.as_slice() {
            [one] => one.clone(),
            _ => json!({ "type": "allowed_tools", "mode": "required", "tools": tools }),
        };
        return;
    }
    if let Some(Value::Array(tools)) = choice.get_mut("tools") {
        let lowered = std::mem::take(tools)
            .into_iter()
            .flat_map(|tool| if is_server(&tool) { functions(&tool) } else { vec![tool] });
        *tools = lowered.collect();
    }
}

/// Asks for the proof of the reasoning, without which it cannot be sent with the next turn.
pub(super) fn keep_reasoning(body: &mut Map<String, Value>) {
    const FIELD: &str = "reasoning.encrypted_content";
    let include = body.entry("include").or_insert_with(|| json!([]));
    if include.is_null() {
        *include = json!([]);
    }
    if let Some(list) = include.as_array_mut()
        && !list.iter().any(|own| own == FIELD)
    {
        list.push(Value::from(FIELD));
    }
}

/// Returns the items of the servers that were asked for their tools.
pub(super) fn listed_items(bench: &ToolBench, id: &str) -> Vec<Value> {
    let item = bench.servers.iter().enumerate().map(|(at, server)| {
        let tools: Vec<Value> = server
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description(),
                    "input_schema": tool.input_schema(),
                    "annotations": tool.listed.get("annotations"),
                })
            })
            .collect();
        json!({
            "id": format!("mcpl_{id}{at:02}"),
            "type": "mcp_list_tools",
            "server_label": server.label,
            "tools": tools,
            "error": null,
        })
    });
    item.collect()
}
