//! Reported service tiers and usage in each of the four formats, whole and streamed, and the
//! charges: the tier that served the call, and counts that no context window of that size can
//! hold.

use ledger::{CallOutcome, EndedBy};
use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_stream, reply, sse};

use crate::money::{receipt, row};

const FORMATS: [&str; 4] = ["chat", "messages", "responses", "native"];
const SAID: &str = "A quiet harbour.";

/// A hundred tokens in and thirty out, in millionths of a dollar: 160 at the plain prices.
const TIERS: [(&str, &str); 4] = [
    ("standard", "0.000160000"),
    ("flex", "0.000080000"),
    ("priority", "0.000320000"),
    ("batch", "0.000040000"),
];
const PRICES: &str = r#"
price = { input = "1.00", output = "2.00",
  flex = { rates = { input = "0.50", output = "1.00" } },
  batch = { rates = { input = "0.25", output = "0.50" } },
  priority = { rates = { input = "2.00", output = "4.00" } } }
"#;

/// That format's word for a tier, if it has one.
fn word(speaks: &str, tier: &str) -> Option<&'static str> {
    match (speaks, tier) {
        ("chat" | "responses", "standard") => Some("default"),
        ("chat" | "responses", "flex") => Some("flex"),
        ("chat" | "responses" | "messages", "priority") => Some("priority"),
        ("messages", "standard") => Some("standard"),
        ("messages", "batch") => Some("batch"),
        ("native", "standard") => Some("ON_DEMAND"),
        ("native", "flex") => Some("ON_DEMAND_FLEX"),
        ("native", "priority") => Some("ON_DEMAND_PRIORITY"),
        _ => None,
    }
}

/// A provider's answer in its format.
fn says(speaks: &str, stream: bool, tier: &str, input: u64, output: u64) -> Vec<AnswerStep> {
    let whole = |body: &Value| reply(200, "application/json", &body.to_string());
    let events = |events: &[Value]| {
        let events: Vec<String> = events.iter().map(ToString::to_string).collect();
        sse(&events.iter().map(String::as_str).collect::<Vec<_>>())
    };
    match (speaks, stream) {
        ("chat", false) => whole(&json!({ "id": "chatcmpl-1", "object": "chat.completion",
            "created": 1, "model": "up", "service_tier": tier,
            "choices": [{ "index": 0, "finish_reason": "stop",
                          "message": { "role": "assistant", "content": SAID } }],
            "usage": { "prompt_tokens": input, "completion_tokens": output,
                       "total_tokens": input + output } })),
        ("chat", true) => {
            let pieces = chat_stream(&[SAID], input, output);
            let told = pieces.iter().map(|piece| match serde_json::from_str::<Value>(piece) {
                Ok(mut chunk) => {
                    chunk["service_tier"] = tier.into();
                    chunk.to_string()
                }
                Err(_) => piece.clone(),
            });
            let told: Vec<String> = told.collect();
            sse(&told.iter().map(String::as_str).collect::<Vec<_>>())
        }
        ("messages", false) => whole(&json!({ "id": "msg_1", "type": "message",
            "role": "assistant", "model": "up", "content": [{ "type": "text", "text": SAID }],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": { "input_tokens": input, "output_tokens": output, "service_tier": tier } })),
        ("messages", true) => events(&[
            json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
                "role": "assistant", "model": "up", "content": [], "stop_reason": null,
                "usage": { "input_tokens": input, "output_tokens": 1, "service_tier": tier } } }),
            json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": SAID } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta",
                "delta": { "stop_reason": "end_turn", "stop_sequence": null },
                "usage": { "output_tokens": output } }),
            json!({ "type": "message_stop" }),
        ]),
        ("responses", _) => {
            let item = json!({ "id": "msg_1", "type": "message", "role": "assistant",
                "status": "completed",
                "content": [{ "type": "output_text", "text": SAID, "annotations": [] }] });
            let response = json!({ "id": "resp_1", "object": "response", "created_at": 1,
                "status": "completed", "model": "up", "service_tier": tier, "output": [item],
                "usage": { "input_tokens": input, "output_tokens": output,
                           "total_tokens": input + output } });
            if !stream {
                return whole(&response);
            }
            let mut begun = response.clone();
            begun["status"] = "in_progress".into();
            begun["output"] = json!([]);
            begun["usage"] = Value::Null;
            begun["service_tier"] = "auto".into();
            let mut opened = item.clone();
            opened["content"] = json!([]);
            opened["status"] = "in_progress".into();
            let at = json!({ "item_id": "msg_1", "output_index": 0, "content_index": 0 });
            let piece = |kind: &str, number: u64, more: Value| {
                let mut event = at.clone();
                event["type"] = kind.into();
                event["sequence_number"] = number.into();
                for (name, value) in more.as_object().unwrap() {
                    event[name] = value.clone();
                }
                event
            };
            let part =
                |text: &str| json!({ "type": "output_text", "text": text, "annotations": [] });
            events(&[
                json!({ "type": "response.created", "sequence_number": 0, "response": begun }),
                json!({ "type": "response.output_item.added", "sequence_number": 1,
                        "output_index": 0, "item": opened }),
                piece("response.content_part.added", 2, json!({ "part": part("") })),
                piece("response.output_text.delta", 3, json!({ "delta": SAID })),
                piece("response.output_text.done", 4, json!({ "text": SAID })),
                piece("response.content_part.done", 5, json!({ "part": part(SAID) })),
                json!({ "type": "response.output_item.done", "sequence_number": 6,
                        "output_index": 0, "item": item }),
                json!({ "type": "response.completed", "sequence_number": 7, "response": response }),
            ])
        }
        _ => {
            let body = json!({ "candidates": [{ "index": 0, "finishReason": "STOP",
                    "content": { "role": "model", "parts": [{ "text": SAID }] } }],
                "modelVersion": "up",
                "usageMetadata": { "promptTokenCount": input, "candidatesTokenCount": output,
                    "totalTokenCount": input + output, "trafficType": tier } });
            if stream { events(&[body]) } else { whole(&body) }
        }
    }
}

