//! HTTP/2 without TLS: well-behaved clients and attacks.

use super::raw_client::{CHAT, hello};
use super::streams::{EVENTS, LONG, Stage, let_go};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use testkit::{ScriptedProvider, TestGateway, chat_reply, chat_stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(true).build_http()
}

fn asked(gateway: &TestGateway, stream: bool) -> http::request::Builder {
    let accept = if stream { "text/event-stream" } else { "application/json" };
    Request::post(format!("{}{CHAT}", gateway.url))
        .header("authorization", format!("Bearer {}", gateway.key))
        .header("content-type", "application/json")
        .header("accept", accept)
}

#[tokio::test]
async fn whole_and_streamed_calls_share_one_connection() {
    let gateway = TestGateway::start().await;
    let client = client();
    let mut running = Vec::new();
    for number in 0..100 {
        let stream = number % 2 == 0;
        let body = Full::from(hello("demo-chat", stream));
        let answer = client.request(asked(&gateway, stream).body(body).unwrap());
        running.push(tokio::spawn(async move {
            let answer = answer.await.unwrap();
            let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
            (answer.status(), id, answer.into_body().collect().await.unwrap().to_bytes())
        }));
    }
    let mut ids = std::collections::BTreeSet::new();
    for (number, call) in running.into_iter().enumerate() {
        let (status, id, body) = call.await.unwrap();
        assert_eq!(status, StatusCode::OK);
        assert!(ids.insert(id));
        let text = String::from_utf8_lossy(&body);
        assert_eq!(text.trim_end().ends_with("data: [DONE]"), number % 2 == 0, "{text}");
    }
}

#[tokio::test]
async fn the_limits_of_headers_and_bodies_hold_here_too() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"64KiB\"\n").await;
    let client = client();
    let mut many = asked(&gateway, false);
    for number in 0..100 {
        many = many.header(format!("x-{number}"), "y");
    }
    let hello = hello("demo-chat", false);
    let rows = [
        (many, hello.clone(), 431),
        (asked(&gateway, false).header("expect", "banana"), hello.clone(), 417),
        (asked(&gateway, false), vec![b' '; 100 << 10], 413),
        (asked(&gateway, false).header("content-encoding", "banana"), hello.clone(), 415),
        (asked(&gateway, false), hello, 200),
    ];
    for (ask, body, status) in rows {
        let answer = client.request(ask.body(Full::from(body)).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status);
        assert!(answer.headers().contains_key("x-request-id"));
    }
}

/// The type of a frame.
const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
/// Its flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Headers in the plainest of their codings.
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// A connection of frames.
pub(crate) struct Raw(TcpStream);

impl Raw {
    async fn to(gateway: &TestGateway, settings: &[u8]) -> Self {
        let address = gateway.url.trim_start_matches("http://");
        Self::over(TcpStream::connect(address).await.unwrap(), settings).await
    }

    pub(crate) async fn over(stream: TcpStream, settings: &[u8]) -> Self {
        let mut raw = Self(stream);
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        raw.send(&frame(SETTINGS, 0, 0, settings)).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// The next frame of one of these types: its type and stream. `None` at the end.
    async fn next(&mut self, kinds: &[u8]) -> Option<(u8, u32)> {
        let head = self.next_head(kinds).await?;
        Some((head[3], u32::from_be_bytes(head[5..].try_into().unwrap())))
    }

    /// The next frame of one of these types: its type and flags. `None` at the end.
    async fn next_flags(&mut self, kinds: &[u8]) -> Option<(u8, u8)> {
        let head = self.next_head(kinds).await?;
        Some((head[3], head[4]))
    }

    async fn next_head(&mut self, kinds: &[u8]) -> Option<[u8; 9]> {
        Some(self.next_frame(kinds).await?.0)
    }

    /// The next frame of one of these types: its head and its content.
    pub(crate) async fn next_frame(&mut self, kinds: &[u8]) -> Option<([u8; 9], Vec<u8>)> {
        let reading = async {
            loop {
                let mut head = [0; 9];
                self.0.read_exact(&mut head).await.ok()?;
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; length as usize];
                self.0.read_exact(&mut payload).await.ok()?;
                if kinds.contains(&head[3]) {
                    return Some((head, payload));
                }
            }
        };
        tokio::time::timeout(LONG, reading).await.expect("a frame in time")
    }
}

fn head<'a>(key: &'a str, length: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", CHAT),
        (":authority", "gateway"),
        ("authorization", key),
        ("content-type", "application/json"),
        ("content-length", length),
    ]
}

