//! Items that a format cannot carry leave no invented turn behind.

use canon::WireFormat;
use serde_json::{Value, json};

use crate::cases::{LANE, target};

/// Items of the responses format that no other format has.
fn foreign_items() -> [Value; 4] {
    [
        json!({"type": "item_reference", "id": "msg_1"}),
        json!({"type": "brand_new_item", "payload": "x"}),
        json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        json!({"type": "shell_call", "id": "l", "call_id": "c", "status": "completed",
            "action": {"commands": ["ls"]},
            "environment": {"type": "container_reference", "container_id": "cntr_1"}}),
    ]
}

/// Writes a responses request for a lane of each other format.
fn written(input: &[Value]) -> Vec<(WireFormat, Result<Value, canon::ApiError>)> {
    let body = json!({"model": "m", "input": input}).to_string();
    let responses = dialects::get(WireFormat::Responses).unwrap();
    let chat = responses.read_request(&target(), body.as_bytes()).unwrap();
    let lanes = dialects::all().filter(|lane| lane.origin() != WireFormat::Responses);
    lanes
        .map(|lane| {
            let sent = lane.write_request(&chat, &LANE);
            let body = sent.map(|(sent, _)| serde_json::from_slice(&sent.body.to_vec()).unwrap());
            (lane.origin(), body)
        })
        .collect()
}

#[test]
fn a_dropped_item_leaves_no_turn() {
    let user = |text: &str| json!({"role": "user", "content": text});
    for item in foreign_items() {
        for (format, body) in written(&[user("before"), item.clone(), user("after")]) {
            let body = body.unwrap();
            let list = if format == WireFormat::Native { "contents" } else { "messages" };
            let turns = body[list].as_array().unwrap();
            assert!(turns.iter().all(|turn| turn["role"] == "user"), "{format} {item}: {body}");
            let text = body.to_string();
            assert!(text.contains("before") && text.contains("after"), "{format} {item}: {body}");
        }
    }
}

#[test]
fn a_conversation_of_which_nothing_is_left_is_refused() {
    for item in foreign_items() {
        for (format, body) in written(std::slice::from_ref(&item)) {
            let error = body.expect_err(&format!("{format} {item}"));
            assert_eq!(error.param(), Some("turns"), "{format} {item}");
        }
    }
}
