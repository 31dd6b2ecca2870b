//! Conventions of this format beyond the laws for all formats (`tests/laws`).

use bytes::Bytes;
use canon::{
    ChatReply, ChatRequest, Event, EventGrammar, Finish, FinishReason, Part, PartIndex, PartKind,
    PartStart, RawReason, ReplyBuilder, ReplyCandidate, Role, SamplingOptions, Signature, Thought,
    Tool, ToolCall, Turn, Usage, WireFormat, into_events,
};
use serde_json::{Value, json};
use std::path::PathBuf;

use super::ResponsesDialect;
use super::names::{INCLUDE_ENCRYPTED_REASONING, ORIGIN};
use crate::{
    Dialect, FrameAction, LaneSettings, PassThrough, ReplyStamp, RequestTarget, SseDecoder,
    StreamFrame,
};

fn fixtures(ending: &str) -> Vec<(String, Vec<u8>)> {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join("fixtures").join("responses");
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned();
            Some((name, std::fs::read(&path).unwrap()))
        })
        .collect();
    found.sort();
    found
}

fn read(body: &[u8]) -> ChatRequest {
    ResponsesDialect.read_request(&RequestTarget::default(), body).unwrap()
}

fn lane(model: &str) -> LaneSettings<'_> {
    LaneSettings {
        model,
        max_payable_output: None,
        model_max_output: None,
        thinking_range: None,
        cache_field: None,
        client_tools: &[canon::ToolKind::Custom],
    }
}

fn stamp() -> ReplyStamp {
    ReplyStamp { id: "abc123".to_owned(), created: 1_790_000_000 }
}

