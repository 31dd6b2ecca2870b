//! Providers, models and credentials that administrators change at run time.

mod changes;
mod directory;
mod other_nodes;
mod secrets;
mod validation;
mod vault;

use http::Method;
use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, TestResponse, chat_reply, until};

/// Configuration that allows providers on this machine.
const OPEN: &str = "[outbound]\nallow = [\"127.0.0.0/8\"]\n";
const CHAT: &str = "/v1/chat/completions";
const SECRET: &str = "sk-canary-7Hq2Zt9xWm4Lr8Kv";

fn hello(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 50 })
}

async fn good() -> ScriptedProvider {
    ScriptedProvider::start(vec![chat_reply("hi", 3, 5)]).await
}

async fn admin(gateway: &TestGateway, method: Method, path: &str, body: Value) -> TestResponse {
    let ask = gateway.request(method, &format!("/api/admin{path}"));
    ask.body(body.to_string()).send().await
}

async fn get(gateway: &TestGateway, path: &str) -> Value {
    let got = admin(gateway, Method::GET, path, Value::Null).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

async fn put(gateway: &TestGateway, path: &str, body: Value) -> Value {
    let got = admin(gateway, Method::PUT, path, body).await;
    assert!(got.status.is_success(), "{path}: {}", got.text());
    got.json()
}

/// Adds a provider `house` with a credential and a model `m` that it serves.
async fn furnish(gateway: &TestGateway, url: &str) {
    let provider = json!({ "speaks": "chat", "base": url });
    let made = admin(gateway, Method::PUT, "/providers/house", provider).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let credential = json!({ "name": "main", "value": SECRET });
    let given = admin(gateway, Method::POST, "/providers/house/credentials", credential).await;
    assert_eq!(given.status, 201, "{}", given.text());
    let model = json!({ "lanes": ["house/up"], "price": { "input": "1.00", "output": "2.00" } });
    let made = admin(gateway, Method::PUT, "/models/m", model).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

/// The credentials a provider was shown, in order.
fn shown(provider: &ScriptedProvider) -> Vec<String> {
    let asked = provider.requests();
    let bearer = |head: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with("authorization:"));
        line.map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned())
    };
    asked.iter().map(|one| bearer(&one.head).unwrap_or_default()).collect()
}
