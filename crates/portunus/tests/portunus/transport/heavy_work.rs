//! Work on large bodies: few pieces at once, ended with their callers, and others served meanwhile.

use super::raw_client::{CHAT, Caller, call, hello};
use super::streams::{EVENTS, Stage};
use http::Method;
use relay::{HeavyWorkUse, WorkPermit};
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{TestGateway, chat_stream, until};
use tokio::io::AsyncWriteExt as _;

/// Beyond the size up to which work stays on the threads that serve sockets.
const LARGE_BYTES: usize = 300 << 10;
const CALLERS: usize = 32;

fn usage(gateway: &TestGateway) -> HeavyWorkUse {
    gateway.app.engine.heavy_work.usage()
}

/// Running and waiting pieces as `/metrics` tells them.
async fn gauges(gateway: &TestGateway) -> [usize; 2] {
    let admin = gateway.admin_key().await;
    let text = gateway.get("/metrics").key(admin).send().await.text();
    ["running", "waiting"].map(|word| {
        let name = format!("portunus_large_work_{word} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.expect(&text).parse().unwrap()
    })
}

/// Takes every place, so that large work waits until they are dropped.
async fn hold_places(gateway: &TestGateway) -> Vec<WorkPermit> {
    let mut held = Vec::new();
    for _ in 0..usage(gateway).limit {
        held.push(gateway.app.engine.heavy_work.permit(usize::MAX).await);
    }
    held
}

fn request(model: &str, more: Value) -> String {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "Hello!" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

/// A tool whose schema has that many properties.
fn tool(keys: usize) -> Value {
    let keys = (0..keys).map(|number| (format!("k{number}"), json!({})));
    let properties: serde_json::Map<String, Value> = keys.collect();
    let schema = json!({ "type": "object", "properties": properties });
    json!([{ "type": "function", "function": { "name": "f", "parameters": schema } }])
}

/// Large bodies of every shape that was expensive once.
fn shapes() -> Vec<String> {
    let unknown: serde_json::Map<String, Value> =
        (0..30_000).map(|number| (format!("unknown_{number}"), json!(1))).collect();
    let deep = (0..60).fold(json!("x".repeat(LARGE_BYTES)), |inner, _| json!({ "a": inner }));
    vec![
        request("demo-messages", json!({ "tools": tool(30_000) })),
        request("demo-messages", Value::Object(unknown)),
        request("demo-messages", json!({ "metadata_of_mine": deep })),
        request("demo-chat", json!({ "text_of_mine": "x".repeat(LARGE_BYTES) })),
    ]
}

async fn send_large(gateway: &Arc<TestGateway>, body: &str) -> Caller {
    let mut caller = Caller::to(gateway).await;
    let head = format!("content-length: {}\r\n", body.len());
    caller.send(call(gateway, &head, body.as_bytes())).await;
    caller
}

/// A large compressed body is decompressed at a place, also if it turns out to be broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_compressed_bodies_wait_for_a_place() {
    let gateway = Arc::new(TestGateway::start().await);
    // Random letters, so that the compressed body is large as well.
    let letters: String = (0..LARGE_BYTES * 4)
        .scan(7_u64, |state, _| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some(char::from(b'a' + u8::try_from(*state >> 60).unwrap_or_default()))
        })
        .collect();
    let plain = request("demo-chat", json!({ "text_of_mine": letters }));
    let packed = zstd::encode_all(plain.as_bytes(), 1).unwrap();
    assert!(packed.len() > LARGE_BYTES);
    let held = hold_places(&gateway).await;
    let mut callers = Vec::new();
    for body in [&packed[..], &packed[..packed.len() - 9]] {
        let mut caller = Caller::to(&gateway).await;
        let head = format!("content-encoding: zstd\r\ncontent-length: {}\r\n", body.len());
        caller.send(call(&gateway, &head, body)).await;
        callers.push(caller);
    }
    until("both wait", async || usage(&gateway).waiting == 2).await;
    drop(held);
    assert_eq!(callers[0].answer().await.unwrap().status, 200);
    assert_eq!(callers[1].answer().await.unwrap().status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_served_while_every_place_for_heavy_work_is_taken() {
    let (stage, gateway) = Stage::new().await;
    let gateway = Arc::new(gateway);
    let mut stream = Caller::to(&gateway).await;
    let body = hello("m", true);
    stream.send(call(&gateway, &format!("content-length: {}\r\n", body.len()), &body)).await;
    let mut provider = stage.next().await;
    provider.write_all(EVENTS).await.unwrap();

    let held = hold_places(&gateway).await;
    let shapes = shapes();
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let shape = &shapes[number % shapes.len()];
        callers.push(tokio::spawn({
            let (gateway, shape) = (Arc::clone(&gateway), shape.clone());
            async move { send_large(&gateway, &shape).await.answer().await.unwrap() }
        }));
    }
    until("all wait", async || usage(&gateway).waiting == CALLERS).await;
    let limit = held.len();
    let begun = usage(&gateway).begun;
    assert_eq!(usage(&gateway).running, limit);

    // The events of a running stream arrive, and small calls are answered.
    let events = chat_stream(&["one", "two", "three"], 1, 2);
    for (number, event) in events.iter().take(4).enumerate() {
        provider.write_all(format!("data: {event}\n\n").as_bytes()).await.unwrap();
        if number == 0 {
            assert!(stream.head().await.starts_with("HTTP/1.1 200"));
        }
        assert!(stream.chunk().await.unwrap().is_some(), "event {number}");
        for _ in 0..50 {
            assert_eq!(gateway.get("/healthz").send().await.status, 200);
        }
    }
    let small = gateway.request(Method::POST, CHAT).body(request("demo-chat", json!({})));
    assert_eq!(small.send().await.status, 200);
    let expected = HeavyWorkUse { limit, running: limit, waiting: CALLERS, begun, abandoned: 0 };
    assert_eq!(usage(&gateway), expected);

    drop(held);
    let mut most = 0;
    for caller in &callers {
        while !caller.is_finished() {
            most = most.max(usage(&gateway).running);
            tokio::task::yield_now().await;
        }
    }
    assert!(most <= limit, "{most} pieces at once");
    for caller in callers {
        let answer = caller.await.unwrap();
        assert!([200, 400].contains(&answer.status), "{}: {}", answer.status, answer.text());
    }
    assert!(usage(&gateway).begun >= begun + CALLERS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_work_ends_with_its_caller() {
    let gateway = Arc::new(TestGateway::start().await);
    let held = hold_places(&gateway).await;
    let begun = usage(&gateway).begun;
    let mut callers = Vec::new();
    for shape in shapes() {
        callers.push(send_large(&gateway, &shape).await);
    }
    until("all wait", async || usage(&gateway).waiting == callers.len()).await;
    assert_eq!(gauges(&gateway).await, [held.len(), callers.len()]);
    drop(callers);
    until("no caller is waited for", async || usage(&gateway).waiting == 0).await;
    assert_eq!(gauges(&gateway).await, [held.len(), 0]);
    drop(held);
    assert_eq!(gauges(&gateway).await, [0, 0]);
    let answer = gateway.request(Method::POST, CHAT).body(shapes().remove(1)).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Only the call that was made since began: its values are counted, it is parsed and prepared.
    let since = usage(&gateway).begun - begun;
    assert!((1..=4).contains(&since), "{since} pieces");
    assert_eq!(gateway.app.api.limiter.buffered_bytes(), 0);
}

/// One piece takes long, because every character is escaped. Its caller leaves once it has begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_of_heavy_work_ends_in_its_midst() {
    let gateway = Arc::new(TestGateway::start().await);
    let body = request("demo-messages", json!({ "user": "\n".repeat(3 << 20) }));
    // A caller that leaves between two pieces ends none.
    for _ in 0..20 {
        let begun = usage(&gateway).begun;
        let caller = send_large(&gateway, &body).await;
        until("work has begun", async || usage(&gateway).begun > begun).await;
        drop(caller);
        until("the work has ended", async || {
            usage(&gateway).running == 0 && gateway.app.api.limiter.buffered_bytes() == 0
        })
        .await;
        if usage(&gateway).abandoned > 0 {
            return;
        }
    }
    panic!("every piece ran to its end: {:?}", usage(&gateway));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_a_large_body_are_counted_and_take_memory() {
    let gateway = TestGateway::with_config(
        "[limits]\nbody = \"16MiB\"\nbuffered_per_key = \"24MiB\"\nbuffered = \"24MiB\"\n",
    )
    .await;
    for path in [CHAT, "/v1/embeddings", "/v1/responses", "/v1/messages/count_tokens"] {
        let ask = async |body: String| gateway.request(Method::POST, path).body(body).send().await;
        let many = ask(request("demo-messages", json!({ "tools": tool(500_000) }))).await;
        assert_eq!(many.status, 413, "{path}: {}", many.text());
        assert!(many.text().contains("500000 values"), "{path}: {}", many.text());
        // Less text than `body`, but its values take more than the key has.
        let memory = ask(request("demo-messages", json!({ "tools": tool(150_000) }))).await;
        assert_eq!(memory.status, 429, "{path}: {}", memory.text());
        assert_eq!(memory.header("retry-after"), "1", "{path}");
        // Text of the same size is no problem.
        let text = ask(request("demo-messages", json!({ "user": "x".repeat(2 << 20) }))).await;
        assert_ne!(text.status, 413, "{path}: {}", text.text());
        assert_ne!(text.status, 429, "{path}: {}", text.text());
        // Nor is text that looks like a list.
        let list = format!("[{}]", "0,".repeat(1 << 20));
        let text = ask(request("demo-messages", json!({ "user": list }))).await;
        assert_ne!(text.status, 413, "{path}: {}", text.text());
        assert_ne!(text.status, 429, "{path}: {}", text.text());
    }
    until("nothing is held", async || gateway.app.api.limiter.buffered_bytes() == 0).await;
}