fn frames(pieces: &[&[u8]]) -> Vec<StreamFrame> {
    let mut cutter = SseDecoder::default();
    let mut frames = Vec::new();
    for piece in pieces {
        cutter.push(Bytes::copy_from_slice(piece));
        while let Some(frame) = cutter.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    frames.extend(cutter.finish().unwrap());
    frames
}

fn events(frames: &[StreamFrame]) -> Vec<Event> {
    let mut reader = ResponsesDialect.stream_reader();
    let mut events = Vec::new();
    for frame in frames {
        reader.push(frame, &mut events).unwrap();
    }
    reader.finish(&mut events).unwrap();
    assert!(reader.is_done());
    events
}

fn fold(events: Vec<Event>, name: &str) -> ChatReply {
    let (mut grammar, mut fold) = (EventGrammar::default(), ReplyBuilder::default());
    for event in events {
        grammar.push(&event).unwrap_or_else(|e| panic!("{name}: {e}"));
        fold.push(event).unwrap();
    }
    grammar.finish().unwrap();
    fold.finish()
}

fn written(chat: &ChatRequest, events: Vec<Event>) -> Vec<u8> {
    let (mut writer, mut out) = (ResponsesDialect.stream_writer(chat, &stamp()), Vec::new());
    for event in events {
        writer.push(event, &mut out);
    }
    writer.finish(&mut out);
    out
}

fn data(stream: &[u8]) -> Vec<Value> {
    frames(&[stream]).iter().map(|frame| serde_json::from_slice(&frame.data).unwrap()).collect()
}

#[test]
fn pass_through_changes_only_the_model() {
    for (name, body) in fixtures(".request.json") {
        let peek = ResponsesDialect.read_facts(&RequestTarget::default(), &body);
        let peek = peek.unwrap_or_else(|e| panic!("{name}: {e}"));
        let body = Bytes::from(body);
        let same = ResponsesDialect.patch(&body, &peek, &lane(&peek.model));
        assert_eq!(same.body.to_vec(), body, "{name}");
        let limited = LaneSettings {
            model: "other \"x\"",
            max_payable_output: Some(99),
            model_max_output: None,
            thinking_range: None,
            cache_field: None,
            client_tools: &[canon::ToolKind::Custom],
        };
        let patched = ResponsesDialect.patch(&body, &peek, &limited).body.to_vec();
        let mut expected: Value = serde_json::from_slice(&body).unwrap();
        expected["model"] = json!("other \"x\"");
        expected["max_output_tokens"] = json!(99);
        assert_eq!(serde_json::from_slice::<Value>(&patched).unwrap(), expected, "{name}");
    }
}

#[test]
fn reads_a_stream_without_deltas() {
    for ((name, stream), (_, whole)) in fixtures(".sse").into_iter().zip(fixtures(".reply.json")) {
        let mut few = frames(&[&stream]);
        few.retain(|frame| {
            let event = String::from_utf8_lossy(frame.event.as_ref().unwrap()).into_owned();
            matches!(&*event, "response.completed" | "response.incomplete")
        });
        for frame in &mut few {
            frame.event = None;
        }
        let reply = ResponsesDialect.read_reply(&whole).unwrap();
        assert_eq!(fold(events(&few), &name), reply, "{name}");
    }
}

#[test]
fn meter_and_reader_agree_on_usage() {
    for ((name, stream), (_, whole)) in fixtures(".sse").into_iter().zip(fixtures(".reply.json")) {
        let reply = ResponsesDialect.read_reply(&whole).unwrap();
        let said = ResponsesDialect.meter_reply(&whole).unwrap();
        assert_eq!((said.usage, said.is_finished), (reply.usage, true), "{name}");

        let mut sniffer = ResponsesDialect.stream_meter(&crate::RequestFacts::default());
        let frames = frames(&[&stream]);
        let (last, rest) = frames.split_last().unwrap();
        let mut out = Vec::new();
        for frame in rest {
            assert_eq!(sniffer.observe(frame), FrameAction::Forward, "{name}");
            sniffer.write(frame, &mut out);
        }
        assert!(!sniffer.totals().is_finished);
        assert_eq!(sniffer.observe(last), FrameAction::Last, "{name}");
        let nameless = StreamFrame { event: None, data: last.data.clone() };
        sniffer.write(&nameless, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(stream).unwrap(), "{name}");
        assert_eq!((sniffer.totals().usage, sniffer.totals().is_finished), (reply.usage, true));
        assert_eq!(sniffer.observe(&StreamFrame::data("[DONE]")), FrameAction::Drop);
    }
}

#[test]
fn stream_errors_become_errors() {
    let nested = json!({"type":"error","sequence_number":2,"error":{"type":"insufficient_quota",
        "code":"insufficient_quota","message":"no money","param":null}});
    let flat = json!({"type":"error","code":"rate_limit_exceeded","message":"slow","param":null});
    let failed = json!({"type":"response.failed","response":{"id":"r","status":"failed","output":[],
        "error":{"code":"server_error","message":"oops"},
        "usage":{"input_tokens":3,"output_tokens":4}}});
    for event in [&nested, &flat, &failed] {
        let frame = StreamFrame::data(event.to_string());
        let mut sniffer = ResponsesDialect.stream_meter(&crate::RequestFacts::default());
        assert!(matches!(sniffer.observe(&frame), FrameAction::Error(_)), "{event}");
        assert!(ResponsesDialect.stream_reader().push(&frame, &mut Vec::new()).is_err(), "{event}");
        if event == &failed {
            assert_eq!(sniffer.totals().usage.unwrap().total(), 7);
        }
    }
    assert!(ResponsesDialect.read_reply(failed["response"].to_string().as_bytes()).is_err());
    assert!(ResponsesDialect.meter_reply(failed["response"].to_string().as_bytes()).is_err());
    assert!(ResponsesDialect.stream_reader().finish(&mut Vec::new()).is_err());
}

/// Returns the parts of a caller that sends the output back in its next request.
fn brought_back(output: &Value) -> Vec<Part> {
    let body = json!({"model": "m", "input": output}).to_string();
    let chat = read(body.as_bytes());
    assert!(chat.turns.iter().all(|turn| turn.role == Role::Assistant), "{chat:?}");
    chat.turns.into_iter().flat_map(|turn| turn.parts).collect()
}

/// Checks the event order that the official SDKs require. Returns the last response.
fn checked(stream: &[u8]) -> Value {
    let events = data(stream);
    let frames = frames(&[stream]);
    let (mut open, mut done): (Option<Value>, Vec<Value>) = (None, Vec::new());
    for (at, (event, frame)) in events.iter().zip(&frames).enumerate() {
        assert_eq!(event["sequence_number"], json!(at));
        let kind = event["type"].as_str().unwrap();
        assert_eq!(frame.event.as_deref(), Some(kind.as_bytes()));
        match kind {
            "response.created" => assert_eq!(at, 0),
            "response.in_progress" => assert_eq!(at, 1),
            "response.output_item.added" => {
                assert!(open.is_none(), "one item at a time");
                assert_eq!(event["output_index"], json!(done.len()));
                open = Some(event["item"].clone());
            }
            "response.output_item.done" => {
                let open = open.take().unwrap();
                for field in ["id", "type", "call_id", "name", "role"] {
                    assert_eq!(open[field], event["item"][field], "{field}");
                }
                done.push(event["item"].clone());
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert_eq!(at, events.len() - 1);
                assert_eq!(event["response"]["output"], Value::Array(done.clone()));
                assert_eq!(event["response"]["id"], events[0]["response"]["id"]);
            }
            _ => {
                let open = open.as_ref().unwrap();
                assert_eq!(event["item_id"], open["id"], "{kind}");
                assert_eq!(event["output_index"], json!(done.len()), "{kind}");
            }
        }
    }
    events.last().unwrap()["response"].clone()
}

fn stop(why: FinishReason) -> Option<Finish> {
    Some(Finish::new(why, RawReason::new(WireFormat::Native, "STOP")))
}

fn reply_of(parts: Vec<Part>, why: FinishReason) -> ChatReply {
    let candidate = ReplyCandidate { parts, finish: stop(why), ..ReplyCandidate::default() };
    let usage = Some(Usage { input: 9, output: 7, thinking: 3, ..Usage::default() });
    ChatReply { candidates: vec![candidate], usage, ..ChatReply::default() }
}

fn call(id: &str, name: &str, arguments: &str) -> Part {
    let call = ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        custom: false,
    };
    Part::new(PartKind::ToolCall(call))
}