/// A question in a caller's format.
fn ask(caller: &str, stream: bool) -> (String, Value) {
    let said = json!([{ "role": "user", "content": "Tell me of the harbour." }]);
    match caller {
        "chat" => (
            crate::money::CHAT.to_owned(),
            json!({ "model": "m", "max_tokens": 500, "stream": stream, "messages": said }),
        ),
        "messages" => (
            "/v1/messages".to_owned(),
            json!({ "model": "m", "max_tokens": 500, "stream": stream, "messages": said }),
        ),
        "responses" => (
            "/v1/responses".to_owned(),
            json!({ "model": "m", "max_output_tokens": 500, "stream": stream, "input": said }),
        ),
        _ => {
            let how = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (
                format!("/v1beta/models/m:{how}"),
                json!({ "contents": [{ "role": "user", "parts": [{ "text": "Tell me." }] }],
                        "generationConfig": { "maxOutputTokens": 500 } }),
            )
        }
    }
}

async fn gateway(
    speaks: &str,
    answer: Vec<AnswerStep>,
    model: &str,
) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = format!(
        "[providers.p]\nspeaks = \"{speaks}\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\"]\n{model}",
        provider.url
    );
    let gateway = TestGateway::with_config(&config).await;
    (provider, gateway)
}

/// Every format a provider speaks, asked in its own and in another one, whole and streamed.
fn ways() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    FORMATS.into_iter().flat_map(|speaks| {
        let other = if speaks == "chat" { "messages" } else { "chat" };
        [speaks, other]
            .into_iter()
            .flat_map(move |caller| [false, true].map(|stream| (speaks, caller, stream)))
    })
}

