//! Blocks of earlier answers with MCP servers, as uses of tools and their results.

use serde_json::{Value, json};
use std::collections::HashSet;

use super::bench::ToolBench;
use super::own_tools::OwnPlace;
use super::turn_format::text;

/// Messages of a turn with their places in the request.
#[derive(Default)]
struct LoweredMessages {
    messages: Vec<Value>,
    places: Vec<OwnPlace>,
}

impl LoweredMessages {
    fn add(&mut self, message: Value, place: OwnPlace) {
        self.messages.push(message);
        self.places.push(place);
    }

    /// Ends a turn whose results are known.
    fn flush(&mut self, said: &mut Vec<Value>, results: &mut Vec<Value>, place: &OwnPlace) {
        if !results.is_empty() {
            let said = json!({ "role": "assistant", "content": std::mem::take(said) });
            self.add(said, place.clone());
            self.add(user_message(std::mem::take(results)), place.clone());
        }
    }
}

/// Replaces the blocks of servers in the messages. A result stands in the assistant's message there, and in a
/// message of the user here, so a message with results becomes several. Returns also their places.
pub(super) fn lower_history(
    messages: Vec<Value>,
    bench: &ToolBench,
) -> (Vec<Value>, Vec<OwnPlace>) {
    let mut lowered = LoweredMessages::default();
    // Results for the next message of the user.
    let mut open_results = Vec::new();
    for (at, mut message) in messages.into_iter().enumerate() {
        let place = OwnPlace::From(format!("messages[{at}]"));
        let mut own_place = OwnPlace::Same(format!("messages[{at}]"));
        let is_user = text(&message, "role") == "user";
        if !open_results.is_empty() {
            if is_user && let Some(content) = message.get_mut("content") {
                let mut all = std::mem::take(&mut open_results);
                all.extend(as_blocks(content.take()));
                *content = Value::from(all);
                own_place = place.clone();
            } else {
                lowered.add(user_message(std::mem::take(&mut open_results)), place.clone());
            }
        }
        let Some(Value::Array(blocks)) =
            message.get_mut("content").filter(|_| !is_user).map(|content| content as &mut Value)
        else {
            lowered.add(message, own_place);
            continue;
        };
        if !blocks.iter().any(is_of_server) {
            lowered.add(message, own_place);
            continue;
        }
        let blocks = std::mem::take(blocks);
        let answered: HashSet<String> = blocks
            .iter()
            .filter(|block| text(block, "type") == "mcp_tool_result")
            .map(|block| text(block, "tool_use_id").to_owned())
            .collect();
        let (mut said, mut results) = (Vec::new(), Vec::new());
        for block in blocks {
            match text(&block, "type") {
                "mcp_tool_listing" => {}
                "mcp_tool_use" => {
                    let is_answered = answered.contains(text(&block, "id"));
                    lowered.flush(&mut said, &mut results, &place);
                    said.push(lower_use(&block, bench));
                    results.extend((!is_answered).then(|| cut_result(&block)));
                }
                "mcp_tool_result" => results.push(lower_result(block)),
                _ => {
                    lowered.flush(&mut said, &mut results, &place);
                    said.push(block);
                }
            }
        }
        if !said.is_empty() {
            lowered.add(json!({ "role": "assistant", "content": said }), place);
        }
        open_results = results;
    }
    if !open_results.is_empty() {
        lowered.add(user_message(open_results), OwnPlace::From("messages".to_owned()));
    }
    (lowered.messages, lowered.places)
}

/// Text of the result of a use that was cut off. Providers refuse a use without a result.
const CUT_TEXT: &str = "The call was not made, because the answer was cut off.";

fn cut_result(used: &Value) -> Value {
    json!({
        "type": "tool_result", "tool_use_id": used.get("id"), "is_error": true, "content": CUT_TEXT,
    })
}

fn is_of_server(block: &Value) -> bool {
    text(block, "type").starts_with("mcp_tool_")
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
