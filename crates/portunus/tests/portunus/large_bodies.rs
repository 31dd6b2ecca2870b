//! Large requests and replies: their parsing must not keep other callers waiting.
//!
//! Such work takes a place of `HeavyWork`, which leaves the threads that serve sockets. So the count of
//! pieces that got a place shows that work was announced, however long anything takes.

use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{ScriptedProvider, TestGateway, chat_reply, chat_stream, reply, sse};

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

/// A parsed value takes much more memory than its text, so such an answer is not parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_with_too_many_values_are_not_parsed_and_the_next_lane_answers() {
    let lists = format!("\"own\":[{}[]],", "[],".repeat(1_600_000));
    let whole = json!({
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" },
                      "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
        "id": "c", "object": "chat.completion", "created": 1, "model": "up",
    });
    let whole = whole.to_string().replacen('{', &format!("{{{lists}"), 1);
    let mut events = chat_stream(&["Hi"], 1, 1);
    events[0] = events[0].replacen('{', &format!("{{{lists}"), 1);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let other = chat_stream(&["Hello"], 1, 1);
    let other: Vec<&str> = other.iter().map(String::as_str).collect();
    for stream in [false, true] {
        let (many, few) = match stream {
            false => (reply(200, "application/json", &whole), chat_reply("Hello", 1, 1)),
            true => (sse(&events), sse(&other)),
        };
        let (bad, good) =
            (ScriptedProvider::start(vec![many]).await, ScriptedProvider::start(vec![few]).await);
        let provider = |name: &str, url: &str| {
            format!("[providers.{name}]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n")
        };
        let price = "price = { input = \"1.00\", output = \"2.00\" }";
        let config = format!(
            "{}{}[models.one]\nlanes = [\"bad/x\"]\n{price}\n\
             [models.both]\nlanes = [\"bad/x\", \"good/y\"]\n{price}\n",
            provider("bad", &bad.url),
            provider("good", &good.url),
        );
        let gateway = TestGateway::with_config(&config).await;
        for path in ["/v1/chat/completions", "/v1/messages"] {
            let body = |model: &str| {
                json!({ "model": model, "max_tokens": 20, "stream": stream,
                        "messages": [{ "role": "user", "content": "Hello!" }] })
            };
            let both = gateway.post(path, &body("both")).send().await;
            assert_eq!(both.status, 200, "{path} {stream}: {}", both.text());
            assert_eq!(both.header("x-portunus-lane"), "good/y", "{path} {stream}");
            let one = gateway.post(path, &body("one")).send().await;
            assert_eq!(one.status, 503, "{path} {stream}: {}", one.text());
            let message = one.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains("3000000 values"), "{path} {stream}: {message}");
        }
    }
}
