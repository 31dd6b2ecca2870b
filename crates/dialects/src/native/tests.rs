//! Properties of this format beyond those that hold for all formats (`tests/laws`).

mod rules;
mod tool_text;

use super::names::{JSON_ARRAY_EXTRA, ORIGIN};
use super::{NativeDialect, signatures};
use crate::{
    Dialect, FrameAction, LaneSettings, PassThrough, ReplyStamp, RequestTarget, SseDecoder,
    StreamFrame,
};
use bytes::Bytes;
use canon::{
    ChatReply, ChatRequest, Event, EventGrammar, FinishReason, Part, PartDelta, PartIndex,
    PartKind, PartStart, ReplyBuilder, Role, Signature, ThinkingDisplay, Thought, ToolCall, Turn,
    WireFormat, into_events,
};
use serde_json::{Value, json};
use std::path::PathBuf;

fn fixtures(ending: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/native");
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned();
            Some((name, std::fs::read(&path).unwrap()))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{ending}");
    found
}

fn target(stream: bool) -> RequestTarget {
    RequestTarget { model: Some("gemini-x-1".to_owned()), stream, ..RequestTarget::default() }
}

fn lane() -> LaneSettings<'static> {
    LaneSettings {
        model: "gemini-x-1",
        max_payable_output: None,
        model_max_output: None,
        thinking_range: None,
        cache_field: None,
        client_tools: &[canon::ToolKind::Custom],
    }
}

fn stamp() -> ReplyStamp {
    ReplyStamp { id: "resp_1".to_owned(), created: 1_777_924_862 }
}

/// A request that asks for everything a reply may hold.
fn full_request() -> ChatRequest {
    let mut chat = ChatRequest { model: "gemini-x-1".to_owned(), ..ChatRequest::default() };
    chat.thinking.display = Some(ThinkingDisplay::Auto);
    chat.sampling.logprobs = Some(2);
    chat
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
    let mut reader = NativeDialect.stream_reader();
    let mut events = Vec::new();
    for frame in frames {
        reader.push(frame, &mut events).unwrap();
    }
    reader.finish(&mut events).unwrap();
    events
}

fn fold(events: Vec<Event>) -> ChatReply {
    let (mut grammar, mut fold) = (EventGrammar::default(), ReplyBuilder::default());
    for event in events {
        grammar.push(&event).unwrap();
        fold.push(event).unwrap();
    }
    grammar.finish().unwrap();
    fold.finish()
}

fn stream(reply: ChatReply, chat: &ChatRequest) -> Vec<u8> {
    let mut writer = NativeDialect.stream_writer(chat, &stamp());
    let mut out = Vec::new();
    for event in into_events(reply) {
        writer.push(event, &mut out);
    }
    writer.finish(&mut out);
    out
}

/// The same reply with the pieces of one text joined, because streams cut texts anywhere.
fn joined(mut reply: ChatReply) -> ChatReply {
    for candidate in &mut reply.candidates {
        let mut parts: Vec<Part> = Vec::new();
        for part in std::mem::take(&mut candidate.parts) {
            match (parts.last_mut(), &part.kind) {
                (
                    Some(Part {
                        kind: PartKind::Text { text, citations }, signature: seal, ..
                    }),
                    PartKind::Text { text: more, citations: others },
                ) => {
                    text.push_str(more);
                    citations.extend(others.iter().cloned());
                    *seal = part.signature.or(seal.take());
                }
                (
                    Some(Part { kind: PartKind::Thought(thought), signature: seal, .. }),
                    PartKind::Thought(Thought { text: more, .. }),
                ) => {
                    thought.text.push_str(more);
                    *seal = part.signature.or(seal.take());
                }
                _ => parts.push(part),
            }
        }
        candidate.parts = parts;
    }
    reply
}

/// Returns a reply with the documented fields that the writer writes into every reply.
fn completed(body: Vec<u8>) -> Bytes {
    NativeDialect.complete_reply(&Bytes::from(body), &crate::RequestFacts::default(), &stamp())
}

