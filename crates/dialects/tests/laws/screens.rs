//! Computers of callers on lanes that have the computer of another vendor.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{ChatReply, ChatRequest, PartKind, ToolKind, WireFormat, into_events};
use dialects::{ClientToolCalls, Dialect, LaneSettings};
use serde_json::{Value, json};

use crate::cases::{LANE, assert_grammar, fold, stamp};
use crate::client_tools::{body, read, reply, whole_call};

const SCREEN_LANE: LaneSettings<'_> =
    LaneSettings { client_tools: &[ToolKind::ComputerUse], ..LANE };
/// Size of the screenshots, which is twice the declared size.
const SHOT: (u32, u32) = (1600, 1200);
const DECLARED: (u32, u32) = (800, 600);
const GRID: (u32, u32) = (1000, 1000);

const FORMATS: [WireFormat; 3] = [WireFormat::Messages, WireFormat::Responses, WireFormat::Native];

/// Returns the head of a PNG file of the screenshots' size.
fn screenshot() -> String {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend(SHOT.0.to_be_bytes());
    png.extend(SHOT.1.to_be_bytes());
    png.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
    STANDARD.encode(png)
}

/// A caller's computer, with the size that its positions are counted in.
struct Computer {
    format: WireFormat,
    tool: Value,
    size: (u32, u32),
}

fn computers() -> Vec<Computer> {
    let of = |format, tool, size| Computer { format, tool, size };
    vec![
        of(
            WireFormat::Messages,
            json!({"type": "computer_20250124", "name": "computer",
                "display_width_px": 800, "display_height_px": 600}),
            DECLARED,
        ),
        of(
            WireFormat::Responses,
            json!({"type": "computer_use_preview", "display_width": 800, "display_height": 600,
                "environment": "browser"}),
            DECLARED,
        ),
        of(WireFormat::Responses, json!({"type": "computer"}), SHOT),
        of(
            WireFormat::Native,
            json!({"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
            GRID,
        ),
    ]
}

/// Returns the size in which a lane counts the positions of that caller.
fn lane_size(caller: &Computer, lane: WireFormat) -> (u32, u32) {
    match lane {
        WireFormat::Messages if caller.format == WireFormat::Native => SHOT,
        WireFormat::Messages => caller.size,
        WireFormat::Responses => SHOT,
        _ => GRID,
    }
}

/// Returns a click and its result in the words of a caller.
fn history(caller: &Computer, (x, y): (i64, i64)) -> Vec<Value> {
    let data = screenshot();
    let click = json!({"type": "click", "button": "left", "x": x, "y": y});
    match (caller.format, caller.tool["type"].as_str()) {
        (WireFormat::Messages, _) => {
            let image = json!({"type": "image", "source": {"type": "base64",
                "media_type": "image/png", "data": data}});
            vec![
                json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "computer",
                    "input": {"action": "left_click", "coordinate": [x, y]}}]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                    "content": [{"type": "text", "text": "clicked"}, image]}]}),
            ]
        }
        (WireFormat::Responses, kind) => {
            let mut call = json!({"type": "computer_call", "id": "cu_1", "call_id": "t",
                "status": "completed", "pending_safety_checks": []});
            match kind {
                Some("computer") => call["actions"] = json!([click]),
                _ => call["action"] = click,
            }
            let url = format!("data:image/png;base64,{data}");
            let output = json!({"type": "computer_screenshot", "image_url": url});
            vec![call, json!({"type": "computer_call_output", "call_id": "t", "output": output})]
        }
        _ => vec![
            json!({"role": "model", "parts": [{"functionCall": {"id": "t", "name": "click_at",
                "args": {"x": x, "y": y}}}]}),
            json!({"role": "user", "parts": [{"functionResponse": {"id": "t", "name": "click_at",
                "response": {"url": "https://example.com"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}}]}),
        ],
    }
}

