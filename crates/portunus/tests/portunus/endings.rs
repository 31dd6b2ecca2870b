//! Ends of answers that are not a finish: failed turns, blocked prompts, a provider without credit.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, reply, sse};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const NATIVE: &str = "/v1beta/models/m:generateContent";
const NATIVE_STREAM: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";
const NATIVE_ARRAY: &str = "/v1beta/models/m:streamGenerateContent";

/// A request of the path's format.
fn request(path: &str, stream: bool) -> Value {
    let turn = json!([{ "role": "user", "content": "hi" }]);
    match path {
        CHAT => json!({ "model": "m", "messages": turn, "stream": stream }),
        MESSAGES => {
            json!({ "model": "m", "messages": turn, "max_tokens": 50, "stream": stream })
        }
        RESPONSES => json!({ "model": "m", "input": "hi", "stream": stream }),
        _ => json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }] }),
    }
}

/// A model with one lane per provider, each with its format.
fn config(lanes: &[(&str, &ScriptedProvider)]) -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for (name, (speaks, provider)) in ('a'..).zip(lanes) {
        let url = &provider.url;
        text += &format!(
            "[providers.{name}]\nspeaks = \"{speaks}\"\nbase = \"{url}\"\nauth = \"none\"\n"
        );
        names.push(format!("\"{name}/up\""));
    }
    let lanes = names.join(", ");
    format!("{text}[models.m]\nlanes = [{lanes}]\nprice = {{ input = \"1\", output = \"2\" }}\n")
}

async fn provider(answer: Vec<AnswerStep>) -> ScriptedProvider {
    ScriptedProvider::start(vec![answer]).await
}

fn native_piece(text: Option<&str>, finish: Option<&str>) -> Value {
    let parts: Vec<Value> = text.iter().map(|text| json!({ "text": text })).collect();
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({ "candidates": [candidate],
            "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 1 } })
}

#[tokio::test]
async fn a_failed_turn_goes_to_the_next_lane_and_is_never_a_finish() {
    let failures =
        ["OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"];
    for word in failures {
        let whole = native_piece(None, Some(word)).to_string();
        let failing = provider(reply(200, "application/json", &whole)).await;
        let good = provider(chat_reply("fine", 3, 1)).await;
        let gateway = TestGateway::with_config(&config(&[("native", &failing)])).await;
        for path in [CHAT, MESSAGES, RESPONSES] {
            let got = gateway.post(path, &request(path, false)).send().await;
            assert_eq!(got.status, 503, "{word} {path}: {}", got.text());
            assert!(got.text().contains(word), "{}", got.text());
        }
        let both = config(&[("native", &failing), ("chat", &good)]);
        let gateway = TestGateway::with_config(&both).await;
        let got = gateway.post(CHAT, &request(CHAT, false)).send().await;
        assert_eq!(got.status, 200, "{word}: {}", got.text());
        assert_eq!(got.json()["choices"][0]["message"]["content"], "fine");
    }
}

#[tokio::test]
async fn a_stream_whose_turn_fails_ends_with_an_error() {
    let said = native_piece(Some("Half a"), None).to_string();
    for word in ["OTHER", "MALFORMED_FUNCTION_CALL"] {
        let end = native_piece(Some(" sentence"), Some(word)).to_string();
        let failing = provider(sse(&[&said, &end])).await;
        let gateway = TestGateway::with_config(&config(&[("native", &failing)])).await;
        for (path, error, finish) in [
            (CHAT, "upstream_interrupted", "\"finish_reason\":\""),
            (MESSAGES, "api_error", "message_stop"),
            (RESPONSES, "response.failed", "response.completed"),
        ] {
            let got = gateway.post(path, &request(path, true)).send().await;
            let text = got.text();
            assert!(text.contains("Half a") && text.contains(" sentence"), "{path}: {text}");
            assert!(text.contains(error), "{word} {path}: {text}");
            assert!(!text.contains(finish), "{word} {path}: {text}");
        }
    }
}

#[tokio::test]
async fn an_unknown_reason_is_a_told_truncation() {
    let whole = native_piece(Some("Half a"), Some("BRAND_NEW")).to_string();
    let odd = provider(reply(200, "application/json", &whole)).await;
    let gateway = TestGateway::with_config(&config(&[("native", &odd)])).await;
    for (path, at, word) in [
        (CHAT, "/choices/0/finish_reason", "length"),
        (MESSAGES, "/stop_reason", "max_tokens"),
        (RESPONSES, "/status", "incomplete"),
    ] {
        let got = gateway.post(path, &request(path, false)).send().await;
        assert_eq!(got.json().pointer(at), Some(&json!(word)), "{}", got.text());
        assert!(got.header("x-portunus-loss").contains("finish"), "{path}");
    }
}

/// The refusal of a prompt as Azure words it.
fn filtered() -> Vec<AnswerStep> {
    let inner = json!({ "code": "ResponsibleAIPolicyViolation" });
    let error = json!({ "message": "The response was filtered", "type": null, "param": "prompt",
                        "code": "content_filter", "status": 400, "innererror": inner });
    reply(400, "application/json", &json!({ "error": error }).to_string())
}

#[tokio::test]
async fn a_prompt_that_a_chat_provider_blocks_is_blocked_in_every_format() {
    let provider = provider(filtered()).await;
    let gateway = TestGateway::with_config(&config(&[("chat", &provider)])).await;
    for path in [NATIVE, NATIVE_STREAM, NATIVE_ARRAY] {
        let got = gateway.post(path, &request(path, false)).send().await;
        assert_eq!((got.status.as_u16(), got.is_truncated), (200, false), "{}", got.text());
        let text = got.text();
        let json: Value = match path {
            NATIVE => got.json(),
            NATIVE_STREAM => serde_json::from_str(text.trim_start_matches("data: ")).unwrap(),
            _ => serde_json::from_str::<Value>(&text).unwrap()[0].clone(),
        };
        assert_eq!(json["promptFeedback"]["blockReason"], "SAFETY", "{text}");
        let candidates = json["candidates"].as_array().map_or(0, Vec::len);
        assert_eq!(candidates, 0, "{text}");
    }
    let got = gateway.post(MESSAGES, &request(MESSAGES, false)).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["stop_reason"]), (200, &json!("refusal")));
    let got = gateway.post(MESSAGES, &request(MESSAGES, true)).send().await;
    assert!(got.text().contains("\"refusal\"") && got.text().contains("message_stop"));
    for path in [CHAT, RESPONSES] {
        let got = gateway.post(path, &request(path, false)).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert_eq!(got.json()["error"]["code"], "content_filter", "{}", got.text());
    }
}

