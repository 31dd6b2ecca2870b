//! Faults as they look on the wire, before any gateway.

use bytes::Bytes;
use demo::{FaultRules, SimulatorOptions, simulate};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A simulated provider that lives as long as the test.
async fn provider(rules: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let options = SimulatorOptions {
        rules: Arc::new(FaultRules::parse(rules).unwrap()),
        ..SimulatorOptions::default()
    };
    tokio::spawn(simulate(listener, options, std::future::pending::<()>()));
    address
}

fn body(fault: &str, stream: bool) -> String {
    let text =
        if fault.is_empty() { "Hello".to_owned() } else { format!("Hello [[fault: {fault}]]") };
    json!({ "model": "demo-chat", "stream": stream,
            "messages": [{ "role": "user", "content": text }] })
    .to_string()
}

/// Asks over a connection of its own and reads to the end; how it ended is told too.
async fn raw(address: &str, body: &str, header: &str) -> (String, Option<ErrorKind>) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{header}\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let ended = socket.read_to_end(&mut all).await.err().map(|e| e.kind());
    (String::from_utf8_lossy(&all).into_owned(), ended)
}

async fn meter(address: &str) -> Value {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}/meter").parse().unwrap();
    let body = client.get(uri).await.unwrap().into_body().collect().await.unwrap();
    serde_json::from_slice(&body.to_bytes()).unwrap()
}

#[tokio::test]
async fn every_fault_can_be_ordered_and_none_brings_the_server_down() {
    let address = provider("").await;
    for (name, takes, _) in demo::faults() {
        // Those that never end, or only after a while, are seen in other tests.
        let endless = [
            "blackhole",
            "stall",
            "stall-request",
            "stall-between",
            "finish-silence",
            "endless-line",
        ];
        let slow = ["slow", "drip", "refuse", "extra"];
        if endless.contains(&name) || slow.contains(&name) {
            continue;
        }
        for stream in [false, true] {
            let (said, _) = raw(&address, &body(name, stream), "").await;
            assert!(!said.starts_with("HTTP/1.1 400"), "{name} {takes:?}: {said}");
        }
    }
    let (said, _) = raw(&address, &body("", false), "connection: close\r\n").await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[test]
fn every_fault_stands_in_the_documentation() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulate.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (name, takes, about) in demo::faults() {
        let takes: Vec<String> = takes.iter().map(|take| format!("`{take}`")).collect();
        let line = format!("| `{name}` | {} | {about} |", takes.join(", "));
        assert!(page.contains(&line), "docs/simulate.md lacks: {line}");
    }
}

#[tokio::test]
async fn a_fault_is_ordered_by_header_by_prompt_or_by_rule() {
    let rules = "[[rule]]\nheader = \"x-tenant: blue\"\nfrom = 2\ntimes = 1\n\
                 fault = \"status code=418\"\n";
    let address = provider(rules).await;
    let close = "connection: close\r\n";
    let header = format!("x-simulate-fault: status code=599\r\n{close}");
    assert!(raw(&address, &body("", false), &header).await.0.starts_with("HTTP/1.1 599"));
    let asked = body("status code=598", false);
    assert!(raw(&address, &asked, close).await.0.starts_with("HTTP/1.1 598"));
    let blue = format!("x-tenant: blue\r\n{close}");
    for status in ["200", "418", "200"] {
        let (said, _) = raw(&address, &body("", false), &blue).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{said}");
    }
    let (said, _) = raw(&address, &body("status cod=1", false), close).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("`cod`"), "{said}");
}

