//! Tools that callers run. The call of a model on any provider comes back in the caller's own form, whole
//! and streamed in any pieces, and its arguments reach the provider again with the next request.

use canon::{
    ChatReply, ChatRequest, ClientTool, Event, Finish, FinishReason, Part, PartDelta, PartKind,
    RawReason, ReplyCandidate, ToolCall, ToolChoiceMode, WireFormat, into_events,
};
use dialects::{ClientToolCalls, Dialect};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::cases::{LANE, assert_grammar, events, fold, stamp, stream, target};

/// A tool of a caller.
struct Declared {
    format: WireFormat,
    tool: Value,
}

fn declared() -> Vec<Declared> {
    let messages = [
        json!({"type": "bash_20250124", "name": "bash"}),
        json!({"type": "text_editor_20250124", "name": "str_replace_editor"}),
        json!({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9}),
        json!({"type": "memory_20250818", "name": "memory"}),
        json!({"type": "computer_20251124", "name": "computer", "display_width_px": 1024,
            "display_height_px": 768, "enable_zoom": true}),
        json!({"type": "computer_toolset_20260801"}),
        json!({"type": "browser_toolset_20260801", "configs": {"javascript_exec": {"enabled": true}}}),
    ];
    let responses = [
        json!({"type": "shell", "environment": {"type": "local"}}),
        json!({"type": "local_shell"}),
        json!({"type": "apply_patch"}),
        json!({"type": "computer"}),
        json!({"type": "computer_use_preview", "display_width": 1024, "display_height": 768,
            "environment": "browser"}),
        json!({"type": "tool_search", "execution": "client", "description": "Finds tools.",
            "parameters": {"type": "object", "properties": {"goal": {"type": "string"}}}}),
    ];
    let native = [json!({"computerUse": {"environment": "ENVIRONMENT_BROWSER"}})];
    let of =
        |format, tools: Vec<Value>| tools.into_iter().map(move |tool| Declared { format, tool });
    of(WireFormat::Messages, messages.into())
        .chain(of(WireFormat::Responses, responses.into()))
        .chain(of(WireFormat::Native, native.into()))
        .collect()
}

/// Returns a request with these tools and these items after the question.
pub(crate) fn body(format: WireFormat, tools: &[Value], after: &[Value]) -> Value {
    match format {
        WireFormat::Messages => {
            let turns = [json!({"role": "user", "content": "go"})];
            let turns: Vec<&Value> = turns.iter().chain(after).collect();
            json!({"model": "m", "max_tokens": 99, "messages": turns, "tools": tools})
        }
        WireFormat::Responses => {
            let items = [json!({"role": "user", "content": "go"})];
            let items: Vec<&Value> = items.iter().chain(after).collect();
            json!({"model": "m", "input": items, "tools": tools})
        }
        _ => {
            let turns = [json!({"role": "user", "parts": [{"text": "go"}]})];
            let turns: Vec<&Value> = turns.iter().chain(after).collect();
            json!({"contents": turns, "tools": tools})
        }
    }
}

pub(crate) fn read(dialect: &dyn Dialect, body: &Value) -> ChatRequest {
    let text = body.to_string();
    dialect.read_facts(&target(), text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"));
    dialect.read_request(&target(), text.as_bytes()).unwrap()
}

/// Returns arguments that fit a schema, without optional ones where `full` is false.
fn arguments(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
        let branches: Vec<_> = branches.iter().map(arguments).collect();
        return prop::strategy::Union::new(branches).boxed();
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return prop::sample::select(choices.clone()).boxed();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("integer") => (0..5_000_i64).prop_map(Value::from).boxed(),
        Some("number") => prop_oneof![Just(json!(0.5)), Just(json!(3))].boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("array") => {
            let item = arguments(&schema["items"]);
            prop::collection::vec(item, 1..4).prop_map(Value::from).boxed()
        }
        Some("object") => {
            let empty = Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
            let required = schema.get("required").and_then(Value::as_array);
            let is_required =
                |name: &String| required.is_some_and(|all| all.iter().any(|own| own == name));
            let fields: Vec<_> = properties
                .iter()
                .map(|(name, property)| {
                    let (name, value) = (name.clone(), arguments(property));
                    match is_required(&name) {
                        true => value.prop_map(move |value| Some((name.clone(), value))).boxed(),
                        false => prop::option::of(value)
                            .prop_map(move |value| Some((name.clone(), value?)))
                            .boxed(),
                    }
                })
                .collect();
            fields
                .prop_map(|fields| fields.into_iter().flatten().collect::<Map<_, _>>().into())
                .boxed()
        }
        _ => "(\\PC|[\n\"\\\\]){0,12}".prop_map(Value::from).boxed(),
    }
}