/// Returns the answer of a lane's provider with a call of its own computer.
fn answer(lane: WireFormat, actions: &[Value], extra: &Value) -> Value {
    match lane {
        WireFormat::Messages => {
            let calls = actions.iter().zip(1..).map(|(action, number)| {
                json!({"type": "tool_use", "id": format!("u{number}"), "name": "computer",
                    "input": action})
            });
            json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
                "content": calls.collect::<Value>(), "stop_reason": "tool_use", "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": 1}})
        }
        WireFormat::Responses => {
            let call = json!({"type": "computer_call", "id": "cu_2", "call_id": "u1",
                "status": "completed", "actions": actions, "pending_safety_checks": extra});
            json!({"id": "r", "object": "response", "status": "completed", "output": [call],
                "model": "m", "created_at": 1})
        }
        _ => {
            let calls = actions.iter().map(|call| json!({"functionCall": call}));
            let content = json!({"role": "model", "parts": calls.collect::<Value>()});
            json!({"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]})
        }
    }
}

fn click_answer(lane: WireFormat, (x, y): (i64, i64)) -> Value {
    let action = match lane {
        WireFormat::Messages => json!({"action": "left_click", "coordinate": [x, y]}),
        WireFormat::Responses => json!({"type": "click", "button": "left", "x": x, "y": y}),
        _ => json!({"name": "click_at", "args": {"x": x, "y": y}}),
    };
    answer(lane, &[action], &json!([]))
}

/// Converts an answer for the caller, whole and streamed.
fn convert(lane: &dyn Dialect, chat: &ChatRequest, answer: &Value) -> (ChatReply, Vec<String>) {
    let mut came = lane.read_reply(answer.to_string().as_bytes()).unwrap();
    let mut calls = ClientToolCalls::for_request(chat);
    let mut streamed = Vec::new();
    for event in into_events(came.clone()) {
        calls.push(event, |event| streamed.push(event));
    }
    assert_grammar(&streamed, &answer.to_string());
    let losses = ClientToolCalls::for_request(chat).convert_reply(&mut came);
    assert_eq!(fold(streamed), came);
    assert_eq!(calls.take_losses(), losses);
    (came, losses.into_iter().map(|loss| loss.path).collect())
}

/// Finds the position in a call of any format.
fn position(call: &Value) -> (i64, i64) {
    let number = |value: &Value| value.as_i64().unwrap();
    for place in ["/input/coordinate", "/actions/0", "/action", "/args"] {
        match call.pointer(place) {
            Some(Value::Array(at)) => return (number(&at[0]), number(&at[1])),
            Some(at) => return (number(&at["x"]), number(&at["y"])),
            None => {}
        }
    }
    panic!("no position in {call}")
}

fn at_part((width, height): (u32, u32), part: (i64, i64)) -> (i64, i64) {
    let (over, under) = part;
    (i64::from(width) * over / under, i64::from(height) * over / under)
}

fn assert_near(got: (i64, i64), meant: (i64, i64), case: &str) {
    let near = |a: i64, b: i64| (a - b).abs() <= 1;
    assert!(near(got.0, meant.0) && near(got.1, meant.1), "{case}: {got:?}, not {meant:?}");
}

/// The first call and the first result of a request of a lane.
fn sent_parts(lane: WireFormat, sent: &Value) -> (Value, String) {
    match lane {
        WireFormat::Messages => (
            sent["messages"][1]["content"][0].clone(),
            sent["messages"][2]["content"][0].to_string(),
        ),
        WireFormat::Responses => (sent["input"][1].clone(), sent["input"][2].to_string()),
        _ => (
            sent["contents"][1]["parts"][0]["functionCall"].clone(),
            sent["contents"][2]["parts"][0].to_string(),
        ),
    }
}