#[test]
fn reply_round_trips() {
    for (name, body) in fixtures(".reply.json") {
        let reply = NativeDialect.read_reply(&completed(body)).expect(&name);
        let (written, losses) = NativeDialect.write_reply(reply.clone(), &full_request(), &stamp());
        assert_eq!(losses, [], "{name}");
        let again = NativeDialect.read_reply(&written).unwrap();
        assert_eq!(again, reply, "{name}\n{}", String::from_utf8_lossy(&written));
    }
}

#[test]
fn written_stream_has_no_event_names_and_reads_as_the_same_reply() {
    for (name, body) in fixtures(".reply.json") {
        let body = completed(body);
        let reply = NativeDialect.read_reply(&body).unwrap();
        let expected = reply.clone();
        let out = stream(reply, &full_request());
        let text = String::from_utf8(out.clone()).unwrap();
        for line in text.lines() {
            assert!(line.is_empty() || line.starts_with("data: {"), "{name}: {line}");
        }
        assert!(text.ends_with("}\n\n"), "{name}");
        assert_eq!(joined(fold(events(&frames(&[&out])))), joined(expected.clone()), "{name}");

        let mut chat = full_request();
        chat.extras.insert(ORIGIN, JSON_ARRAY_EXTRA, json!("json"));
        let array = stream(NativeDialect.read_reply(&body).unwrap(), &chat);
        let pieces: Vec<Value> = serde_json::from_slice(&array).expect(&name);
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(pieces, events, "{name}");
    }
}

#[test]
fn no_chunk_is_empty_unless_the_reply_is() {
    for name in ["text", "thinking", "call", "grounded", "logprobs"] {
        let all = fixtures(".reply.json");
        let (_, body) = all.iter().find(|(own, _)| own == name).unwrap();
        let out = stream(NativeDialect.read_reply(body).unwrap(), &full_request());
        for frame in frames(&[&out]) {
            let piece: Value = serde_json::from_slice(&frame.data).unwrap();
            let parts = piece["candidates"][0]["content"]["parts"].as_array().unwrap();
            assert!(!parts.is_empty() && parts.iter().all(|p| p["text"] != ""), "{name}: {piece}");
        }
    }
}

#[test]
fn pass_through_keeps_the_bytes() {
    for (name, body) in fixtures(".request.json") {
        let body = Bytes::from(body);
        let facts = NativeDialect.read_facts(&target(true), &body).expect(&name);
        let out = NativeDialect.patch(&body, &facts, &lane());
        assert_eq!(out.path, "/v1beta/models/gemini-x-1:streamGenerateContent?alt=sse");
        assert_eq!(out.body.to_vec(), body, "{name}");
        let lowered = LaneSettings { max_payable_output: Some(17), ..lane() };
        let patched = NativeDialect.patch(&body, &facts, &lowered).body.to_vec();
        let chat = NativeDialect.read_request(&target(true), &patched).expect(&name);
        let mut expected = NativeDialect.read_request(&target(true), &body).unwrap();
        expected.sampling.max_output_tokens = Some(17);
        assert_eq!(chat, expected, "{name}");
    }
}

