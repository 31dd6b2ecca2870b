//! A provider that ignores its output limit: the answer ends well-formed in every format when the
//! hold is used up, and no cap is exceeded.

use serde_json::{Value, json};
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_stream, sse};

use crate::money::{capped, receipt};

const FORMATS: [&str; 4] = ["chat", "messages", "responses", "native"];
const WORDS: &str = "and on and on it goes ";

/// The first events of a provider of that format that never ends its stream.
fn opening(speaks: &str) -> Vec<String> {
    let events = match speaks {
        "chat" => return chat_stream(&["Well, "], 9, 9).drain(..2).collect(),
        "messages" => vec![
            json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
                "role": "assistant", "model": "up", "content": [], "stop_reason": null,
                "usage": { "input_tokens": 9, "output_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "" } }),
        ],
        "responses" => vec![
            json!({ "type": "response.created", "sequence_number": 0, "response": { "id": "resp_1",
                "object": "response", "created_at": 1, "status": "in_progress", "model": "up",
                "output": [] } }),
            json!({ "type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
                "item": { "id": "msg_1", "type": "message", "role": "assistant",
                          "status": "in_progress", "content": [] } }),
            json!({ "type": "response.content_part.added", "sequence_number": 2, "item_id": "msg_1",
                "output_index": 0, "content_index": 0,
                "part": { "type": "output_text", "text": "", "annotations": [] } }),
        ],
        _ => vec![],
    };
    events.iter().map(ToString::to_string).collect()
}

fn more(speaks: &str, at: usize) -> String {
    match speaks {
        "chat" => json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": "up", "choices": [{ "index": 0, "delta": { "content": WORDS },
            "finish_reason": null }], "usage": null }),
        "messages" => json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "text_delta", "text": WORDS } }),
        "responses" => json!({ "type": "response.output_text.delta", "sequence_number": at + 3,
            "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": WORDS }),
        _ => json!({ "candidates": [{ "index": 0,
            "content": { "role": "model", "parts": [{ "text": WORDS }] } }] }),
    }
    .to_string()
}

/// Says far more than it was allowed to, and then never ends: only a gateway that lets it go has an
/// answer for its caller.
async fn endless(speaks: &str) -> ScriptedProvider {
    let mut events = opening(speaks);
    events.extend((0..2_000).map(|at| more(speaks, at)));
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let mut steps = sse(&events);
    *steps.last_mut().unwrap() = AnswerStep::Wait(Duration::from_secs(600));
    ScriptedProvider::start(vec![steps]).await
}

fn ask(caller: &str) -> (&'static str, Value) {
    let said = json!([{ "role": "user", "content": "Go" }]);
    match caller {
        "chat" => (
            "/v1/chat/completions",
            json!({ "model": "m", "max_tokens": 5000, "stream": true, "messages": said }),
        ),
        "messages" => (
            "/v1/messages",
            json!({ "model": "m", "max_tokens": 5000, "stream": true, "messages": said }),
        ),
        "responses" => (
            "/v1/responses",
            json!({ "model": "m", "max_output_tokens": 5000, "stream": true, "input": "Go" }),
        ),
        _ => (
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "Go" }] }],
                    "generationConfig": { "maxOutputTokens": 5000 } }),
        ),
    }
}

/// The text a caller of that format was given, if the stream ended as one at its limit does.
fn ended(caller: &str, events: &[String]) -> Option<String> {
    let parsed: Vec<Value> =
        events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let text = |pointer: &str| -> String {
        parsed.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
    };
    let last = parsed.last()?;
    match caller {
        "chat" => {
            let lengthy =
                parsed.iter().filter(|event| event["choices"][0]["finish_reason"] == "length");
            (lengthy.count() == 1 && events.last()? == "[DONE]")
                .then(|| text("/choices/0/delta/content"))
        }
        "messages" => {
            let stops = parsed.iter().filter(|event| event["type"] == "content_block_stop").count();
            let why = parsed.iter().find(|event| event["type"] == "message_delta")?;
            (stops == 1
                && why["delta"]["stop_reason"] == "max_tokens"
                && last["type"] == "message_stop")
                .then(|| text("/delta/text"))
        }
        "responses" => {
            let text = text("/delta");
            let whole = &last["response"]["output"][0]["content"][0]["text"];
            (last["type"] == "response.incomplete"
                && last["response"]["status"] == "incomplete"
                && last["response"]["incomplete_details"]["reason"] == "max_output_tokens"
                && *whole == json!(text))
            .then_some(text)
        }
        _ => (last["candidates"][0]["finishReason"] == "MAX_TOKENS")
            .then(|| text("/candidates/0/content/parts/0/text")),
    }
}

#[tokio::test]
async fn an_answer_without_end_ends_at_its_money_in_every_format() {
    for lane in FORMATS {
        let provider = endless(lane).await;
        let gateway = TestGateway::with_config(&provider.config(lane)).await;
        for caller in FORMATS {
            // Enough for a small answer; the limit is lowered to fit.
            let key = capped(&gateway, "0.0003").await;
            let (path, body) = ask(caller);
            let got = gateway.post(path, &body).key(&key).send().await;
            assert_eq!(
                (got.status.as_u16(), got.is_truncated),
                (200, false),
                "{caller} from {lane}"
            );
            let text = ended(caller, &got.events());
            let text = text.unwrap_or_else(|| panic!("{caller} from {lane}: {}", got.text()));
            assert!(text.contains(WORDS) && text.len() < 2_000 * WORDS.len(), "{caller}/{lane}");

            let path = format!("/v1/usage/{}", got.header("x-request-id"));
            let told = gateway.get(&path).key(&key).send().await.json();
            assert_eq!(told["outcome"], "done", "{told}");
            assert_eq!((&told["ended_by"], &told["estimated"]), (&json!("cap"), &json!(true)));
            let key = gateway.get("/v1/key").key(&key).send().await.json();
            let spent: f64 = key["spent_usd"].as_str().unwrap().parse().unwrap();
            assert!(spent > 0.0 && spent <= 0.0003, "{caller} from {lane}: {key}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_passes_its_own_limit_ends_too_where_there_is_no_cap() {
    let provider = endless("chat").await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body = json!({ "model": "m", "max_tokens": 20, "stream": true,
                       "stream_options": { "include_usage": true },
                       "messages": [{ "role": "user", "content": "Go" }] });
    let got = gateway.post("/v1/chat/completions", &body).send().await;
    assert!(ended("chat", &got.events()).is_some(), "{}", got.text());
    let usage = got.events().iter().any(|event| event.contains("\"completion_tokens\""));
    assert!(usage, "who asks for its usage is told it: {}", got.text());
    let told = receipt(&gateway, &got).await;
    assert_eq!(told["ended_by"], "limit", "{told}");
}
