//! Single mappings between formats that once were wrong.

use canon::{CacheField, ChatRequest, WireFormat};
use dialects::{Dialect, LaneSettings};
use serde_json::{Value, json};

use crate::cases::{LANE, events, frames, stamp, stream, target};

fn dialect(origin: WireFormat) -> &'static dyn Dialect {
    dialects::get(origin).unwrap()
}

fn read(origin: WireFormat, body: &Value) -> ChatRequest {
    dialect(origin).read_request(&target(), body.to_string().as_bytes()).unwrap()
}

/// Returns the body for a lane and the paths of the losses.
fn written(chat: &ChatRequest, to: WireFormat, lane: &LaneSettings<'_>) -> (Value, Vec<String>) {
    let (request, losses) = dialect(to).write_request(chat, lane).unwrap();
    let body = serde_json::from_slice(&request.body.to_vec()).unwrap();
    (body, losses.into_iter().map(|loss| loss.path).collect())
}

/// Translates a whole reply of a chat provider for a native caller.
fn native_reply(reply: &Value, chat: &ChatRequest) -> Value {
    let read = dialect(WireFormat::Chat).read_reply(reply.to_string().as_bytes()).unwrap();
    let (body, _) = dialect(WireFormat::Native).write_reply(read, chat, &stamp());
    serde_json::from_slice(&body).unwrap()
}

fn chat_reply(message: &Value, usage: &Value) -> Value {
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
}

fn native_request(config: &Value) -> ChatRequest {
    let contents = json!([{"role": "user", "parts": [{"text": "Is it?"}]}]);
    read(WireFormat::Native, &json!({"contents": contents, "generationConfig": config}))
}

#[test]
fn json_without_a_schema_is_asked_for_on_messages_lanes() {
    let chat = native_request(&json!({"responseMimeType": "application/json"}));
    let (body, losses) = written(&chat, WireFormat::Messages, &LANE);
    assert!(body["system"].to_string().contains("JSON"), "{body}");
    assert_eq!(losses, ["format.json"]);
}

#[test]
fn an_enum_is_an_object_for_other_formats_and_a_bare_word_for_the_caller() {
    for schema in ["responseSchema", "responseJsonSchema"] {
        let kind = if schema == "responseSchema" { "STRING" } else { "string" };
        let mut config = json!({"responseMimeType": "text/x.enum"});
        config[schema] = json!({"type": kind, "enum": ["yes", "no"]});
        let chat = native_request(&config);
        for (to, path) in [
            (WireFormat::Chat, "/response_format/json_schema/schema"),
            (WireFormat::Responses, "/text/format/schema"),
            (WireFormat::Messages, "/output_config/format/schema"),
        ] {
            let (body, losses) = written(&chat, to, &LANE);
            let root = body.pointer(path).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(root["type"], "object", "{body}");
            assert_eq!(root["properties"]["value"]["enum"], json!(["yes", "no"]), "{body}");
            assert!(losses.is_empty(), "{to}: {losses:?}");
        }
        // A provider of the caller's format is asked as the caller asked.
        let (body, _) = written(&chat, WireFormat::Native, &LANE);
        assert_eq!(body["generationConfig"], config);

        for said in [r#"{"value":"yes"}"#, r#""yes""#, "yes", "{\n \"value\": \"yes\"\n}"] {
            let whole = chat_reply(&json!({"role": "assistant", "content": said}), &json!({}));
            let reply = native_reply(&whole, &chat);
            assert_eq!(reply["candidates"][0]["content"]["parts"], json!([{"text": "yes"}]));

            let (front, back) = said.split_at(2);
            let chunk = |delta: Value, finish: Value| {
                let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
                format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
            };
            let sse = [
                chunk(json!({"role": "assistant", "content": front}), Value::Null),
                chunk(json!({"content": back}), Value::Null),
                chunk(json!({}), json!("stop")),
                "data: [DONE]\n\n".to_owned(),
            ]
            .concat();
            let list = events(dialect(WireFormat::Chat), sse.as_bytes(), said);
            let (out, _) = stream(dialect(WireFormat::Native), &chat, list);
            let chunks = frames(&[&out]);
            let chunks = chunks.iter().map(|f| serde_json::from_slice::<Value>(&f.data).unwrap());
            let text: String = chunks
                .flat_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array().cloned())
                .flatten()
                .map(|part| part["text"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(text, "yes", "{said}");
        }
    }
}

#[test]
fn grounding_has_no_empty_lists_beside_its_sources() {
    let note = json!({"type": "url_citation", "url_citation": {"url": "https://a.example/",
        "title": "A", "start_index": 0, "end_index": 5}});
    let message = json!({"role": "assistant", "content": "Seven.", "annotations": [note]});
    let reply = native_reply(&chat_reply(&message, &json!({})), &ChatRequest::default());
    let grounding = &reply["candidates"][0]["groundingMetadata"];
    assert_eq!(grounding["groundingSupports"][0]["groundingChunkIndices"], json!([0]));
    assert_eq!(grounding["groundingSupports"][0].get("confidenceScores"), None);
    assert_eq!(grounding.get("webSearchQueries"), None);
}

#[test]
fn video_is_counted_as_video() {
    let usage = json!({"prompt_tokens": 300, "completion_tokens": 2, "total_tokens": 302,
        "prompt_tokens_details": {"video_tokens": 258}});
    let message = json!({"role": "assistant", "content": "A cat."});
    let reply = native_reply(&chat_reply(&message, &usage), &ChatRequest::default());
    let details = json!([{"modality": "TEXT", "tokenCount": 42},
                         {"modality": "VIDEO", "tokenCount": 258}]);
    assert_eq!(reply["usageMetadata"]["promptTokensDetails"], details);

    let read = dialect(WireFormat::Native).read_reply(reply.to_string().as_bytes()).unwrap();
    assert_eq!(read.usage.unwrap().input_video, 258);
    let (body, _) = dialect(WireFormat::Chat).write_reply(read, &ChatRequest::default(), &stamp());
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["usage"]["prompt_tokens_details"]["video_tokens"], 258);
}

