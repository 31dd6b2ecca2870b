//! Admission before the body is read: memory for bodies, their pace, and requests that cost nothing.

use super::raw_client::{CHAT, Caller};
use testkit::{TestGateway, until};

fn upload(key: &str, path: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{headers}\r\n"
    )
}

async fn second_key(gateway: &TestGateway) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask =
        testkit::NewKey { name: "second".to_owned(), cap: None, models: vec![], expires: None };
    let now = gateway.app.clock.now();
    let (record, text) = ask.into_record(&account.id, &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    text
}

#[tokio::test]
async fn a_body_that_stalls_is_dropped_whatever_came_before() {
    let gateway = TestGateway::with_config("[limits]\nbody_time = \"400ms\"\n").await;
    let admin = gateway.admin_key().await.to_owned();
    for (key, path, more) in [
        (gateway.key.as_str(), CHAT, ""),
        (gateway.key.as_str(), CHAT, "idempotency-key: once\r\n"),
        (gateway.key.as_str(), "/v1/messages/count_tokens", ""),
        (&admin, "/api/admin/keys", ""),
    ] {
        let mut caller = Caller::to(&gateway).await;
        // Administration takes small bodies only.
        let length = if path == "/api/admin/keys" { 20_000 } else { 2 << 20 };
        caller.send(upload(key, path, &format!("{more}content-length: {length}\r\n"))).await;
        caller.send(vec![b' '; length / 2]).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!(answer.status, 408, "{path} {more}: {}", answer.text());
        assert!(answer.text().contains("did not arrive in time"), "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"), "{path} {more}");
    }
    // A form of the console is not waited for either.
    let mut caller = Caller::to(&gateway).await;
    let head = "POST /login HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\
                content-type: application/x-www-form-urlencoded\r\n\r\nname=a";
    caller.send(head).await;
    let answer = caller.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (408, Some("3")));
}

/// A sender that waits to be asked for a form is not asked if it is refused by its head.
#[tokio::test]
async fn forms_of_the_console_are_refused_by_their_head() {
    let gateway = TestGateway::start().await;
    let form = "application/x-www-form-urlencoded";
    for (path, length, kind, status) in [
        ("/login", 1 << 20, form, 413),
        ("/login/second", 20_000, form, 413),
        ("/login", 9, "multipart/form-data; boundary=x", 415),
        ("/login", 9, "text/plain", 415),
        ("/login", 9, form, 100),
    ] {
        let mut caller = Caller::to(&gateway).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
             content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        caller.send(head).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!(answer.status, status, "{path} {length} {kind}: {}", answer.head);
    }
    // The length of this one is only seen as it arrives.
    let mut caller = Caller::to(&gateway).await;
    let head = format!(
        "POST /login HTTP/1.1\r\nhost: x\r\ncontent-type: {form}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    caller.send(head).await;
    caller.send(format!("8000\r\n{}\r\n0\r\n\r\n", "a".repeat(0x8000))).await;
    assert_eq!(caller.answer().await.unwrap().status, 413);
}

/// Callers of this address are clients of the native format.
#[tokio::test]
async fn uploads_of_files_are_refused_in_the_native_format() {
    let gateway = TestGateway::start().await;
    let got = gateway.post("/upload/v1beta/files", &serde_json::json!({})).send().await;
    assert!(got.json()["error"]["status"].is_string(), "{}", got.text());
    let got = gateway.post("/upload/v1beta/files", &serde_json::json!({})).key("no").send().await;
    assert_eq!(got.json()["error"]["code"], 401, "{}", got.text());
}

/// The memory of a decoder counts, before it gave any output, and is free again after the body.
#[tokio::test]
async fn windows_of_compressed_bodies_share_the_memory_of_their_key() {
    let config = "[limits]\nbody = \"1MiB\"\nbuffered_per_key = \"12MiB\"\n";
    let gateway = TestGateway::with_config(config).await;
    // The header of a zstd frame with a window of 8 MiB, and a block of four bytes (RFC 8878).
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3, 0x20, 0, 0, b' ', b' ', b' ', b' '];
    let chunk = [b"d\r\n".as_slice(), &frame, b"\r\n"].concat();
    let head = "content-encoding: zstd\r\ntransfer-encoding: chunked\r\n";
    let limiter = &gateway.app.api.limiter;
    let mut first = Caller::to(&gateway).await;
    first.send(upload(&gateway.key, CHAT, head)).await;
    first.send(&chunk).await;
    until("a window", async || limiter.buffered_bytes() > 8 << 20).await;
    let mut second = Caller::to(&gateway).await;
    second.send(upload(&gateway.key, CHAT, head)).await;
    second.send(&chunk).await;
    assert_eq!(second.answer().await.unwrap().status, 429);
    drop(first);
    until("no window", async || limiter.buffered_bytes() == 0).await;
}

