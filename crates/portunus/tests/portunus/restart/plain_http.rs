//! The listener that sends callers to https: keys on it, and crowds that keep it busy.

use access::authentication::KEY_HEADERS;
use std::net::SocketAddr;
use tokio::net::{TcpSocket, TcpStream};

use super::{Gateway, Site, free_address, tls_line};
use crate::transport::h2::{END_HEADERS, END_STREAM, HEADERS, Raw, fields, frame};
use crate::transport::raw_client::Caller;

/// More connections than the listener takes from one address, and more addresses than fill it.
const CONNECTIONS_PER_ADDRESS: usize = 34;
const ADDRESSES: u8 = 5;

async fn site() -> (Site, Gateway, String) {
    let plain = free_address();
    let server =
        format!("http_listen = \"{plain}\"\npublic_url = \"https://gateway.test\"\n{}", tls_line());
    let site = Site::new("0s", &server).await;
    let gateway = site.start("data", &free_address(), &[]);
    (site, gateway, plain)
}

/// Opens a connection from `127.0.0.NUMBER`.
async fn connect_from(number: u8, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, number], 0))).unwrap();
    socket.connect(address.parse().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_any_header_is_refused_and_not_redirected() {
    let (_site, _gateway, plain) = site().await;
    let status = async |header: &str| {
        let mut caller = Caller::at(&plain).await;
        let request = format!("GET /v1/models HTTP/1.1\r\nhost: x\r\n{header}\r\n");
        caller.send(request).await;
        let answer = caller.answer().await.unwrap();
        (answer.status, answer.header("location").is_some())
    };
    assert_eq!(status("").await, (308, true));
    for name in KEY_HEADERS.into_iter().chain(["cookie"]) {
        assert_eq!(status(&format!("{name}: Bearer sk-pt-x\r\n")).await, (403, false), "{name}");
    }
}

/// Callers that have their answers and keep their connections do not keep others out.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_has_its_answers_keeps_nobody_out() {
    let (_site, _gateway, plain) = site().await;
    let newcomer = async || {
        let mut caller = Caller::over(connect_from(77, &plain).await);
        caller.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        caller.answer().await.map(|answer| answer.status)
    };
    assert_eq!(newcomer().await, Some(308));
    let mut bodiless = Vec::new();
    for number in 2..2 + ADDRESSES {
        for _ in 0..CONNECTIONS_PER_ADDRESS {
            let mut caller = Caller::over(connect_from(number, &plain).await);
            caller.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n").await;
            assert_eq!(caller.answer().await.unwrap().status, 403);
            bodiless.push(caller);
            assert_eq!(newcomer().await, Some(308));
        }
    }
    let target = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
    // `SETTINGS_INITIAL_WINDOW_SIZE` of zero: answers have no room for their bodies.
    let no_window = [0, 4, 0, 0, 0, 0];
    let mut unread = Vec::new();
    for number in 2..2 + ADDRESSES {
        for _ in 0..CONNECTIONS_PER_ADDRESS {
            let stream = connect_from(number, &plain).await;
            let mut raw = Raw::over(stream, &no_window).await;
            for stream in [1, 3, 5] {
                let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(&target));
                raw.send(&request).await;
                assert!(raw.next_frame(&[HEADERS]).await.is_some());
            }
            unread.push(raw);
            assert_eq!(newcomer().await, Some(308));
        }
    }
    drop((bodiless, unread));
}
