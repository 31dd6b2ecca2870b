//! `/v1/chat/completions`.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream, reply, sse};

fn hello(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Hello!" }] })
}

fn streamed(model: &str) -> Value {
    json!({ "model": model, "stream": true, "messages": [{ "role": "user", "content": "Hello!" }] })
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_demo_model_answers_and_the_call_is_on_the_books() {
    let gateway = TestGateway::start().await;
    let got = gateway.post(CHAT, &hello("demo-chat")).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let reply = got.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert!(!reply["choices"][0]["message"]["content"].as_str().unwrap().is_empty());
    assert_eq!(got.header("x-portunus-lane"), "demo/demo-chat");
    assert_eq!(got.header("x-request-id"), got.header("request-id"));

    let receipt = gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await;
    assert_eq!(receipt.status, 200);
    let receipt = receipt.json();
    assert_eq!(receipt["cost_usd"], got.header("x-portunus-cost"));
    assert_eq!(receipt["tokens"]["output"], reply["usage"]["completion_tokens"]);
    assert_eq!((&receipt["status"], &receipt["outcome"]), (&json!(200), &json!("done")));

    gateway.wait_until_settled().await;
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(key["spent_usd"], receipt["cost_usd"]);
    assert_eq!((&key["cap_usd"], &key["held_usd"]), (&Value::Null, &json!("0.000000000")));
}

/// Returns an event of the provider with the selected model.
fn selected(event: &str) -> String {
    event.replace("\"model\":\"up\"", "\"model\":\"m\"")
}

#[tokio::test]
async fn the_providers_bytes_reach_the_caller_unchanged_and_the_callers_the_provider() {
    let answer = r#"{ "id":"c1", "object":"chat.completion", "created":1, "model" : "up", "choices":[{"index":0,"logprobs":null,"message":{"role":"assistant","refusal":null,"content":"é \u00e9","odd":1},"finish_reason":"stop"}], "usage":{"prompt_tokens":3,"completion_tokens":5,"prompt_tokens_details":{},"completion_tokens_details":{}}, "z":[ ] }"#;
    let provider = ScriptedProvider::start(vec![reply(200, "application/json", answer)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let ask = r#"{"z":[ 1,2 ],  "model" : "m","messages":[{"content":"é \u00e9","role":"user"}],"unknown":{"b":1,"a":2}}"#;
    let got = gateway.post(CHAT, &Value::Null).body(ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.text(), answer.replace("\"up\"", "\"m\""), "only the model's name changes");
    assert_eq!(got.header("x-portunus-cost"), "0.000013000");
    let sent = String::from_utf8(provider.requests()[0].body.clone()).unwrap();
    assert_eq!(sent, ask.replace("\"model\" : \"m\"", "\"model\" : \"up\""));
    assert!(provider.requests()[0].head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
    assert!(!provider.requests()[0].head.to_lowercase().contains("sk-pt"), "our key stays with us");
}

#[tokio::test]
async fn a_stream_asks_for_its_usage_and_hides_it_from_a_caller_who_did_not() {
    let events = chat_stream(&["Hel", "lo"], 7, 2);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let provider = ScriptedProvider::start(vec![sse(&events)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;

    let got = gateway.post(CHAT, &streamed("m")).send().await;
    assert_eq!(got.status, 200);
    assert!(got.header("content-type").starts_with("text/event-stream"));
    let events: Vec<String> = events.iter().map(|event| selected(event)).collect();
    let expected: Vec<&String> = events.iter().filter(|e| !e.contains("\"choices\":[]")).collect();
    assert_eq!(got.events().iter().collect::<Vec<_>>(), expected);
    assert_eq!(provider.requests()[0].json()["stream_options"], json!({ "include_usage": true }));
    let receipt = gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await;
    assert_eq!(receipt.json()["cost_usd"], "0.000011000");
    assert_eq!(receipt.json()["estimated"], false);

    let mut asks = streamed("m");
    asks["stream_options"] = json!({ "include_usage": true });
    // The counts get the details that the format documents, before the provider's own fields.
    let details = "\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0},\
        \"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,\
        \"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0},";
    let expected: Vec<String> =
        events.iter().map(|event| event.replace("\"usage\":{", details)).collect();
    assert_eq!(gateway.post(CHAT, &asks).send().await.events(), expected);
}

#[tokio::test]
async fn a_stream_that_breaks_ends_as_an_error_and_pays_for_what_came() {
    let events = chat_stream(&["Hel", "lo"], 7, 2);
    let mut steps = sse(&events[..3].iter().map(String::as_str).collect::<Vec<_>>());
    *steps.last_mut().unwrap() = AnswerStep::Close;
    let provider = ScriptedProvider::start(vec![steps]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let got = gateway.post(CHAT, &streamed("m")).send().await;
    assert_eq!(got.status, 200);
    let last: Value = serde_json::from_str(got.events().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "upstream_interrupted", "{last}");
    assert!(!got.text().contains("[DONE]"));
    gateway.wait_until_settled().await;
    let receipt = gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await;
    let receipt = receipt.json();
    assert_eq!((&receipt["outcome"], &receipt["estimated"]), (&json!("broke_off"), &json!(true)));
    assert_ne!(receipt["cost_usd"], "0.000000000");
}

#[tokio::test]
async fn an_end_without_a_finish_reason_is_a_broken_stream() {
    let events = chat_stream(&["Hel"], 7, 2);
    let cut = [events[0].as_str(), events[1].as_str(), "[DONE]"];
    let provider = ScriptedProvider::start(vec![sse(&cut)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let got = gateway.post(CHAT, &streamed("m")).send().await;
    assert!(got.text().contains("upstream_interrupted") && !got.text().contains("[DONE]"));
}

#[tokio::test]
async fn a_caller_who_leaves_pays_for_what_came_and_the_provider_is_let_go() {
    let events = chat_stream(&["Hel", "lo"], 7, 2);
    let mut steps = sse(&events[..3].iter().map(String::as_str).collect::<Vec<_>>());
    *steps.last_mut().unwrap() = AnswerStep::Wait(std::time::Duration::from_secs(60));
    let provider = ScriptedProvider::start(vec![steps]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    gateway.post(CHAT, &streamed("m")).disconnect_after_events(3).await;
    gateway.wait_until_settled().await;
    let entries = gateway.app.store.export(None, 10).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].outcome, ledger::CallOutcome::CallerLeft);
    assert!(entries[0].estimated && entries[0].cost.as_nanos() > 0);
}

#[tokio::test]
async fn the_next_lane_answers_when_the_first_cannot() {
    let bad = ScriptedProvider::start(vec![reply(500, "text/html", "<h1>oops</h1>")]).await;
    let good = ScriptedProvider::start(vec![chat_reply("hi", 1, 1)]).await;
    let config = format!(
        "[providers.bad]\nspeaks=\"chat\"\nbase=\"{}\"\n[providers.good]\nspeaks=\"chat\"\nbase=\"{}\"\n\
         [models.m]\nlanes=[\"bad/x\",\"good/y\"]\nprice={{input=\"1\",output=\"1\"}}\n",
        bad.url, good.url
    );
    let gateway = TestGateway::with_config(&config).await;
    for body in [hello("m"), streamed("m")] {
        let got = gateway.post(CHAT, &body).send().await;
        if body["stream"] == true {
            // The second provider gives a whole answer to a stream; the caller gets its stream.
            assert_eq!(
                (got.status.as_u16(), got.events().last().unwrap().as_str()),
                (200, "[DONE]")
            );
            assert!(got.text().contains("\"content\":\"hi\""), "{}", got.text());
        } else {
            assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "good/y"));
            let receipt =
                gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await;
            assert_eq!(receipt.json()["attempts"], 2);
        }
    }
}

#[tokio::test]
async fn faults_of_providers_become_the_right_error_and_cost_nothing() {
    let cases = [
        (reply(401, "application/json", r#"{"error":{"message":"bad key sk-1"}}"#), 503),
        (reply(404, "application/json", "{}"), 503),
        (reply(400, "application/json", r#"{"error":{"message":"too odd","param":"top_p"}}"#), 400),
        (reply(413, "application/json", "{}"), 413),
        (reply(429, "application/json", "{}"), 429),
        (reply(529, "text/plain", "busy"), 503),
        (reply(504, "text/plain", ""), 504),
        (reply(302, "text/plain", ""), 503),
        (reply(204, "text/plain", ""), 503),
        (reply(200, "text/html", "<html>"), 503),
        (reply(200, "application/json", ""), 503),
        (reply(200, "application/json", "{\"no\":1}"), 503),
        (
            reply(
                200,
                "application/json",
                r#"{"error":{"message":"slow","code":"rate_limit_exceeded"}}"#,
            ),
            429,
        ),
        (vec![AnswerStep::Close], 503),
        (
            vec![
                AnswerStep::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"choi".to_vec()),
                AnswerStep::Close,
            ],
            503,
        ),
    ];
    for (answer, status) in cases {
        let provider = ScriptedProvider::start(vec![answer.clone()]).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        for body in [hello("m"), streamed("m")] {
            let got = gateway.post(CHAT, &body).send().await;
            assert_eq!(got.status, status, "{answer:?}: {}", got.text());
            let error = &got.json()["error"];
            assert!(error["message"].is_string() && error["type"].is_string(), "{}", got.text());
            assert!(!got.text().contains("sk-1"));
        }
        gateway.wait_until_settled().await;
        let key = gateway.get("/v1/key").send().await.json();
        assert_eq!(
            (&key["spent_usd"], &key["held_usd"]),
            (&json!("0.000000000"), &json!("0.000000000"))
        );
        assert_eq!(
            gateway.app.store.export(None, 10).await.unwrap().len(),
            2,
            "every call has a row"
        );
    }
}

#[tokio::test]
async fn a_dry_run_shows_the_very_bytes_of_arguments() {
    let gateway = TestGateway::start().await;
    let exact = r#"{"id":123456789012345678901234567890,"b":0.10}"#;
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": exact } });
    let body = json!({ "model": "demo-messages", "messages": [
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c", "content": "fine" } ] });
    let got = gateway.post("/v1/chat/completions", &body).header("x-portunus-dry-run", "true");
    let got = got.send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.text().contains(&format!(r#""input":{exact}"#)), "{}", got.text());
}

#[tokio::test]
async fn a_dry_run_tells_what_would_be_sent_and_calls_no_one() {
    let provider = ScriptedProvider::start(vec![chat_reply("hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let got = gateway.post(CHAT, &hello("m")).header("x-portunus-dry-run", "true").send().await;
    let told = got.json();
    assert_eq!((&told["lane"], &told["body"]["model"]), (&json!("p/up"), &json!("up")));
    assert!(told["quote"]["at_most_usd"].as_str().unwrap() > "0");
    assert!(provider.requests().is_empty());
}