fn thought(text: &str, redacted: bool) -> Part {
    Part::new(PartKind::Thought(Thought { text: text.to_owned(), redacted }))
}

#[test]
fn signatures_return_from_streams_and_whole_replies() {
    let native = |token: &str| Some(Signature::new(WireFormat::Native, token));
    let messages = |token: &str| Some(Signature::new(WireFormat::Messages, token));
    let own = Some(Signature::new(ORIGIN, "rs_9:gAAA"));
    let parts = vec![
        thought("Let me see.", false).with_signature(messages("EqQB")),
        thought("", true).with_signature(messages("redacted+/=")),
        thought("", false).with_signature(messages("omitted")),
        thought("Mine.", false).with_signature(own),
        thought("Unsealed.", false),
        Part::text("Hi").with_signature(native("dGV4dA==")),
        Part::text(" there"),
        call("call_1", "f", "{\"a\":1}").with_signature(native("c2lnMQ==")),
        call("call_2", "f", "{}"),
        call("call_3", "f", "{\"b\":2}").with_signature(native("c2lnMw==")),
        Part::text("").with_signature(native("ZW1wdHk=")),
        Part::new(PartKind::CodeExecution(canon::CodeExecution {
            id: None,
            language: "python".to_owned(),
            code: "1".to_owned(),
        }))
        .with_signature(native("Y29kZQ==")),
        Part::new(PartKind::CodeResult(canon::CodeResult {
            id: None,
            output: "1".to_owned(),
            is_error: false,
        }))
        .with_signature(native("b3V0")),
        Part::new(PartKind::Foreign { origin: WireFormat::Native, value: json!({}) })
            .with_signature(native("bG9zdA==")),
    ];
    let chat = ChatRequest { model: "m".to_owned(), stream: true, ..ChatRequest::default() };
    let reply = reply_of(parts.clone(), FinishReason::ToolCalls);
    let stream = written(&chat, into_events(reply.clone()));
    let streamed = checked(&stream);
    let (whole, losses) = ResponsesDialect.write_reply(reply, &chat, &stamp());
    assert_eq!(losses.len(), 1);
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    for output in [&streamed["output"], &whole["output"]] {
        let mut back = brought_back(output);
        for part in &mut back {
            if let PartKind::CodeExecution(canon::CodeExecution { id, .. })
            | PartKind::CodeResult(canon::CodeResult { id, .. }) = &mut part.kind
            {
                *id = None;
            }
        }
        let kept: Vec<_> = back.iter().map(|part| (&part.kind, &part.signature)).collect();
        let shown = &parts[..parts.len() - 1];
        let sent: Vec<_> = shown.iter().map(|part| (&part.kind, &part.signature)).collect();
        assert_eq!(kept, sent, "{output:#}");
    }
    // A client may move calls to the end. Each call still gets its own signature.
    let mut moved = streamed["output"].as_array().unwrap().clone();
    moved.sort_by_key(|item| item["type"] == "function_call");
    let back = brought_back(&Value::Array(moved));
    for (id, token) in
        [("call_1", native("c2lnMQ==")), ("call_2", None), ("call_3", native("c2lnMw=="))]
    {
        let found =
            back.iter().find(|part| matches!(&part.kind, PartKind::ToolCall(c) if c.id == id));
        assert_eq!(found.unwrap().signature, token, "{id}");
    }
}