/// Returns arguments for a tool. Actions and operations need fields that their schema cannot require.
fn fitting(tool: &Value, schema: &Value) -> BoxedStrategy<Value> {
    let point = || (0..99_i64, 0..99_i64);
    let action = prop_oneof![
        point().prop_map(|(x, y)| json!({"type": "click", "button": "right", "x": x, "y": y})),
        point().prop_map(|(x, y)| json!({"type": "move", "x": x, "y": y, "keys": ["SHIFT"]})),
        point().prop_map(|(x, y)| {
            json!({"type": "scroll", "x": x, "y": y, "scroll_x": -x, "scroll_y": y})
        }),
        point().prop_map(|(x, y)| json!({"type": "drag", "path": [{"x": x, "y": y}]})),
        any::<String>().prop_map(|text| json!({"type": "type", "text": text})),
        Just(json!({"type": "keypress", "keys": ["CTRL", "s"]})),
        Just(json!({"type": "screenshot"})),
    ];
    let text = || any::<String>();
    match tool["type"].as_str() {
        Some("apply_patch") => prop_oneof![
            (text(), "[a-z/.]{1,9}").prop_map(
                |(diff, path)| json!({"type": "update_file", "path": path, "diff": diff})
            ),
            (text(), "[a-z/.]{1,9}").prop_map(
                |(diff, path)| json!({"type": "create_file", "path": path, "diff": diff})
            ),
            "[a-z/.]{1,9}".prop_map(|path| json!({"type": "delete_file", "path": path})),
        ]
        .prop_map(|operation| json!({"operation": operation}))
        .boxed(),
        Some("computer") => prop::collection::vec(action, 1..4)
            .prop_map(|actions| json!({"actions": actions}))
            .boxed(),
        Some("computer_use_preview") => action.boxed(),
        Some("local_shell") => (arguments(schema), text())
            .prop_map(|(mut given, text)| {
                if given.get("env").is_some() {
                    given["env"] = json!({"A": text});
                }
                given
            })
            .boxed(),
        _ => arguments(schema),
    }
}

/// A tool, the place of one of its functions, arguments for it, and places to cut them.
fn call() -> impl Strategy<Value = (usize, usize, Value, Vec<prop::sample::Index>)> {
    let tools = declared();
    let functions = tools.iter().enumerate().flat_map(|(at, tool)| {
        let chat = read(
            dialects::get(tool.format).unwrap(),
            &body(tool.format, std::slice::from_ref(&tool.tool), &[]),
        );
        let functions: Vec<_> =
            ClientTool::all_in(&chat.tools).flat_map(|tool| tool.functions.clone()).collect();
        let tool = tool.tool.clone();
        functions.into_iter().enumerate().map(move |(number, function)| {
            let schema = function.parameters.unwrap().json;
            let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
            (Just(at), Just(number), fitting(&tool, &schema), cuts).boxed()
        })
    });
    prop::strategy::Union::new(functions.collect::<Vec<_>>())
}

pub(crate) fn reply(name: &str, arguments: &str) -> ChatReply {
    let call = ToolCall {
        id: "call_1".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        custom: false,
    };
    let finish = Finish::new(FinishReason::ToolCalls, RawReason::new(WireFormat::Images, ""));
    let parts = vec![Part::text("Done."), Part::new(PartKind::ToolCall(call))];
    let candidate = ReplyCandidate { parts, finish: Some(finish), ..ReplyCandidate::default() };
    ChatReply { candidates: vec![candidate], ..ChatReply::default() }
}

/// Returns the events of a reply with its arguments cut at these places.
fn cut_events(reply: ChatReply, cuts: &[prop::sample::Index]) -> Vec<Event> {
    let mut all = Vec::new();
    for event in into_events(reply) {
        match event {
            Event::PartDelta(place, PartDelta::Text(text)) if place.slot == 1 => {
                let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
                at.retain(|at| text.is_char_boundary(*at));
                at.extend([0, text.len()]);
                at.sort_unstable();
                let pieces =
                    at.windows(2).map(|pair| text.get(pair[0]..pair[1]).unwrap().to_owned());
                all.extend(pieces.map(|text| Event::PartDelta(place, PartDelta::Text(text))));
            }
            event => all.push(event),
        }
    }
    all
}