#[test]
fn a_computer_becomes_the_lanes_own_with_scaled_positions() {
    for caller in computers() {
        for lane in FORMATS.into_iter().filter(|lane| *lane != caller.format) {
            let case = format!("{} on {lane}", caller.tool);
            let own = dialects::get(caller.format).unwrap();
            let provider = dialects::get(lane).unwrap();
            let lane_size = lane_size(&caller, lane);
            let past = history(&caller, at_part(caller.size, (1, 2)));
            let chat = read(own, &body(caller.format, std::slice::from_ref(&caller.tool), &past));
            let (sent, losses) = provider.write_request(&chat, &SCREEN_LANE).unwrap();
            let names: Vec<_> = losses.iter().map(|loss| loss.path.as_str()).collect();
            assert!(names.iter().all(|name| *name == "tool_call.seal"), "{case}: {names:?}");
            let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
            let tools = sent["tools"].to_string();
            let declared = match lane {
                WireFormat::Messages => {
                    format!("\"display_width_px\":{}", lane_size.0)
                }
                WireFormat::Responses => "{\"type\":\"computer\"}".to_owned(),
                _ => "\"computerUse\":".to_owned(),
            };
            assert!(tools.contains(&declared), "{case}: {tools}");
            let (call, result) = sent_parts(lane, &sent);
            assert_near(position(&call), at_part(lane_size, (1, 2)), &case);
            assert!(result.contains(&screenshot()), "{case}: {result}");

            let (came, losses) =
                convert(provider, &chat, &click_answer(lane, at_part(lane_size, (1, 4))));
            assert!(losses.is_empty(), "{case}: {losses:?}");
            let (whole, losses) = own.write_reply(came, &chat, &stamp());
            assert_eq!(losses, [], "{case}");
            let call = whole_call(caller.format, &whole);
            assert_near(position(&call), at_part(caller.size, (1, 4)), &case);
        }
    }
}

/// Without a screenshot, nobody knows the size of some screens. The computer is then a function.
#[test]
fn a_computer_without_a_size_is_a_function() {
    for caller in computers() {
        for lane in FORMATS.into_iter().filter(|lane| *lane != caller.format) {
            let own = dialects::get(caller.format).unwrap();
            let chat = read(own, &body(caller.format, std::slice::from_ref(&caller.tool), &[]));
            let provider = dialects::get(lane).unwrap();
            let (sent, losses) = provider.write_request(&chat, &SCREEN_LANE).unwrap();
            assert_eq!(losses, []);
            let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
            let tools = sent["tools"].to_string();
            let is_own = ["display_width_px", "{\"type\":\"computer\"}", "\"computerUse\":"]
                .iter()
                .any(|word| tools.contains(word));
            assert_eq!(is_own, caller.size == DECLARED, "{} on {lane}: {tools}", caller.tool);
            // The kind is not taken by default.
            let (sent, _) = provider.write_request(&chat, &LANE).unwrap();
            let sent = String::from_utf8(sent.body.to_vec()).unwrap();
            let tells = ["800 by 600 pixels", "size of the last screenshot", "From 0 to 999"];
            assert!(tells.iter().any(|text| sent.contains(text)), "{sent}");
        }
    }
}

#[test]
fn several_actions_are_several_calls() {
    let messages = dialects::get(WireFormat::Messages).unwrap();
    let tool = &computers()[0].tool;
    let chat = read(messages, &body(WireFormat::Messages, std::slice::from_ref(tool), &[]));
    let actions = [
        json!({"type": "click", "button": "left", "x": 1, "y": 2}),
        json!({"type": "type", "text": "a"}),
        json!({"type": "keypress", "keys": ["CTRL", "ENTER"]}),
    ];
    let responses = dialects::get(WireFormat::Responses).unwrap();
    let (came, losses) =
        convert(responses, &chat, &answer(WireFormat::Responses, &actions, &json!([])));
    assert!(losses.is_empty());
    let (whole, _) = messages.write_reply(came, &chat, &stamp());
    let reply: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(reply["stop_reason"], "tool_use");
    let calls = reply["content"].as_array().unwrap();
    let ids: Vec<_> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["u1", "u1_2", "u1_3"]);
    assert_eq!(calls[2]["input"], json!({"action": "key", "text": "ctrl+Return"}));

    // A batch in the history is several calls, of which the last has the result.
    let caller = &computers()[2];
    let mut past = history(caller, (1, 2));
    past[0]["actions"] = Value::from(actions.to_vec());
    let chat =
        read(responses, &body(WireFormat::Responses, std::slice::from_ref(&caller.tool), &past));
    for lane in [WireFormat::Messages, WireFormat::Native] {
        let provider = dialects::get(lane).unwrap();
        let (sent, _) = provider.write_request(&chat, &SCREEN_LANE).unwrap();
        let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
        let back = read(provider, &sent);
        let parts: Vec<_> = back.turns.iter().flat_map(|turn| &turn.parts).collect();
        let calls = parts.iter().filter(|part| matches!(part.kind, PartKind::ToolCall(_)));
        assert_eq!(calls.count(), 3);
        let results: Vec<_> = parts
            .iter()
            .filter_map(|part| match &part.kind {
                PartKind::ToolResult(result) => Some(result),
                _ => None,
            })
            .collect();
        assert_eq!(results.len(), 3);
        let has_image = |at: usize| results[at].parts.iter().any(|part| part.as_text().is_none());
        assert_eq!([has_image(0), has_image(1), has_image(2)], [false, false, true]);
    }
}

