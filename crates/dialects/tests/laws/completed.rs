//! Pass-through replies: they have the documented fields and the selected model, and keep the
//! provider's bytes apart from that.

use ::bytes::Bytes;
use canon::WireFormat;
use dialects::{FrameAction, RequestFacts};
use serde_json::{Value, json};

use crate::cases::{answers, frames, stamp};

/// Returns the facts of a call that selected the model `selected`.
fn facts() -> RequestFacts {
    RequestFacts {
        model: "selected".to_owned(),
        wants_usage: true,
        candidates: 1,
        ..RequestFacts::default()
    }
}

/// Returns the smallest reply of a provider, and the documented one.
fn smallest(format: WireFormat) -> (Value, Value) {
    match format {
        WireFormat::Chat => (
            json!({"choices": [{"finish_reason": "stop", "message": {"content": "Hi"}}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}),
            json!({"id": "chatcmpl-stamp", "object": "chat.completion", "created": 1_790_000_000,
                "model": "selected",
                "choices": [{"index": 0, "logprobs": null, "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "Hi", "refusal": null}}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2,
                    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
                        "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}}}),
        ),
        WireFormat::Messages => (
            json!({"model": "theirs", "content": [], "stop_reason": "end_turn",
                "usage": {"input_tokens": 1, "output_tokens": 1}}),
            json!({"id": "msg_stamp", "type": "message", "role": "assistant", "model": "selected",
                "content": [], "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": 1,
                    "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}),
        ),
        WireFormat::Responses => (
            json!({"status": "completed", "model": "theirs", "output": [],
                "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}),
            json!({"id": "resp_stamp", "object": "response", "created_at": 1_790_000_000,
                "status": "completed", "model": "selected", "output": [], "error": null,
                "incomplete_details": null, "instructions": null, "metadata": {},
                "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
                "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0}}}),
        ),
        WireFormat::Native => (
            json!({"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 1}}),
            json!({"candidates": [{"index": 0, "finishReason": "STOP",
                    "content": {"role": "model", "parts": [{"text": "Hi"}]}}],
                "usageMetadata": {"promptTokenCount": 1, "trafficType": "ON_DEMAND"},
                "modelVersion": "selected", "createTime": "2026-09-21T14:13:20Z",
                "responseId": "stamp"}),
        ),
        WireFormat::Images => panic!("images are no conversation"),
    }
}

#[test]
fn smallest_reply_gets_its_documented_fields() {
    for dialect in dialects::all() {
        let (sparse, documented) = smallest(dialect.origin());
        let body = Bytes::from(sparse.to_string());
        let out = dialect.complete_reply(&body, &facts(), &stamp());
        let out: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(out, documented, "{}", dialect.origin());
    }
}

#[test]
fn reply_names_the_selected_model_and_keeps_its_bytes() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let body = Bytes::from(answer.whole.clone());
            let out = dialect.complete_reply(&body, &facts(), &stamp());
            let before: Value = serde_json::from_slice(&body).expect(&case);
            let after: Value = serde_json::from_slice(&out).expect(&case);
            if dialect.origin() != WireFormat::Native {
                assert_eq!(after["model"], "selected", "{case}");
            }
            assert!(contains(&after, &before), "{case}\n{after}\n{before}");
            let again = dialect.complete_reply(&out, &facts(), &stamp());
            assert_eq!(again, out, "{case}");
        }
    }
}

/// Changes every string and number of a value.
fn change_values(value: &mut Value) {
    match value {
        Value::String(text) => text.push_str(" \"ü\" more"),
        Value::Number(number) => *value = json!(number.as_u64().unwrap_or_default() / 3 + 7),
        Value::Array(items) => items.iter_mut().for_each(change_values),
        Value::Object(fields) => fields.values_mut().for_each(change_values),
        Value::Null | Value::Bool(_) => {}
    }
}

#[test]
fn reply_with_a_known_structure_is_completed_and_metered_like_any_other() {
    for dialect in dialects::all() {
        let known = answers(dialect).into_iter().map(|answer| Bytes::from(answer.whole));
        let known: Vec<Bytes> =
            known.chain([smallest(dialect.origin()).0.to_string().into()]).collect();
        let pass = |body: &Bytes| format!("{:?}", dialect.pass_reply(body, &facts(), &stamp()));
        for body in &known {
            let mut changed: Value = serde_json::from_slice(body).unwrap();
            // The known one has the same spaces between its tokens.
            let body = Bytes::from(changed.to_string());
            change_values(&mut changed);
            let changed = Bytes::from(changed.to_string());
            // A new thread knows no structures.
            let expected =
                std::thread::scope(|scope| scope.spawn(|| pass(&changed)).join()).unwrap();
            pass(&body);
            assert_eq!(pass(&changed), expected, "{body:?}");
        }
    }
}

/// Returns true if a value has all of another one, apart from the model.
fn contains(all: &Value, some: &Value) -> bool {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => some
            .iter()
            .all(|(name, value)| name == "model" || value.is_null() || contains(&all[name], value)),
        (Value::Array(all), Value::Array(some)) => {
            all.len() == some.len() && all.iter().zip(some).all(|(all, some)| contains(all, some))
        }
        _ => all == some,
    }
}

#[test]
fn stream_names_the_selected_model_in_every_event() {
    for dialect in dialects::all() {
        for answer in answers(dialect) {
            let case = format!("{}/{}", dialect.origin(), answer.name);
            let mut meter = dialect.stream_meter(&RequestFacts { stream: true, ..facts() });
            let mut out = Vec::new();
            for frame in frames(&[&answer.stream]) {
                match meter.observe(&frame) {
                    FrameAction::Forward | FrameAction::Last => meter.write(&frame, &mut out),
                    FrameAction::Drop => {}
                    FrameAction::Error(error) => panic!("{case}: {error}"),
                }
            }
            let (written, sent) = (frames(&[&out]), frames(&[&answer.stream]));
            for (written, sent) in written.iter().zip(&sent) {
                let Ok(after) = serde_json::from_slice::<Value>(&written.data) else { continue };
                let before: Value = serde_json::from_slice(&sent.data).expect(&case);
                assert_eq!(written.event, sent.event, "{case}");
                for event in [&after, &after["message"], &after["response"]] {
                    let named = event.get("model");
                    assert!(named.is_none_or(|model| model == "selected"), "{case}\n{after}");
                }
                let holds = |name: &str| contains(&after[name], &before[name]);
                let nested = ["message", "response"].into_iter().all(holds);
                assert!(nested && contains(&after, &before), "{case}\n{after}\n{before}");
            }
        }
    }
}

#[test]
fn counts_at_the_end_of_a_chat_stream_get_their_details() {
    let stream = br#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"theirs","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"theirs","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}

data: [DONE]

"#;
    let dialect = dialects::get(WireFormat::Chat).unwrap();
    let mut meter =
        dialect.stream_meter(&RequestFacts { stream: true, wants_usage: true, ..facts() });
    let mut out = Vec::new();
    for frame in frames(&[stream]) {
        meter.observe(&frame);
        meter.write(&frame, &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    let last = text.lines().find(|line| line.contains("\"usage\"")).expect("counts");
    let last: Value = serde_json::from_str(last.trim_start_matches("data: ")).unwrap();
    assert_eq!(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 0, "{text}");
    assert_eq!(last["model"], "selected", "{text}");
}
