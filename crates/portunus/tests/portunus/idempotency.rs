//! `Idempotency-Key`: a repeated call gets the same answer and is charged once.

use canon::Micros;
use serde_json::{Value, json};
use std::sync::Arc;
use store::EntryFilter;
use testkit::{
    AnswerStep, ScriptedProvider, TestGateway, TestResponse, chat_reply, chat_stream, reply, sse,
};
use tokio::sync::Semaphore;

const CHAT: &str = "/v1/chat/completions";
const HEADER: &str = "idempotency-key";

fn ask(text: &str) -> Value {
    json!({ "model": "demo-chat", "max_tokens": 20, "messages": [{ "role": "user", "content": text }] })
}

async fn named(gateway: &TestGateway, path: &str, name: &str, body: &Value) -> TestResponse {
    gateway.post(path, body).header(HEADER, name).send().await
}

/// Number of charged calls.
async fn charged(gateway: &TestGateway) -> usize {
    gateway.wait_until_settled().await;
    let all = gateway.app.store.entries(&EntryFilter::default(), 1_000).await.unwrap();
    all.iter().filter(|entry| entry.cost > canon::Money::ZERO).count()
}

#[tokio::test]
async fn an_answer_is_replayed_in_every_format_and_charged_once() {
    let gateway = TestGateway::start().await;
    let native = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] });
    let streamed = json!({ "model": "demo-chat", "stream": true, "max_tokens": 20,
                           "messages": [{ "role": "user", "content": "Hi" }] });
    let cases = [
        (CHAT, ask("Hi")),
        (CHAT, streamed.clone()),
        ("/v1/messages", ask("Hi")),
        ("/v1/messages", streamed),
        ("/v1/responses", json!({ "model": "demo-chat", "input": "Hi" })),
        ("/v1/responses", json!({ "model": "demo-chat", "input": "Hi", "stream": true })),
        ("/v1beta/models/demo-chat:generateContent", native.clone()),
        ("/v1beta/models/demo-chat:streamGenerateContent", native.clone()),
        ("/v1beta/models/demo-chat:streamGenerateContent?alt=sse", native),
        ("/v1/embeddings", json!({ "model": "demo-embed", "input": "Hi" })),
    ];
    for (number, (path, body)) in cases.iter().enumerate() {
        let name = format!("case {number}");
        let first = named(&gateway, path, &name, body).await;
        assert_eq!(first.status, 200, "{path}: {}", first.text());
        assert_eq!(first.header("idempotent-replayed"), "");
        let again = named(&gateway, path, &name, body).await;
        assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (200, "true"));
        assert_eq!(again.text(), first.text(), "{path}");
        assert_eq!(again.header("content-type"), first.header("content-type"));
        assert_eq!(again.header("x-portunus-cost"), first.header("x-portunus-cost"));
        assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
        assert_eq!(charged(&gateway).await, number + 1, "{path}");
    }
}