#[tokio::test]
async fn every_tier_is_priced_in_every_format_whole_and_streamed() {
    let mut seen = 0;
    for (speaks, caller, stream) in ways() {
        for (tier, cost) in TIERS {
            let Some(told) = word(speaks, tier) else { continue };
            let answer = says(speaks, stream, told, 100, 30);
            let (_provider, gateway) = gateway(speaks, answer, PRICES).await;
            let (path, body) = ask(caller, stream);
            let got = gateway.post(&path, &body).send().await;
            let case = format!("{tier}, {speaks} for {caller}, streamed: {stream}");
            assert_eq!(
                (got.status.as_u16(), got.is_truncated),
                (200, false),
                "{case}: {}",
                got.text()
            );
            gateway.wait_until_settled().await;
            let told = receipt(&gateway, &got).await;
            assert_eq!(told["cost_usd"], cost, "{case}: {told}");
            assert_eq!(told["service_tier"], tier, "{case}: {told}");
            assert_eq!(told["estimated"], false, "{case}: {told}");
            seen += 1;
        }
    }
    assert_eq!(seen, 4 * (3 + 3 + 3 + 3));
}

#[tokio::test]
async fn more_tokens_than_the_window_holds_are_counted_here_instead() {
    for (speaks, caller, stream) in ways() {
        // Taken as reported, this would cost 900 + 200 millionths of a dollar and fit the hold.
        let told = word(speaks, "standard").unwrap();
        let answer = says(speaks, stream, told, 900, 100);
        let model = "context = 800\nprice = { input = \"1.00\", output = \"2.00\" }\n";
        let (_provider, gateway) = gateway(speaks, answer, model).await;
        let (path, mut body) = ask(caller, stream);
        // Enough bytes for that many tokens.
        body["metadata"] = json!({ "note": "x".repeat(400) });
        if caller == "native" {
            body.as_object_mut().unwrap().remove("metadata");
            body["contents"][0]["parts"][0]["text"] = "words ".repeat(160).into();
        }
        let got = gateway.post(&path, &body).send().await;
        let case = format!("{speaks} for {caller}, streamed: {stream}");
        assert_eq!((got.status.as_u16(), got.is_truncated), (200, false), "{case}: {}", got.text());
        let row = row(&gateway).await;
        assert!(row.estimated, "{case}: {row:?}");
        assert!(row.usage.input < 800 && row.usage.output < 60, "{case}: {row:?}");
        assert!(row.cost > canon::Money::ZERO, "{case}: {row:?}");
        assert!(row.cost < canon::Money::from_nanos(900_000), "{case}: {row:?}");
        assert_eq!((row.outcome, row.ended_by), (CallOutcome::Done, EndedBy::Provider), "{case}");
    }
}

/// Anthropic bills a call that is served in the United States by prices of its own, a fast one too.
#[tokio::test]
async fn a_call_that_is_served_in_the_us_has_its_own_prices() {
    for (speed, cost, service) in [("standard", 176_000, "us"), ("fast", 352_000, "fast_us")] {
        is_served_in_the_us(speed, cost, service).await;
    }
}

async fn is_served_in_the_us(speed: &str, cost: i64, service: &str) {
    let answer = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
        "content": [{ "type": "text", "text": SAID }], "stop_reason": "end_turn",
        "stop_sequence": null,
        "usage": { "input_tokens": 100, "output_tokens": 30, "service_tier": "standard",
                   "speed": speed, "inference_geo": "us" } });
    for path in ["/v1/messages", crate::money::CHAT] {
        // A caller of another format cannot ask for both.
        if speed == "fast" && path == crate::money::CHAT {
            continue;
        }
        let answer = reply(200, "application/json", &answer.to_string());
        let provider = ScriptedProvider::start(vec![answer]).await;
        let dearer = "output = \"2.00\", us = { rates = { input = \"1.10\", output = \"2.20\" } }, \
                      fast = { rates = { input = \"2.00\", output = \"4.00\" } }, \
                      fast_us = { rates = { input = \"2.20\", output = \"4.40\" } }";
        let config = provider.config("messages").replace("output = \"2.00\"", dearer);
        let gateway = TestGateway::with_config(&config).await;
        let mut body = crate::money::chat(false);
        if path == "/v1/messages" {
            body["inference_geo"] = "us".into();
            body["speed"] = speed.into();
        }
        let got = gateway.post(path, &body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let row = row(&gateway).await;
        assert_eq!((row.cost.as_nanos(), &*row.service), (cost, service), "{path}: {row:?}");
    }
}