#[test]
fn foreign_signatures_never_reach_a_provider() {
    let parts = vec![
        thought("a", false).with_signature(Some(Signature::new(WireFormat::Messages, "EqQB"))),
        thought("b", false),
        thought("c", false).with_signature(Some(Signature::new(ORIGIN, "rs_9:gAAA"))),
        call("call_1", "f", "{}").with_signature(Some(Signature::new(WireFormat::Native, "c2ln"))),
        thought("dangling", false).with_signature(Some(Signature::new(ORIGIN, "rs_10:gAAB"))),
    ];
    let turns = vec![Turn::new(Role::Assistant, parts)];
    let chat = ChatRequest { model: "m".to_owned(), turns, ..ChatRequest::default() };
    let (outgoing, losses) = ResponsesDialect.write_request(&chat, &lane("up")).unwrap();
    let body: Value = serde_json::from_slice(&outgoing.body.to_vec()).unwrap();
    assert_eq!(
        body["input"],
        json!([
            {"type":"reasoning","id":"rs_9","summary":[{"type":"summary_text","text":"c"}],
             "encrypted_content":"gAAA"},
            {"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"},
        ])
    );
    let lost: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
    assert_eq!(lost, ["thought.seal", "thought", "part.seal"]);
    assert_eq!(
        (&body["store"], &body["include"]),
        (&json!(false), &json!([INCLUDE_ENCRYPTED_REASONING]))
    );
}

#[test]
fn writes_every_part_kind_in_order() {
    let search = canon::WebSearch {
        id: Some("srv_1".to_owned()),
        queries: vec!["rust".to_owned()],
        results: vec![("https://example.org".to_owned(), "E".to_owned())],
    };
    let code =
        canon::CodeExecution { id: None, language: "python".to_owned(), code: "1+1".to_owned() };
    let outcome = canon::CodeResult { id: None, output: "2".to_owned(), is_error: false };
    let source = canon::MediaSource::Inline {
        mime: "image/png".to_owned(),
        data: "iVBORw0KGgo=".to_owned(),
    };
    let image = canon::Media {
        kind: canon::MediaKind::Image,
        source,
        name: None,
        detail: None,
        clip: None,
    };
    let cited = canon::Citation {
        url: Some("https://example.org".to_owned()),
        title: Some("E".to_owned()),
        ..canon::Citation::default()
    };
    let parts = vec![
        thought("Hm.", false),
        Part::new(PartKind::WebSearch(search)),
        Part::new(PartKind::Text { text: "Found é.".to_owned(), citations: vec![cited] }),
        Part::text(" More."),
        Part::new(PartKind::CodeExecution(code)),
        Part::new(PartKind::CodeResult(outcome)),
        Part::new(PartKind::Media(image))
            .with_signature(Some(Signature::new(WireFormat::Native, "aW1n"))),
        Part::new(PartKind::Refusal("No.".to_owned())),
        call("call_1", "agents__spawn", ""),
        call("call_2", "write_sql", "{\"input\":\"SELECT\"}"),
    ];
    let chat = read(
        json!({"model":"m","input":"x","instructions":"Be.","stream":true,"tools":[
            {"type":"namespace","name":"agents","description":"d","tools":[
                {"type":"function","name":"spawn","parameters":{"type":"object"}}]},
            {"type":"custom","name":"write_sql"}]})
        .to_string()
        .as_bytes(),
    );
    let mut reply = reply_of(parts.clone(), FinishReason::ToolCalls);
    crate::ClientToolCalls::for_request(&chat).convert_reply(&mut reply);
    let streamed = checked(&written(&chat, into_events(reply.clone())));
    let (whole, losses) = ResponsesDialect.write_reply(reply, &chat, &stamp());
    assert_eq!(losses, vec![]);
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(streamed["instructions"], "Be.");
    let calm = |response: &Value| -> Vec<Value> {
        let items = response["output"].as_array().unwrap().clone();
        let loose = |item: &Value| {
            item["type"] == "reasoning" && item["summary"].as_array().unwrap().is_empty()
        };
        items.into_iter().filter(|item| !loose(item)).collect()
    };
    assert_eq!(calm(&streamed), calm(&whole));
    let output = calm(&whole);
    let message = &output[2]["content"];
    assert_eq!(message[0]["annotations"][0]["end_index"], json!(8));
    assert_eq!(message[1]["text"], " More.");
    let named = |at: usize| (&output[at]["type"], &output[at]["name"], &output[at]["namespace"]);
    assert_eq!(named(6), (&json!("function_call"), &json!("spawn"), &json!("agents")));
    assert_eq!(named(7), (&json!("custom_tool_call"), &json!("write_sql"), &Value::Null));
    assert_eq!((&output[6]["arguments"], &output[7]["input"]), (&json!("{}"), &json!("SELECT")));
    for response in [&streamed, &whole] {
        let back = brought_back(&response["output"]);
        let image = back.iter().find(|part| matches!(part.kind, PartKind::Media(_))).unwrap();
        assert_eq!(image.signature, Some(Signature::new(WireFormat::Native, "aW1n")));
    }
}

