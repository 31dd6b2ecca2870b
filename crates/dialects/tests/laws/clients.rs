//! The history that each format's official client builds from a reply and sends back.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use canon::WireFormat;
use serde_json::{Map, Value, json};

use crate::cases::frames;

/// Returns the list in a value; empty for anything else.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the histories that clients build from a whole reply; clients of one format may differ.
pub(crate) fn from_whole(format: WireFormat, body: &[u8]) -> Vec<Vec<Value>> {
    let body: Value = serde_json::from_slice(body).unwrap();
    match format {
        WireFormat::Chat => vec![vec![body["choices"][0]["message"].clone()]],
        WireFormat::Messages => {
            vec![vec![json!({"role": "assistant", "content": body["content"]})]]
        }
        WireFormat::Responses => vec![list(&body["output"]).to_vec()],
        WireFormat::Native => {
            let content = body["candidates"][0]["content"].clone();
            vec![vec![content.clone()], vec![recoded(content)]]
        }
        WireFormat::Images => Vec::new(),
    }
}

/// Returns the histories that clients build from a stream.
pub(crate) fn from_stream(format: WireFormat, stream: &[u8]) -> Vec<Vec<Value>> {
    let pieces: Vec<Value> = frames(&[stream])
        .iter()
        .filter(|frame| &frame.data[..] != b"[DONE]")
        .map(|frame| serde_json::from_slice(&frame.data).unwrap())
        .collect();
    match format {
        WireFormat::Chat => {
            let mut message = Map::new();
            for choice in pieces.iter().flat_map(|piece| list(&piece["choices"])) {
                if choice["index"] == 0 {
                    accumulate(&mut message, choice["delta"].as_object().unwrap());
                }
            }
            vec![vec![Value::Object(message)]]
        }
        WireFormat::Messages => {
            vec![vec![json!({"role": "assistant", "content": blocks(&pieces)})]]
        }
        WireFormat::Responses => {
            let last = pieces.last().unwrap();
            let done = pieces.iter().filter(|p| p["type"] == "response.output_item.done");
            let done = done.map(|piece| piece["item"].clone()).collect();
            vec![list(&last["response"]["output"]).to_vec(), done]
        }
        WireFormat::Native => {
            // One client keeps the content of every chunk as a turn, another joins them.
            let contents = pieces.iter().map(|piece| &piece["candidates"][0]["content"]);
            let contents: Vec<Value> =
                contents.filter(|content| !list(&content["parts"]).is_empty()).cloned().collect();
            let parts: Vec<Value> =
                contents.iter().flat_map(|content| list(&content["parts"])).cloned().collect();
            let apart = contents.into_iter().map(recoded).collect();
            vec![apart, vec![json!({"role": "model", "parts": parts})]]
        }
        WireFormat::Images => Vec::new(),
    }
}

/// Merges a delta by the rules of the chat client: strings are joined, list entries are matched by
/// `index`.
fn accumulate(all: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (name, new) in delta {
        match (all.get_mut(name), new) {
            (None | Some(Value::Null), _) => {
                all.insert(name.clone(), new.clone());
            }
            (Some(old), _) if name == "index" || name == "type" => *old = new.clone(),
            (Some(Value::String(old)), Value::String(new)) => old.push_str(new),
            (Some(Value::Object(old)), Value::Object(new)) => accumulate(old, new),
            (Some(Value::Array(old)), Value::Array(new)) => {
                for entry in new {
                    let at = entry["index"].as_u64();
                    let at = usize::try_from(at.expect("the client wants an `index`")).unwrap();
                    match old.get_mut(at) {
                        Some(Value::Object(old)) => accumulate(old, entry.as_object().unwrap()),
                        _ => old.push(entry.clone()),
                    }
                }
            }
            (Some(_), _) => {}
        }
    }
}