#[tokio::test]
async fn uploads_share_the_memory_of_their_key() {
    let config = "[limits]\nbody = \"1MiB\"\nbuffered_per_key = \"2MiB\"\nbuffered = \"3MiB\"\n";
    let gateway = TestGateway::with_config(config).await;
    let (first, second) = (gateway.key.clone(), second_key(&gateway).await);
    let mib = format!("content-length: {}\r\n", 1 << 20);
    let mut uploads = Vec::new();
    for key in [&first, &first, &second] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(upload(key, CHAT, &mib)).await;
        uploads.push(caller);
    }
    let limiter = &gateway.app.api.limiter;
    until("three uploads", async || limiter.buffered_bytes() == 3 << 20).await;
    for (key, path, status) in [
        (&first, CHAT, 429),
        (&first, "/v1/messages/count_tokens", 429),
        (&second, "/v1/messages", 503),
    ] {
        let mut caller = Caller::to(&gateway).await;
        caller.send(upload(key, path, &mib)).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (status, Some("1")), "{path}");
    }
    // A body of unknown length counts as it arrives.
    let mut caller = Caller::to(&gateway).await;
    caller.send(upload(&second, CHAT, "transfer-encoding: chunked\r\n")).await;
    caller.send(format!("400\r\n{}\r\n", " ".repeat(0x400))).await;
    assert_eq!(caller.answer().await.unwrap().status, 503);
    // One that is too large is refused by its size, also if its answer is to be kept.
    for more in ["", "idempotency-key: once\r\n", "expect: 100-continue\r\n"] {
        let mut caller = Caller::to(&gateway).await;
        let head = format!("content-length: {}\r\n{more}", 2 << 20);
        caller.send(upload(&second, CHAT, &head)).await;
        assert_eq!(caller.answer().await.unwrap().status, 413, "{more}");
    }
    // An upload that ends frees its memory.
    drop(uploads);
    until("no upload", async || limiter.buffered_bytes() == 0).await;
    let answer = gateway.get("/v1/models").send().await;
    assert_eq!(answer.status, 200);
}

/// A path with something in place of its parameters.
fn filled(path: &str) -> String {
    let mut filled = String::new();
    for piece in path.split('/').skip(1) {
        let piece = if piece.starts_with("{*") {
            "demo-chat:generateContent"
        } else if piece.starts_with('{') {
            "x"
        } else {
            piece
        };
        filled.push('/');
        filled.push_str(piece);
    }
    filled
}