#[tokio::test]
async fn a_blocked_image_prompt_is_the_content_policy_and_not_a_missing_picture() {
    let body = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" },
                       "usageMetadata": { "promptTokenCount": 9 } });
    let provider = provider(reply(200, "application/json", &body.to_string())).await;
    let config = format!("{}kind = \"image\"\n", provider.config("native"));
    let gateway = TestGateway::with_config(&config).await;
    let body = json!({ "model": "m", "prompt": "a picture" });
    let got = gateway.post("/v1/images/generations", &body).send().await;
    let error = &got.json()["error"];
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(error["code"], "content_policy_violation", "{error}");
    assert!(error["message"].as_str().unwrap().contains("content policy"), "{error}");
}

#[tokio::test]
async fn a_provider_without_credit_is_the_operators_trouble() {
    let bodies = [
        (
            "chat",
            json!({ "error": { "message": "You exceeded your current quota",
            "type": "insufficient_quota", "param": null, "code": "insufficient_quota" } }),
        ),
        (
            "native",
            json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED",
            "message": "insufficient_quota: no credit left" } }),
        ),
        (
            "native",
            json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message":
            "You exceeded your current quota, please check your plan and billing details." } }),
        ),
        (
            "messages",
            json!({ "type": "error", "error": { "type": "rate_limit_error",
            "message": "insufficient_quota: no credit left" } }),
        ),
        (
            "messages",
            json!({ "type": "error",
            "error": { "type": "insufficient_quota", "message": "no credit left" } }),
        ),
    ];
    for (speaks, body) in bodies {
        let broke = provider(reply(429, "application/json", &body.to_string())).await;
        let good = provider(chat_reply("fine", 3, 1)).await;
        let gateway = TestGateway::with_config(&config(&[(speaks, &broke), ("chat", &good)])).await;
        let got = gateway.post(CHAT, &request(CHAT, false)).send().await;
        assert_eq!(got.status, 200, "{speaks}: {}", got.text());
        let path = format!("/v1/usage/{}", got.header("x-request-id"));
        let receipt = gateway.get(&path).send().await.json();
        assert!(receipt.to_string().contains("credential_refused"), "{receipt}");
        let gateway = TestGateway::with_config(&config(&[(speaks, &broke)])).await;
        for path in [CHAT, MESSAGES, NATIVE] {
            let got = gateway.post(path, &request(path, false)).send().await;
            assert_eq!(got.status, 503, "{speaks} {path}: {}", got.text());
            assert!(!got.text().contains("quota"), "{}", got.text());
        }
    }
}

#[tokio::test]
async fn a_string_where_a_count_belongs_is_repaired_on_the_native_road() {
    let mut piece = native_piece(Some("Hello"), Some("STOP"));
    piece["usageMetadata"]["candidatesTokenCount"] = json!("many");
    let whole = provider(reply(200, "application/json", &piece.to_string())).await;
    let stream = provider(sse(&[&piece.to_string()])).await;
    for (provider, path) in [(whole, NATIVE), (stream, NATIVE_STREAM)] {
        let gateway = TestGateway::with_config(&config(&[("native", &provider)])).await;
        let got = gateway.post(path, &request(path, false)).send().await;
        let body: Value = serde_json::from_str(got.text().trim_start_matches("data: ")).unwrap();
        assert_eq!(body["usageMetadata"]["candidatesTokenCount"], 0, "{body}");
        assert_eq!(body["candidates"], piece["candidates"]);
    }
}
