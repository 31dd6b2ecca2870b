//! Providers that number the calls of every answer anew. Their ids return in each turn, and results belong to
//! the nearest open call.

use canon::WireFormat;
use dialects::Dialect;
use serde_json::{Value, json};

use crate::cases::{LANE, target};

const FORMATS: [WireFormat; 4] =
    [WireFormat::Chat, WireFormat::Responses, WireFormat::Messages, WireFormat::Native];

fn dialect(format: WireFormat) -> &'static dyn Dialect {
    dialects::get(format).unwrap()
}

/// Returns a request whose steps are calls (`c:f`) and results (`r:f`), all with the same id.
fn body(format: WireFormat, steps: &[&str]) -> Value {
    let (id, text) = ("call_0", "done");
    let items = steps.iter().flat_map(|step| {
        let (is_call, name) = (step.starts_with('c'), step.get(2..).unwrap_or_default());
        match format {
            WireFormat::Chat if is_call => {
                let function = json!({"name": name, "arguments": "{}"});
                let call = json!({"id": id, "type": "function", "function": function});
                vec![json!({"role": "assistant", "content": null, "tool_calls": [call]})]
            }
            WireFormat::Chat => {
                vec![json!({"role": "tool", "tool_call_id": id, "content": text})]
            }
            WireFormat::Messages if is_call => {
                let call = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                vec![json!({"role": "assistant", "content": [call]})]
            }
            WireFormat::Messages => {
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": text});
                vec![json!({"role": "user", "content": [result]})]
            }
            WireFormat::Responses if is_call => vec![
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"}),
            ],
            WireFormat::Responses => {
                vec![json!({"type": "function_call_output", "call_id": id, "output": text})]
            }
            _ if is_call => {
                let call = json!({"functionCall": {"id": id, "name": name, "args": {}}});
                vec![json!({"role": "model", "parts": [call]})]
            }
            _ => {
                let response = json!({"id": id, "name": name, "response": {"result": text}});
                vec![json!({"role": "user", "parts": [{"functionResponse": response}]})]
            }
        }
    });
    let question = match format {
        WireFormat::Native => json!({"role": "user", "parts": [{"text": "go"}]}),
        _ => json!({"role": "user", "content": "go"}),
    };
    let items: Vec<Value> = std::iter::once(question).chain(items).collect();
    match format {
        WireFormat::Chat => json!({"model": "m", "messages": items}),
        WireFormat::Messages => json!({"model": "m", "max_tokens": 9, "messages": items}),
        WireFormat::Responses => json!({"model": "m", "input": items}),
        _ => json!({"contents": items}),
    }
}

/// Returns the ids of calls and results in a request, in their order.
fn ids(format: WireFormat, value: &Value, found: &mut Vec<String>) {
    let fields = match format {
        WireFormat::Chat => ["id", "tool_call_id"],
        WireFormat::Messages => ["id", "tool_use_id"],
        WireFormat::Responses => ["call_id", "call_id"],
        _ => ["id", "id"],
    };
    match value {
        Value::Object(object) => {
            let id = fields.iter().find_map(|field| object.get(*field)?.as_str());
            found.extend(id.map(str::to_owned));
            object.values().for_each(|value| ids(format, value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| ids(format, value, found)),
        _ => {}
    }
}

fn error_path(format: WireFormat, steps: &[&str]) -> Option<String> {
    let body = body(format, steps).to_string();
    let error = dialect(format).read_facts(&target(), body.as_bytes()).err()?;
    Some(error.param().unwrap_or_default().to_owned())
}

const LOOP: [&str; 6] = ["c:f", "r:f", "c:g", "r:g", "c:f", "r:f"];

#[test]
fn a_later_turn_may_have_the_id_of_an_answered_call() {
    for format in FORMATS {
        assert_eq!(error_path(format, &LOOP), None, "{format}");
    }
}

#[test]
fn a_second_result_of_a_call_is_refused() {
    for (format, second, lone) in [
        (WireFormat::Chat, "messages[3].tool_call_id", "messages[1].tool_call_id"),
        (
            WireFormat::Messages,
            "messages[3].content[0].tool_use_id",
            "messages[1].content[0].tool_use_id",
        ),
        (WireFormat::Responses, "input[3].call_id", "input[1].call_id"),
    ] {
        assert_eq!(error_path(format, &["c:f", "r:f", "r:f"]).as_deref(), Some(second));
        assert_eq!(error_path(format, &["c:f", "r:f", "r:f", "c:f"]).as_deref(), Some(second));
        assert_eq!(error_path(format, &["r:f"]).as_deref(), Some(lone));
    }
}

#[test]
fn ids_are_unique_where_providers_demand_it() {
    for (from, to) in FORMATS.iter().flat_map(|from| FORMATS.map(|to| (*from, to))) {
        let mut turns_before = Vec::new();
        for count in [2, 4, 6] {
            let body = body(from, &LOOP[..count]).to_string();
            let chat = dialect(from).read_request(&target(), body.as_bytes()).unwrap();
            let (written, _) = dialect(to).write_request(&chat, &LANE).unwrap();
            let sent: Value = serde_json::from_slice(&written.body.to_vec()).unwrap();
            let mut found = Vec::new();
            ids(to, &sent, &mut found);
            let wanted: Vec<&str> = match to {
                WireFormat::Chat => vec!["call_0"; 6],
                _ => vec!["call_0", "call_0", "call_0_2", "call_0_2", "call_0_3", "call_0_3"],
            };
            assert_eq!(found, wanted[..count], "{from} to {to}: {sent}");
            let list = ["messages", "input", "contents"].iter().find_map(|key| sent.get(key));
            let turns = list.and_then(Value::as_array).unwrap();
            assert!(turns.starts_with(&turns_before), "the prompt before stays: {sent}");
            turns_before.clone_from(turns);
            // The names of functions follow the calls, too.
            if to == WireFormat::Native && count == 6 {
                let names: Vec<_> = turns
                    .iter()
                    .filter_map(|turn| turn["parts"][0]["functionResponse"]["name"].as_str())
                    .collect();
                assert_eq!(names, ["f", "g", "f"]);
            }
        }
    }
}
