//! Tools that callers run, on lanes that take some kinds in their own form.

use canon::{PartKind, ToolKind, WireFormat, into_events};
use dialects::{ClientToolCalls, LaneSettings};
use serde_json::{Value, json};

use crate::cases::{LANE, fold, stamp};
use crate::client_tools::{body, parse, read, reply, whole_call};

/// Returns a lane that takes these kinds of tools in its own form.
const fn lane_with(client_tools: &[ToolKind]) -> LaneSettings<'_> {
    LaneSettings { client_tools, ..LANE }
}

#[test]
fn a_custom_tool_is_a_function_for_a_lane_that_takes_none() {
    let format = json!({"type": "grammar", "syntax": "regex", "definition": "[a-z]+"});
    let tool = json!({"type": "custom", "name": "note", "description": "Notes.", "format": format});
    let called =
        json!({"type": "custom_tool_call", "call_id": "c", "name": "note", "input": "a\"b"});
    let result = json!({"type": "custom_tool_call_output", "call_id": "c", "output": "done"});
    let caller = dialects::get(WireFormat::Responses).unwrap();
    let chat = read(caller, &body(WireFormat::Responses, &[tool], &[called, result]));
    for provider in
        [WireFormat::Chat, WireFormat::Responses, WireFormat::Messages, WireFormat::Native]
    {
        let provider = dialects::get(provider).unwrap();
        let (sent, losses) = provider.write_request(&chat, &lane_with(&[])).unwrap();
        // Native has no signature for a call of another model.
        let names = losses.iter().map(|loss| loss.path.as_str());
        let names: Vec<_> = names.filter(|path| *path != "tool_call.seal").collect();
        assert_eq!(names, ["tools.grammar"]);
        let sent = String::from_utf8(sent.body.to_vec()).unwrap();
        assert!(
            !sent.contains("custom") && sent.contains("regular expression:\\n[a-z]+"),
            "{sent}"
        );
        let lowered = read(provider, &serde_json::from_str(&sent).unwrap());
        let call =
            lowered.turns.iter().flat_map(|turn| &turn.parts).find_map(|part| match &part.kind {
                PartKind::ToolCall(call) => Some(call.clone()),
                _ => None,
            });
        let call = call.unwrap();
        assert_eq!(parse(&call.arguments), json!({"input": "a\"b"}));
        let mut came = reply("note", &call.arguments);
        ClientToolCalls::for_request(&chat).convert_reply(&mut came);
        let (whole, _) = caller.write_reply(came, &chat, &stamp());
        let item = whole_call(WireFormat::Responses, &whole);
        assert_eq!((&item["type"], &item["input"]), (&json!("custom_tool_call"), &json!("a\"b")));
    }
}

/// The shell of a vendor on a lane of the other one: the lane's own tool, calls and results.
#[test]
fn a_shell_becomes_the_lanes_own() {
    let own = |format| dialects::get(format).unwrap();
    let (messages, responses) = (own(WireFormat::Messages), own(WireFormat::Responses));
    let shell = lane_with(&[ToolKind::Shell]);

    let called = json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["a", "b"]}});
    let output =
        json!([{"stdout": "outcome", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
    let result = json!({"type": "shell_call_output", "call_id": "c", "output": output});
    let tools = [json!({"type": "shell", "environment": {"type": "local"}})];
    let mut request = body(WireFormat::Responses, &tools, &[called, result]);
    request["tool_choice"] = json!({"type": "shell"});
    let chat = read(responses, &request);
    let (sent, losses) = messages.write_request(&chat, &shell).unwrap();
    assert_eq!(losses, []);
    let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
    assert_eq!(sent["tools"], json!([{"type": "bash_20250124", "name": "bash"}]));
    assert_eq!(sent["tool_choice"]["name"], "bash");
    let call = &sent["messages"][1]["content"][0];
    assert_eq!((&call["name"], &call["input"]), (&json!("bash"), &json!({"command": "a\nb"})));
    for (given, command) in [
        (r#"{"command":"ls"}"#, "ls"),
        (r#"{"restart":true}"#, "echo this shell keeps no session, so there is nothing to restart"),
    ] {
        let mut came = reply("bash", given);
        ClientToolCalls::for_request(&chat).convert_reply(&mut came);
        let (whole, _) = responses.write_reply(came, &chat, &stamp());
        let item = whole_call(WireFormat::Responses, &whole);
        assert_eq!(item["action"]["commands"], json!([command]));
    }

    let called = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "bash",
        "input": {"command": "ls"}}]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
        "content": "no", "is_error": true}]});
    let tools = [json!({"type": "bash_20250124", "name": "bash"})];
    let chat = read(messages, &body(WireFormat::Messages, &tools, &[called, result]));
    let (sent, losses) = responses.write_request(&chat, &shell).unwrap();
    assert_eq!(losses, []);
    let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
    assert_eq!(sent["tools"], json!([{"type": "shell", "environment": {"type": "local"}}]));
    assert_eq!(sent["input"][1]["type"], "shell_call");
    assert_eq!(sent["input"][1]["action"]["commands"], json!(["ls"]));
    assert_eq!(sent["input"][2]["output"][0]["outcome"]["exit_code"], 1);

    let item = json!({"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed",
        "action": {"commands": ["a", "b"], "timeout_ms": 9, "max_output_length": null}});
    let answer = json!({"id": "r", "object": "response", "status": "completed", "output": [item],
        "model": "m", "created_at": 1});
    let mut came = responses.read_reply(answer.to_string().as_bytes()).unwrap();
    let mut streamed = Vec::new();
    let mut calls = ClientToolCalls::for_request(&chat);
    for event in into_events(came.clone()) {
        calls.push(event, |event| streamed.push(event));
    }
    calls.convert_reply(&mut came);
    assert_eq!(fold(streamed), came);
    let (whole, losses) = messages.write_reply(came, &chat, &stamp());
    assert_eq!(losses, []);
    let reply: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(reply["stop_reason"], "tool_use");
    let call = whole_call(WireFormat::Messages, &whole);
    assert_eq!((&call["name"], &call["input"]), (&json!("bash"), &json!({"command": "a\nb"})));
}