#[tokio::test]
async fn another_request_under_the_same_name_is_refused_and_another_account_is_apart() {
    let gateway = TestGateway::start().await;
    assert_eq!(named(&gateway, CHAT, "n", &ask("one")).await.status, 200);
    let native = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] });
    let path = "/v1beta/models/demo-chat:streamGenerateContent";
    let (key, array) = (&gateway.key, format!("{path}?x=1"));
    let first = named(&gateway, &format!("{array}&key={key}"), "framed", &native).await;
    let again = named(&gateway, &array, "framed", &native).await;
    assert_eq!((again.text(), again.header("idempotent-replayed")), (first.text(), "true"));
    let events = named(&gateway, &format!("{path}?x=1&alt=sse"), "framed", &native).await;
    assert_eq!(events.status, 400, "the same in another framing is not the same");
    for (path, body) in [(CHAT, ask("two")), ("/v1/messages", ask("one"))] {
        let got = named(&gateway, path, "n", &body).await;
        assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (400, "false"));
        assert!(got.text().contains("Idempotency-Key"), "{}", got.text());
    }
    let other = store::Account {
        id: "another".to_owned(),
        username: "another".to_owned(),
        email: None,
        role: store::AccountRole::Member,
        password_hash: None,
        disabled: false,
        created: Micros::new(1),
        changed: Micros::new(1),
    };
    gateway.app.store.add_account(&other).await.unwrap();
    let new = testkit::NewKey { name: "o".to_owned(), cap: None, models: vec![], expires: None };
    let (record, key) =
        new.into_record(&other.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    let theirs = gateway.post(CHAT, &ask("two")).header(HEADER, "n").key(&key).send().await;
    assert_eq!((theirs.status.as_u16(), theirs.header("idempotent-replayed")), (200, ""));
    for wrong in [String::new(), "x".repeat(256)] {
        let got = named(&gateway, CHAT, &wrong, &ask("one")).await;
        assert_eq!(got.status, 400);
        assert_eq!(got.json()["error"]["param"], "Idempotency-Key");
    }
    assert_eq!(named(&gateway, CHAT, &"x".repeat(255), &ask("one")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_runs_it_is_a_conflict_and_of_many_at_once_one_runs() {
    let gate = Arc::new(Semaphore::new(0));
    let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
    answer.extend(chat_reply("done", 10, 5));
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    let calls = (0..32).map(|_| named(&gateway, CHAT, "n", &body));
    let mut calls: futures_util::stream::FuturesUnordered<_> = calls.collect();
    for _ in 1..32 {
        let got = futures_util::StreamExt::next(&mut calls).await.unwrap();
        assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (409, "true"));
        assert!(got.header("retry-after-ms").parse::<u64>().unwrap() > 0);
    }
    gate.add_permits(8);
    let got = futures_util::StreamExt::next(&mut calls).await.unwrap();
    assert_eq!(got.status, 200);
    let again = named(&gateway, CHAT, "n", &body).await;
    assert_eq!((again.text(), again.header("idempotent-replayed")), (got.text(), "true"));
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn failed_calls_may_run_again() {
    let events = chat_stream(&["Hel", "lo"], 10, 2);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let mut broken = sse(&events[..2]);
    broken.pop();
    broken.push(AnswerStep::Close);
    let answers = vec![
        reply(500, "application/json", "{}"),
        reply(429, "application/json", "{}"),
        broken,
        sse(&events),
    ];
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body =
        json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "x" }] });
    let mut seen = Vec::new();
    // The key is released shortly after the caller's error; until then it is a conflict.
    while provider.requests().len() < 4 || seen.last() != Some(&(200, true)) {
        let got = named(&gateway, CHAT, "n", &body).await;
        let whole = got.text().contains("[DONE]") && !got.text().contains("error");
        seen.push((got.status.as_u16(), whole));
        if got.header("idempotent-replayed") == "true" {
            break;
        }
    }
    assert_eq!(provider.requests().len(), 4, "{seen:?}");
    assert_eq!(seen.last(), Some(&(200, true)), "{seen:?}");
    let again = named(&gateway, CHAT, "n", &body).await;
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert!(again.text().contains("Hel"), "{}", again.text());
    let bad = named(&gateway, CHAT, "bad", &json!({ "model": "m" })).await;
    assert_eq!(bad.status, 400);
}

#[tokio::test]
async fn a_caller_that_stops_reading_at_the_end_mark_has_its_answer_kept() {
    let gateway = TestGateway::start().await;
    let body = json!({ "model": "demo-chat", "stream": true, "max_tokens": 5,
                       "messages": [{ "role": "user", "content": "Hi" }] });
    let whole = named(&gateway, CHAT, "whole", &body).await.text();
    // Disconnects after the last event, before the body has ended.
    gateway.post(CHAT, &body).header(HEADER, "left").disconnect_after(whole.len()).await;
    let again = named(&gateway, CHAT, "left", &body).await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (200, "true"));
    assert_eq!(charged(&gateway).await, 2);
}

#[tokio::test]
async fn an_answer_too_large_to_keep_is_not_run_twice() {
    let provider =
        ScriptedProvider::start(vec![chat_reply(&"long ".repeat(1_000_000), 10, 1_000)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    assert_eq!(named(&gateway, CHAT, "n", &body).await.status, 200);
    let again = named(&gateway, CHAT, "n", &body).await;
    assert_eq!((again.status.as_u16(), again.header("x-should-retry")), (409, "false"));
    assert!(again.text().contains("too large to be kept"), "{}", again.text());
    assert_eq!(provider.requests().len(), 1);
}
