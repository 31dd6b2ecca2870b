//! Responses over a WebSocket: calls, frames that break the rules, limits and the end of a connection.

mod calls;
mod endings;
mod frames;
mod limits;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::TestGateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Longer than anything here takes: a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(90);

const HANDSHAKE: &str = "Host: gateway\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends the head of a request and returns the head of the answer.
async fn handshake(address: &str, lines: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET /v1/responses?x=1 HTTP/1.1\r\n{lines}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(LONG, stream.read_u8()).await.unwrap().unwrap();
        answer.push(byte);
    }
    (stream, String::from_utf8(answer).unwrap())
}

/// A client of the official protocol.
pub(crate) struct SocketClient(WebSocketStream<TcpStream>);

impl SocketClient {
    async fn open(gateway: &TestGateway) -> Self {
        Self::open_with(gateway, &gateway.key, "").await
    }

    pub(crate) async fn open_with(gateway: &TestGateway, key: &str, lines: &str) -> Self {
        Self::open_at(gateway.url.trim_start_matches("http://"), key, lines).await
    }

    pub(crate) async fn open_at(address: &str, key: &str, lines: &str) -> Self {
        let lines = format!("{HANDSHAKE}Authorization: Bearer {key}\r\n{lines}");
        let (stream, head) = handshake(address, &lines).await;
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        let head = head.to_ascii_lowercase();
        // The example of RFC 6455, section 1.3.
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    pub(crate) async fn send(&mut self, event: &Value) {
        self.0.send(Message::Text(event.to_string().into())).await.unwrap();
    }

    async fn create(&mut self, mut fields: Value) {
        fields["type"] = json!("response.create");
        self.send(&fields).await;
    }

    /// Returns the next event; the code of the close frame, or zero without one, at the end.
    pub(crate) async fn next(&mut self) -> Result<Value, u16> {
        loop {
            match tokio::time::timeout(LONG, self.0.next()).await.expect("an event in time") {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map_or(0, |frame| frame.code.into()));
                }
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed)) | None => return Err(0),
                Some(Err(_)) => return Err(0),
            }
        }
    }

    /// Returns the events up to the last one of a response, or an error.
    async fn response(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await.expect("an open connection");
            let kind = event["type"].as_str().unwrap().to_owned();
            events.push(event);
            let ends = ["response.completed", "response.incomplete", "response.failed", "error"];
            if ends.contains(&kind.as_str()) {
                return events;
            }
        }
    }

    /// Creates a response and returns its last event.
    pub(crate) async fn ask(&mut self, fields: Value) -> Value {
        self.create(fields).await;
        self.response().await.pop().unwrap()
    }

    /// Returns the code of the close frame that comes next.
    pub(crate) async fn closed(&mut self) -> u16 {
        self.next().await.expect_err("a closed connection")
    }

    /// Sends bytes that may not be a frame.
    async fn send_raw(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }
}