#[test]
fn a_native_candidate_has_its_tokens_and_a_list_of_ratings() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12,
        "completion_tokens_details": {"reasoning_tokens": 4}});
    let message = json!({"role": "assistant", "content": "A cat."});
    let reply = native_reply(&chat_reply(&message, &usage), &ChatRequest::default());
    assert_eq!(reply["candidates"][0]["tokenCount"], 5);
    assert_eq!(reply["candidates"][0]["safetyRatings"], json!([]));
}

#[test]
fn cache_breakpoints_go_to_chat_providers_that_take_them() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let text = |words: &str| json!({"type": "text", "text": words, "cache_control": mark});
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "7",
                        "cache_control": mark});
    let body = json!({"model": "m", "max_tokens": 9, "system": [text("Be brief.")], "messages": [
        {"role": "user", "content": [text("Go.")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [result, text("And?")]}]});
    let chat = read(WireFormat::Messages, &body);
    let lane = |cache_field| LaneSettings { cache_field, ..LANE };
    let (sent, losses) = written(&chat, WireFormat::Chat, &lane(None));
    assert!(!sent.to_string().contains("cache"), "{sent}");
    assert_eq!(sent["messages"][0]["content"], "Be brief.");
    assert_eq!(losses, ["part.cache"]);

    let own = Some(CacheField::PromptCacheBreakpoint);
    let (sent, losses) = written(&chat, WireFormat::Chat, &lane(own));
    let found = sent.to_string().matches(r#""prompt_cache_breakpoint":{"mode":"explicit""#).count();
    assert_eq!((found, losses.len()), (4, 0), "{sent}");

    let (sent, _) = written(&chat, WireFormat::Chat, &lane(Some(CacheField::CacheControl)));
    let mark = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
    assert_eq!(sent.to_string().matches(mark).count(), 4, "{sent}");
}

#[test]
fn log_probabilities_of_a_refusal_are_carried_or_told() {
    let token = json!({"token": "No", "logprob": -0.5, "bytes": [78, 111], "top_logprobs": []});
    let mut whole = chat_reply(&json!({"role": "assistant", "refusal": "No"}), &json!({}));
    whole["choices"][0]["logprobs"] = json!({"content": null, "refusal": [token]});
    let chat = ChatRequest {
        sampling: canon::SamplingOptions { logprobs: Some(0), ..canon::SamplingOptions::default() },
        ..ChatRequest::default()
    };
    for caller in dialects::all() {
        let reply = dialect(WireFormat::Chat).read_reply(whole.to_string().as_bytes()).unwrap();
        let list = canon::into_events(reply.clone());
        let (body, losses) = caller.write_reply(reply, &chat, &stamp());
        let (streamed, stream_losses) = stream(caller, &chat, list);
        let is_told = |losses: &[canon::Loss]| losses.iter().any(|l| l.path == "reply.logprobs");
        let is_carried = |body: &[u8]| String::from_utf8_lossy(body).contains("-0.5");
        assert!(is_told(&losses) != is_carried(&body), "{}", caller.origin());
        assert!(is_told(&stream_losses) != is_carried(&streamed), "{}", caller.origin());
    }
}