#[test]
fn edits_are_applied_at_their_positions() {
    let foreign = Signature::new(WireFormat::Messages, "EqQB");
    let wrapped = crate::envelope::write(&foreign, WireFormat::Native);
    let cases = [
        ("{}".to_owned(), r#"{"generationConfig":{"maxOutputTokens":9}}"#.to_owned()),
        (
            r#"{"generationConfig":null}"#.to_owned(),
            r#"{"generationConfig":{"maxOutputTokens":9}}"#.to_owned(),
        ),
        (
            r#"{"generation_config": { "topK":1}, "model":"other"}"#.to_owned(),
            r#"{"generation_config": {"maxOutputTokens":9, "topK":1}, "model":"models/gemini-x-1"}"#
                .to_owned(),
        ),
        (
            r#"{"generationConfig":{"max_output_tokens" : "500"}}"#.to_owned(),
            r#"{"generationConfig":{"max_output_tokens" : 9}}"#.to_owned(),
        ),
        (
            r#"{"generationConfig":{"maxOutputTokens":7},"tools":[{"vendorSearch":{}},{"vendor\u004daps":{}},{"googleMaps":{}}]}"#.to_owned(),
            r#"{"generationConfig":{"maxOutputTokens":9},"tools":[{"googleSearch":{}},{"googleMaps":{}},{"googleMaps":{}}]}"#.to_owned(),
        ),
        (
            format!(r#"{{"generationConfig":{{"maxOutputTokens":7}},"contents":[{{"role":"model","parts":[{{"functionCall":{{"name":"f"}},"thoughtSignature":"{wrapped}"}},{{"text":"","thought_signature":"_-8="}}]}}]}}"#),
            r#"{"generationConfig":{"maxOutputTokens":9},"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"},"thoughtSignature":"skip_thought_signature_validator"},{"text":"","thought_signature":"/+8="}]}]}"#.to_owned(),
        ),
    ];
    // A request needs contents, which no edit touches.
    let with_contents = |body: String| match body.strip_suffix('}') {
        Some(front) if !body.contains("contents") => {
            let comma = if front.ends_with('{') { "" } else { "," };
            format!(r#"{front}{comma}"contents":{{"parts":{{"text":"x"}}}}}}"#)
        }
        _ => body,
    };
    for (body, expected) in cases {
        let (body, expected) = (Bytes::from(with_contents(body)), with_contents(expected));
        let facts = NativeDialect.read_facts(&target(false), &body).unwrap();
        let lowered = LaneSettings { max_payable_output: Some(9), ..lane() };
        let out = NativeDialect.patch(&body, &facts, &lowered);
        assert_eq!(String::from_utf8(out.body.to_vec()).unwrap(), expected);
    }
}

#[test]
fn meter_counts_and_repeats_every_chunk() {
    for (name, sse) in fixtures(".stream.sse") {
        let whole = fixtures(".reply.json").into_iter().find(|(own, _)| *own == name).unwrap().1;
        let said = NativeDialect.meter_reply(&whole).unwrap();
        for array in [false, true] {
            let body =
                br#"{"contents":{"parts":{"text":"x"}},"generationConfig":{"candidateCount":1}}"#;
            let mut facts = NativeDialect
                .read_facts(&RequestTarget { json_array: array, ..target(true) }, body)
                .unwrap();
            facts.candidates = if name == "two_answers" { 2 } else { 1 };
            let mut sniffer = NativeDialect.stream_meter(&facts);
            let mut out = Vec::new();
            let pieces = frames(&[&sse]);
            for (at, frame) in pieces.iter().enumerate() {
                let last = array && at + 1 == pieces.len();
                let expected = if last { FrameAction::Last } else { FrameAction::Forward };
                assert_eq!(sniffer.observe(frame), expected, "{name}");
                sniffer.write(frame, &mut out);
            }
            // A second call must not write the end again.
            sniffer.write_end(&mut out);
            assert!(sniffer.totals().is_finished, "{name}");
            assert_eq!(sniffer.totals().usage, said.usage, "{name}");
            assert_eq!(said.usage, NativeDialect.read_reply(&whole).unwrap().usage, "{name}");
            if array {
                let list: Vec<Value> = serde_json::from_slice(&out).expect(&name);
                assert_eq!(list.len(), pieces.len());
            } else {
                // A sparse chunk gets the documented fields, any other is repeated.
                let written = frames(&[&out]);
                assert_eq!(written.len(), pieces.len(), "{name}");
                for (written, piece) in written.iter().zip(&pieces) {
                    let same = written.data == piece.data || written.data.len() > piece.data.len();
                    assert!(same, "{name}: {written:?}");
                }
            }
        }
    }
}

#[test]
fn empty_body_round_trips() {
    let chat = NativeDialect.read_request(&target(false), b"{}").unwrap();
    let (out, losses) = NativeDialect.write_request(&chat, &lane()).unwrap();
    assert_eq!((out.body.to_vec().as_slice(), losses), (b"{}".as_slice(), vec![]));
}

#[test]
fn whole_reply_without_text_or_end_is_complete() {
    let body = br#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]},
        "groundingMetadata":{"webSearchQueries":["q"]},
        "logprobsResult":{"chosenCandidates":[{"token":"x","logProbability":-1}]}}],
        "usageMetadata":{"promptTokenCount":3}}"#;
    let reply = NativeDialect.read_reply(body).unwrap();
    assert_eq!(reply.usage.unwrap().searches, 1);
    let candidate = &reply.candidates[0];
    assert_eq!((candidate.parts.len(), candidate.logprobs.len()), (2, 1));
    assert!(candidate.finish.is_none());
}

