//! Floods of a provider: callers that do not read them, and tasks that must run beside them.

use super::raw_client::{CHAT, Caller, call};
use crate::web_sockets::SocketClient;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ledger::{EndedBy, LedgerEntry};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use testkit::{TestGateway, until};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// A provider on a thread of its own, so that it does not wait for the tasks of the gateway. It
/// answers one request without an end.
struct FloodProvider {
    url: String,
    /// Bytes of the flood so far.
    sent: Arc<AtomicUsize>,
    /// Ends with the connection.
    thread: JoinHandle<()>,
}

impl FloodProvider {
    fn start(opening: &str, piece: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicUsize::new(0));
        let (opening, piece) = (format!("{HEAD}{opening}"), piece.repeat(1 + 16_000 / piece.len()));
        let counter = Arc::clone(&sent);
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 64 << 10]);
            let _ = stream.write_all(opening.as_bytes());
            while stream.write_all(piece.as_bytes()).is_ok() {
                counter.fetch_add(piece.len(), Ordering::Relaxed);
            }
        });
        Self { url, sent, thread }
    }

    /// A flood of text in the chat format.
    fn of_text() -> Self {
        let piece = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1,
            "model": "up", "choices": [{ "index": 0, "finish_reason": null,
            "delta": { "role": "assistant", "content": "word ".repeat(40) } }] });
        Self::start("", &format!("data: {piece}\n\n"))
    }

    async fn gateway(&self, speaks: &str, more: &str) -> TestGateway {
        TestGateway::with_config(&format!(
            "[limits]\nstall = \"10m\"\n\
             [providers.p]\nspeaks = \"{speaks}\"\nbase = \"{}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n\
             {more}",
            self.url
        ))
        .await
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

fn body() -> Vec<u8> {
    let turns = json!([{ "role": "user", "content": "Hello!" }]);
    let most = 1_000_000_000;
    json!({ "model": "m", "stream": true, "messages": turns, "max_completion_tokens": most })
        .to_string()
        .into_bytes()
}

/// A caller that has the head of its answer and reads no more.
enum StalledCaller {
    Http1(#[expect(dead_code, reason = "keeps the connection open")] Caller),
    Http2(#[expect(dead_code, reason = "keeps the stream open")] http::Response<Incoming>),
}

impl StalledCaller {
    async fn http1(gateway: &TestGateway) -> Self {
        let mut caller = Caller::to(gateway).await;
        let body = body();
        caller.send(call(gateway, &format!("content-length: {}\r\n", body.len()), &body)).await;
        assert!(caller.head().await.contains("200"));
        Self::Http1(caller)
    }

    async fn http2(gateway: &TestGateway) -> Self {
        let client: Client<_, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let request = Request::post(format!("{}{CHAT}", gateway.url))
            .header("authorization", format!("Bearer {}", gateway.key))
            .header("content-type", "application/json")
            .body(Full::from(body()))
            .unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self::Http2(response)
    }

    async fn of(gateway: &TestGateway, is_http2: bool) -> Self {
        if is_http2 { Self::http2(gateway).await } else { Self::http1(gateway).await }
    }
}

/// The settled call, as soon as there is one.
async fn settled(gateway: &TestGateway) -> LedgerEntry {
    let mut rows = Vec::new();
    until("the call is settled", async || {
        rows = gateway.app.store.export(None, 10).await.unwrap();
        !rows.is_empty()
    })
    .await;
    rows.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_read_meets_the_total_timeout() {
    for is_http2 in [false, true] {
        let provider = FloodProvider::of_text();
        // The provider is not silent, so its longest silence must not end the call.
        let timeouts = "timeouts = { gap = \"1s\", total = \"4s\" }\n";
        let gateway = provider.gateway("chat", timeouts).await;
        let _caller = StalledCaller::of(&gateway, is_http2).await;
        let row = settled(&gateway).await;
        assert_eq!(row.ended_by, EndedBy::Deadline);
        assert!((row.ended - row.started).as_millis() >= 3_900, "{row:?}");
        assert!(row.usage.output > 0, "what was said is counted");
        until("the provider is hung up on", async || provider.thread.is_finished()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_read_is_checkpointed_and_can_be_revoked() {
    for is_http2 in [false, true] {
        let provider = FloodProvider::of_text();
        let gateway = provider.gateway("chat", "").await;
        let _caller = StalledCaller::of(&gateway, is_http2).await;
        until("the journal knows the call", async || super::busy::reached(&gateway)).await;
        let id = gateway.key.split('-').nth(2).unwrap().to_owned();
        let now = gateway.app.clock.now();
        assert!(gateway.app.store.revoke_key(&id, now).await.unwrap());
        let row = settled(&gateway).await;
        assert_eq!(row.ended_by, EndedBy::Operator);
        assert!(row.usage.output > 0, "what was said is counted");
        // The caller still holds its connection, but the call is over.
        let config = gateway.app.config();
        let lanes = &config.routes["m"].lanes;
        assert!(!gateway.app.engine.in_flight.is_full(1), "the gateway counts the call");
        assert!(lanes.iter().all(|lane| !lane.in_flight.is_full(1)), "the provider counts it");
        until("the provider is hung up on", async || provider.thread.is_finished()).await;
    }
}

#[tokio::test]
async fn events_without_output_leave_time_for_other_tasks() {
    const MIB: usize = 1 << 20;
    let event =
        |value: Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap());
    let opening = [
        json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
            "role": "assistant", "model": "up", "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": { "input_tokens": 1, "output_tokens": 0 } } }),
        json!({ "type": "content_block_start", "index": 0,
            "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "text_delta", "text": "Hello!" } }),
    ];
    let opening: String = opening.into_iter().map(event).collect();
    let provider = FloodProvider::start(&opening, &event(json!({ "type": "ping" })));
    let gateway = provider.gateway("messages", "").await;
    let _caller = StalledCaller::http1(&gateway).await;
    // From here on the buffers of the sockets are full, so the provider sends what is read.
    while provider.sent() < 12 * MIB {
        tokio::task::yield_now().await;
    }
    let (begun, mut turns) = (provider.sent(), 0);
    while provider.sent() < begun + 16 * MIB {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(turns >= 32, "{turns} turns for this task while the stream took 16 MiB");
}

/// A WebSocket that is not read holds back its provider, and ends when it is not read for too long.
#[tokio::test(flavor = "multi_thread")]
async fn a_web_socket_that_is_not_read_holds_the_provider_back_and_ends() {
    let provider = FloodProvider::of_text();
    let gateway = TestGateway::with_config(&format!(
        "[limits]\nstall = \"2s\"\n\
         [providers.p]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
        provider.url
    ))
    .await;
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let mut socket = SocketClient::open_at(&address, &gateway.key, "").await;
    let most = 1_000_000_000;
    let body = json!({ "type": "response.create", "model": "m", "input": "Hello!",
        "max_output_tokens": most });
    socket.send(&body).await;
    until("the connection ends", async || gateway.app.engine.connections.count() == 0).await;
    // Buffers of the sockets and one batch of events, and nothing without a bound.
    assert!(provider.sent() < 64 << 20, "{}", provider.sent());
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.export(None, 10).await.unwrap().len(), 1);
    drop(socket);
}
