//! Events of a stream, put together to the answer that the same call gives in one piece.

use super::statement::StatementCaller;
use serde_json::{Map, Value, json};

/// Puts the events together as a client of that format does.
pub(super) fn fold(caller: StatementCaller, events: &[Value]) -> Value {
    match caller {
        StatementCaller::Native => fold_native(events),
        StatementCaller::Chat => fold_chat(events),
        StatementCaller::Messages => fold_messages(events),
        StatementCaller::Responses => {
            events.iter().rev().find_map(|event| event.get("response")).cloned().unwrap_or_default()
        }
        StatementCaller::Images | StatementCaller::Embeddings | StatementCaller::Http => {
            events.last().cloned().unwrap_or_default()
        }
    }
}

/// Returns the element at that index, which is made when it is missing.
fn element<'a>(list: &'a mut Vec<Value>, index: usize, empty: &Value) -> &'a mut Value {
    while list.len() <= index {
        list.push(empty.clone());
    }
    &mut list[index]
}

fn index_of(value: &Value) -> usize {
    value["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or_default()
}

/// Appends a text to the text in that field.
fn append(object: &mut Value, field: &str, more: &str) {
    let text = object[field].as_str().unwrap_or_default().to_owned();
    object[field] = Value::String(text + more);
}

fn fold_native(events: &[Value]) -> Value {
    let mut answer = Map::new();
    let mut candidates = Vec::new();
    for event in events {
        for (name, value) in event.as_object().into_iter().flatten() {
            if name != "candidates" {
                answer.insert(name.clone(), value.clone());
            }
        }
        for candidate in event["candidates"].as_array().into_iter().flatten() {
            let empty = json!({ "content": { "parts": [] } });
            let folded = element(&mut candidates, index_of(candidate), &empty);
            for (name, value) in candidate.as_object().into_iter().flatten() {
                if name != "content" {
                    folded[name] = value.clone();
                    continue;
                }
                folded["content"]["role"] = value["role"].clone();
                let parts = folded["content"]["parts"].as_array_mut().expect("parts");
                parts.extend(value["parts"].as_array().into_iter().flatten().cloned());
            }
        }
    }
    if !candidates.is_empty() {
        answer.insert("candidates".to_owned(), candidates.into());
    }
    answer.into()
}

fn fold_chat(events: &[Value]) -> Value {
    let mut answer = Map::new();
    let mut choices = Vec::new();
    for event in events {
        for (name, value) in event.as_object().into_iter().flatten() {
            if name != "choices" && !(value.is_null() && answer.contains_key(name)) {
                answer.insert(name.clone(), value.clone());
            }
        }
        for choice in event["choices"].as_array().into_iter().flatten() {
            let index = index_of(choice);
            let folded = element(&mut choices, index, &json!({ "message": {} }));
            folded["index"] = index.into();
            if !choice["finish_reason"].is_null() {
                folded["finish_reason"] = choice["finish_reason"].clone();
            }
            for entry in choice["logprobs"]["content"].as_array().into_iter().flatten() {
                if folded["logprobs"]["content"].is_null() {
                    folded["logprobs"] = json!({ "content": [] });
                }
                let entries = folded["logprobs"]["content"].as_array_mut().expect("entries");
                entries.push(entry.clone());
            }
            fold_chat_delta(&mut folded["message"], &choice["delta"]);
        }
    }
    answer.insert("object".to_owned(), "chat.completion".into());
    answer.insert("choices".to_owned(), choices.into());
    answer.into()
}

fn fold_chat_delta(message: &mut Value, delta: &Value) {
    for (name, value) in delta.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("role", _) => message["role"] = value.clone(),
            ("tool_calls", Value::Array(calls)) => {
                if message["tool_calls"].is_null() {
                    message["tool_calls"] = json!([]);
                }
                let list = message["tool_calls"].as_array_mut().expect("calls");
                for call in calls {
                    let empty = json!({ "type": "function", "function": {} });
                    let folded = element(list, index_of(call), &empty);
                    if call["id"].is_string() {
                        folded["id"] = call["id"].clone();
                    }
                    if call["function"]["name"].is_string() {
                        folded["function"]["name"] = call["function"]["name"].clone();
                    }
                    let more = call["function"]["arguments"].as_str().unwrap_or_default();
                    append(&mut folded["function"], "arguments", more);
                }
            }
            (_, Value::String(more)) => append(message, name, more),
            (_, Value::Array(more)) => {
                if message[name].is_null() {
                    message[name] = json!([]);
                }
                let list = message[name].as_array_mut().expect("a list");
                list.extend(more.iter().cloned());
            }
            _ => {
                if message[name].is_null() {
                    message[name] = value.clone();
                }
            }
        }
    }
}

fn fold_messages(events: &[Value]) -> Value {
    let mut answer = Value::Null;
    let mut blocks = Vec::new();
    let mut arguments = Vec::new();
    for event in events {
        let index = index_of(event);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => answer = event["message"].clone(),
            "content_block_start" => {
                *element(&mut blocks, index, &Value::Null) = event["content_block"].clone();
                *element(&mut arguments, index, &Value::Null) = Value::Null;
            }
            "content_block_delta" => {
                let block = element(&mut blocks, index, &json!({}));
                for (name, value) in event["delta"].as_object().into_iter().flatten() {
                    match (name.as_str(), value) {
                        ("type", _) => {}
                        ("partial_json", Value::String(more)) => {
                            let held = element(&mut arguments, index, &Value::Null);
                            let text = held.as_str().unwrap_or_default().to_owned();
                            *held = Value::String(text + more);
                        }
                        ("citation", citation) => {
                            if !block["citations"].is_array() {
                                block["citations"] = json!([]);
                            }
                            let list = block["citations"].as_array_mut().expect("citations");
                            list.push(citation.clone());
                        }
                        (_, Value::String(more)) => append(block, name, more),
                        _ => block[name] = value.clone(),
                    }
                }
            }
            "message_delta" => {
                for (name, value) in event["delta"].as_object().into_iter().flatten() {
                    answer[name] = value.clone();
                }
                for (name, value) in event["usage"].as_object().into_iter().flatten() {
                    answer["usage"][name] = value.clone();
                }
            }
            _ => {}
        }
    }
    for (block, text) in blocks.iter_mut().zip(&arguments) {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            block["input"] = serde_json::from_str(text).unwrap_or_default();
        }
    }
    if answer.is_object() {
        answer["content"] = blocks.into();
    }
    answer
}
