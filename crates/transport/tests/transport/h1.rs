//! HTTP/1 responses: framing and reuse of connections.

use bytes::Bytes;
use canon::UpstreamProgress;
use http::Request;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use transport::{ClientResponse, HttpClient, Outbound, ProxySettings, RequestBody, SendError};

/// A server that sends the same response to every request.
struct FixedServer {
    address: String,
    connections: Arc<AtomicUsize>,
}

/// Behaviour after a response.
#[derive(Clone, Copy, PartialEq)]
enum AfterResponse {
    Waits,
    Closes,
    /// Answers one request, and closes when the next one arrives.
    HangsUp,
    /// Answers before it has read the body.
    Hurries,
}

impl FixedServer {
    async fn start(answer: &'static str, then: AfterResponse) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, answer, then));
            }
        });
        Self { address, connections }
    }

    async fn ask(&self, client: &HttpClient, body: usize) -> Result<ClientResponse, SendError> {
        let pieces =
            RequestBody::new(vec![Bytes::from(vec![b'x'; body]), Bytes::from_static(b"end")]);
        let request = Request::post(format!("http://{}/v1/x", self.address)).body(pieces).unwrap();
        client.send(request, false).await
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, answer: &'static str, then: AfterResponse) {
    let mut read = Vec::new();
    for turn in 0.. {
        let Some(length) = request(&mut stream, &mut read, then).await else { return };
        if turn == 1 && then == AfterResponse::HangsUp {
            return;
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        if then == AfterResponse::Hurries {
            body(&mut stream, &mut read, length).await;
        }
        if then == AfterResponse::Closes {
            return;
        }
    }
}

/// Reads a request and returns the length of its body.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>, then: AfterResponse) -> Option<usize> {
    let head = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break read.drain(..at + 4).collect::<Vec<u8>>();
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(head).unwrap();
    let (_, length) = head.split_once("content-length: ")?;
    let length = length.split_once('\r')?.0.parse().unwrap();
    if then != AfterResponse::Hurries {
        body(stream, read, length).await;
    }
    Some(length)
}

async fn body(stream: &mut TcpStream, read: &mut Vec<u8>, length: usize) {
    while read.len() < length {
        if stream.read_buf(read).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let body: Vec<u8> = read.drain(..length).collect();
    assert!(body.ends_with(b"end"));
}

fn client() -> HttpClient {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    HttpClient::network(
        Duration::from_secs(5),
        &Outbound::new(&ProxySettings::default(), &[]).unwrap(),
    )
}

async fn text(answer: ClientResponse) -> Result<String, String> {
    let collected = answer.body.collect().await.map_err(|e| e.to_string())?;
    Ok(String::from_utf8(collected.to_bytes().to_vec()).unwrap())
}

const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const CHUNKS: &str =
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";

#[tokio::test]
async fn reuses_a_connection_after_a_complete_response() {
    for (answer, then, kept) in [
        (LENGTH, AfterResponse::Waits, true),
        (CHUNKS, AfterResponse::Waits, true),
        (
            "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            AfterResponse::Waits,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
            AfterResponse::Waits,
            false,
        ),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", AfterResponse::Waits, false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more", AfterResponse::Waits, false),
        ("HTTP/1.1 200 OK\r\n\r\nhello", AfterResponse::Closes, false),
    ] {
        let provider = FixedServer::start(answer, then).await;
        let client = client();
        for _ in 0..3 {
            let answer = provider.ask(&client, 10).await.unwrap();
            assert_eq!(text(answer).await.unwrap(), "hello");
        }
        assert_eq!(provider.connections(), if kept { 1 } else { 3 }, "{answer}");
    }
}

#[tokio::test]
async fn truncated_response_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nx",
    ] {
        let provider = FixedServer::start(answer, AfterResponse::Closes).await;
        let answer = provider.ask(&client(), 10).await.unwrap();
        assert!(text(answer).await.is_err());
    }
}

#[tokio::test]
async fn returns_trailers() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\
                  grpc-status: 13\r\n\r\n";
    let provider = FixedServer::start(answer, AfterResponse::Waits).await;
    let client = client();
    for _ in 0..2 {
        let answer = provider.ask(&client, 10).await.unwrap();
        let collected = answer.body.collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "13");
    }
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn distinguishes_stale_connections_from_sent_requests() {
    let provider = FixedServer::start(LENGTH, AfterResponse::HangsUp).await;
    let client = client();
    text(provider.ask(&client, 10).await.unwrap()).await.unwrap();
    assert_eq!(
        provider.ask(&client, 10).await.unwrap_err().progress,
        UpstreamProgress::StaleConnection
    );
    let provider = FixedServer::start("nonsense\r\n\r\n", AfterResponse::Waits).await;
    assert_eq!(provider.ask(&client, 10).await.unwrap_err().progress, UpstreamProgress::Sent);
    let gone = FixedServer { address: "127.0.0.1:1".to_owned(), connections: Arc::default() };
    assert_eq!(gone.ask(&client, 10).await.unwrap_err().progress, UpstreamProgress::NotSent);
}

#[tokio::test]
async fn response_may_precede_the_end_of_the_request() {
    let provider = FixedServer::start(CHUNKS, AfterResponse::Hurries).await;
    let client = client();
    for _ in 0..2 {
        let answer = provider.ask(&client, 32 << 20).await.unwrap();
        assert_eq!(text(answer).await.unwrap(), "hello");
    }
    // The rest of the request was not sent, so the connection was not reused.
    assert_eq!(provider.connections(), 2);
}
