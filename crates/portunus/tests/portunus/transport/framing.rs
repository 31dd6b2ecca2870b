//! Malformed requests: each is refused with a reason, or run exactly once.

use super::raw_client::{CHAT, Caller, call, hello};
use testkit::{ScriptedProvider, TestGateway, chat_reply};

/// A malformed request and its expected answer.
struct Row {
    name: &'static str,
    bytes: Vec<u8>,
    /// The statuses that are right.
    right: &'static [u16],
    closes: bool,
}

fn row(name: &'static str, bytes: impl Into<Vec<u8>>, right: &'static [u16]) -> Row {
    Row { name, bytes: bytes.into(), right, closes: true }
}

/// Sends each row on a connection of its own and looks at everything that comes back.
async fn check(gateway: &TestGateway, rows: Vec<Row>) {
    for Row { name, bytes, right, closes } in rows {
        let mut caller = Caller::to(gateway).await;
        caller.send(&bytes).await;
        let answer = caller.answer().await.unwrap_or_else(|| panic!("{name}: no answer"));
        assert!(right.contains(&answer.status), "{name}: {} {}", answer.head, answer.text());
        assert!(
            answer.header("x-request-id").is_some_and(|id| id.starts_with("req_")),
            "{name}: {}",
            answer.head
        );
        let told = answer.json();
        let message = told.pointer("/error/message").or_else(|| told.get("message"));
        assert!(message.is_some_and(serde_json::Value::is_string), "{name}: {}", answer.text());
        if closes {
            assert_eq!(answer.header("connection"), Some("close"), "{name}");
            assert!(caller.is_closed().await, "{name}: the connection stays open");
        } else {
            caller.send("GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n").await;
            assert_eq!(caller.answer().await.unwrap().status, 200, "{name}: closed");
        }
    }
}

#[tokio::test]
async fn framing_that_two_readers_could_read_differently_is_refused() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body = hello("m", false);
    // The bytes behind each of them must never be taken for a request.
    let hidden = call(&gateway, &format!("content-length: {}\r\n", body.len()), &body);
    let chunked = [b"5\r\nhello\r\n0\r\n\r\n".as_slice(), &hidden].concat();
    let with = |headers: &str| call(&gateway, headers, &chunked);
    let te = |value: &str| with(&format!("transfer-encoding: {value}\r\n"));
    let length = |value: &str| with(&format!("content-length: {value}\r\n"));
    let chunks = |body: &[u8]| call(&gateway, "transfer-encoding: chunked\r\n", body);
    let one_zero = String::from_utf8(te("chunked")).unwrap().replacen("1.1", "1.0", 1);
    let rows = vec![
        row(
            "length and chunks",
            with("content-length: 5\r\ntransfer-encoding: chunked\r\n"),
            &[400],
        ),
        row(
            "chunks and length",
            with("transfer-encoding: chunked\r\ncontent-length: 5\r\n"),
            &[400],
        ),
        row("two lengths", with("content-length: 5\r\ncontent-length: 6\r\n"), &[400]),
        row("the same length twice", with("content-length: 5\r\ncontent-length: 5\r\n"), &[400]),
        row("a list of lengths", length("5, 5"), &[400]),
        row("a signed length", length("+5"), &[400]),
        row("a negative length", length("-1"), &[400]),
        row("a hexadecimal length", length("0x5"), &[400]),
        row("a length in spaces", length(" 5 "), &[400]),
        row("an empty length", length(""), &[400]),
        row("a length of 2^64", length("18446744073709551616"), &[400]),
        row("chunked, identity", te("chunked, identity"), &[400]),
        row("identity, chunked", te("identity, chunked"), &[400]),
        row("xchunked", te("xchunked"), &[400]),
        row("a control character", te("\u{b}chunked"), &[400]),
        row(
            "chunked twice",
            with("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
            &[400],
        ),
        row("gzip, chunked", te("gzip, chunked"), &[400]),
        row("HTTP/1.0 with chunks", one_zero, &[400]),
        row("a space before the colon", with("transfer-encoding : chunked\r\n"), &[400]),
        row("a folded header", with("x-a: 1\r\n 2\r\n"), &[400]),
        row("a bare line feed", with("x-a: 1\nx-b: 2\r\n"), &[400]),
        row("a bare carriage return", with("x-a: 1\rx-b: 2\r\n"), &[400]),
        row("a NUL in a name", with("x-\0a: 1\r\n"), &[400]),
        row("a NUL in a value", with("x-a: 1\0\r\n"), &[400]),
        row("no colon", with("x-a\r\n"), &[400]),
        row("an endless chunk", chunks(b"FFFFFFFFFFFFFFFF\r\nx"), &[400]),
        row("a negative chunk", chunks(b"-1\r\nx"), &[400]),
        row("a signed chunk", chunks(b"+5\r\nhello\r\n0\r\n\r\n"), &[400]),
        row("a chunk with 0x", chunks(b"0x5\r\nhello\r\n0\r\n\r\n"), &[400]),
        row("a chunk without a length", chunks(b"\r\nhello\r\n0\r\n\r\n"), &[400]),
        row("a chunk longer than it says", chunks(b"3\r\nhello\r\n0\r\n\r\n"), &[400]),
        row("a chunk ended by a line feed", chunks(b"5\nhello\r\n0\r\n\r\n"), &[400]),
        row(
            "a giant extension",
            chunks(format!("5;{}\r\nhello", "x".repeat(1 << 20)).as_bytes()),
            &[400],
        ),
        row("a CR in an extension", chunks(b"5;a\rb\r\nhello\r\n0\r\n\r\n"), &[400]),
        row("a broken trailer", chunks(b"0\r\nnonsense\r\n\r\n"), &[400]),
        row(
            "giant trailers",
            chunks(format!("0\r\nx: {}\r\n\r\n", "x".repeat(1 << 20)).as_bytes()),
            &[400],
        ),
    ];
    check(&gateway, rows).await;
    assert!(provider.requests().is_empty(), "nothing was run, hidden or not");
}

