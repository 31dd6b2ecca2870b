//! JSON of a stream, as a client puts it together, and of the whole reply: the same items and counts.

use ::bytes::Bytes;
use canon::{WireFormat, into_events};
use dialects::{FrameAction, RequestFacts};
use serde_json::{Value, json};

use crate::cases::{answers, events, frames, full_request, stamp, stream};
use crate::clients::{list, text};
use crate::endings::sse;

fn json_events(stream: &[u8]) -> Vec<Value> {
    frames(&[stream]).iter().filter_map(|frame| serde_json::from_slice(&frame.data).ok()).collect()
}

/// Returns the kinds of the items of a response, and those of their parts. An item that only carries
/// a signature may stand elsewhere; `seals` tests where.
fn items(response: &Value) -> Vec<(String, Vec<String>)> {
    let kind = |value: &Value| text(value, "type").to_owned();
    list(&response["output"])
        .iter()
        .filter(|item| item["type"] != "reasoning" || !list(&item["summary"]).is_empty())
        .map(|item| (kind(item), list(&item["content"]).iter().map(kind).collect()))
        .collect()
}

/// Returns a message whose middle block no other format has.
fn lost_between_texts() -> Vec<u8> {
    let said = |text: &str| json!({"type": "text", "text": text, "citations": null});
    let lost = json!({"type": "brand_new_block", "payload": "x"});
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [said("before"), lost.clone(), lost, said("after")],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 2}})
    .to_string()
    .into_bytes()
}

#[test]
fn a_responses_stream_has_the_items_of_the_whole_response() {
    let from = dialects::get(WireFormat::Responses).unwrap();
    for to in dialects::all().filter(|to| to.origin() != WireFormat::Responses) {
        let fixtures = answers(to).into_iter().map(|answer| (answer.name, answer.whole));
        let own = (to.origin() == WireFormat::Messages)
            .then(|| ("lost between texts".to_owned(), lost_between_texts()));
        for (name, body) in fixtures.chain(own) {
            let case = format!("{}/{name}", to.origin());
            let reply = to.read_reply(&body).expect(&case);
            let (whole, _) = from.write_reply(reply.clone(), &full_request(), &stamp());
            let whole: Value = serde_json::from_slice(&whole).expect(&case);
            let (out, _) = stream(from, &full_request(), into_events(reply));
            let last = json_events(&out).pop().expect(&case);
            assert_eq!(items(&last["response"]), items(&whole), "{case}");
        }
    }
}

#[test]
fn counts_at_the_end_of_a_responses_stream_are_completed_as_those_of_a_whole_response() {
    let response = |status: &str, usage: Value| {
        json!({"id": "r", "object": "response", "created_at": 7, "status": status,
            "model": "theirs", "output": [], "error": null, "incomplete_details": null,
            "instructions": null, "metadata": {}, "parallel_tool_calls": true,
            "tool_choice": "auto", "tools": [], "usage": usage})
    };
    let sparse = json!({"input_tokens": 9, "output_tokens": 1, "total_tokens": 10});
    let whole = response("completed", sparse);
    let begun = json!({"type": "response.created", "sequence_number": 0,
        "response": response("in_progress", Value::Null)});
    let ended = json!({"type": "response.completed", "sequence_number": 1, "response": whole});
    let streamed = sse(&[("response.created", begun), ("response.completed", ended)]);
    let dialect = dialects::get(WireFormat::Responses).unwrap();
    // The first event of a stream needs no change if the provider has the selected name.
    for selected in ["theirs", "selected"] {
        let facts =
            RequestFacts { model: selected.to_owned(), candidates: 1, ..RequestFacts::default() };
        let body = Bytes::from(whole.to_string());
        let whole = dialect.complete_reply(&body, &facts, &stamp());
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let mut meter = dialect.stream_meter(&RequestFacts { stream: true, ..facts });
        let mut out = Vec::new();
        for frame in frames(&[&streamed]) {
            assert!(!matches!(meter.observe(&frame), FrameAction::Error(_)), "{selected}");
            meter.write(&frame, &mut out);
        }
        assert_eq!(json_events(&out).pop().unwrap()["response"], whole, "{selected}");
    }
}

#[test]
fn a_chunk_before_the_answer_does_not_start_it() {
    let chat = dialects::get(WireFormat::Chat).unwrap();
    let preface = json!({"id": "", "object": "", "created": 0, "model": "", "choices": [],
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]});
    for answer in answers(chat) {
        let expected = events(chat, &answer.stream, &answer.name);
        let late = [sse(&[("", preface.clone())]), answer.stream.clone()].concat();
        assert_eq!(events(chat, &late, &answer.name), expected, "{}", answer.name);
    }
}

/// Merges the counts of the events as clients do: later ones replace earlier ones.
fn merged_usage(stream: &[u8]) -> Value {
    let mut merged = json!({});
    for event in json_events(stream) {
        let usage = [&event["message"]["usage"], &event["usage"]];
        for (name, value) in usage.into_iter().filter_map(Value::as_object).flatten() {
            merged[name] = value.clone();
        }
    }
    merged
}

#[test]
fn a_messages_stream_ends_with_the_usage_of_the_whole_message() {
    let from = dialects::get(WireFormat::Messages).unwrap();
    for to in dialects::all().filter(|to| to.origin() != WireFormat::Messages) {
        for answer in answers(to) {
            let case = format!("{}/{}", to.origin(), answer.name);
            let reply = to.read_reply(&answer.whole).expect(&case);
            let (whole, _) = from.write_reply(reply, &full_request(), &stamp());
            let whole: Value = serde_json::from_slice(&whole).expect(&case);
            let read = events(to, &answer.stream, &case);
            let (out, _) = stream(from, &full_request(), read);
            assert_eq!(merged_usage(&out), whole["usage"], "{case}");
        }
    }
}
