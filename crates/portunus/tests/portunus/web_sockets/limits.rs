//! Keys, caps, rates and the end of a connection.

use admin::Actor;
use serde_json::json;
use std::time::Duration;
use store::RateLimits;
use testkit::{TestGateway, until};

use super::SocketClient;
use crate::money::{capped, key};

fn hello() -> serde_json::Value {
    json!({ "model": "demo-chat", "input": "Hi" })
}

#[tokio::test]
async fn a_key_that_is_revoked_between_two_calls_makes_no_second_one() {
    let gateway = TestGateway::start().await;
    let mut id = String::new();
    let text = key(&gateway, |record| id = record.id.clone()).await;
    let mut socket = SocketClient::open_with(&gateway, &text, "").await;
    assert_eq!(socket.ask(hello()).await["type"], "response.completed");
    gateway.app.admin.accounts.revoke_key(&Actor::Operator, &id, <_>::default()).await.unwrap();
    let got = socket.ask(hello()).await;
    assert_eq!((&got["status"], &got["error"]["code"]), (&json!(401), &json!("invalid_api_key")));
    assert_eq!(socket.closed().await, 1008);
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.export(None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cap_and_a_rate_hold_at_every_call() {
    let gateway = TestGateway::start().await;
    let text = capped(&gateway, "0.0000001").await;
    let mut socket = SocketClient::open_with(&gateway, &text, "").await;
    let got = socket.ask(hello()).await;
    assert_eq!((&got["type"], &got["status"]), (&json!("error"), &json!(429)), "{got}");
    assert_eq!(got["error"]["code"], "insufficient_quota", "{got}");
    let text = key(&gateway, |record| {
        record.limits = RateLimits { rpm: Some(1), ..RateLimits::default() };
    })
    .await;
    let mut socket = SocketClient::open_with(&gateway, &text, "").await;
    assert_eq!(socket.ask(hello()).await["type"], "response.completed");
    let got = socket.ask(hello()).await;
    assert_eq!(
        (&got["status"], &got["error"]["code"]),
        (&json!(429), &json!("rate_limit_exceeded"))
    );
    assert!(got["headers"]["retry-after"].as_str().unwrap().parse::<u64>().unwrap() > 0, "{got}");
}

#[tokio::test]
async fn a_key_for_reading_opens_no_connection() {
    let gateway = TestGateway::start().await;
    let text = key(&gateway, |record| record.grants = store::KeyGrants::Read).await;
    let lines = format!("{}Authorization: Bearer {text}\r\n", super::HANDSHAKE);
    let (_, head) = super::handshake(gateway.url.trim_start_matches("http://"), &lines).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[tokio::test]
async fn streams_and_waiting_responses_are_bounded() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    for number in 0..33 {
        let mut body = hello();
        body["stream_id"] = json!(format!("s{number}"));
        let got = socket.ask(body).await;
        if number < 32 {
            assert_eq!(got["type"], "response.completed");
        } else {
            assert_eq!(got["error"]["code"], "websocket_stream_limit_reached");
            assert_eq!(got["stream_id"], "s32");
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_too_old_ends_after_its_running_response() {
    let gateway = TestGateway::with_config("[server]\nwebsocket_time = \"1s\"\n").await;
    let mut socket = SocketClient::open(&gateway).await;
    assert_eq!(socket.ask(hello()).await["type"], "response.completed");
    let got = socket.next().await.unwrap();
    assert_eq!(got["error"]["code"], "websocket_connection_limit_reached");
    assert_eq!((&got["type"], &got["status"]), (&json!("error"), &json!(400)));
    assert_eq!(socket.closed().await, 1000);
}

#[tokio::test]
async fn idle_connections_stay_open_and_a_shutdown_closes_them() {
    let gateway =
        TestGateway::with_config("[limits]\nidle = \"100ms\"\nheader_time = \"100ms\"\n").await;
    let mut socket = SocketClient::open(&gateway).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(socket.ask(hello()).await["type"], "response.completed");
    let stopped = tokio::spawn(gateway.stop());
    assert_eq!(socket.closed().await, 1001);
    stopped.await.unwrap();
}

#[tokio::test]
async fn a_connection_counts_among_those_of_its_address() {
    let gateway = TestGateway::with_config("[limits]\nconnections_per_address = 2\n").await;
    let first = SocketClient::open(&gateway).await;
    let _second = SocketClient::open(&gateway).await;
    until("both are open", async || gateway.app.engine.connections.count() == 2).await;
    let refused = gateway.app.engine.connections.refused();
    let third = tokio::net::TcpStream::connect(gateway.url.trim_start_matches("http://")).await;
    until("it is refused", async || gateway.app.engine.connections.refused() > refused).await;
    drop((first, third));
    until("a place is free", async || gateway.app.engine.connections.count() == 1).await;
    SocketClient::open(&gateway).await;
}