#[test]
fn actions_without_a_counterpart_are_named_losses() {
    let own = |format| dialects::get(format).unwrap();
    // In a reply, a call without an effect shows the screen.
    let native = &computers()[3];
    let past = history(native, (1, 2));
    let chat = read(
        own(WireFormat::Native),
        &body(WireFormat::Native, std::slice::from_ref(&native.tool), &past),
    );
    let zoom = answer(
        WireFormat::Messages,
        &[json!({"action": "zoom", "region": [0, 0, 1, 1]})],
        &json!([]),
    );
    let (came, losses) = convert(own(WireFormat::Messages), &chat, &zoom);
    assert_eq!(losses, ["tools.computer.zoom"]);
    let (whole, _) = own(WireFormat::Native).write_reply(came, &chat, &stamp());
    assert_eq!(whole_call(WireFormat::Native, &whole)["name"], "wait_5_seconds");

    let responses = own(WireFormat::Responses);
    let chat = read(responses, &body(WireFormat::Responses, &[json!({"type": "computer"})], &[]));
    let (whole, losses) = responses.write_reply(
        reply("computer", r#"{"action":"triple_click","coordinate":[1,2]}"#),
        &chat,
        &stamp(),
    );
    assert_eq!(losses[0].path, "tools.computer.triple_click");
    assert_eq!(
        whole_call(WireFormat::Responses, &whole)["actions"],
        json!([{"type": "screenshot"}])
    );

    // In the history, it is told as text, with its result.
    let messages = &computers()[0];
    let mut past = history(messages, (1, 2));
    past[0]["content"][0]["input"] = json!({"action": "triple_click", "coordinate": [1, 2]});
    let chat = read(
        own(WireFormat::Messages),
        &body(WireFormat::Messages, std::slice::from_ref(&messages.tool), &past),
    );
    for lane in [WireFormat::Responses, WireFormat::Native] {
        let (sent, losses) = own(lane).write_request(&chat, &SCREEN_LANE).unwrap();
        let names: Vec<_> = losses.iter().map(|loss| loss.path.as_str()).collect();
        assert_eq!(names, ["tools.computer.triple_click"]);
        let sent = String::from_utf8(sent.body.to_vec()).unwrap();
        assert!(sent.contains("Called computer") && sent.contains("clicked"), "{sent}");
        assert!(sent.contains(&screenshot()), "{sent}");
    }
}

/// A call that a provider wants confirmed is never run without a question.
#[test]
fn a_call_that_needs_a_confirmation_is_a_question() {
    let own = |format| dialects::get(format).unwrap();
    let messages = &computers()[0];
    let chat = read(
        own(WireFormat::Messages),
        &body(WireFormat::Messages, std::slice::from_ref(&messages.tool), &[]),
    );
    let click = json!({"type": "click", "button": "left", "x": 1, "y": 2});
    let check = json!([{"id": "s", "code": "malicious", "message": "Is this wanted?"}]);
    let decision = json!({"decision": "require_confirmation", "explanation": "Is this wanted?"});
    let call = json!({"name": "click_at", "args": {"x": 1, "y": 2, "safety_decision": decision}});
    for (lane, answer) in [
        (WireFormat::Responses, answer(WireFormat::Responses, &[click], &check)),
        (WireFormat::Native, answer(WireFormat::Native, &[call], &json!([]))),
    ] {
        let (came, _) = convert(own(lane), &chat, &answer);
        let (whole, _) = own(WireFormat::Messages).write_reply(came, &chat, &stamp());
        let reply: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(reply["stop_reason"], "end_turn", "{lane}");
        assert!(reply["content"][0]["text"].as_str().unwrap().ends_with("Is this wanted?"));
    }
}

#[test]
fn changes_of_files_in_another_vendors_words_are_translated() {
    let own = |format| dialects::get(format).unwrap();
    let (messages, responses) = (own(WireFormat::Messages), own(WireFormat::Responses));
    let chat =
        read(responses, &body(WireFormat::Responses, &[json!({"type": "apply_patch"})], &[]));
    let patch = "*** Begin Patch\n*** Add File: a\n+one\n*** Delete File: b\n*** End Patch";
    let created = json!({"type": "create_file", "path": "a", "diff": "+one"});
    let deleted = json!({"type": "delete_file", "path": "b"});
    let create = r#"{"command":"create","path":"a","file_text":"one\n"}"#;
    for (name, given, meant) in [
        ("apply_patch", json!({"input": patch}).to_string(), vec![&created, &deleted]),
        ("apply_patch", patch.to_owned(), vec![&created, &deleted]),
        ("apply_patch", json!({"operation": created}).to_string(), vec![&created]),
        ("str_replace_based_edit_tool", create.to_owned(), vec![&created]),
    ] {
        let mut came = reply(name, &given);
        let mut streamed = Vec::new();
        let mut calls = ClientToolCalls::for_request(&chat);
        for event in into_events(came.clone()) {
            calls.push(event, |event| streamed.push(event));
        }
        assert_grammar(&streamed, &given);
        calls.convert_reply(&mut came);
        assert_eq!(fold(streamed), came);
        let (whole, _) = responses.write_reply(came, &chat, &stamp());
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let items = whole["output"].as_array().unwrap().iter().skip(1);
        let got: Vec<_> = items.map(|item| &item["operation"]).collect();
        assert_eq!(got, meant, "{given}");
    }

    let tool = json!({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"});
    let chat = read(messages, &body(WireFormat::Messages, &[tool], &[]));
    let update = json!({"type": "update_file", "path": "a", "diff": "@@\n one\n-two\n+three"});
    let mut came = reply("apply_patch", &json!({"operation": update}).to_string());
    ClientToolCalls::for_request(&chat).convert_reply(&mut came);
    let (whole, _) = messages.write_reply(came, &chat, &stamp());
    let call = whole_call(WireFormat::Messages, &whole);
    assert_eq!(call["name"], "str_replace_based_edit_tool");
    let meant = json!({"command": "str_replace", "path": "a", "old_str": "one\ntwo", "new_str": "one\nthree"});
    assert_eq!(call["input"], meant);
}

#[test]
fn a_stream_has_the_commands_of_a_shell_call() {
    let responses = dialects::get(WireFormat::Responses).unwrap();
    let chat = read(responses, &body(WireFormat::Responses, &[json!({"type": "shell"})], &[]));
    let events = into_events(reply("shell", r#"{"commands":["a","b"]}"#));
    let (out, _) = crate::cases::stream(responses, &chat, events);
    let out = String::from_utf8(out).unwrap();
    let data = out.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let commands: Vec<_> = events
        .filter(|event| {
            event["type"].as_str().is_some_and(|kind| kind.contains("shell_call_command"))
        })
        .map(|event| (event["type"].as_str().unwrap_or_default().to_owned(), event))
        .collect();
    let kinds: Vec<_> = commands.iter().map(|(kind, _)| kind.rsplit('.').next().unwrap()).collect();
    assert_eq!(kinds, ["added", "delta", "done", "added", "delta", "done"]);
    let last = &commands[5].1;
    assert_eq!((&last["command_index"], &last["command"]), (&json!(1), &json!("b")));
    assert_eq!((&commands[3].1["command"], &commands[4].1["delta"]), (&json!(""), &json!("b")));
    assert_eq!(last["output_index"], 1);
}