/// Returns the call in the caller's form, from a whole reply.
pub(crate) fn whole_call(format: WireFormat, reply: &[u8]) -> Value {
    let reply: Value = serde_json::from_slice(reply).unwrap();
    match format {
        WireFormat::Messages => reply["content"].as_array().unwrap().last().unwrap().clone(),
        WireFormat::Responses => reply["output"].as_array().unwrap().last().unwrap().clone(),
        _ => {
            let parts = reply["candidates"][0]["content"]["parts"].as_array().unwrap();
            parts.last().unwrap()["functionCall"].clone()
        }
    }
}

/// Returns the call in the caller's form, from a stream.
fn streamed_call(format: WireFormat, stream: &[u8]) -> Value {
    let text = String::from_utf8(stream.to_vec()).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
    match format {
        WireFormat::Messages => {
            let is_call = |event: &&Value| event["content_block"]["type"] == "tool_use";
            let mut block = events.iter().find(is_call).unwrap()["content_block"].clone();
            let deltas = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str());
            let input: String = deltas.collect();
            block["input"] = serde_json::from_str(&input).unwrap_or(json!({}));
            block
        }
        WireFormat::Responses => {
            let last = events.iter().find(|event| event["type"] == "response.completed").unwrap();
            let item = last["response"]["output"].as_array().unwrap().last().unwrap();
            let done = |event: &&Value| event["type"] == "response.output_item.done";
            assert_eq!(events.iter().rfind(done).unwrap()["item"], *item);
            item.clone()
        }
        _ => {
            let parts = events
                .iter()
                .filter_map(|event| event["candidates"][0]["content"]["parts"].as_array());
            let mut calls = parts.flatten().filter_map(|part| part.get("functionCall"));
            calls.next_back().unwrap().clone()
        }
    }
}

/// Returns the items of the next request: the call as the caller got it, and a result.
fn history(format: WireFormat, call: &Value) -> Vec<Value> {
    let id = call["call_id"].clone();
    let output = |kind: &str, output: Value| json!({"type": kind, "call_id": id, "output": output});
    match (format, call["type"].as_str()) {
        (WireFormat::Messages, _) => vec![
            json!({"role": "assistant", "content": [call]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"],
                "toolset_name": call["toolset_name"], "content": "outcome"}]}),
        ],
        (WireFormat::Responses, Some("shell_call")) => {
            let outcome = json!({"type": "exit", "exit_code": 0});
            let outputs = json!([{"stdout": "outcome", "stderr": "", "outcome": outcome}]);
            vec![call.clone(), output("shell_call_output", outputs)]
        }
        (WireFormat::Responses, Some("computer_call")) => {
            let url = "data:image/png;base64,aaaa";
            let picture = json!({"type": "computer_screenshot", "image_url": url});
            vec![call.clone(), output("computer_call_output", picture)]
        }
        (WireFormat::Responses, Some("apply_patch_call")) => {
            let mut result = output("apply_patch_call_output", json!("outcome"));
            result["status"] = json!("completed");
            vec![call.clone(), result]
        }
        (WireFormat::Responses, Some("tool_search_call")) => {
            let tool =
                json!({"type": "function", "name": "outcome", "parameters": {"type": "object"}});
            let result = json!({"type": "tool_search_output", "call_id": id, "execution": "client",
                "status": "completed", "tools": [tool]});
            vec![call.clone(), result]
        }
        (WireFormat::Responses, kind) => {
            vec![call.clone(), output(&format!("{}_output", kind.unwrap()), json!("outcome"))]
        }
        (_, _) => vec![
            json!({"role": "model", "parts": [{"functionCall": call}]}),
            json!({"role": "user", "parts": [{"functionResponse": {"id": call["id"],
                "name": call["name"], "response": {"output": "outcome"}}}]}),
        ],
    }
}

