//! Lanes: choice, failover, and cancelled work after a caller disconnects.

mod disconnects;
mod failover;
mod in_flight;
mod labels;
mod reload;
mod routing;
mod sessions;

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, chat_reply};

const CHAT: &str = "/v1/chat/completions";

fn hello(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 50 })
}

/// Providers named a, b, c, … and a model `m` with that entry.
fn config(providers: &[&str], model: &str) -> String {
    let mut text = String::new();
    for (name, url) in ('a'..).zip(providers) {
        text += &format!("[providers.{name}]\nspeaks = \"chat\"\nbase = \"{url}\"\n");
    }
    format!("{text}[models.m]\nprice = {{ input = \"1\", output = \"2\" }}\n{model}\n")
}

async fn good() -> ScriptedProvider {
    ScriptedProvider::start(vec![chat_reply("hi", 3, 5)]).await
}

/// An answer with that status, those headers and that body.
fn answer(status: u16, headers: &str, body: &str) -> Vec<AnswerStep> {
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    vec![AnswerStep::Bytes(text.into_bytes())]
}

async fn failing(status: u16) -> ScriptedProvider {
    ScriptedProvider::start(vec![answer(status, "", "{}")]).await
}

async fn ask(gateway: &TestGateway) -> TestResponse {
    gateway.post(CHAT, &hello("m")).send().await
}

async fn receipt(gateway: &TestGateway, got: &TestResponse) -> Value {
    gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await.json()
}