#[tokio::test]
async fn cuts_look_as_they_should() {
    let address = provider("").await;
    let (said, ended) = raw(&address, &body("reset", true), "").await;
    assert_eq!((said.as_str(), ended), ("", Some(ErrorKind::ConnectionReset)));
    let (said, ended) = raw(&address, &body("close", true), "").await;
    assert_eq!((said.as_str(), ended), ("", None));
    let (said, ended) = raw(&address, &body("truncate after=2", true), "").await;
    assert_eq!((said.matches("data: ").count(), ended), (2, None));
    assert!(!said.ends_with("0\r\n\r\n"), "{said}");
    let (said, _) = raw(&address, &body("end-early after=2", true), "").await;
    assert!(said.matches("data: ").count() == 2 && said.ends_with("0\r\n\r\n"), "{said}");
    let (said, _) = raw(&address, &body("length-lie missing=7", false), "").await;
    let (head, sent) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", sent.len() + 7)), "{said}");
    // A request that is still arriving when its connection is reset.
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let half = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\n\
                {\"x\":\"[[fault: reset-request]]";
    socket.write_all(half.as_bytes()).await.unwrap();
    let kind = socket.read(&mut [0; 1]).await.unwrap_err().kind();
    assert_eq!(kind, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn connections_are_refused_for_a_while_and_then_taken_again() {
    let address = provider("").await;
    let (said, ended) = raw(&address, &body("refuse for=500ms", false), "").await;
    assert_eq!((said.as_str(), ended), ("", Some(ErrorKind::ConnectionReset)));
    let refused = TcpStream::connect(&address).await.unwrap_err().kind();
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    while TcpStream::connect(&address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let rules = "[[rule]]\non = \"connect\"\ntimes = 1\nfault = \"reset\"\n";
    let address = provider(rules).await;
    let mut socket = TcpStream::connect(&address).await.unwrap();
    assert_eq!(socket.read(&mut [0; 1]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (said, _) = raw(&address, &body("", false), "connection: close\r\n").await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test]
async fn the_meter_tells_what_was_claimed_what_was_produced_and_who_left() {
    let address = provider("").await;
    raw(&address, &body("reset-after after=5 tag=cut", true), "").await;
    raw(&address, &body("slow wait=0ms tag=full", true), "").await;
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let asked = body("blackhole tag=gone", true);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{asked}",
        asked.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let find = |meter: &Value, tag: &str| {
        let calls = meter["calls"].as_array().unwrap();
        calls.iter().find(|call| call["tag"] == tag).cloned()
    };
    while find(&meter(&address).await, "gone").is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(find(&meter(&address).await, "gone").unwrap()["state"], "running");
    drop(socket);
    let told = loop {
        let told = meter(&address).await;
        if find(&told, "gone").unwrap()["state"] == "left" {
            break told;
        }
        tokio::task::yield_now().await;
    };
    assert!(find(&told, "gone").unwrap()["left_after_ms"].is_u64());
    assert_eq!(
        (&told["left_early"], &told["models"]["demo-chat"]["left_early"]),
        (&json!(1), &json!(1))
    );
    let full = find(&told, "full").unwrap();
    assert_eq!(
        (&full["state"], &full["produced_tokens"]),
        (&json!("sent"), &full["output_tokens"])
    );
    let cut = find(&told, "cut").unwrap();
    let produced = cut["produced_tokens"].as_u64().unwrap();
    assert!(produced > 0 && produced < cut["output_tokens"].as_u64().unwrap(), "{cut}");
    assert_eq!((&cut["fault"], &cut["state"]), (&json!("reset-after"), &json!("sent")));
}

#[tokio::test]
async fn http2_streams_are_refused_reset_and_said_goodbye_to() {
    let address = provider("").await;
    let ask = async |fault: &str, stream: bool| {
        let client: Client<HttpConnector, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let request = Request::post(format!("http://{address}/v1/chat/completions"));
        client.request(request.body(Full::from(body(fault, stream))).unwrap()).await
    };
    let reason = |error: &(dyn std::error::Error + 'static)| {
        let mut at = Some(error);
        while let Some(error) = at {
            if let Some(error) = error.downcast_ref::<h2::Error>() {
                return error.reason();
            }
            at = error.source();
        }
        None
    };
    let refused = ask("h2-refused", false).await.unwrap_err();
    assert_eq!(reason(&refused), Some(h2::Reason::REFUSED_STREAM));
    let calm = ask("h2-calm", false).await.unwrap_err();
    assert_eq!(reason(&calm), Some(h2::Reason::ENHANCE_YOUR_CALM));
    let answer = ask("h2-reset after=2", true).await.unwrap();
    let broken = answer.into_body().collect().await.unwrap_err();
    assert_eq!(reason(&broken), Some(h2::Reason::INTERNAL_ERROR));
    let answer = ask("h2-goaway", true).await.unwrap();
    let whole = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(whole.ends_with(b"data: [DONE]\n\n"));
    let undone = ask("h2-goaway last=below", true).await.unwrap_err();
    assert_eq!(reason(&undone), Some(h2::Reason::NO_ERROR));
    let answer = ask("status code=529", false).await.unwrap();
    assert_eq!(answer.status(), StatusCode::from_u16(529).unwrap());
}