pub(crate) fn parse(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_call_comes_back_in_the_callers_form((at, number, given, cuts) in call()) {
        let Declared { format, tool } = &declared()[at];
        let caller = dialects::get(*format).unwrap();
        let chat = read(caller, &body(*format, std::slice::from_ref(tool), &[]));
        let functions = ClientTool::all_in(&chat.tools).flat_map(|tool| &tool.functions);
        let names: Vec<_> = functions.map(|function| function.name.clone()).collect();
        let name = names[number].clone();
        for provider in dialects::all().filter(|provider| provider.origin() != *format) {
            let case = format!("{tool} on {}", provider.origin());
            let (sent, losses) = provider.write_request(&chat, &LANE).unwrap();
            prop_assert_eq!(losses, [], "{}", case);
            let lowered = read(provider, &serde_json::from_slice(&sent.body.to_vec()).unwrap());
            prop_assert_eq!(lowered.tools.len(), names.len(), "{}", case);

            let made = reply(&name, &given.to_string());
            let (whole, _) = provider.write_reply(made.clone(), &lowered, &stamp());
            let came = provider.read_reply(&whole).unwrap();
            let (whole, losses) = caller.write_reply(came, &chat, &stamp());
            prop_assert_eq!(losses, [], "{}", case);
            let whole = whole_call(*format, &whole);

            let (stream_in, _) = stream(provider, &lowered, cut_events(made, &cuts));
            let came = events(provider, &stream_in, &case);
            assert_grammar(&came, &case);
            let (stream_out, losses) = stream(caller, &chat, came);
            prop_assert_eq!(losses, [], "{}", case);
            let mut streamed = streamed_call(*format, &stream_out);
            if *format == WireFormat::Native {
                // A format without ids gets another one for each reading.
                streamed["id"] = whole["id"].clone();
            }
            prop_assert_eq!(&streamed, &whole, "{}", case);

            let next = body(*format, std::slice::from_ref(tool), &history(*format, &whole));
            let next = read(caller, &next);
            let again = caller.write_request(&next, &LANE).unwrap();
            prop_assert_eq!(again.1, [], "{}", case);
            let again = read(caller, &serde_json::from_slice(&again.0.body.to_vec()).unwrap());
            prop_assert_eq!(&again.turns, &next.turns, "{}", case);
            let (sent, _) = provider.write_request(&next, &LANE).unwrap();
            let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
            let back = read(provider, &sent);
            let parts = back.turns.iter().flat_map(|turn| &turn.parts);
            let called: Vec<_> = parts.clone().filter_map(|part| match &part.kind {
                PartKind::ToolCall(call) => Some((call.name.clone(), parse(&call.arguments))),
                _ => None,
            }).collect();
            prop_assert_eq!(called, [(name.clone(), given.clone())], "{}", case);
            let results = parts.filter(|part| matches!(part.kind, PartKind::ToolResult(_)));
            prop_assert_eq!(results.count(), 1, "{}", case);
            let text = sent.to_string();
            prop_assert!(text.contains("outcome") || text.contains("aaaa"), "{}: {}", case, text);
        }
    }

    #[test]
    fn arguments_that_do_not_fit_are_a_call_that_a_client_can_run(
        at in 0..6_usize,
        given in prop_oneof![
            Just("{\"commands\":[\"rm -rf".to_owned()),
            Just("null".to_owned()),
            Just("[1]".to_owned()),
            Just(r#"{"commands":[],"operation":{"type":"x"},"actions":[{"type":"x"}]}"#.to_owned()),
            Just(r#"{"commands":[1],"command":7,"operation":{"path":"a"},"actions":7}"#.to_owned()),
            any::<String>(),
        ],
    ) {
        let tool = declared().into_iter().filter(|tool| tool.format == WireFormat::Responses).nth(at);
        let tool = tool.unwrap().tool;
        let caller = dialects::get(WireFormat::Responses).unwrap();
        let chat = read(caller, &body(WireFormat::Responses, std::slice::from_ref(&tool), &[]));
        let name = ClientTool::all_in(&chat.tools).next().unwrap().functions[0].name.clone();
        let (whole, losses) = caller.write_reply(reply(&name, &given), &chat, &stamp());
        prop_assert_eq!(losses, []);
        let item = whole_call(WireFormat::Responses, &whole);
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let texts = |value: &Value| {
            value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_string))
        };
        let fits = match item["type"].as_str().unwrap() {
            "shell_call" => texts(&item["action"]["commands"]),
            "local_shell_call" => texts(&item["action"]["command"]) && item["action"]["env"].is_object(),
            "apply_patch_call" => is_text(&item["operation"]["path"]),
            "computer_call" => is_text(&item["action"]["type"]) || is_text(&item["actions"][0]["type"]),
            "tool_search_call" => item["arguments"].is_object(),
            _ => false,
        };
        prop_assert!(fits, "{}", item);
    }
}