#[tokio::test]
async fn a_target_that_is_no_path_is_refused_as_in_http1() {
    let gateway = TestGateway::start().await;
    // Statuses of the static table (RFC 7541, appendix A), one byte each.
    let (ok, bad_request) = (0x88, 0x8c);
    for (method, path, status) in [
        ("GET", "*", bad_request),
        ("HEAD", "*", bad_request),
        ("POST", "*", bad_request),
        ("GET", "/healthz", ok),
    ] {
        let mut raw = Raw::to(&gateway, &[]).await;
        let target =
            [(":method", method), (":scheme", "http"), (":path", path), (":authority", "x")];
        let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&target));
        raw.send(&request).await;
        let (_, answer) = raw.next_frame(&[HEADERS, RESET, GOAWAY]).await.unwrap();
        assert_eq!(answer.first(), Some(&status), "{method} {path}");
    }
}

#[tokio::test]
async fn malformed_requests_are_reset_and_never_run() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let key = format!("Bearer {}", gateway.key);
    let body = hello("m", false);
    let length = body.len().to_string();
    let with = |more: (&'static str, &'static str)| {
        let mut fields = head(&key, &length);
        fields.push(more);
        fields
    };
    let rows: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("an upper-case name", with(("X-Upper", "1"))),
        ("no method", head(&key, &length)[1..].to_vec()),
        ("a second path", with((":path", "/healthz"))),
        ("connection", with(("connection", "close"))),
        ("transfer-encoding", with(("transfer-encoding", "chunked"))),
        ("te", with(("te", "gzip"))),
        ("a line break", with(("x-a", "1\r\nx-b: 2"))),
        ("a length that is not true", head(&key, "3")),
    ];
    for (name, sent) in rows {
        let mut raw = Raw::to(&gateway, &[]).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &fields(&sent))).await;
        raw.send(&frame(DATA, END_STREAM, 1, &body)).await;
        let (kind, _) = raw.next(&[HEADERS, RESET, GOAWAY]).await.unwrap_or((GOAWAY, 0));
        assert_ne!(kind, HEADERS, "{name}: it was answered");
    }
    assert!(provider.requests().is_empty());
    let mut raw = Raw::to(&gateway, &[]).await;
    raw.send(&frame(HEADERS, END_HEADERS, 1, &fields(&head(&key, &length)))).await;
    raw.send(&frame(DATA, END_STREAM, 1, &body)).await;
    assert_eq!(raw.next(&[HEADERS, RESET, GOAWAY]).await, Some((HEADERS, 1)), "the good one");
}

#[tokio::test]
async fn a_connection_that_takes_back_what_it_asks_is_closed() {
    let gateway = TestGateway::start().await;
    let key = format!("Bearer {}", gateway.key);
    let asked = fields(&head(&key, "100"));
    let mut raw = Raw::to(&gateway, &[]).await;
    let mut pairs = 0;
    for stream in (1..).step_by(2) {
        let mut pair = frame(HEADERS, END_HEADERS, stream, &asked);
        pair.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
        if !raw.send(&pair).await {
            break;
        }
        pairs += 1;
        assert!(pairs < 1_000_000, "nobody minds");
        tokio::task::yield_now().await;
    }
    let mut honest = super::raw_client::Caller::to(&gateway).await;
    honest.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(honest.answer().await.unwrap().status, 200);
    tokio::time::timeout(LONG, gateway.wait_until_settled()).await.expect("nothing is held");
}