#[test]
fn serializes_interleaved_parts() {
    let (a, b) = (PartIndex::first(0), PartIndex::first(1));
    let open = |name: &str| PartStart::ToolCall {
        id: format!("call_{name}"),
        name: name.to_owned(),
        custom: false,
    };
    let grow = |place, text: &str| Event::PartDelta(place, canon::PartDelta::Text(text.to_owned()));
    let chat = ChatRequest { model: "m".to_owned(), ..ChatRequest::default() };
    let events = vec![
        Event::Start { id: None, model: None, created: None },
        Event::PartStart(a, open("a")),
        Event::PartStart(b, open("b")),
        grow(b, "{\"x\""),
        grow(a, "{\"y\""),
        grow(b, ":1}"),
        Event::PartEnd(b),
        grow(a, ":2}"),
        Event::PartEnd(a),
        Event::Finish { candidate: 0, finish: stop(FinishReason::Length).unwrap() },
    ];
    let response = checked(&written(&chat, events));
    let output = response["output"].as_array().unwrap();
    assert_eq!(output[0]["arguments"], "{\"y\":2}");
    assert_eq!(output[1]["arguments"], "{\"x\":1}");
    assert_eq!(
        (&output[0]["status"], &output[1]["status"]),
        (&json!("completed"), &json!("incomplete"))
    );
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
}

#[test]
fn empty_and_failed_streams_have_their_events() {
    let chat = ChatRequest { model: "m".to_owned(), ..ChatRequest::default() };
    let response = checked(&written(&chat, into_events(reply_of(Vec::new(), FinishReason::Stop))));
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!([])));

    let fault = canon::ApiError::new(canon::ErrorKind::Interrupted, "it broke");
    let begin = Event::Start { id: None, model: None, created: None };
    let out = written(
        &chat,
        vec![
            begin,
            Event::PartStart(PartIndex::first(0), PartStart::Text),
            Event::Error(fault.clone()),
        ],
    );
    let events = data(&out);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "error",
            "response.failed"
        ]
    );
    assert_eq!(events[5]["sequence_number"], json!(5));
    let last = data(&ResponsesDialect.write_abort(&fault, "req_1"));
    assert_eq!(last[1]["response"]["error"]["code"], "server_error");
}

#[test]
fn names_losses_of_other_formats() {
    let sampling = SamplingOptions {
        top_k: Some(1),
        presence_penalty: Some(0.5),
        frequency_penalty: Some(0.5),
        seed: Some(1),
        stop_sequences: vec!["x".to_owned()],
        max_output_tokens: Some(4),
        candidates: Some(2),
        ..SamplingOptions::default()
    };
    let turns = vec![Turn::new(Role::User, vec![Part::text("x")])];
    let tools = vec![Tool::Function(canon::FunctionTool {
        name: "f".to_owned(),
        ..canon::FunctionTool::default()
    })];
    let chat =
        ChatRequest { model: "m".to_owned(), turns, tools, sampling, ..ChatRequest::default() };
    let (outgoing, losses) = ResponsesDialect.write_request(&chat, &lane("up")).unwrap();
    let lost: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
    assert_eq!(
        lost,
        [
            "sampling.top_k",
            "sampling.presence_penalty",
            "sampling.frequency_penalty",
            "sampling.seed",
            "sampling.stop",
            "sampling.candidates",
            "sampling.max_output",
        ]
    );
    let body: Value = serde_json::from_slice(&outgoing.body.to_vec()).unwrap();
    assert_eq!(body["max_output_tokens"], json!(16));
    assert_eq!(body["tools"][0]["strict"], json!(false));
    assert_eq!(body["input"], json!([{"role":"user","content":"x"}]));
}
