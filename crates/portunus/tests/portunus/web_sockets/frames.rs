//! Frames that break the rules, and messages in pieces.

use futures_util::SinkExt as _;
use serde_json::{Value, json};
use testkit::{TestGateway, until};
use tokio_tungstenite::tungstenite::Message;

use super::SocketClient;

const TEXT: u8 = 0x1;
const FINAL: u8 = 0x80;

/// A frame with these first bits, masked by a mask that is not zero.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    let mask = [7_u8, 1, 9, 250];
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn create() -> Vec<u8> {
    json!({ "type": "response.create", "model": "demo-chat", "input": "Hé" })
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn a_message_may_come_in_pieces_with_pings_between_them() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    let text = create();
    for size in [1, 3, 50] {
        let mut bytes = Vec::new();
        let pieces: Vec<&[u8]> = text.chunks(size).collect();
        for (at, piece) in pieces.iter().enumerate() {
            let first = if at == 0 { TEXT } else { 0 };
            let last = if at + 1 == pieces.len() { FINAL } else { 0 };
            bytes.extend(frame(first | last, piece));
            if at % 7 == 0 {
                bytes.extend(frame(FINAL | 0x9, b"ping"));
            }
        }
        // Byte by byte over the network for the largest pieces.
        if size == 50 {
            for byte in bytes {
                socket.send_raw(&[byte]).await;
            }
        } else {
            socket.send_raw(&bytes).await;
        }
        let last = socket.response().await.pop().unwrap();
        assert_eq!(last["type"], "response.completed", "{size}: {last}");
    }
    assert_eq!(gateway.app.api.limiter.buffered_bytes(), 0);
}

#[tokio::test]
async fn frames_that_break_the_rules_end_the_connection_with_their_code() {
    let gateway = TestGateway::start().await;
    let text = create();
    let unmasked = {
        let mut frame = vec![FINAL | TEXT, u8::try_from(text.len()).unwrap()];
        frame.extend(&text);
        frame
    };
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("no mask", unmasked, 1002),
        ("reserved bit", frame(FINAL | 0x40 | TEXT, &text), 1002),
        ("unknown kind", frame(FINAL | 0x3, &text), 1002),
        ("unknown control frame", frame(FINAL | 0xb, b""), 1002),
        ("ping in pieces", frame(0x9, b""), 1002),
        ("large ping", frame(FINAL | 0x9, &[b'x'; 126]), 1002),
        ("continuation of nothing", frame(FINAL, &text), 1002),
        ("text within a text", [frame(TEXT, b"{"), frame(FINAL | TEXT, &text)].concat(), 1002),
        ("binary", frame(FINAL | 0x2, &text), 1003),
        ("not UTF-8", frame(FINAL | TEXT, &[b'"', 0xff, b'"']), 1007),
        ("half a character", frame(FINAL | TEXT, &[b'"', 0xc3]), 1007),
    ];
    for (name, bytes, code) in cases {
        let mut socket = SocketClient::open(&gateway).await;
        socket.send_raw(&bytes).await;
        let closed = loop {
            match socket.next().await {
                Ok(event) => assert_eq!(event["type"], "error", "{name}"),
                Err(code) => break code,
            }
        };
        assert_eq!(closed, code, "{name}");
    }
    // The books are empty, and so are the connections.
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.export(None, 10).await.unwrap().len(), 0);
    until("the connections are gone", async || gateway.app.engine.connections.count() == 0).await;
    assert_eq!(gateway.app.api.limiter.buffered_bytes(), 0);
}

#[tokio::test]
async fn texts_that_are_no_event_are_errors_and_the_connection_goes_on() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    for text in ["", "null", "[]", "{", "{}", "\"response.create\"", "{\"type\":7}"] {
        socket.0.send(Message::Text(text.into())).await.unwrap();
        let got = socket.next().await.unwrap();
        assert_eq!((&got["type"], &got["status"]), (&json!("error"), &json!(400)), "{text}: {got}");
    }
    let got = socket.ask(json!({ "model": "demo-chat", "input": "Hi" })).await;
    assert_eq!(got["type"], "response.completed");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_before_it_is_read() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"64KiB\"\n").await;
    let mut socket = SocketClient::open(&gateway).await;
    // Only the head of the frame is sent.
    let large = frame(FINAL | TEXT, &vec![b' '; 70_000]);
    socket.send_raw(&large[..14]).await;
    let event = socket.next().await.unwrap();
    assert_eq!((&event["type"], &event["status"]), (&json!("error"), &json!(413)), "{event}");
    assert_eq!(socket.closed().await, 1009);
    // In pieces, of which each is small enough.
    let mut socket = SocketClient::open(&gateway).await;
    let mut bytes = frame(TEXT, &[b' '; 40_000]);
    bytes.extend(frame(FINAL, &[b' '; 40_000]));
    socket.send_raw(&bytes).await;
    assert_eq!(socket.next().await.unwrap()["status"], 413);
    assert_eq!(socket.closed().await, 1009);
}

#[tokio::test]
async fn unfinished_messages_are_memory_and_must_keep_arriving() {
    let config = "[limits]\nbody = \"1MiB\"\nbuffered = \"1MiB\"\nbuffered_per_key = \"1MiB\"\n\
        body_time = \"300ms\"\nbody_rate = \"1MiB\"\n";
    let gateway = TestGateway::with_config(config).await;
    let mut socket = SocketClient::open(&gateway).await;
    let half = frame(FINAL | TEXT, &vec![b' '; 600_000]);
    socket.send_raw(&half[..500_000]).await;
    until("the message is counted", async || gateway.app.api.limiter.buffered_bytes() >= 400_000)
        .await;
    let event = socket.next().await.unwrap();
    assert_eq!(event["status"], 408, "{event}");
    assert_eq!(socket.closed().await, 1008);
    drop(socket);
    until("the memory is free", async || gateway.app.api.limiter.buffered_bytes() == 0).await;
    // Two of them do not fit.
    let slow = config.replace("300ms", "60s");
    let gateway = TestGateway::with_config(&slow).await;
    let mut first = SocketClient::open(&gateway).await;
    let mut second = SocketClient::open(&gateway).await;
    first.send_raw(&frame(TEXT, &vec![b' '; 600_000])).await;
    until("the message is counted", async || gateway.app.api.limiter.buffered_bytes() >= 600_000)
        .await;
    second.send_raw(&frame(TEXT, &vec![b' '; 600_000])).await;
    let event: Value = second.next().await.unwrap();
    assert_eq!(event["status"], 429, "{event}");
    assert_eq!(second.closed().await, 1013);
}
