//! Large requests and replies: their parsing must not keep other callers waiting.
//!
//! Such work takes a place of `HeavyWork`, which leaves the threads that serve sockets. So the count of
//! pieces that got a place shows that work was announced, however long anything takes.

use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{ScriptedProvider, TestGateway, chat_reply};

/// Sends a request and checks that its work was announced, and that others are served meanwhile.
async fn assert_others_are_served(
    gateway: &Arc<TestGateway>,
    path: &'static str,
    body: String,
    dry_run: bool,
) {
    let body = Bytes::from(body);
    let before = gateway.app.engine.heavy_work.usage().begun;
    let asked = Arc::clone(gateway);
    let asking = tokio::spawn(async move {
        let request = asked.request(http::Method::POST, path).body(body);
        let got = request
            .header("x-portunus-dry-run", if dry_run { "true" } else { "false" })
            .send()
            .await;
        (got.status, got.text())
    });
    while !asking.is_finished() {
        assert_eq!(gateway.get("/healthz").send().await.status, 200);
    }
    let (status, text) = asking.await.unwrap();
    let text = text.get(..500).unwrap_or(&text);
    assert_eq!(status, 200, "{path}: {text}");
    let begun = gateway.app.engine.heavy_work.usage().begun - before;
    assert!(begun > 0, "{path}: the work kept its worker");
}

/// An object with these fields and that many others.
fn with_unknown(mut fields: Value, count: usize) -> String {
    let object = fields.as_object_mut().unwrap();
    object.extend((0..count).map(|number| (format!("unknown_{number}"), json!(1))));
    fields.to_string()
}

fn turns(role: &str, field: &str, content: &Value, count: usize) -> Value {
    (0..count).map(|_| json!({ "role": role, field: content })).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_requests_do_not_keep_others_waiting() {
    let gateway = Arc::new(TestGateway::start().await);
    let words = "Hello! ".repeat(60);
    let contents = turns("user", "parts", &json!([{ "text": words }]), 9_000);
    let body = with_unknown(json!({ "contents": contents }), 100_000);
    assert_others_are_served(&gateway, "/v1beta/models/demo-native:countTokens", body, false).await;
    let input = turns("user", "content", &json!(words), 9_000);
    let body = json!({ "model": "demo-chat", "input": input }).to_string();
    assert_others_are_served(&gateway, "/v1/responses/input_tokens", body, false).await;
    let messages = turns("user", "content", &json!(words), 9_000);
    let body = json!({ "model": "demo-messages", "max_tokens": 20, "messages": messages,
                       "thread": { "type": "create" } });
    assert_others_are_served(&gateway, "/v1/messages", body.to_string(), true).await;
    let hello = json!([{ "role": "user", "content": "Hello!" }]);
    let body = with_unknown(json!({ "model": "demo-messages", "messages": hello }), 400_000);
    assert_others_are_served(&gateway, "/v1/chat/completions", body, false).await;
    let body = with_unknown(json!({ "model": "demo-image", "prompt": "A harbour" }), 400_000);
    assert_others_are_served(&gateway, "/v1/images/generations", body, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_reply_does_not_keep_others_waiting() {
    let provider =
        ScriptedProvider::start(vec![chat_reply(&"\"word\" ".repeat(1 << 20), 5, 5)]).await;
    let gateway = Arc::new(TestGateway::with_config(&provider.config("chat")).await);
    let body = json!({ "model": "m", "max_tokens": 20,
                       "messages": [{ "role": "user", "content": "Hello!" }] });
    assert_others_are_served(&gateway, "/v1/messages", body.to_string(), false).await;
}
