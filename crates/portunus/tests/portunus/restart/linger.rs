//! The time in which a stopping gateway still takes calls.

use testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::load::request;
use super::{Gateway, Site};
use crate::transport::raw_client::Caller;

/// A connection with one answered request.
async fn used_connection(gateway: &Gateway) -> Caller {
    let mut caller = Caller::at(&gateway.address).await;
    caller.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let answer = caller.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, None));
    caller
}

/// Sends a call and returns what the answer says of its connection.
async fn call(caller: &mut Caller, key: &str) -> Option<String> {
    caller.send(request(key, "m", false)).await;
    let answer = caller.answer().await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("connection").map(str::to_owned)
}

/// The type of the next frame of HTTP/2 that is no `SETTINGS`, `PING` or `WINDOW_UPDATE`.
async fn next_frame(stream: &mut TcpStream) -> u8 {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if ![4, 6, 8].contains(&head[3]) {
            return head[3];
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_taken_until_a_second_signal_ends_the_linger() {
    let site = Site::new("600s", "").await;
    let key = site.key(&["--unlimited"]);
    let gateway = site.start("data", "127.0.0.1:0", &[]);
    let mut busy = used_connection(&gateway).await;
    let mut idle = used_connection(&gateway).await;
    let mut http2 = TcpStream::connect(&gateway.address).await.unwrap();
    http2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    gateway.signal("-TERM");
    until("it is not ready", async || gateway.readiness().await == Some(503)).await;
    assert_eq!(call(&mut busy, &key).await.as_deref(), Some("close"));
    assert!(busy.is_closed().await);
    let mut late = Caller::at(&gateway.address).await;
    assert_eq!(call(&mut late, &key).await.as_deref(), Some("close"));
    // The idle connection was not closed, so that a request on its way is served.
    assert_eq!(call(&mut idle, &key).await.as_deref(), Some("close"));
    let mut idle = Caller::at(&gateway.address).await;
    gateway.signal("-TERM");
    assert!(idle.is_closed().await);
    const GO_AWAY: u8 = 7;
    assert_eq!(next_frame(&mut http2).await, GO_AWAY);
    drop(http2);
    assert_eq!(gateway.ended().await, Some(0));
    assert_eq!(site.receipts().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_does_not_linger() {
    let site = Site::new("600s", "").await;
    let gateway = site.start("data", "127.0.0.1:0", &[]);
    let mut idle = used_connection(&gateway).await;
    gateway.signal("-INT");
    assert!(idle.is_closed().await);
    assert_eq!(gateway.ended().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_linger_ends_by_itself_and_may_be_zero() {
    for linger in ["100ms", "0s"] {
        let site = Site::new(linger, "").await;
        let gateway = site.start("data", "127.0.0.1:0", &[]);
        gateway.signal("-TERM");
        assert_eq!(gateway.ended().await, Some(0), "{linger}");
    }
}