#[tokio::test]
async fn lines_targets_hosts_and_methods_are_looked_at() {
    let gateway = TestGateway::start().await;
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nhost: gateway\r\n\r\n");
    let hosts = |hosts: &str| format!("GET /healthz HTTP/1.1\r\n{hosts}\r\n");
    let many = "x: y\r\n".repeat(100);
    let rows = vec![
        row("nonsense", "nonsense\r\n\r\n", &[400]),
        row("no version", "GET /healthz\r\n\r\n", &[400]),
        row("another version", "GET /healthz HTTP/3.0\r\nhost: x\r\n\r\n", &[400]),
        row("two spaces", "GET  /healthz HTTP/1.1\r\nhost: x\r\n\r\n", &[400]),
        row("a TLS greeting", *b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", &[400]),
        row(
            "a PROXY preamble",
            "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
            &[400],
        ),
        row("a binary PROXY preamble", *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", &[400]),
        row("empty lines without end", "\r\n\r\n\r\n\r\n", &[400]),
        row("no path", get("healthz"), &[400]),
        row("an address of another kind", get("ftp://x/healthz"), &[400]),
        row("the star", get("*"), &[400]),
        row("no host", hosts(""), &[400]),
        row("two hosts", hosts("host: a\r\nhost: a\r\n"), &[400]),
        row("a host with a path", hosts("host: a/b\r\n"), &[400]),
        row("a host with a user", hosts("host: a@b\r\n"), &[400]),
        row("a host with a space", hosts("host: a b\r\n"), &[400]),
        row("a long host", hosts(&format!("host: {}\r\n", "a".repeat(300))), &[400]),
        row("101 headers", hosts(&format!("host: a\r\n{many}")), &[431]),
        row(
            "a giant header",
            hosts(&format!("host: a\r\nx: {}\r\n", "y".repeat(64 << 10))),
            &[431],
        ),
        row(
            "a MiB of headers",
            hosts(&format!("host: a\r\nx: {}\r\n", "y".repeat(1 << 20))),
            &[431],
        ),
        row("a long line", get(&format!("/{}", "x".repeat(16 << 10))), &[431]),
        row("a line of a MiB", get(&format!("/{}", "x".repeat(1 << 20))), &[431]),
        row("CONNECT", "CONNECT example.com:80 HTTP/1.1\r\nhost: x\r\n\r\n", &[405]),
        row(
            "a strange expectation",
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: banana\r\ncontent-length: 2\r\n\r\n{}",
            &[417],
        ),
    ];
    check(&gateway, rows).await;
    for method in ["TRACE", "TRACK", "PROPFIND", "INVENTED", "post", "GET", "OPTIONS", "DELETE"] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(format!("{method} {CHAT} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
        assert!(answer.json()["error"]["message"].is_string());
    }
    for path in [
        "//v1//chat/completions",
        "/v1/./chat/completions",
        "/v1/x/../chat/completions",
        "/V1/chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions;a=b",
    ] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")).await;
        assert_eq!(caller.answer().await.unwrap().status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_refusal_speaks_the_format_of_its_path() {
    let gateway = TestGateway::start().await;
    for (path, place) in [
        ("/v1/messages", "/error/type"),
        ("/v1beta/models/m:generateContent", "/error/status"),
        (CHAT, "/error/code"),
        ("/api/models", "/message"),
    ] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\nexpect: y\r\n\r\n")).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!(answer.status, 417, "{path}");
        assert!(answer.json().pointer(place).is_some(), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn good_requests_of_unusual_look_are_served() {
    let gateway = TestGateway::start().await;
    let body = hello("demo-chat", false);
    let (first, second) = body.split_at(10);
    let chunks = [
        format!("{:X};name=\"value\"\r\n", first.len()).as_bytes(),
        first,
        b"\r\n",
        format!("000{:x}\r\n", second.len()).as_bytes(),
        second,
        b"\r\n0\r\nx-checksum: 1\r\n\r\n",
    ]
    .concat();
    let length = format!("content-length: {}\r\n", body.len());
    let usual = call(&gateway, &length, &body);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let absolute = text(&usual).replacen(CHAT, &format!("http://elsewhere{CHAT}"), 1);
    let rows = [
        (
            "chunks with extensions and trailers",
            call(&gateway, "transfer-encoding: Chunked\r\n", &chunks),
        ),
        ("an absolute target", absolute.into_bytes()),
        ("an empty line before", [b"\r\n".as_slice(), &usual].concat()),
        (
            "an odd Accept",
            call(
                &gateway,
                &format!("accept: image/*\r\naccept-encoding: gzip;q=0, identity;q=0\r\n{length}"),
                &body,
            ),
        ),
        (
            "strange ids",
            call(
                &gateway,
                &format!(
                    "x-request-id: {}\r\ntraceparent: <script>\r\n{length}",
                    "a".repeat(10_000)
                ),
                &body,
            ),
        ),
        (
            "many forwarders",
            call(
                &gateway,
                &format!("x-forwarded-for: {}\r\n{length}", "1.2.3.4, ".repeat(1_000)),
                &body,
            ),
        ),
        (
            "a foreign origin",
            call(&gateway, &format!("origin: https://evil.example\r\n{length}"), &body),
        ),
    ];
    for (name, bytes) in rows {
        let mut caller = Caller::to(&gateway).await;
        for _ in 0..2 {
            caller.send(&bytes).await;
            let answer = caller.answer().await.unwrap();
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            assert!(answer.header("content-encoding").is_none());
            assert!(answer.header("access-control-allow-origin").is_none(), "{name}");
            let id = answer.header("x-request-id").unwrap();
            assert!(id.starts_with("req_") && id.len() < 64, "{name}: {id}");
        }
    }
    let mut old = Caller::to(&gateway).await;
    old.send(text(&usual).replacen("HTTP/1.1", "HTTP/1.0", 1)).await;
    let answer = old.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(old.is_closed().await);
}

#[tokio::test]
async fn a_stream_for_an_old_caller_ends_with_the_connection() {
    let gateway = TestGateway::start().await;
    let body = hello("demo-chat", true);
    let bytes = call(&gateway, &format!("content-length: {}\r\n", body.len()), &body);
    let bytes = String::from_utf8(bytes).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut caller = Caller::to(&gateway).await;
    caller.send(bytes).await;
    let answer = caller.answer().await.unwrap();
    assert!(answer.header("transfer-encoding").is_none());
    assert!(answer.text().trim_end().ends_with("data: [DONE]"), "{}", answer.text());
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_head_has_no_body() {
    let gateway = TestGateway::start().await;
    let mut caller = Caller::to(&gateway).await;
    let mut bytes = String::new();
    for number in 0..1_000 {
        bytes += &format!("GET /nothing/{number} HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    let sending = bytes.clone();
    let (mut reading, mut writing) = (0, Caller::to(&gateway).await);
    writing.send(&sending).await;
    while reading < 1_000 {
        let answer = writing.answer().await.unwrap();
        assert!(answer.text().contains(&format!("/nothing/{reading};")), "{}", answer.text());
        reading += 1;
    }
    caller.send("HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let head = caller.head().await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 18\r\n"),
        "{head}"
    );
    caller.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let next = caller.answer().await.unwrap();
    assert_eq!((next.status, next.body.len()), (200, 18), "no body came with the head");
}

#[tokio::test]
async fn bytes_behind_an_upgrade_request_are_not_run() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body = hello("m", false);
    let hidden = call(&gateway, &format!("content-length: {}\r\n", body.len()), &body);
    for protocol in ["websocket", "h2c"] {
        let wish = format!(
            "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n"
        );
        let mut caller = Caller::to(&gateway).await;
        caller.send([wish.as_bytes(), &hidden].concat()).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert!(caller.is_closed().await);
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn an_early_refusal_leaves_no_unread_body_for_a_request() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let hello = hello("m", false);
    let hidden = call(&gateway, &format!("content-length: {}\r\n", hello.len()), &hello);
    // The body looks like a request, and the key is wrong, so the body is not read.
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer wrong\r\ncontent-length: {}\r\n\r\n",
        hidden.len()
    );
    let mut caller = Caller::to(&gateway).await;
    caller.send([head.as_bytes(), &hidden].concat()).await;
    assert_eq!(caller.answer().await.unwrap().status, 401);
    caller.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    assert!(provider.requests().is_empty(), "the body was not taken for a request");
}