/// Assembles the blocks of a messages stream.
fn blocks(pieces: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut arguments: Vec<String> = Vec::new();
    for piece in pieces {
        let at = usize::try_from(piece["index"].as_u64().unwrap_or_default()).unwrap();
        match text(piece, "type") {
            "content_block_start" => {
                assert_eq!(at, blocks.len());
                blocks.push(piece["content_block"].clone());
                arguments.push(String::new());
            }
            "content_block_delta" => {
                let delta = &piece["delta"];
                let block = &mut blocks[at];
                let mut add = |name: &str| {
                    let joined = format!("{}{}", text(block, name), text(delta, name));
                    block[name] = Value::from(joined);
                };
                match text(delta, "type") {
                    "text_delta" => add("text"),
                    "thinking_delta" => add("thinking"),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "input_json_delta" => arguments[at].push_str(text(delta, "partial_json")),
                    "citations_delta" => {
                        let mut cited = list(&block["citations"]).to_vec();
                        cited.push(delta["citation"].clone());
                        block["citations"] = Value::Array(cited);
                    }
                    other => panic!("the client does not know {other}"),
                }
            }
            "content_block_stop" => {
                if let Ok(input) = serde_json::from_str::<Value>(&arguments[at]) {
                    blocks[at]["input"] = input;
                }
            }
            _ => {}
        }
    }
    blocks
}

/// Converts signatures to the URL-safe alphabet, as one native client sends them back.
fn recoded(mut content: Value) -> Value {
    for part in content["parts"].as_array_mut().into_iter().flatten() {
        if let Some(token) = part.get("thoughtSignature").and_then(Value::as_str) {
            let bytes = STANDARD.decode(token).expect("the client takes only base64");
            part["thoughtSignature"] = Value::from(URL_SAFE.encode(bytes));
        }
    }
    content
}

/// Returns the next request: the question, the history, and a result for every call.
pub(crate) fn next_request(format: WireFormat, history: &[Value]) -> Vec<u8> {
    let user = json!({"role": "user", "content": "Go on."});
    let body = match format {
        WireFormat::Chat => {
            let calls = history.iter().flat_map(|message| list(&message["tool_calls"]));
            let results = calls.map(
                |call| json!({"role": "tool", "tool_call_id": call["id"], "content": "Fine."}),
            );
            let messages: Vec<Value> =
                [user].into_iter().chain(history.to_vec()).chain(results).collect();
            json!({"model": "house-large", "messages": messages})
        }
        WireFormat::Messages => {
            let calls = history.iter().flat_map(|message| list(&message["content"]));
            let calls = calls.filter(|block| block["type"] == "tool_use");
            let results: Vec<Value> = calls
                .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "Fine."}))
                .collect();
            let mut messages = vec![user.clone()];
            messages.extend(history.to_vec());
            messages.push(if results.is_empty() {
                user
            } else {
                json!({"role": "user", "content": results})
            });
            json!({"model": "house-large", "max_tokens": 4096, "messages": messages})
        }
        WireFormat::Responses => {
            let calls = history.iter().filter_map(|item| match text(item, "type") {
                "function_call" => Some(("function_call_output", &item["call_id"])),
                "custom_tool_call" => Some(("custom_tool_call_output", &item["call_id"])),
                _ => None,
            });
            let results =
                calls.map(|(kind, id)| json!({"type": kind, "call_id": id, "output": "Fine."}));
            let input: Vec<Value> =
                [user].into_iter().chain(history.to_vec()).chain(results).collect();
            json!({"model": "house-large", "input": input})
        }
        WireFormat::Native => {
            let calls = history.iter().flat_map(|content| list(&content["parts"]));
            let calls = calls.filter_map(|part| part.get("functionCall"));
            let mut results: Vec<Value> = calls
                .map(|call| {
                    json!({"functionResponse": {"id": call["id"], "name": call["name"],
                    "response": {"result": "Fine."}}})
                })
                .collect();
            if results.is_empty() {
                results.push(json!({"text": "Go on."}));
            }
            let mut contents = vec![json!({"role": "user", "parts": [{"text": "Go on."}]})];
            contents.extend(history.to_vec());
            contents.push(json!({"role": "user", "parts": results}));
            json!({"contents": contents})
        }
        WireFormat::Images => Value::Null,
    };
    body.to_string().into_bytes()
}
