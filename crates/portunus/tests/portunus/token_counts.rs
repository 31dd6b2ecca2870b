//! Token counts by the provider, and the estimate where no provider counts.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, reply};

const MESSAGES: &str = "/v1/messages/count_tokens";
const RESPONSES: &str = "/v1/responses/input_tokens";
const NATIVE: &str = "/v1beta/models/m:countTokens";
const TEXT: &str = "The quick brown fox jumps over the lazy dog.";

/// Answers of the three counting endpoints.
fn counted(format: &str) -> Value {
    match format {
        "native" => json!({ "totalTokens": 13,
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 13 }] }),
        "responses" => json!({ "object": "response.input_tokens", "input_tokens": 13 }),
        _ => json!({ "input_tokens": 13 }),
    }
}

/// A request to count in each format, its path and the field of the answer.
fn callers() -> [(&'static str, Value, &'static str); 3] {
    let tool = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    [
        (
            MESSAGES,
            json!({ "model": "m", "system": "Be brief.",
                "messages": [{ "role": "user", "content": TEXT }],
                "tools": [{ "name": "weather", "input_schema": tool }] }),
            "input_tokens",
        ),
        (
            RESPONSES,
            json!({ "model": "m", "instructions": "Be brief.", "input": TEXT,
                "tools": [{ "type": "function", "name": "weather", "parameters": tool,
                            "strict": false }] }),
            "input_tokens",
        ),
        (
            NATIVE,
            json!({ "generateContentRequest": { "model": "models/m",
                "systemInstruction": { "parts": [{ "text": "Be brief." }] },
                "contents": [{ "role": "user", "parts": [{ "text": TEXT }] }],
                "tools": [{ "functionDeclarations": [{ "name": "weather",
                    "parametersJsonSchema": tool }] }] } }),
            "totalTokens",
        ),
    ]
}

fn count_of(got: &TestResponse, field: &str) -> (u64, String) {
    assert_eq!(got.status, 200, "{}", got.text());
    (got.json()[field].as_u64().unwrap(), got.header("x-portunus-count").to_owned())
}

#[tokio::test]
async fn a_provider_that_can_count_is_asked_in_its_own_format() {
    let lanes = [
        ("messages", MESSAGES),
        ("responses", RESPONSES),
        ("native", "/v1beta/models/up:countTokens"),
    ];
    for (format, path) in lanes {
        let answer = reply(200, "application/json", &counted(format).to_string());
        let provider = ScriptedProvider::start(vec![answer]).await;
        let gateway = TestGateway::with_config(&provider.config(format)).await;
        for (caller, body, field) in callers() {
            let got = gateway.post(caller, &body).send().await;
            assert_eq!(count_of(&got, field), (13, "exact".to_owned()), "{caller} > {format}");
            assert_eq!(got.header("x-portunus-cost"), "", "a count is free");
            let requests = provider.requests();
            let sent = requests.last().unwrap();
            assert!(sent.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", sent.head);
            let sent = sent.json();
            assert!(sent.to_string().contains(TEXT), "{sent}");
            assert!(sent.to_string().contains("Be brief."), "{sent}");
            assert!(sent.to_string().contains("weather"), "{sent}");
            // Providers refuse fields that do not count.
            for name in ["max_tokens", "stream", "store", "include", "max_output_tokens"] {
                assert!(sent.get(name).is_none(), "{caller} > {format}: {sent}");
            }
            let model = match format {
                "native" => &sent["generateContentRequest"]["model"],
                _ => &sent["model"],
            };
            assert_eq!(model, if format == "native" { "models/up" } else { "up" }, "{sent}");
        }
        gateway.wait_until_settled().await;
        let usage = gateway.get("/v1/usage").send().await;
        assert!(!usage.text().contains(r#""calls":3"#), "{}", usage.text());
    }
}

#[tokio::test]
async fn a_native_count_of_contents_alone_is_sent_plain_and_answered_whole() {
    let whole = json!({ "totalTokens": 13, "cachedContentTokenCount": 4,
        "promptTokensDetails": [{ "modality": "IMAGE", "tokenCount": 13 }] });
    let answer = reply(200, "application/json", &whole.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("native")).await;
    let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": TEXT }] }] });
    let got = gateway.post(NATIVE, &body).send().await;
    assert_eq!(got.json(), whole);
    assert_eq!(provider.requests()[0].json(), body);
}

#[tokio::test]
async fn a_provider_that_cannot_count_gives_an_estimate() {
    let page = || reply(404, "application/json", r#"{"error":{"message":"no such path"}}"#);
    let silence = vec![AnswerStep::Wait(std::time::Duration::from_secs(60))];
    let odd = reply(200, "application/json", r#"{"id":"x"}"#);
    for (answer, timeout) in [(page(), "9"), (silence, "0.4"), (odd, "9")] {
        for (caller, body, field) in callers() {
            let provider = ScriptedProvider::start(vec![answer.clone()]).await;
            let gateway = TestGateway::with_config(&provider.config("messages")).await;
            let request = gateway.post(caller, &body).header("x-stainless-timeout", timeout);
            let (tokens, kind) = count_of(&request.send().await, field);
            assert_eq!(kind, "estimate", "{caller}");
            assert!(tokens > 13, "{tokens}");
            assert_eq!(provider.requests().len(), 1);
        }
    }
    // The chat format has no counting endpoint, so its provider is not asked.
    let provider = ScriptedProvider::start(vec![page()]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    for (caller, body, field) in callers() {
        let got = gateway.post(caller, &body).send().await;
        assert_eq!(count_of(&got, field).1, "estimate");
    }
    assert!(provider.requests().is_empty());
}