#[test]
fn end_marker_of_another_format_is_dropped() {
    let facts =
        NativeDialect.read_facts(&target(true), br#"{"contents":{"parts":{"text":"x"}}}"#).unwrap();
    let done = StreamFrame::data("[DONE]");
    assert_eq!(NativeDialect.stream_meter(&facts).observe(&done), FrameAction::Drop);
    assert!(NativeDialect.stream_reader().push(&done, &mut Vec::new()).is_ok());
}

#[test]
fn broken_stream_is_an_error() {
    let cut = b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\n\n";
    let mut reader = NativeDialect.stream_reader();
    let mut events = Vec::new();
    for frame in frames(&[cut]) {
        reader.push(&frame, &mut events).unwrap();
    }
    assert!(reader.finish(&mut events).is_err());
    let error =
        StreamFrame::data(r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#);
    let fault = reader.push(&error, &mut events).unwrap_err();
    assert_eq!(fault.kind(), canon::ErrorKind::RateLimited);
    let fault = canon::ApiError::new(canon::ErrorKind::Interrupted, "broke");
    let event = String::from_utf8(NativeDialect.write_abort(&fault, "r")).unwrap();
    assert_eq!(
        event,
        "data: {\"error\":{\"code\":503,\"message\":\"broke\",\"status\":\"UNAVAILABLE\"}}\n\n"
    );
}

/// A foreign reply: a thought with its signature, a redacted one, a text, two calls.
fn foreign_answer() -> ChatReply {
    let thought = |text: &str, redacted, token: &str| {
        Part::new(PartKind::Thought(Thought { text: text.to_owned(), redacted }))
            .with_signature(Some(Signature::new(WireFormat::Messages, token)))
    };
    let call = |id: &str| {
        let (id, name) = (id.to_owned(), "f".to_owned());
        Part::new(PartKind::ToolCall(ToolCall {
            id,
            name,
            arguments: "{}".to_owned(),
            custom: false,
        }))
    };
    let parts = vec![
        thought("Let me think.", false, "one"),
        thought("", true, "two"),
        Part::text("Calling."),
        call("toolu_1"),
        call("toolu_2"),
    ];
    let finish = canon::Finish::new(
        FinishReason::ToolCalls,
        canon::RawReason::new(WireFormat::Messages, "tool_use"),
    );
    let candidate =
        canon::ReplyCandidate { parts, finish: Some(finish), ..canon::ReplyCandidate::default() };
    ChatReply { candidates: vec![candidate], ..ChatReply::default() }
}

/// The turn that a client sends back, from a stream or a whole reply.
fn replayed(body: &Value, keep: impl Fn(&Value) -> bool) -> Vec<Part> {
    let parts: Vec<&Value> = body["candidates"][0]["content"]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| keep(p))
        .collect();
    let body = json!({"contents": [{"role": "model", "parts": parts}]}).to_string();
    NativeDialect.read_facts(&target(false), body.as_bytes()).unwrap();
    let chat = NativeDialect.read_request(&target(false), body.as_bytes()).unwrap();
    chat.turns.into_iter().next().unwrap().parts
}

fn seals(parts: &[Part]) -> Vec<(String, bool)> {
    parts
        .iter()
        .filter_map(|part| match (&part.kind, &part.signature) {
            (PartKind::Thought(thought), Some(seal)) => {
                Some((seal.for_format(WireFormat::Messages)?.to_owned(), thought.redacted))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn foreign_signatures_round_trip_shown_or_hidden() {
    let all = [("one".to_owned(), false), ("two".to_owned(), true)];
    for show in [false, true] {
        let mut chat = full_request();
        chat.thinking.display = show.then_some(ThinkingDisplay::Auto);
        let (body, _) = NativeDialect.write_reply(foreign_answer(), &chat, &stamp());
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body.to_string().contains("\"thought\":true"), show, "{body}");
        let whole = replayed(&body, |_| true);
        assert_eq!(seals(&whole), all, "{body}");
        assert_eq!(whole.iter().filter(|p| matches!(p.kind, PartKind::ToolCall(_))).count(), 2);
        // One agent keeps signatures only on calls: the last thought must still come back.
        let calls = replayed(&body, |part| part.get("functionCall").is_some());
        assert_eq!(seals(&calls), all[1..], "{body}");

        let out = stream(foreign_answer(), &chat);
        let parts: Vec<Value> = frames(&[&out])
            .iter()
            .flat_map(|frame| {
                let piece: Value = serde_json::from_slice(&frame.data).unwrap();
                piece["candidates"][0]["content"]["parts"].as_array().unwrap().clone()
            })
            .collect();
        let streamed = json!({"candidates": [{"content": {"parts": parts}}]});
        assert_eq!(seals(&replayed(&streamed, |_| true)), all, "{streamed}");
    }
}

#[test]
fn foreign_history_is_adapted_and_losses_are_noted() {
    let mut turns = vec![Turn::new(Role::User, vec![Part::text("go")])];
    turns.push(Turn::new(Role::Assistant, foreign_answer().candidates.remove(0).parts));
    let result = |call: &str, text: &str, failed| {
        let parts = vec![Part::text(text)];
        let result = canon::ToolResult {
            call_id: call.to_owned(),
            name: None,
            parts,
            object: None,
            is_error: failed,
        };
        Turn::new(Role::User, vec![Part::new(PartKind::ToolResult(result))])
    };
    turns.push(result("toolu_2", "{\"a\":1}", false));
    turns.push(result("toolu_1", "broken", true));
    turns.push(Turn::new(Role::System, vec![Part::text("Be quick.")]));
    let chat = ChatRequest { turns, ..ChatRequest::default() };
    let (out, losses) = NativeDialect.write_request(&chat, &lane()).unwrap();
    let body: Value = serde_json::from_slice(&out.body.to_vec()).unwrap();
    let expected = json!([
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [
            {"text": "Calling."},
            {"functionCall": {"id": "toolu_1", "name": "f", "args": {}},
             "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": {"id": "toolu_2", "name": "f", "args": {}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "toolu_1", "name": "f", "response": {"error": "broken"}}},
            {"functionResponse": {"id": "toolu_2", "name": "f", "response": {"a": 1}}},
            {"text": "<system>Be quick.</system>"},
        ]},
    ]);
    assert_eq!(body["contents"], expected);
    let names: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
    assert_eq!(names, ["turn.system", "thought", "tool_call.seal"]);
}

#[test]
fn a_choice_among_no_tokens_is_left_out_and_told() {
    let mut chat = ChatRequest::default();
    chat.turns.push(Turn::new(Role::User, vec![Part::text("x")]));
    chat.sampling.top_k = Some(0);
    let (out, losses) = NativeDialect.write_request(&chat, &lane()).unwrap();
    assert!(!String::from_utf8(out.body.to_vec()).unwrap().contains("topK"));
    assert_eq!(losses[0].path, "sampling.top_k");
}

#[test]
fn a_result_names_the_function_of_the_call_before_it() {
    let call = |name: &str| {
        let (id, name) = ("call_1".to_owned(), name.to_owned());
        let call = ToolCall { id, name, arguments: "{}".to_owned(), custom: false };
        Turn::new(Role::Assistant, vec![Part::new(PartKind::ToolCall(call))])
    };
    let result = || {
        let (parts, object) = (vec![Part::text("x")], None);
        let call_id = "call_1".to_owned();
        let result = canon::ToolResult { call_id, name: None, parts, object, is_error: false };
        Turn::new(Role::User, vec![Part::new(PartKind::ToolResult(result))])
    };
    let turns = vec![call("f"), result(), call("g"), result()];
    let chat = ChatRequest { turns, ..ChatRequest::default() };
    let (out, _) = NativeDialect.write_request(&chat, &lane()).unwrap();
    let body: Value = serde_json::from_slice(&out.body.to_vec()).unwrap();
    let name = |turn: usize| &body["contents"][turn]["parts"][0]["functionResponse"]["name"];
    assert_eq!((name(1), name(3)), (&json!("f"), &json!("g")));
}

#[test]
fn instructions_before_the_first_model_turn_become_the_system_instruction() {
    let turn = |role, text: &str| Turn::new(role, vec![Part::text(text)]);
    let turns = vec![
        turn(Role::System, "Be kind."),
        turn(Role::User, "Where is Paris?"),
        turn(Role::System, "Today is Monday."),
        turn(Role::Assistant, "In France."),
        turn(Role::System, "Be brief."),
        turn(Role::User, "And Rome?"),
    ];
    let chat = ChatRequest { turns, ..ChatRequest::default() };
    let (out, losses) = NativeDialect.write_request(&chat, &lane()).unwrap();
    let names: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
    assert_eq!(names, ["turn.system"]);
    let body: Value = serde_json::from_slice(&out.body.to_vec()).unwrap();
    let text = |text: &str| json!({"text": text});
    let instructions = json!([text("Be kind."), text("Today is Monday.")]);
    assert_eq!(body["systemInstruction"]["parts"], instructions);
    let expected = json!([
        {"role": "user", "parts": [text("Where is Paris?")]},
        {"role": "model", "parts": [text("In France.")]},
        {"role": "user", "parts": [text("<system>Be brief.</system>"), text("And Rome?")]},
    ]);
    assert_eq!(body["contents"], expected);
}

#[test]
fn signature_bypass_is_sent_only_to_gemini_models() {
    let body = br#"{"contents":[{"role":"user","parts":[{"text":"go"}]},{"role":"model","parts":
        [{"functionCall":{"name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"}]},
        {"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}]}"#;
    let chat = NativeDialect.read_request(&target(false), body).unwrap();
    for (model, there) in [("google/gemini-3-flash", true), ("gpt-5.5", false)] {
        let lane = LaneSettings { model, ..lane() };
        let (out, _) = crate::chat::ChatDialect.write_request(&chat, &lane).unwrap();
        let body = String::from_utf8(out.body.to_vec()).unwrap();
        assert_eq!(body.contains(signatures::BYPASS_SIGNATURE), there, "{model}: {body}");
    }
}

#[test]
fn unknown_fields_of_code_come_back() {
    let body = json!({"contents": [{"role": "model", "parts": [
        {"executableCode": {"language": "PYTHON", "code": "1", "new": 1}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "new": 2}},
    ]}]});
    let chat = NativeDialect.read_request(&target(false), body.to_string().as_bytes()).unwrap();
    let (out, _) = NativeDialect.write_request(&chat, &lane()).unwrap();
    let written: Value = serde_json::from_slice(&out.body.to_vec()).unwrap();
    assert_eq!(written, body);
}

#[test]
fn signature_is_read_in_either_alphabet() {
    let body =
        br#"{"contents":[{"role":"model","parts":[{"text":"x","thoughtSignature":"_-8="}]}]}"#;
    let chat = NativeDialect.read_request(&target(false), body).unwrap();
    assert_eq!(chat.turns[0].parts[0].signature, Some(Signature::new(ORIGIN, "/+8=")));
    let (out, _) = NativeDialect.write_request(&chat, &lane()).unwrap();
    assert!(String::from_utf8(out.body.to_vec()).unwrap().contains(r#""thoughtSignature":"/+8=""#));
}

#[test]
fn invalid_arguments_end_the_reply_as_malformed() {
    let place = PartIndex::first(0);
    let opening = PartStart::ToolCall { id: "c".to_owned(), name: "f".to_owned(), custom: false };
    let finish = canon::Finish::new(
        FinishReason::ToolCalls,
        canon::RawReason::new(WireFormat::Chat, "tool_calls"),
    );
    let events = [
        Event::Start { id: None, model: None, created: None },
        Event::PartStart(place, opening),
        Event::PartDelta(place, PartDelta::Text("{\"a\":".to_owned())),
        Event::PartEnd(place),
        Event::Finish { candidate: 0, finish },
    ];
    let mut writer = NativeDialect.stream_writer(&full_request(), &stamp());
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    let losses = writer.finish(&mut out);
    assert!(String::from_utf8(out).unwrap().contains("MALFORMED_FUNCTION_CALL"));
    assert_eq!(losses[0].path, "tool_call.arguments");
}