#[tokio::test]
async fn a_stream_whose_caller_takes_nothing_is_reset() {
    let events = chat_stream(&["x"; 50], 1, 50);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let provider = ScriptedProvider::start(vec![testkit::sse(&events)]).await;
    let config = format!("[limits]\nstall = \"500ms\"\n{}", provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    let key = format!("Bearer {}", gateway.key);
    let body = hello("m", true);
    let length = body.len().to_string();
    // The flow-control window of every stream is zero.
    let mut raw = Raw::to(&gateway, &[0, 4, 0, 0, 0, 0]).await;
    raw.send(&frame(HEADERS, END_HEADERS, 1, &fields(&head(&key, &length)))).await;
    raw.send(&frame(DATA, END_STREAM, 1, &body)).await;
    assert_eq!(raw.next(&[HEADERS, RESET]).await, Some((HEADERS, 1)));
    assert_eq!(raw.next(&[RESET, GOAWAY]).await, Some((RESET, 1)));
    tokio::time::timeout(LONG, gateway.wait_until_settled()).await.expect("the call is settled");
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go() {
    let gateway = TestGateway::with_config("[limits]\nidle = \"300ms\"\n").await;
    let mut raw = Raw::to(&gateway, &[]).await;
    assert_eq!(raw.next(&[GOAWAY]).await, Some((GOAWAY, 0)));
    let stopped = TestGateway::start().await;
    let mut raw = Raw::to(&stopped, &[]).await;
    assert_eq!(raw.next(&[SETTINGS]).await, Some((SETTINGS, 0)));
    stopped.app.drain();
    assert_eq!(raw.next(&[GOAWAY]).await, Some((GOAWAY, 0)));
}

#[tokio::test]
async fn floods_end_their_own_connection_and_nothing_else() {
    let gateway = TestGateway::start().await;
    let key = format!("Bearer {}", gateway.key);
    let begun = frame(HEADERS, 0, 1, &fields(&head(&key, "100")));
    let open = frame(HEADERS, END_HEADERS, 1, &fields(&head(&key, "100")));
    // A header is put into the HPACK table once and then referenced with one byte each time.
    let bomb = [&[0x40, 1, b'a', 1, b'b'][..], &[0xbe; 16_000]].concat();
    let mut bombs = frame(HEADERS, END_HEADERS, 1, &[fields(&head(&key, "0")), bomb].concat());
    bombs.extend(frame(RESET, 0, 1, &8_u32.to_be_bytes()));
    const CONTINUATION: u8 = 9;
    let floods = [
        ("endless headers", begun, frame(CONTINUATION, 0, 1, &fields(&[("x", "y")]))),
        ("empty headers", frame(HEADERS, 0, 1, &[]), frame(CONTINUATION, 0, 1, &[])),
        ("data that says nothing", open.clone(), frame(DATA, 0, 1, &[])),
        ("windows of nothing", open.clone(), frame(WINDOW, 0, 1, &0_u32.to_be_bytes())),
        ("the same stream again", Vec::new(), bombs),
        ("pings", Vec::new(), frame(PING, 0, 0, &[0; 8])),
        ("settings", Vec::new(), frame(SETTINGS, 0, 0, &[])),
        ("priorities", open.clone(), frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9])),
        ("frames of no known type", Vec::new(), frame(0xee, 0, 0, &[])),
        ("windows of one byte", Vec::new(), frame(WINDOW, 0, 0, &1_u32.to_be_bytes())),
    ];
    for (name, first, again) in floods {
        let mut raw = Raw::to(&gateway, &[]).await;
        raw.send(&first).await;
        let many = again.repeat(1_000.min((1 << 20) / again.len()));
        let mut sent = 0;
        while sent < 256 << 20 && raw.send(&many).await {
            sent += many.len();
            tokio::task::yield_now().await;
        }
        assert!(sent < 256 << 20, "{name}: nobody minds");
        let mut honest = super::raw_client::Caller::to(&gateway).await;
        honest.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(honest.answer().await.unwrap().status, 200, "{name}");
    }
}

/// Some clients open the windows again after every piece of an answer, and measure the way with a
/// ping.
#[tokio::test]
async fn control_frames_that_answer_data_are_no_flood() {
    let events = chat_stream(&["x"; 500], 1, 500);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let provider = ScriptedProvider::start(vec![testkit::sse(&events)]).await;
    let config = format!("[limits]\ncontrol_frames = 5\n{}", provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    let key = format!("Bearer {}", gateway.key);
    let body = hello("m", true);
    let length = body.len().to_string();
    let mut raw = Raw::to(&gateway, &[]).await;
    let mut stream = 1;
    for _ in 0..10 {
        raw.send(&frame(HEADERS, END_HEADERS, stream, &fields(&head(&key, &length)))).await;
        raw.send(&frame(DATA, END_STREAM, stream, &body)).await;
        assert_eq!(raw.next(&[HEADERS, GOAWAY]).await, Some((HEADERS, stream)));
        loop {
            let (kind, flags) = raw.next_flags(&[DATA, GOAWAY]).await.expect("a frame");
            assert_eq!(kind, DATA, "the connection goes on");
            if flags & END_STREAM > 0 {
                break;
            }
            raw.send(&frame(WINDOW, 0, 0, &100_u32.to_be_bytes())).await;
            raw.send(&frame(WINDOW, 0, stream, &100_u32.to_be_bytes())).await;
            raw.send(&frame(PING, 0, 0, &[0; 8])).await;
        }
        stream += 2;
    }
}

#[tokio::test]
async fn a_stream_taken_back_lets_its_provider_go_and_the_connection_lives() {
    let (stage, gateway) = Stage::new().await;
    let key = format!("Bearer {}", gateway.key);
    let body = hello("m", true);
    let length = body.len().to_string();
    let mut raw = Raw::to(&gateway, &[]).await;
    for (stream, begun) in [(1, false), (3, true), (5, true)] {
        raw.send(&frame(HEADERS, END_HEADERS, stream, &fields(&head(&key, &length)))).await;
        raw.send(&frame(DATA, END_STREAM, stream, &body)).await;
        let mut provider = stage.next().await;
        if begun {
            let event = format!("data: {}\n\n", chat_stream(&["one"], 1, 1)[0]);
            provider.write_all(&[EVENTS, event.as_bytes()].concat()).await.unwrap();
            assert_eq!(raw.next(&[HEADERS]).await, Some((HEADERS, stream)));
        }
        raw.send(&frame(RESET, 0, stream, &8_u32.to_be_bytes())).await;
        let_go(provider).await;
    }
    tokio::time::timeout(LONG, gateway.wait_until_settled()).await.expect("every call is settled");
}