/// Every route is under a limit. Its refusal comes before the body: the sender waits to be asked for
/// it, and is not.
#[tokio::test]
async fn every_route_is_refused_at_an_exhausted_gate_before_its_body() {
    let gateway = TestGateway::with_config("[limits]\nfree_rpm = 1\npublic_rpm = 1\n").await;
    let admin = gateway.admin_key().await.to_owned();
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let limits = store::RateLimits { rpm: Some(1), ..store::RateLimits::default() };
    gateway.app.store.set_account_limits(&account.id, limits).await.unwrap();
    gateway.app.api.limiter.refresh(&gateway.app.store).await.unwrap();
    for key in [&gateway.key, &admin] {
        gateway.get("/v1/key").key(key).send().await;
    }
    let mut caller = Caller::to(&gateway).await;
    let body = r#"{"model":"demo-chat","messages":[{"role":"user","content":"Hi"}]}"#;
    let head = upload(&gateway.key, CHAT, &format!("content-length: {}\r\n", body.len()));
    caller.send(format!("{head}{body}")).await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
    assert_eq!(gateway.get("/").without_key().send().await.status, 200);
    assert_eq!(gateway.get("/scim/v2/Users").without_key().send().await.status, 401);

    let api = portunus::route_summaries().into_iter();
    let api = api.map(|(method, path, keyed)| (method, path, keyed.then_some(true)));
    let pages = console::routes().iter().map(|route| (route.method.clone(), route.path, None));
    let mut routes = 0;
    for (method, path, keyed) in api.chain(pages) {
        let is_admin = path.starts_with("/api/admin/") || path == "/metrics";
        let key = match keyed {
            Some(_) if is_admin => format!("authorization: Bearer {admin}\r\n"),
            Some(_) => format!("authorization: Bearer {}\r\n", gateway.key),
            None => String::new(),
        };
        let mut caller = Caller::to(&gateway).await;
        let path = filled(path);
        let body = "content-type: application/json\r\ncontent-length: 100\r\n";
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n");
        caller.send(format!("{head}{key}{body}\r\n")).await;
        let answer = caller.answer().await.unwrap();
        if ["/healthz", "/readyz"].contains(&path.as_str()) {
            assert_eq!(answer.status, 200, "{method} {path} is asked by load balancers");
            continue;
        }
        assert_eq!(answer.status, 429, "{method} {path}: {}", answer.text());
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{method} {path}: {wait} s");
        routes += 1;
    }
    assert!(routes > 150, "{routes} routes");
    let page = gateway.get("/login").without_key().send().await;
    assert!(page.header("content-type").starts_with("text/html"), "{}", page.text());
    assert!(page.text().contains("Too many requests"), "{}", page.text());
    let unknown = gateway.get("/v1/nothing").without_key().send().await;
    assert_eq!(unknown.status, 429);
    assert!(unknown.json()["error"]["message"].is_string(), "{}", unknown.text());
}

#[tokio::test]
async fn networks_are_counted_through_trusted_proxies_and_wrong_keys_apart() {
    let config = "[server]\ntrusted_proxies = [\"127.0.0.1/32\"]\n[limits]\npublic_rpm = 2\n";
    let gateway = TestGateway::with_config(config).await;
    let ask = async |path: &str, from: &str, key: &str| {
        let request = gateway.get(path).without_key().header("x-forwarded-for", from);
        let request = if key.is_empty() { request } else { request.key(key) };
        request.send().await.status.as_u16()
    };
    let one = "2001:db8::1";
    assert_eq!(ask("/models", one, "").await, 200);
    assert_eq!(ask("/api/models", "2001:db8::2", "").await, 200, "the same /64");
    assert_eq!(ask("/openapi.json", one, "").await, 429);
    assert_eq!(ask("/models", "2001:db8:0:1::1", "").await, 200, "another network");
    // Wrong keys have a count of their own; right ones are not counted here.
    for status in [401, 401, 429, 429] {
        assert_eq!(ask("/v1/models", one, "sk-pt-wrong").await, status);
    }
    assert_eq!(ask("/v1/models", one, &gateway.key).await, 200);
    assert_eq!(ask("/healthz", one, "").await, 200);
}

#[tokio::test]
async fn requests_that_cost_nothing_have_a_limit() {
    let gateway = TestGateway::with_config("[limits]\nfree_rpm = 3\n").await;
    let paths = ["/v1/models", "/v1/key", "/v1/tasks"];
    for path in paths {
        assert_eq!(gateway.get(path).send().await.status, 200, "{path}");
    }
    for path in paths {
        let answer = gateway.get(path).send().await;
        assert_eq!(answer.status, 429, "{path}");
        assert!(answer.header("retry-after").parse::<u64>().unwrap() <= 60, "{path}");
    }
    let native = gateway.get("/v1beta/models").send().await;
    assert_eq!(native.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    // Calls have limits of their own, and another key its own count.
    let second = second_key(&gateway).await;
    assert_eq!(gateway.get("/v1/models").key(&second).send().await.status, 200);
    assert_eq!(gateway.get("/healthz").without_key().send().await.status, 200);
}
