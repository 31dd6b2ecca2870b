//! Callers of streams that half-close, disconnect, or stop reading.

use super::raw_client::{Caller, call, hello};
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream, sse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything here takes, and shorter than the gateway's own patience with providers.
pub(crate) const LONG: Duration = Duration::from_secs(90);

pub(crate) const EVENTS: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn asked(gateway: &TestGateway, stream: bool) -> Vec<u8> {
    let body = hello("m", stream);
    call(gateway, &format!("content-length: {}\r\n", body.len()), &body)
}

/// A provider whose connections are ours to play.
pub(crate) struct Stage(TcpListener);

impl Stage {
    pub(crate) async fn new() -> (Self, TestGateway) {
        Self::with("").await
    }

    pub(crate) async fn with(more: &str) -> (Self, TestGateway) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = format!(
            "{more}[providers.p]\nspeaks = \"chat\"\nbase = \"http://{address}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n"
        );
        (Self(listener), TestGateway::with_config(&config).await)
    }

    /// The next request's connection, the request read.
    pub(crate) async fn next(&self) -> TcpStream {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let mut read = Vec::new();
        while !read.windows(8).any(|eight| eight == b"Hello!\"}") {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0);
        }
        stream
    }
}

/// Reads until the other end lets go.
pub(crate) async fn let_go(mut stream: TcpStream) {
    let reading = async { while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} };
    tokio::time::timeout(LONG, reading).await.expect("the provider is let go");
}

#[tokio::test]
async fn a_caller_that_ends_its_side_still_gets_its_answer() {
    let events = chat_stream(&["one", "two"], 1, 2);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    // Silence before the answer and in its middle, long enough for the gateway to probe the caller.
    let mut steps = sse(&events);
    steps.insert(2, AnswerStep::Wait(Duration::from_millis(800)));
    steps.insert(0, AnswerStep::Wait(Duration::from_millis(800)));
    let provider = ScriptedProvider::start(vec![steps]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let mut caller = Caller::to(&gateway).await;
    caller.send(asked(&gateway, true)).await;
    caller.stream.shutdown().await.unwrap();
    let answer = loop {
        match caller.answer().await.unwrap() {
            answer if answer.status == 100 => {}
            answer => break answer,
        }
    };
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("\"two\"") && answer.text().contains("[DONE]"));
}

#[tokio::test]
async fn a_caller_that_ends_its_side_in_the_middle_of_a_stream_gets_the_rest() {
    let (stage, gateway) = Stage::new().await;
    let mut caller = Caller::to(&gateway).await;
    caller.send(asked(&gateway, true)).await;
    let mut provider = stage.next().await;
    let events = chat_stream(&["one", "two"], 1, 2);
    let told = |event: &String| format!("data: {event}\n\n").into_bytes();
    provider.write_all(&[EVENTS, &told(&events[0]), &told(&events[1])].concat()).await.unwrap();
    assert!(caller.head().await.starts_with("HTTP/1.1 200"));
    assert!(caller.chunk().await.unwrap().is_some());
    caller.stream.shutdown().await.unwrap();
    // Long enough for the gateway to have probed twice; its probes must do no harm.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let rest: Vec<u8> = events[2..].iter().flat_map(told).collect();
    provider.write_all(&rest).await.unwrap();
    drop(provider);
    let mut text = Vec::new();
    while let Some(chunk) = caller.chunk().await.expect("a proper end") {
        text.extend(chunk);
    }
    assert!(String::from_utf8(text).unwrap().contains("[DONE]"));
}

#[tokio::test]
async fn a_caller_that_leaves_is_noticed_though_nothing_is_sent() {
    let (stage, gateway) = Stage::new().await;
    for (stream, begun) in [(false, false), (true, false), (true, true)] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(asked(&gateway, stream)).await;
        let mut provider = stage.next().await;
        if begun {
            let event = format!("data: {}\n\n", chat_stream(&["one"], 1, 1)[0]);
            provider.write_all(&[EVENTS, event.as_bytes()].concat()).await.unwrap();
            caller.head().await;
        }
        drop(caller);
        let_go(provider).await;
    }
    tokio::time::timeout(LONG, gateway.wait_until_settled()).await.expect("every call is settled");
}

#[tokio::test]
async fn a_caller_that_takes_nothing_is_cut_and_its_call_settled() {
    let (stage, gateway) = Stage::with("[limits]\nstall = \"500ms\"\n").await;
    let mut caller = Caller::to(&gateway).await;
    // A hold for all that may come; otherwise a provider that exceeds its limit is cut off.
    let body = String::from_utf8(hello("m", true)).unwrap();
    let body = body.replacen('{', "{\"max_completion_tokens\":100000000,", 1);
    let length = format!("content-length: {}\r\n", body.len());
    caller.send(call(&gateway, &length, body.as_bytes())).await;
    let mut provider = stage.next().await;
    let piece = chat_stream(&[&"x".repeat(4_000)], 1, 1)[1].clone();
    let event = format!("data: {piece}\n\n");
    provider.write_all(EVENTS).await.unwrap();
    let mut taken = 0;
    let writing = async {
        while provider.write_all(event.as_bytes()).await.is_ok() {
            taken += event.len();
        }
    };
    tokio::time::timeout(LONG, writing).await.expect("the provider is let go");
    // The kernel's buffers of two connections, and little of our own.
    assert!(taken < 32 << 20, "{taken} bytes were taken for nobody");
    tokio::time::timeout(LONG, gateway.wait_until_settled()).await.expect("the call is settled");
    let rows = gateway.app.store.export(None, 10).await.unwrap();
    assert_eq!((rows.len(), rows[0].outcome), (1, ledger::CallOutcome::CallerLeft));
    // The output of the provider is charged, although the caller read little of it.
    let most = u64::try_from(taken).unwrap() / 4;
    assert!(
        (most / 8..=most).contains(&rows[0].usage.output),
        "{} of {most}",
        rows[0].usage.output
    );
    drop(caller);
}

#[tokio::test]
async fn a_connection_the_provider_has_let_go_is_not_missed() {
    let mut reply = chat_reply("Hi", 1, 1);
    // It closes without an error message.
    reply.push(AnswerStep::Close);
    let provider = ScriptedProvider::start(vec![reply]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let mut caller = Caller::to(&gateway).await;
    for _ in 0..20 {
        caller.send(asked(&gateway, false)).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(provider.requests().len(), 20, "each was sent once");
}

#[tokio::test]
async fn a_call_that_cannot_finish_before_the_end_is_told_so() {
    let (stage, gateway) = Stage::with("[timeouts]\ndrain = \"200ms\"\n").await;
    let mut callers = Vec::new();
    let mut providers = Vec::new();
    for stream in [false, true] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(asked(&gateway, stream)).await;
        providers.push(stage.next().await);
        callers.push(caller);
    }
    let book = std::sync::Arc::clone(&gateway.app.engine.funds.open_calls);
    let stopped = tokio::spawn(gateway.stop());
    for caller in &mut callers {
        let answer = caller.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
        assert_eq!(answer.json()["error"]["code"], "overloaded");
        assert!(caller.is_closed().await);
    }
    for provider in providers {
        let_go(provider).await;
    }
    tokio::time::timeout(LONG, stopped).await.expect("an end in time").unwrap();
    assert_eq!(book.running_count(), 0, "nothing is held");
}
