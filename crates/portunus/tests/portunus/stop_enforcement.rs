//! Stop texts and limits that the gateway enforces itself, because the lane does not support them.

use serde_json::{Value, json};
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_stream, reply, sse};

/// A chat provider that says the stop text in two pieces and then falls silent for good: only a
/// gateway that lets it go has an answer.
async fn endless() -> ScriptedProvider {
    let events = chat_stream(&["On the qu", "ay, Obser", "vation: a ship"], 9, 99);
    let spoken: Vec<&str> = events.iter().take(4).map(String::as_str).collect();
    let mut steps = sse(&spoken);
    *steps.last_mut().unwrap() = AnswerStep::Wait(Duration::from_secs(600));
    ScriptedProvider::start(vec![steps]).await
}

fn asking(stream: bool) -> Value {
    json!({ "model": "m", "max_tokens": 100, "stream": stream, "stop_sequences": ["Observation:"],
            "messages": [{ "role": "user", "content": "Tell me of the harbour." }] })
}

#[tokio::test]
async fn a_stop_text_is_met_and_named_though_the_lane_cannot_name_it() {
    for stream in [false, true] {
        let provider = endless().await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        let got = gateway.post("/v1/messages", &asking(stream)).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let (text, end, usage) = if stream {
            let events: Vec<Value> =
                got.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
            let text: String =
                events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
            let last = events.iter().find(|event| event["type"] == "message_delta").unwrap();
            assert_eq!(events.last().unwrap()["type"], "message_stop");
            (text, last["delta"].clone(), last["usage"].clone())
        } else {
            let message = got.json();
            let text = message["content"][0]["text"].as_str().unwrap().to_owned();
            (text, message.clone(), message["usage"].clone())
        };
        assert_eq!(text, "On the quay, ");
        assert_eq!(end["stop_reason"], "stop_sequence");
        assert_eq!(end["stop_sequence"], "Observation:");
        assert!(usage["output_tokens"].as_u64().unwrap() > 0, "{usage}");

        let asked = provider.requests().pop().unwrap().json();
        assert_eq!((&asked["stream"], &asked["stop"]), (&json!(true), &Value::Null));
        assert_eq!(got.header("x-portunus-loss"), "");
        let receipt =
            gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await;
        let receipt = receipt.json();
        assert_eq!(receipt["tokens"]["output"], usage["output_tokens"]);
        assert_eq!((&receipt["outcome"], &receipt["estimated"]), (&json!("done"), &json!(true)));
    }
}

#[tokio::test]
async fn a_lane_that_ignores_the_wish_for_a_stream_is_cut_too() {
    let whole = json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "up",
        "output": [{ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "one STOP two", "annotations": [] }] }],
        "usage": { "input_tokens": 9, "output_tokens": 4, "total_tokens": 13 },
    });
    let answer = reply(200, "application/json", &whole.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let body = json!({ "model": "m", "stop": "STOP", "messages": [{ "role": "user", "content": "count" }] });
    let got = gateway.post("/v1/chat/completions", &body).send().await;
    let choice = &got.json()["choices"][0];
    assert_eq!(choice["message"]["content"], "one ", "{}", got.text());
    assert_eq!(choice["finish_reason"], "stop");
}

#[tokio::test]
async fn a_receipt_names_the_stop_of_a_whole_answer_in_place_of_a_stream() {
    let whole = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": "one Observation: two" } }],
        "usage": { "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13 },
    });
    for stream in [false, true] {
        let answer = reply(200, "application/json", &whole.to_string());
        let provider = ScriptedProvider::start(vec![answer]).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        let got = gateway.post("/v1/messages", &asking(stream)).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(got.text().contains("one ") && !got.text().contains("two"), "{}", got.text());
        let receipt =
            gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await.json();
        assert_eq!(receipt["ended_by"], "limit", "{receipt}");
        assert_eq!(got.header("x-portunus-cost").is_empty(), stream);
    }
}

#[tokio::test]
async fn a_limit_lower_than_the_lane_takes_holds_all_the_same() {
    let gateway = TestGateway::start().await;
    let body = json!({ "model": "demo-responses", "max_tokens": 5,
                       "messages": [{ "role": "user", "content": "Tell me a long story" }] });
    let got = gateway.post("/v1/messages", &body).send().await;
    let message = got.json();
    assert_eq!(message["stop_reason"], "max_tokens", "{}", got.text());
    let output = message["usage"]["output_tokens"].as_u64().unwrap();
    assert!((1..=5).contains(&output), "{message}");
    assert_eq!(got.header("x-portunus-loss"), "");
}
