//! Ends of responses that fail: one last event each, and what was free takes no room.

use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{AnswerStep, ScriptedProvider, TestGateway};
use tokio::sync::Semaphore;

use super::SocketClient;

/// Returns the beginning of a stream of each format.
fn begin(format: &str) -> String {
    let event = match format {
        "chat" => {
            r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Half"}}]}"#
        }
        "messages" => {
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Half\"}}"
        }
        "native" => {
            r#"data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Half"}]}}]}"#
        }
        _ => {
            "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":7,\"model\":\"m\",\"store\":false,\"status\":\"in_progress\",\"output\":[]}}"
        }
    };
    let event = format!("{event}\n\n");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{event}\r\n",
        event.len()
    )
}

#[tokio::test]
async fn a_stream_that_breaks_off_has_one_last_event() {
    for format in ["chat", "responses", "messages", "native"] {
        let broken = || vec![AnswerStep::Bytes(begin(format).into()), AnswerStep::Close];
        let provider = ScriptedProvider::start(vec![broken(), broken()]).await;
        let gateway = TestGateway::with_config(&provider.config(format)).await;
        let mut socket = SocketClient::open(&gateway).await;
        for _ in 0..2 {
            socket.create(json!({ "model": "m", "input": "Hi", "store": false })).await;
            let events = socket.response().await;
            let (first, last) = (&events[0], &events[events.len() - 1]);
            assert_eq!(first["type"], "response.created", "{format}: the last turn is over");
            assert_eq!(last["type"], "response.failed", "{format}: {last}");
            assert_eq!(last["sequence_number"], events.len() - 1, "{format}");
            let (begun, failed) = (&first["response"], &last["response"]);
            for name in ["id", "model", "created_at", "store"] {
                assert_eq!(failed[name], begun[name], "{format}: {name}");
            }
            assert_eq!(failed["status"], "failed");
            assert_eq!(failed["error"]["code"], "server_error");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_during_a_response_ends_the_connection() {
    let go_on = Arc::new(Semaphore::new(0));
    let answer = vec![
        AnswerStep::Bytes(begin("responses").into()),
        AnswerStep::WaitFor(Arc::clone(&go_on)),
        AnswerStep::Close,
    ];
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let mut socket = SocketClient::open(&gateway).await;
    socket.create(json!({ "model": "m", "input": "Hi" })).await;
    assert_eq!(socket.next().await.unwrap()["type"], "response.created");
    let id = gateway.key.split('-').nth(2).unwrap();
    let now = gateway.app.engine.clock.now();
    assert!(gateway.app.store.revoke_key(id, now).await.unwrap());
    gateway.app.engine.keys.refresh().await.unwrap();
    go_on.add_permits(1);
    let last = socket.response().await.pop().unwrap();
    assert_eq!((&last["type"], &last["status"]), (&json!("error"), &json!(401)), "{last}");
    assert_eq!(last["error"]["code"], "invalid_api_key");
    assert_eq!(socket.closed().await, 1008);
}

#[tokio::test]
async fn a_prepared_response_is_kept_with_its_connection_alone() {
    let gateway = TestGateway::with_config("[limits]\nfree_rpm = 3\n").await;
    let mut socket = SocketClient::open(&gateway).await;
    let body = json!({ "model": "demo-chat", "input": "Hi", "store": true, "generate": false });
    let made = socket.ask(body.clone()).await;
    assert_eq!(made["response"]["store"], json!(false));
    let id = made["response"]["id"].as_str().unwrap().to_owned();
    let next = json!({ "model": "demo-chat", "input": "Go on", "previous_response_id": id });
    assert_eq!(socket.ask(next.clone()).await["type"], "response.completed");
    let mut other = SocketClient::open(&gateway).await;
    assert_eq!(other.ask(next).await["error"]["code"], "previous_response_not_found");
    let mut refused: Option<Value> = None;
    for _ in 0..3 {
        refused = Some(socket.ask(body.clone()).await);
    }
    let refused = refused.unwrap();
    assert_eq!(refused["status"], 429, "it counts like other requests without a price: {refused}");
}
