//! Money that is only reserved for running calls is not spent: a call waits for it, and is then told
//! to retry.

use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply};
use tokio::sync::Semaphore;

use crate::money::{CHAT, capped, chat};

/// A gateway whose provider answers the first call when the semaphore lets it, and others at once.
/// Each call costs 0.00012 USD and reserves about 0.0002.
async fn slow_first(money_wait: &str) -> (ScriptedProvider, TestGateway, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let mut first = vec![AnswerStep::WaitFor(Arc::clone(&go))];
    first.extend(chat_reply("Here.", 100, 10));
    let provider = ScriptedProvider::start(vec![first, chat_reply("Here.", 100, 10)]).await;
    let limits = format!("\n[limits]\nmoney_wait = \"{money_wait}\"\n");
    let gateway = TestGateway::with_config(&(provider.config("chat") + &limits)).await;
    (provider, gateway, go)
}

/// The same question in every format.
fn questions() -> [(&'static str, Value); 4] {
    let turn = json!([{ "role": "user", "content": "Tell me of the harbour." }]);
    [
        (CHAT, json!({ "model": "m", "max_tokens": 50, "messages": turn })),
        ("/v1/messages", json!({ "model": "m", "max_tokens": 50, "messages": turn })),
        (
            "/v1/responses",
            json!({ "model": "m", "max_output_tokens": 50, "input": "Tell me of the harbour." }),
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "Tell me of the harbour." }] }],
                    "generationConfig": { "maxOutputTokens": 50 } }),
        ),
    ]
}

#[tokio::test]
async fn a_call_waits_for_reserved_money_and_then_runs_in_full() {
    let (provider, gateway, go) = slow_first("30s").await;
    let key = capped(&gateway, "0.0004").await;
    let call = || gateway.post(CHAT, &chat(false)).key(&key).send();
    let second = async {
        testkit::until("the first call is sent", async || provider.requests().len() == 1).await;
        let waiting = call();
        let release = async {
            testkit::until("the second call waits", async || {
                gateway.app.engine.in_flight.is_full(2)
            })
            .await;
            assert_eq!(provider.requests().len(), 1);
            go.add_permits(1);
        };
        tokio::join!(waiting, release).0
    };
    let (first, second) = tokio::join!(call(), second);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200), "{}", second.text());
    let sent = provider.requests()[1].json();
    assert_eq!(sent["max_tokens"], 50, "its limit is not lowered: {sent}");
}

#[tokio::test]
async fn a_call_that_need_not_wait_runs_with_the_money_there_is() {
    let (provider, gateway, go) = slow_first("0s").await;
    let key = capped(&gateway, "0.0004").await;
    let call = || gateway.post(CHAT, &chat(false)).key(&key).send();
    let second = async {
        testkit::until("the first call is sent", async || provider.requests().len() == 1).await;
        let second = call().await;
        go.add_permits(1);
        second
    };
    let (first, second) = tokio::join!(call(), second);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200), "{}", second.text());
    let sent = provider.requests()[1].json();
    assert!(sent["max_tokens"].as_u64().is_some_and(|limit| limit < 50), "{sent}");
}

#[tokio::test]
async fn reserved_money_is_a_reason_to_retry_in_every_format_and_spent_money_is_not() {
    let (provider, gateway, go) = slow_first("100ms").await;
    let key = capped(&gateway, "0.0003").await;
    let others = async {
        testkit::until("the first call is sent", async || provider.requests().len() == 1).await;
        for (path, body) in questions() {
            let got = gateway.post(path, &body).key(&key).send().await;
            let text = got.text();
            assert_eq!(
                (got.status.as_u16(), got.header("x-should-retry")),
                (429, "true"),
                "{text}"
            );
            assert_eq!(got.header("retry-after"), "1", "{text}");
            assert!(text.contains("reserved for running calls"), "{text}");
            assert!(text.contains("0.000000000 USD are spent"), "{text}");
            assert!(!text.contains("insufficient_quota"), "{text}");
        }
        go.add_permits(1);
    };
    let first = async { gateway.post(CHAT, &chat(false)).key(&key).send().await };
    let (first, ()) = tokio::join!(first, others);
    assert_eq!(first.status, 200);
    // A second call fits with a lower limit. Then the cap is used up.
    assert_eq!(gateway.post(CHAT, &chat(false)).key(&key).send().await.status, 200);
    for (path, body) in questions() {
        let got = gateway.post(path, &body).key(&key).send().await;
        let text = got.text();
        assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (429, "false"), "{text}");
        assert!(text.contains("cap of this API key is reached: the call needs 0.000"), "{text}");
    }
}