/// Reads a messages request with a toolset, the caller's own function and a tool choice by name.
fn toolset_choice(toolset: &Value, own: &str, name: &str) -> (Value, Result<ChatRequest, String>) {
    let caller = dialects::get(WireFormat::Messages).unwrap();
    let own = json!({"name": own, "input_schema": {"type": "object"}});
    let mut request = body(WireFormat::Messages, &[toolset.clone(), own], &[]);
    request["tool_choice"] = json!({"type": "tool", "name": name});
    let text = request.to_string();
    let facts = caller.read_facts(&target(), text.as_bytes());
    let chat = facts.map(|_| caller.read_request(&target(), text.as_bytes()).unwrap());
    (request, chat.map_err(|error| error.param().unwrap_or_default().to_owned()))
}

#[test]
fn a_choice_of_a_toolset_member_is_that_of_its_function() {
    let computer = json!({"type": "computer_toolset_20260801"});
    let browser = json!({"type": "browser_toolset_20260801"});
    for (toolset, own, name, function) in [
        (&computer, "f", "left_click", "computer_left_click"),
        (&browser, "f", "navigate", "browser_navigate"),
        (&computer, "computer_left_click", "left_click", "computer_left_click_tool"),
        (&computer, "left_click", "left_click", "left_click"),
        (&computer, "f", "f", "f"),
    ] {
        let (request, chat) = toolset_choice(toolset, own, name);
        let chat = chat.unwrap_or_else(|path| panic!("{path}: {request}"));
        assert_eq!(chat.tool_choice.mode, ToolChoiceMode::Tool(function.to_owned()), "{request}");
        for to in [WireFormat::Chat, WireFormat::Responses, WireFormat::Native] {
            let (sent, _) = dialects::get(to).unwrap().write_request(&chat, &LANE).unwrap();
            let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
            let choice = sent.get("tool_choice").or(sent.get("toolConfig")).unwrap().to_string();
            assert!(choice.contains(&format!("\"{function}\"")), "{choice}");
        }
        let caller = dialects::get(WireFormat::Messages).unwrap();
        let (again, _) = caller.write_request(&chat, &LANE).unwrap();
        let again: Value = serde_json::from_slice(&again.body.to_vec()).unwrap();
        assert_eq!(again["tool_choice"], request["tool_choice"]);
    }
    for name in ["nope", "computer", "computer_left_click"] {
        let (request, chat) = toolset_choice(&computer, "f", name);
        assert_eq!(chat.err().as_deref(), Some("tool_choice.name"), "{request}");
    }
    // Members that are not offered.
    let (request, chat) = toolset_choice(&browser, "f", "javascript_exec");
    assert_eq!(chat.err().as_deref(), Some("tool_choice.name"), "{request}");
}

#[test]
fn names_of_the_callers_own_functions_stay_free() {
    let own =
        |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let tools = [json!({"type": "shell"}), own("shell"), own("shell_tool")];
    let format = WireFormat::Responses;
    let caller = dialects::get(format).unwrap();
    let called = json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}});
    let mut request = body(format, &tools, &[called]);
    request["tool_choice"] = json!({"type": "shell"});
    let chat = read(caller, &request);
    let chosen = ToolChoiceMode::Tool("shell_tool_2".to_owned());
    assert_eq!(chat.tool_choice.mode, chosen);
    assert!(
        matches!(&chat.turns[1].parts[0].kind, PartKind::ToolCall(call) if call.name == "shell_tool_2")
    );
    for (name, kind) in [("shell_tool_2", "shell_call"), ("shell", "function_call")] {
        let (whole, _) = caller.write_reply(reply(name, r#"{"commands":["ls"]}"#), &chat, &stamp());
        assert_eq!(whole_call(format, &whole)["type"], kind);
    }
    let (again, losses) = caller.write_request(&chat, &LANE).unwrap();
    assert_eq!(losses, []);
    let again: Value = serde_json::from_slice(&again.body.to_vec()).unwrap();
    assert_eq!(again["tool_choice"], json!({"type": "shell"}));
    assert_eq!(again["tools"][0], json!({"type": "shell"}));

    let format = WireFormat::Messages;
    let caller = dialects::get(format).unwrap();
    let own = json!({"name": "computer_key", "input_schema": {"type": "object"}});
    let tools = [
        own,
        json!({"type": "computer_toolset_20260801"}),
        json!({"type": "browser_toolset_20260801"}),
    ];
    let called = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "key",
        "toolset_name": "computer", "input": {"text": "a"}}]});
    let chat = read(caller, &body(format, &tools, &[called]));
    assert!(
        matches!(&chat.turns[1].parts[0].kind, PartKind::ToolCall(call) if call.name == "computer_key_tool")
    );
    for (name, set) in [("computer_key_tool", json!("computer")), ("computer_key", Value::Null)] {
        let (whole, _) = caller.write_reply(reply(name, "{}"), &chat, &stamp());
        assert_eq!(whole_call(format, &whole)["toolset_name"], set);
    }
    let (again, _) = caller.write_request(&chat, &LANE).unwrap();
    let again: Value = serde_json::from_slice(&again.body.to_vec()).unwrap();
    assert_eq!(again["messages"][1]["content"][0]["name"], "key");
}

