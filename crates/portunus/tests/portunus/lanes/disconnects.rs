//! A caller that disconnects ends the work at the provider and pays by the charging rules.

use super::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A provider that takes one request, says this much and waits. Tells when it has said it, and
/// when the gateway is gone.
async fn stalling(say: &'static str) -> (String, oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (said, has_said) = oneshot::channel();
    let (gone, is_gone) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        let mut read = Vec::new();
        while !read.ends_with(b"}") {
            let count = stream.read(&mut buffer).await.unwrap();
            read.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(say.as_bytes()).await.unwrap();
        said.send(()).unwrap();
        // Nothing more is sent, so reading ends only when the other side closes or resets.
        while matches!(stream.read(&mut buffer).await, Ok(count) if count > 0) {}
        gone.send(()).unwrap();
    });
    (url, has_said, is_gone)
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{\"choices\":[";
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello there\"}}]}\n\n";

#[tokio::test]
async fn the_provider_is_let_go_when_the_caller_leaves() {
    // Before the head, in the middle of a whole answer, and in a stream.
    for (say, stream) in [("", false), ("", true), (HEAD, false), (STREAM, true)] {
        let (url, said, gone) = stalling(say).await;
        let gateway = TestGateway::with_config(&config(&[&url], "lanes = [\"a/x\"]")).await;
        let mut body = hello("m");
        body["stream"] = json!(stream);
        let body = body.to_string();
        let address = gateway.url.strip_prefix("http://").unwrap();
        let mut caller = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            gateway.key,
            body.len()
        );
        caller.write_all(request.as_bytes()).await.unwrap();
        said.await.unwrap();
        if say == STREAM {
            let mut seen = Vec::new();
            while !String::from_utf8_lossy(&seen).contains("Hello there") {
                let mut buffer = [0; 4096];
                let count = caller.read(&mut buffer).await.unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
                seen.extend_from_slice(&buffer[..count]);
            }
        }
        drop(caller);
        let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
        assert!(gone.is_ok(), "nobody told the provider: {say}");

        gateway.wait_until_settled().await;
        let entries = gateway.app.store.export(None, 10).await.unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].outcome, ledger::CallOutcome::CallerLeft);
        // A stream costs what came out, a whole answer what its lane makes in that time.
        let paid = entries[0].cost.as_nanos() > 0;
        assert_eq!(paid, say == STREAM || !stream, "{say} {stream}: {:?}", entries[0]);
        let health = gateway.app.config().lane_health(gateway.app.ticks());
        let lane = health.iter().find(|lane| lane.lane == "a/x").unwrap();
        assert_eq!((lane.health.pending, lane.health.failure_streak), (0, 0));
    }
}
