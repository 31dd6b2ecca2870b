//! Limits of keys and accounts: never exceeded, reported in every format; allowed networks.

use canon::Money;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use ledger::BudgetPeriod;
use serde_json::{Value, json};
use std::sync::Arc;
use store::{BudgetTerms, KeyRecord, RateLimits};
use testkit::{
    AnswerStep, ScriptedProvider, TestGateway, TestRequest, TestResponse, chat_reply, until,
};
use tokio::sync::Semaphore;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const NATIVE: &str = "/v1beta/models/demo-chat:generateContent";

fn hello() -> Value {
    json!({ "model": "demo-chat", "max_tokens": 8, "messages": [{ "role": "user", "content": "Hi" }] })
}

fn native() -> Value {
    json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] })
}

/// A key edited by `change`.
async fn key(gateway: &TestGateway, change: impl FnOnce(&mut KeyRecord)) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask =
        testkit::NewKey { name: "limited".to_owned(), cap: None, models: vec![], expires: None };
    let now = gateway.app.clock.now();
    let (mut record, text) = ask.into_record(&account.id, &gateway.app.engine.keys, now).unwrap();
    change(&mut record);
    gateway.app.store.add_key(&record).await.unwrap();
    text
}

fn rpm(limit: u32) -> impl FnOnce(&mut KeyRecord) {
    move |record| record.limits = RateLimits { rpm: Some(limit), ..RateLimits::default() }
}

/// A provider that answers when the gate is open.
async fn gated() -> (Arc<Semaphore>, ScriptedProvider) {
    let gate = Arc::new(Semaphore::new(0));
    let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
    answer.extend(chat_reply("done", 10, 5));
    (gate, ScriptedProvider::start(vec![answer]).await)
}

/// Makes so many calls at once, of which all but some must be refused while those wait at the
/// gate; then opens it. Tells one of the refusals.
async fn all_but<'a>(
    some: usize,
    of: usize,
    gate: &Semaphore,
    ask: impl Fn() -> TestRequest<'a>,
) -> TestResponse {
    let mut calls: FuturesUnordered<_> = (0..of).map(|_| ask().send()).collect();
    let mut last = None;
    for _ in some..of {
        let got = calls.next().await.unwrap();
        assert_eq!(got.status, 429, "{}", got.text());
        last = Some(got);
    }
    gate.add_permits(of * 4);
    while let Some(got) = calls.next().await {
        assert_eq!(got.status, 200, "{}", got.text());
    }
    last.unwrap()
}