#[test]
fn actions_in_the_words_of_another_vendor_are_translated() {
    let responses = dialects::get(WireFormat::Responses).unwrap();
    let chat = read(responses, &body(WireFormat::Responses, &[json!({"type": "computer"})], &[]));
    let given = r#"{"action":"left_click","coordinate":[1,2]}"#;
    let (whole, _) = responses.write_reply(reply("computer", given), &chat, &stamp());
    let click = json!({"type": "click", "button": "left", "x": 1, "y": 2});
    assert_eq!(whole_call(WireFormat::Responses, &whole)["actions"], json!([click]));

    let messages = dialects::get(WireFormat::Messages).unwrap();
    let tool = json!({"type": "computer_20250124", "name": "computer", "display_width_px": 9,
        "display_height_px": 9});
    let chat = read(messages, &body(WireFormat::Messages, &[tool], &[]));
    let mut came = reply("computer", &json!({"actions": [click]}).to_string());
    let mut calls = ClientToolCalls::for_request(&chat);
    let mut streamed = Vec::new();
    for event in cut_events(came.clone(), &[]) {
        calls.push(event, |event| streamed.push(event));
    }
    calls.convert_reply(&mut came);
    assert_eq!(fold(streamed), came);
    let (whole, _) = messages.write_reply(came, &chat, &stamp());
    let input = json!({"action": "left_click", "coordinate": [1, 2]});
    assert_eq!(whole_call(WireFormat::Messages, &whole)["input"], input);
}

/// A short declaration that is repeated must not become a large request.
#[test]
fn a_repeated_declaration_is_one_tool() {
    for (format, tool) in [
        (WireFormat::Messages, json!({"type": "browser_toolset_20260801"})),
        (WireFormat::Responses, json!({"type": "apply_patch"})),
        (WireFormat::Native, json!({"computerUse": {}})),
    ] {
        let caller = dialects::get(format).unwrap();
        let count = |times: usize| {
            let chat = read(caller, &body(format, &vec![tool.clone(); times], &[]));
            ClientTool::all_in(&chat.tools).map(|tool| tool.functions.len()).sum::<usize>()
        };
        assert_eq!(count(50), count(1), "{tool}");
    }
}

#[test]
fn a_tool_that_is_found_again_keeps_its_name() {
    let tool = json!({"type": "function", "name": "found", "parameters": {"type": "object"}});
    let search = json!({"type": "tool_search", "execution": "client"});
    let mut items = Vec::new();
    for id in ["a", "b"] {
        items.push(json!({"type": "tool_search_call", "call_id": id, "execution": "client",
            "arguments": {}, "status": "completed"}));
        items.push(json!({"type": "tool_search_output", "call_id": id, "execution": "client",
            "status": "completed", "tools": [tool]}));
    }
    let caller = dialects::get(WireFormat::Responses).unwrap();
    let chat = read(caller, &body(WireFormat::Responses, &[search], &items));
    let chat_lane = dialects::get(WireFormat::Chat).unwrap();
    let (sent, _) = chat_lane.write_request(&chat, &LANE).unwrap();
    let sent: Value = serde_json::from_slice(&sent.body.to_vec()).unwrap();
    let names: Vec<_> =
        sent["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["tool_search", "found"]);
}

#[test]
fn a_caller_cannot_hide_an_item_in_a_note() {
    let hidden = json!({"type": "item_reference", "id": "msg_of_another"});
    let called = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}",
        "portunus.item": hidden});
    let result = json!({"type": "function_call_output", "call_id": "c", "output": "x",
        "portunus.item": hidden});
    let caller = dialects::get(WireFormat::Responses).unwrap();
    let chat = read(caller, &body(WireFormat::Responses, &[], &[called, result]));
    let (sent, _) = caller.write_request(&chat, &LANE).unwrap();
    let sent = String::from_utf8(sent.body.to_vec()).unwrap();
    assert!(!sent.contains("msg_of_another"), "{sent}");
}
