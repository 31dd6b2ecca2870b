//! Several candidates from lanes whose formats cannot ask for them.

use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, reply, until};
use tokio::sync::Semaphore;

const CHAT: &str = "/v1/chat/completions";

fn message(text: &str) -> Vec<AnswerStep> {
    let body = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
        "content": [{ "type": "text", "text": text }], "stop_reason": "end_turn",
        "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 5 } });
    reply(200, "application/json", &body.to_string())
}

fn response(text: &str) -> Vec<AnswerStep> {
    let part = json!({ "type": "output_text", "text": text, "annotations": [] });
    let item = json!({ "type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [part] });
    let body = json!({ "id": "resp_1", "object": "response", "status": "completed",
        "output": [item], "usage": { "input_tokens": 10, "output_tokens": 5, "total_tokens": 15 } });
    reply(200, "application/json", &body.to_string())
}

fn two() -> Value {
    json!({ "model": "m", "n": 2, "max_tokens": 50,
            "messages": [{ "role": "user", "content": "Hello." }] })
}

#[tokio::test]
async fn two_candidates_are_two_calls_and_one_bill() {
    let provider = ScriptedProvider::start(vec![message("One."), message("Two.")]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let got = gateway.post(CHAT, &two()).header("x-portunus-strict", "true").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-loss"), "");
    let body = got.json();
    let choices = body["choices"].as_array().unwrap();
    let indexes: Vec<_> = choices.iter().map(|choice| choice["index"].clone()).collect();
    assert_eq!(indexes, [0, 1]);
    let mut said: Vec<_> =
        choices.iter().map(|choice| choice["message"]["content"].as_str().unwrap()).collect();
    said.sort_unstable();
    assert_eq!(said, ["One.", "Two."]);
    assert_eq!(
        (&body["usage"]["prompt_tokens"], &body["usage"]["completion_tokens"]),
        (&json!(20), &json!(10))
    );
    assert_eq!(provider.requests().len(), 2);
    // Twenty tokens in at 1.00 and ten out at 2.00 for a million.
    assert_eq!(got.header("x-portunus-cost"), "0.000040000");
    gateway.wait_until_settled().await;
    let id = got.header("x-request-id");
    let receipt = gateway.get(&format!("/v1/usage/{id}")).send().await.json();
    assert_eq!((&receipt["input_tokens"], &receipt["output_tokens"]), (&json!(20), &json!(10)));
}

#[tokio::test]
async fn two_candidates_of_a_native_caller_are_a_stream_of_two() {
    let provider = ScriptedProvider::start(vec![response("One."), response("Two.")]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello." }] }],
                       "generationConfig": { "candidateCount": 2 } });
    let path = "/v1beta/models/m:streamGenerateContent?alt=sse";
    let got = gateway.post(path, &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-loss"), "");
    let mut said = [String::new(), String::new()];
    let mut total = Value::Null;
    for event in got.events() {
        let chunk: Value = serde_json::from_str(&event).unwrap();
        for candidate in chunk["candidates"].as_array().into_iter().flatten() {
            let index = usize::try_from(candidate["index"].as_u64().unwrap()).unwrap();
            for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                said[index].push_str(part["text"].as_str().unwrap());
            }
        }
        total = chunk["usageMetadata"]["totalTokenCount"].clone();
    }
    said.sort_unstable();
    assert_eq!((said, total), (["One.".to_owned(), "Two.".to_owned()], json!(30)));
    assert!(provider.requests().iter().all(|sent| sent.json().get("stream").is_none()));
}

#[tokio::test]
async fn a_failed_copy_fails_the_call_and_costs_nothing() {
    let refusal = json!({ "type": "error", "error": { "type": "invalid_request_error",
        "message": "no" } });
    let refusal = reply(400, "application/json", &refusal.to_string());
    let provider = ScriptedProvider::start(vec![message("One."), refusal]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let got = gateway.post(CHAT, &two()).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    gateway.wait_until_settled().await;
    let id = got.header("x-request-id");
    let receipt = gateway.get(&format!("/v1/usage/{id}")).send().await.json();
    assert_eq!(receipt["cost_usd"], "0.000000000", "{receipt}");
    assert_ne!(receipt["absorbed_usd"], "0.000000000", "the other copy was paid for: {receipt}");
    // More than eight candidates are one, and the caller is told.
    let provider = ScriptedProvider::start(vec![message("One.")]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let mut many = two();
    many["n"] = json!(9);
    let got = gateway.post(CHAT, &many).send().await;
    assert_eq!((got.status.as_u16(), provider.requests().len()), (200, 1), "{}", got.text());
    assert_eq!(got.header("x-portunus-loss"), "sampling.candidates");
}

#[tokio::test]
async fn copies_wait_for_places_at_the_provider() {
    let gate = Arc::new(Semaphore::new(0));
    let gated = |text| {
        let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
        answer.extend(message(text));
        answer
    };
    let provider = ScriptedProvider::start(vec![gated("One."), gated("Two.")]).await;
    let config = provider.config("messages");
    let config = config.replace("auth = \"none\"\n", "auth = \"none\"\nmax_in_flight = 1\n");
    let gateway = TestGateway::with_config(&config).await;
    let call = gateway.post(CHAT, &two()).send();
    let watch = async {
        until("the first copy arrives", async || !provider.requests().is_empty()).await;
        assert_eq!(provider.requests().len(), 1);
        gate.add_permits(1);
        until("the second copy follows", async || provider.requests().len() == 2).await;
        gate.add_permits(1);
    };
    let (got, ()) = tokio::join!(call, watch);
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn a_reply_without_an_ending_is_told_as_truncated() {
    let body = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
        "content": [{ "type": "text", "text": "One." }], "stop_reason": null,
        "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 5 } });
    let answer = reply(200, "application/json", &body.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let mut one = two();
    one["n"] = json!(1);
    let got = gateway.post(CHAT, &one).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.json()["choices"][0]["finish_reason"], "length");
    assert_eq!(got.header("x-portunus-loss"), "finish");
}
