//! Blocks of earlier answers with MCP servers, as uses of tools and their results.

use serde_json::{Value, json};

use super::bench::ToolBench;
use super::turn_format::text;

/// Replaces the blocks of servers in the messages. A result stands in the assistant's message there, and in a
/// message of the user here, so a message with results becomes several.
pub(super) fn lower_history(messages: Vec<Value>, bench: &ToolBench) -> Vec<Value> {
    let mut lowered: Vec<Value> = Vec::with_capacity(messages.len());
    // Results for the next message of the user.
    let mut open_results = Vec::new();
    for mut message in messages {
        let is_user = text(&message, "role") == "user";
        if !open_results.is_empty() {
            if is_user && let Some(content) = message.get_mut("content") {
                let mut all = std::mem::take(&mut open_results);
                all.extend(as_blocks(content.take()));
                *content = Value::from(all);
            } else {
                lowered.push(user_message(std::mem::take(&mut open_results)));
            }
        }
        let Some(Value::Array(blocks)) =
            message.get_mut("content").filter(|_| !is_user).map(|content| content as &mut Value)
        else {
            lowered.push(message);
            continue;
        };
        if !blocks.iter().any(is_of_server) {
            lowered.push(message);
            continue;
        }
        let (mut said, mut results) = (Vec::new(), Vec::new());
        for block in std::mem::take(blocks) {
            match text(&block, "type") {
                "mcp_tool_listing" => {}
                "mcp_tool_use" => {
                    flush(&mut said, &mut results, &mut lowered);
                    said.push(lower_use(&block, bench));
                }
                "mcp_tool_result" => results.push(lower_result(block)),
                _ => {
                    flush(&mut said, &mut results, &mut lowered);
                    said.push(block);
                }
            }
        }
        if !said.is_empty() {
            lowered.push(json!({ "role": "assistant", "content": said }));
        }
        open_results = results;
    }
    if !open_results.is_empty() {
        lowered.push(user_message(open_results));
    }
    lowered
}

fn is_of_server(block: &Value) -> bool {
    text(block, "type").starts_with("mcp_tool_")
}

/// Ends a turn whose results are known.
fn flush(said: &mut Vec<Value>, results: &mut Vec<Value>, lowered: &mut Vec<Value>) {
    if !results.is_empty() {
        lowered.push(json!({ "role": "assistant", "content": std::mem::take(said) }));
        lowered.push(user_message(std::mem::take(results)));
    }
}

fn user_message(blocks: Vec<Value>) -> Value {
    json!({ "role": "user", "content": blocks })
}

fn as_blocks(content: Value) -> Vec<Value> {
    match content {
        Value::Array(blocks) => blocks,
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

fn lower_use(block: &Value, bench: &ToolBench) -> Value {
    let name = bench.function_of(text(block, "server_name"), text(block, "name"));
    let mut lowered = json!({
        "type": "tool_use", "id": block.get("id"), "name": name,
        "input": block.get("input").cloned().unwrap_or_else(|| json!({})),
    });
    if let Some(control) = block.get("cache_control")
        && let Some(lowered) = lowered.as_object_mut()
    {
        lowered.insert("cache_control".to_owned(), control.clone());
    }
    lowered
}

fn lower_result(mut block: Value) -> Value {
    if let Some(kind) = block.get_mut("type") {
        *kind = json!("tool_result");
    }
    block
}
