//! Reservations for a prompt that is larger than the body.

use canon::Money;
use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, chat_reply};

use crate::money::{CHAT, capped};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const NATIVE: &str = "/v1beta/models/m:generateContent";

/// 100,000 tokens at one dollar per million.
const WINDOW_NANOS: i64 = 100_000_000;

/// A gateway in front of one provider with shared objects. `extra` is the model's.
async fn gateway(format: &str, extra: &str) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(vec![chat_reply("never", 1, 1)]).await;
    let config = provider.config(format);
    let config = config.replace("auth = \"none\"", "auth = \"none\"\nobjects = \"shared\"");
    let gateway = TestGateway::with_config(&format!("{config}{extra}")).await;
    (provider, gateway)
}

/// The reservation of a call, as a dry run tells it.
async fn reservation(gateway: &TestGateway, path: &str, body: &Value) -> Money {
    let got = gateway.post(path, body).header("x-portunus-dry-run", "true").send().await;
    assert_eq!(got.status, 200, "{body}: {}", got.text());
    got.json()["quote"]["at_most_usd"].as_str().unwrap().parse().unwrap()
}

fn with(mut body: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("an object") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

fn plain_body(path: &str) -> Value {
    match path {
        CHAT => json!({ "model": "m", "max_tokens": 50,
                        "messages": [{ "role": "user", "content": "Hi" }] }),
        RESPONSES => json!({ "model": "m", "max_output_tokens": 50, "input": "Hi" }),
        MESSAGES => json!({ "model": "m", "max_tokens": 50,
                            "messages": [{ "role": "user", "content": "Hi" }] }),
        _ => json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }],
                     "generationConfig": { "maxOutputTokens": 50 } }),
    }
}

/// Requests whose prompt is not in the body: path, format and the fields that refer to it.
fn references() -> Vec<(&'static str, &'static str, Value)> {
    let user = |part: Value| json!([{ "role": "user", "content": [part] }]);
    let chat_file = user(json!({ "type": "file", "file": { "file_id": "file-1" } }));
    let file = user(json!({ "type": "document",
                            "source": { "type": "file", "file_id": "file_1" } }));
    let uri = json!({ "fileData": { "fileUri": "files/1", "mimeType": "application/pdf" } });
    let tool = |tool: Value| json!({ "tools": [tool] });
    let mcp = json!({ "type": "mcp", "server_label": "s", "server_url": "https://mcp.example" });
    let server = json!({ "type": "url", "url": "https://mcp.example", "name": "s" });
    vec![
        (CHAT, "chat", json!({ "messages": chat_file })),
        (CHAT, "chat", tool(json!({ "type": "mcp", "server_label": "s" }))),
        (CHAT, "chat", json!({ "plugins": [{ "id": "file-parser" }] })),
        (RESPONSES, "responses", json!({ "conversation": "conv_1" })),
        (RESPONSES, "responses", json!({ "prompt": { "id": "pmpt_1" } })),
        (RESPONSES, "responses", json!({ "input": [{ "role": "user", "content":
            [{ "type": "input_file", "file_id": "file-1" }] }] })),
        (RESPONSES, "responses", tool(mcp.clone())),
        (
            RESPONSES,
            "responses",
            tool(json!({ "type": "namespace", "name": "n", "tools": [mcp] })),
        ),
        (
            RESPONSES,
            "responses",
            tool(json!({ "type": "file_search", "vector_store_ids": ["vs_1"] })),
        ),
        (
            RESPONSES,
            "responses",
            tool(json!({ "type": "code_interpreter", "container": { "type": "auto" } })),
        ),
        (MESSAGES, "messages", json!({ "messages": file })),
        (MESSAGES, "messages", tool(json!({ "type": "web_fetch_20250910", "name": "web_fetch" }))),
        (MESSAGES, "messages", json!({ "mcp_servers": [server] })),
        (NATIVE, "native", json!({ "cachedContent": "cachedContents/1" })),
        (NATIVE, "native", json!({ "contents": [{ "role": "user", "parts": [uri] }] })),
        (NATIVE, "native", tool(json!({ "urlContext": {} }))),
        (NATIVE, "native", tool(json!({ "url_context": {} }))),
        (
            NATIVE,
            "native",
            tool(json!({ "fileSearch": { "fileSearchStoreNames": ["fileSearchStores/1"] } })),
        ),
        (NATIVE, "native", tool(json!({ "mcpServers": [{ "name": "s" }] }))),
    ]
}

#[tokio::test]
async fn content_that_only_the_provider_sees_reserves_the_window() {
    for (path, format, fields) in references() {
        let (provider, gateway) = gateway(format, "context = 100000\n").await;
        let body = with(plain_body(path), fields);
        let least = Money::from_nanos(WINDOW_NANOS);
        let held = reservation(&gateway, path, &body).await;
        let most = least.saturating_add(Money::from_nanos(1_000_000));
        assert!((least..most).contains(&held), "{format} {body}: {held}");
        let key = capped(&gateway, "0.05").await;
        let got = gateway.post(path, &body).key(&key).send().await;
        assert_eq!(got.status, 429, "{format} {body}: {}", got.text());
        assert!(provider.requests().is_empty(), "{format} {body}");
    }
}

#[tokio::test]
async fn what_the_caller_runs_itself_reserves_no_window() {
    let tool = |tool: Value| json!({ "tools": [tool] });
    for (path, format, fields) in [
        (RESPONSES, "responses", tool(json!({ "type": "shell",
            "environment": { "type": "local" } }))),
        (RESPONSES, "responses", tool(json!({ "type": "apply_patch" }))),
        (MESSAGES, "messages", tool(json!({ "type": "bash_20250124", "name": "bash" }))),
        (NATIVE, "native", tool(json!({ "computerUse": {} }))),
    ] {
        let (_provider, gateway) = gateway(format, "context = 100000\n").await;
        let body = with(plain_body(path), fields);
        let held = reservation(&gateway, path, &body).await;
        assert!(held < Money::from_nanos(1_000_000), "{format} {body}: {held}");
    }
}

#[tokio::test]
async fn an_unknown_window_is_a_large_one() {
    let (_provider, gateway) = gateway("chat", "").await;
    let body = with(plain_body(CHAT), json!({ "plugins": [] }));
    let held = reservation(&gateway, CHAT, &body).await;
    assert!(held >= Money::from_nanos((1 << 20) * 1_000), "{held}");
}

/// A prompt is at most as long as the window, however many bytes it has.
#[tokio::test]
async fn a_long_text_reserves_at_most_the_window() {
    let (_provider, gateway) = gateway("chat", "context = 1000\n").await;
    let text = "word ".repeat(10_000);
    let body = with(plain_body(CHAT), json!({ "messages": [{ "role": "user", "content": text }] }));
    let held = reservation(&gateway, CHAT, &body).await;
    assert!(held <= Money::from_nanos(1_100_000), "{held}");
}
