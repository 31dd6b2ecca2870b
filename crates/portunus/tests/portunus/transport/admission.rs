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
    }
    // A form of the console is not waited for either.
    let mut caller = Caller::to(&gateway).await;
    let head = "POST /login HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\
                content-type: application/x-www-form-urlencoded\r\n\r\nname=a";
    caller.send(head).await;
    assert_eq!(caller.answer().await.unwrap().status, 400);
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
    for more in ["", "idempotency-key: once\r\n"] {
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