/// Makes so many calls at once and counts the answers by status.
async fn crowd(gateway: &TestGateway, key: &str, callers: usize) -> (usize, usize) {
    let calls = (0..callers).map(|number| {
        let (path, body) = match number % 3 {
            0 => (CHAT, hello()),
            1 => (MESSAGES, hello()),
            _ => (NATIVE, native()),
        };
        async move { gateway.post(path, &body).key(key).send().await.status.as_u16() }
    });
    let statuses = futures_util::future::join_all(calls).await;
    let count = |status| statuses.iter().filter(|got| **got == status).count();
    assert_eq!(count(200) + count(429), callers, "{statuses:?}");
    (count(200), count(429))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_calls_at_once_exactly_as_many_as_allowed_get_in() {
    let gateway = TestGateway::start().await;
    for callers in [64, 256] {
        let key = key(&gateway, rpm(40)).await;
        assert_eq!(crowd(&gateway, &key, callers).await, (40, callers - 40));
        assert_eq!(crowd(&gateway, &key, 8).await, (0, 8), "the minute is not over");
    }
}

#[tokio::test]
async fn counts_of_tokens_are_limited_because_they_ask_providers() {
    let gateway = TestGateway::start().await;
    let counted = json!({ "contents": [{ "parts": [{ "text": "Hi" }] }] });
    let input = json!({ "model": "demo-chat", "input": "Hi" });
    for (path, body) in [
        ("/v1/messages/count_tokens", hello()),
        ("/v1/responses/input_tokens", input),
        ("/v1beta/models/demo-chat:countTokens", counted),
    ] {
        let key = key(&gateway, rpm(1)).await;
        for status in [200, 429] {
            let got = gateway.post(path, &body).key(&key).send().await;
            assert_eq!(got.status, status, "{path}: {}", got.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accounts_keys_share_its_limit() {
    let gateway = TestGateway::start().await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let limits = RateLimits { rpm: Some(30), ..RateLimits::default() };
    gateway.app.store.set_account_limits(&account.id, limits).await.unwrap();
    let (one, other) = (key(&gateway, rpm(20)).await, key(&gateway, |_| {}).await);
    // The new limit is known within a second; `/v1/key` shows it and costs nothing.
    until("the new limit is known", async || {
        let left = gateway.get("/v1/key").key(&other).send().await.json();
        left["remaining"]["requests"] == 30
    })
    .await;
    assert_eq!(crowd(&gateway, &one, 32).await, (20, 12));
    assert_eq!(crowd(&gateway, &other, 32).await, (10, 22), "what one took the other has not");
}

#[tokio::test]
async fn refusals_and_answers_carry_the_headers_of_their_format() {
    let gateway = TestGateway::start().await;
    let limits = RateLimits { rpm: Some(1), tpm: Some(100_000), ..RateLimits::default() };
    let fresh = async || key(&gateway, |record| record.limits = limits).await;

    let key = fresh().await;
    let good = gateway.post(CHAT, &hello()).key(&key).send().await;
    assert_eq!(good.status, 200, "{}", good.text());
    assert_eq!(good.header("x-ratelimit-limit-requests"), "1");
    assert_eq!(good.header("x-ratelimit-remaining-requests"), "0");
    assert!(good.header("x-ratelimit-reset-requests").ends_with('s'));
    assert_eq!(good.header("x-ratelimit-limit-tokens"), "100000");
    let used = good.json()["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(
        good.header("x-ratelimit-remaining-tokens"),
        (100_000 - used).to_string(),
        "the estimate is corrected by what was used"
    );
    let bad = gateway.post(CHAT, &hello()).key(&key).send().await;
    assert_eq!((bad.status.as_u16(), bad.header("x-should-retry")), (429, "true"));
    assert_eq!(bad.json()["error"]["code"], "rate_limit_exceeded");
    let (seconds, millis): (u64, u64) =
        (bad.header("retry-after").parse().unwrap(), bad.header("retry-after-ms").parse().unwrap());
    assert!((50..=60).contains(&seconds) && seconds == millis.div_ceil(1_000));
    assert_eq!(bad.header("x-ratelimit-remaining-requests"), "0");

    let key = fresh().await;
    let good = gateway.post(MESSAGES, &hello()).key(&key).send().await;
    assert_eq!(good.header("anthropic-ratelimit-requests-limit"), "1");
    assert_eq!(good.header("anthropic-ratelimit-requests-remaining"), "0");
    let reset = good.header("anthropic-ratelimit-tokens-reset");
    assert!(reset.parse::<jiff::Timestamp>().is_ok() && !reset.contains('.'), "{reset}");
    assert_eq!(good.header("x-ratelimit-limit-requests"), "");
    let bad = gateway.post(MESSAGES, &hello()).key(&key).send().await;
    assert_eq!((bad.status.as_u16(), bad.header("x-should-retry")), (429, "true"));
    assert_eq!(bad.json()["error"]["type"], "rate_limit_error");

    let key = fresh().await;
    assert_eq!(gateway.post(NATIVE, &native()).key(&key).send().await.status, 200);
    let bad = gateway.post(NATIVE, &native()).key(&key).send().await;
    assert_eq!(bad.status, 429);
    let error = &bad.json()["error"];
    assert_eq!(error["status"], "RESOURCE_EXHAUSTED");
    let detail = |kind: &str| {
        let details = error["details"].as_array().unwrap();
        details.iter().find(|d| d["@type"].as_str().unwrap().ends_with(kind)).cloned().unwrap()
    };
    assert!(detail(".RetryInfo")["retryDelay"].as_str().unwrap().ends_with('s'));
    let violation = &detail(".QuotaFailure")["violations"][0]["description"];
    assert!(violation.as_str().unwrap().contains("requests per minute"));

    let plain = gateway.post(CHAT, &hello()).send().await;
    assert!(plain.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_by_estimate_and_then_as_they_were() {
    let (gate, provider) = gated().await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let tpm = |record: &mut KeyRecord| {
        record.limits = RateLimits { tpm: Some(1_000), ..RateLimits::default() };
    };
    let key = key(&gateway, tpm).await;
    let ask = json!({ "model": "m", "max_tokens": 200, "messages": [{ "role": "user", "content": "x" }] });
    // Each call is estimated at a little over 200 tokens, so four fit before the first answer.
    let refused = all_but(4, 16, &gate, || gateway.post(CHAT, &ask).key(&key)).await;
    assert!(refused.text().contains("1000 tokens per minute"), "{}", refused.text());
    let left = gateway.get("/v1/key").key(&key).send().await.json();
    assert_eq!(left["remaining"]["tokens"], 1_000 - 4 * 15);
    let large = json!({ "model": "m", "max_tokens": 5_000, "messages": [{ "role": "user", "content": "x" }] });
    assert_eq!(gateway.post(CHAT, &large).key(&key).send().await.status, 429);
    let fresh = self::key(&gateway, tpm).await;
    let got = gateway.post(CHAT, &large).key(&fresh).send().await;
    assert_eq!(got.status, 200, "more than a minute's worth runs when nothing else does");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_run_at_once_than_may_and_a_place_is_free_with_the_answer() {
    let (gate, provider) = gated().await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let key = key(&gateway, |record| {
        record.limits = RateLimits { concurrency: Some(5), ..RateLimits::default() };
    })
    .await;
    let ask = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    let refused = all_but(5, 512, &gate, || gateway.post(CHAT, &ask).key(&key)).await;
    assert_eq!(provider.requests().len(), 5);
    assert_eq!(refused.header("retry-after"), "1");
    // One after the other: an answered call has released its place.
    for _ in 0..8 {
        assert_eq!(gateway.post(CHAT, &ask).key(&key).send().await.status, 200);
    }
    let streamed = json!({ "model": "demo-chat", "stream": true, "messages": [{ "role": "user", "content": "x" }] });
    for _ in 0..8 {
        assert_eq!(gateway.post(CHAT, &streamed).key(&key).send().await.status, 200);
        gateway.post(CHAT, &streamed).key(&key).disconnect_after(1).await;
    }
    let bad = json!({ "model": "nobody", "messages": [{ "role": "user", "content": "x" }] });
    for _ in 0..8 {
        assert_eq!(gateway.post(CHAT, &bad).key(&key).send().await.status, 404);
    }
    gateway.wait_until_settled().await;
    let left = gateway.get("/v1/key").key(&key).send().await.json();
    assert_eq!(left["remaining"]["concurrency"], 5, "nobody is left inside");
}

#[tokio::test]
async fn a_key_works_from_its_addresses_only_and_strangers_cannot_forge_them() {
    let gateway = TestGateway::start().await;
    let from = |nets: &[&str]| {
        let ips = nets.iter().map(|net| (*net).to_owned()).collect();
        move |record: &mut KeyRecord| record.ips = ips
    };
    let near = key(&gateway, from(&["192.0.2.1", "127.0.0.0/8"])).await;
    let far = key(&gateway, from(&["192.0.2.0/24", "2001:db8::/32"])).await;
    let nowhere = key(&gateway, from(&["not an address"])).await;
    assert_eq!(gateway.post(CHAT, &hello()).key(&near).send().await.status, 200);
    for key in [&far, &nowhere] {
        let forged = gateway.post(CHAT, &hello()).key(key).header("x-forwarded-for", "192.0.2.7");
        let got = forged.send().await;
        assert_eq!(got.status, 403);
        assert_eq!(got.json()["error"]["code"], "address_not_allowed");
        assert_eq!(gateway.get("/v1/key").key(key).send().await.status, 403);
    }

    let behind = TestGateway::with_config("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n").await;
    let far = key(&behind, from(&["192.0.2.0/24", "2001:db8::/32"])).await;
    for (forwarded, status) in [
        ("192.0.2.7", 200),
        ("2001:db8::5", 200),
        ("192.0.2.7, 127.0.0.9", 200),
        ("192.0.2.7, 198.51.100.1", 403),
        ("198.51.100.1", 403),
        ("unknown", 403),
        ("", 403),
    ] {
        let ask = behind.get("/v1/key").key(&far).header("x-forwarded-for", forwarded);
        assert_eq!(ask.send().await.status, status, "`{forwarded}`");
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_wrong_sign_ins_lock_out_their_own_network_only() {
    let sign_in = async |gateway: &TestGateway, name: &str, from: &str| {
        let body = format!("login={name}&password=wrong+wrong+wrong");
        let form = gateway.request(http::Method::POST, "/login").without_key().body(body);
        let form = form.header("content-type", "application/x-www-form-urlencoded");
        let form = form.header("sec-fetch-site", "same-origin").header("x-forwarded-for", from);
        form.send().await.status.as_u16()
    };
    let behind = TestGateway::with_config("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n").await;
    for n in 1..=12 {
        let from = format!("198.51.100.{n}");
        assert_eq!(sign_in(&behind, "anna", &from).await, 401, "{from}");
    }
    for _ in 0..9 {
        assert_eq!(sign_in(&behind, "anna", "198.51.100.7, 127.0.0.9").await, 401);
    }
    assert_eq!(sign_in(&behind, "anna", "198.51.100.7").await, 429, "ten tries are over");
    assert_eq!(sign_in(&behind, "anna", "198.51.100.8").await, 401, "for that network only");

    let direct = TestGateway::start().await;
    let mut held = 0;
    for n in 1..=12 {
        held += usize::from(sign_in(&direct, "anna", &format!("198.51.100.{n}")).await == 429);
    }
    assert_eq!(held, 2, "nobody else is believed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_never_passed_and_its_refusal_says_when_it_begins_anew() {
    let gateway = TestGateway::start().await;
    let most = Money::from_nanos(40_000);
    let key = key(&gateway, |record| {
        record.budget = Some(BudgetTerms { limit: most, period: BudgetPeriod::Month });
    })
    .await;
    let (good, refused) = crowd(&gateway, &key, 96).await;
    assert!(good > 0 && refused > 0, "{good} {refused}");
    gateway.wait_until_settled().await;
    let told = gateway.get("/v1/key").key(&key).send().await.json();
    let spent: Money = told["budget"]["spent_usd"].as_str().unwrap().parse().unwrap();
    assert!(spent <= most, "{told}");
    assert_eq!(told["budget"]["per"], "month");
    assert_eq!(told["spent_usd"], told["budget"]["spent_usd"]);
    let resets = told["budget"]["resets_at"].as_str().unwrap().to_owned();
    assert!(resets.contains("-01T00:00:00"), "{resets}");
    let large = json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "x".repeat(90_000) }] });
    let got = gateway.post(CHAT, &large).key(&key).send().await;
    assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (429, "false"));
    assert!(got.text().contains(&resets) && got.text().contains("budget"), "{}", got.text());
    let id = key.split('-').nth(2).unwrap();
    let (_, stored) =
        gateway.app.store.spent_in(id, BudgetPeriod::Month, gateway.app.clock.now()).await.unwrap();
    assert_eq!(stored, spent, "the store knows the same, for the next start");
}
