//! Failover: callers notice a failed lane as little as possible.

use super::*;
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testkit::until;

/// An address without a listener.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

const BOTH: &str = "lanes = [\"a/x\", \"b/x\"]";
const ALONE: &str = "lanes = [\"a/x\"]";

#[tokio::test]
async fn with_one_of_two_lanes_dead_every_call_succeeds() {
    let failing = failing(500).await;
    let cut = ScriptedProvider::start(vec![vec![AnswerStep::Close]]).await;
    for dead in [nobody().await, failing.url.clone(), cut.url.clone()] {
        for lanes in
            [BOTH, "lanes = [{ lane = \"a/x\", weight = 1 }, { lane = \"b/x\", weight = 1 }]"]
        {
            let alive = good().await;
            let gateway = TestGateway::with_config(&config(&[&dead, &alive.url], lanes)).await;
            for _ in 0..5 {
                let got = join_all((0..32).map(|_| ask(&gateway))).await;
                for got in got {
                    assert_eq!(got.status, 200, "{dead} {lanes}: {}", got.text());
                    assert_eq!(got.header("x-portunus-lane"), "b/x");
                }
            }
        }
    }
}

#[tokio::test]
async fn when_everything_fails_it_is_not_asked_much_more_often_than_by_its_callers() {
    for lanes in [ALONE, BOTH] {
        let (a, b) = (failing(500).await, failing(500).await);
        let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], lanes)).await;
        let began = Instant::now();
        let calls = 300;
        for _ in 0..calls / 10 {
            for got in join_all((0..10).map(|_| ask(&gateway))).await {
                assert_eq!(got.status, 503);
            }
        }
        let asked = a.requests().len() + b.requests().len();
        let floor = 10 * (1 + usize::try_from(began.elapsed().as_secs()).unwrap());
        assert!(asked <= calls * 12 / 10 + floor, "{lanes}: {asked} for {calls}");
        assert!(asked >= calls, "the last lane is never given up: {asked}");
    }
}

#[tokio::test]
async fn a_lane_that_keeps_failing_is_left_alone_and_taken_back_when_it_heals() {
    let mut answers = vec![answer(500, "", "{}"); 5];
    answers.push(chat_reply("back", 1, 1));
    let (a, b) = (ScriptedProvider::start(answers).await, good().await);
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], BOTH)).await;
    for _ in 0..5 {
        assert_eq!(ask(&gateway).await.header("x-portunus-lane"), "b/x");
    }
    assert_eq!(a.requests().len(), 5);
    let standing = || gateway.app.config().lane_health(gateway.app.ticks())[0].clone();
    assert_eq!((standing().lane.as_str(), standing().health.failure_streak), ("a/x", 5));
    until("the lane is taken back", async || {
        ask(&gateway).await.header("x-portunus-lane") == "a/x"
    })
    .await;
    assert_eq!((standing().health.state.as_str(), standing().health.failure_streak), ("good", 0));
}

#[tokio::test]
async fn a_busy_lane_is_passed_over_for_as_long_as_it_says() {
    let delay = r#"{"error":{"code":429,"details":[{"@type":"x.RetryInfo","retryDelay":"17s"}]}}"#;
    let cases = [
        (429, "retry-after: 20\r\n", "{}"),
        (429, "retry-after-ms: 20000\r\n", "{}"),
        (429, "retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\n", "{}"),
        (429, "x-ratelimit-reset-requests: 6m0s\r\n", "{}"),
        (429, "anthropic-ratelimit-tokens-reset: 2999-01-01T00:00:00Z\r\n", "{}"),
        (429, "", delay),
        (529, "retry-after: 20\r\n", "{}"),
        (503, "retry-after: 20\r\n", "{}"),
    ];
    for (status, headers, body) in cases {
        let a = ScriptedProvider::start(vec![answer(status, headers, body)]).await;
        let b = good().await;
        let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], BOTH)).await;
        for _ in 0..5 {
            assert_eq!(ask(&gateway).await.header("x-portunus-lane"), "b/x");
        }
        assert_eq!(a.requests().len(), 1, "{status} {headers} {body}");

        // Without another lane the caller gets `Retry-After`, and no provider is asked again.
        let gateway = TestGateway::with_config(&config(&[&a.url], ALONE)).await;
        for _ in 0..3 {
            let got = ask(&gateway).await;
            assert_eq!(got.status, if status == 429 { 429 } else { 503 }, "{headers} {body}");
            let wait: u64 = got.header("retry-after").parse().unwrap();
            assert!((10..=60).contains(&wait), "{wait} for {headers} {body}");
            assert!(got.header("retry-after-ms").parse::<u64>().unwrap() > 10_000);
        }
        assert_eq!(a.requests().len(), 2, "{status} {headers} {body}");
    }
}

#[tokio::test]
async fn a_short_wait_is_waited_out_and_a_malformed_one_is_none() {
    for hint in ["retry-after-ms: 300\r\n", "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n"] {
        let busy = answer(429, hint, "{}");
        let provider = ScriptedProvider::start(vec![busy, chat_reply("hi", 1, 1)]).await;
        let gateway = TestGateway::with_config(&config(&[&provider.url], ALONE)).await;
        let got = ask(&gateway).await;
        assert_eq!(got.status, 200, "{hint}");
        let tries = receipt(&gateway, &got).await["tries"].clone();
        let first = (&tries[0]["outcome"], &tries[0]["status"]);
        assert_eq!(first, (&json!("rate_limited"), &json!(429)));
    }
    for headers in ["retry-after: soon\r\n", "retry-after: Sun, 99 Nov 1994 08:49:37 GMT\r\n", ""] {
        let provider = ScriptedProvider::start(vec![answer(429, headers, "{}")]).await;
        let gateway = TestGateway::with_config(&config(&[&provider.url], ALONE)).await;
        let got = ask(&gateway).await;
        assert_eq!((got.status.as_u16(), got.header("retry-after")), (429, "1"), "{headers}");
        assert_eq!(provider.requests().len(), 1, "{headers}");
    }
}

#[tokio::test]
async fn every_status_has_its_outcome() {
    // With and without another lane: the answer, and the number of requests to the lane.
    let cases = [
        (401, 200, 503, 1),
        (402, 200, 503, 1),
        (403, 200, 503, 1),
        (404, 200, 503, 1),
        (408, 200, 504, 3),
        (409, 200, 503, 3),
        (425, 200, 503, 3),
        (500, 200, 503, 3),
        (502, 200, 503, 3),
        (504, 200, 504, 3),
        (529, 200, 503, 1),
        (400, 400, 400, 1),
        (422, 400, 400, 1),
        (413, 413, 413, 1),
    ];
    for (status, helped, alone, asked) in cases {
        let (a, b) = (failing(status).await, good().await);
        let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], BOTH)).await;
        assert_eq!(ask(&gateway).await.status, helped, "{status} with another lane");
        assert_eq!(a.requests().len(), 1, "{status}");
        let a = failing(status).await;
        let gateway = TestGateway::with_config(&config(&[&a.url], ALONE)).await;
        let got = ask(&gateway).await;
        assert_eq!(got.status, alone, "{status} alone: {}", got.text());
        assert_eq!(a.requests().len(), asked, "{status} alone");
        let bill = receipt(&gateway, &got).await;
        assert_eq!((&bill["attempts"], &bill["cost_usd"]), (&json!(asked), &json!("0.000000000")));
    }
}

#[tokio::test]
async fn a_connection_closed_while_it_was_idle_is_no_failure() {
    // The second request finds its kept connection closed; the third comes on a fresh one.
    let answers = vec![chat_reply("one", 1, 1), vec![AnswerStep::Close], chat_reply("two", 1, 1)];
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&format!(
        "[limits]\nresend = false\n{}",
        config(&[&provider.url], ALONE)
    ))
    .await;
    assert_eq!(ask(&gateway).await.status, 200);
    let got = ask(&gateway).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(provider.requests().len(), 3);
    let bill = receipt(&gateway, &got).await;
    assert_eq!((&bill["attempts"], bill["tries"].as_array().unwrap().len()), (&json!(1), 1));
}

#[tokio::test]
async fn possibly_processed_requests_are_retried_only_if_allowed() {
    for resend in [true, false] {
        let lost = ScriptedProvider::start(vec![vec![AnswerStep::Close]]).await;
        let alive = good().await;
        let config = config(&[&lost.url, &alive.url], BOTH);
        let gateway =
            TestGateway::with_config(&format!("[limits]\nresend = {resend}\n{config}")).await;
        let got = ask(&gateway).await;
        assert_eq!(got.status, if resend { 200 } else { 503 });
        assert_eq!(alive.requests().len(), usize::from(resend));
        gateway.wait_until_settled().await;
        let entry = gateway.app.store.entry(got.header("x-request-id")).await.unwrap().unwrap();
        assert!(entry.absorbed.as_nanos() > 0, "the lost attempt is the operator's");
        assert_eq!(entry.failed[0].outcome, "failed");
        // A request that was never sent costs nothing.
        let gateway =
            TestGateway::with_config(&super::config(&[&nobody().await, &alive.url], BOTH)).await;
        let got = ask(&gateway).await;
        gateway.wait_until_settled().await;
        let entry = gateway.app.store.entry(got.header("x-request-id")).await.unwrap().unwrap();
        assert_eq!((entry.attempts, entry.absorbed.as_nanos()), (2, 0));
    }
}

#[tokio::test]
async fn a_callers_own_patience_ends_the_wait() {
    let silent =
        ScriptedProvider::start(vec![vec![AnswerStep::Wait(Duration::from_secs(600))]]).await;
    let gateway = TestGateway::with_config(&config(&[&silent.url], ALONE)).await;
    for header in ["x-stainless-timeout", "x-stainless-read-timeout", "x-server-timeout"] {
        // The gateway allows sixty seconds for the first byte; the caller asks for one.
        let got = gateway.post(CHAT, &hello("m")).header(header, "1").send();
        let got = tokio::time::timeout(Duration::from_secs(30), got).await.expect("an early end");
        assert_eq!(got.status, 504, "{header}");
    }
}

#[tokio::test]
async fn times_can_be_set_for_a_model() {
    let silent =
        ScriptedProvider::start(vec![vec![AnswerStep::Wait(Duration::from_secs(600))]]).await;
    let times = "timeouts = { connect = \"1s\", first_byte = \"500ms\" }";
    let gateway =
        TestGateway::with_config(&config(&[&silent.url], &format!("{ALONE}\n{times}"))).await;
    let got = tokio::time::timeout(Duration::from_secs(30), ask(&gateway)).await.expect("an end");
    assert_eq!(got.status, 504);
    let bill = receipt(&gateway, &got).await;
    assert_eq!(bill["tries"][0]["outcome"], "timeout");
}

#[tokio::test]
async fn calls_above_the_running_limit_are_refused_before_any_work() {
    let silent =
        ScriptedProvider::start(vec![vec![AnswerStep::Wait(Duration::from_secs(600))]]).await;
    let text = format!("[limits]\nrunning = 2\n{}", config(&[&silent.url], ALONE));
    let gateway = std::sync::Arc::new(TestGateway::with_config(&text).await);
    let running: Vec<_> = (0..2)
        .map(|_| {
            let gateway = std::sync::Arc::clone(&gateway);
            tokio::spawn(async move { ask(&gateway).await })
        })
        .collect();
    until("both calls reached the provider", async || silent.requests().len() == 2).await;
    let got = ask(&gateway).await;
    assert_eq!((got.status.as_u16(), got.header("retry-after")), (503, "1"));
    assert_eq!(got.json()["error"]["code"], "overloaded");
    assert_eq!(gateway.get("/v1/key").send().await.status, 200, "only calls are refused");
    running.iter().for_each(|task| task.abort());
    until("calls of callers that left are over", async || {
        gateway.app.engine.funds.open_calls.running_count() == 0
    })
    .await;
}

#[tokio::test]
async fn metrics_tell_how_lanes_stand_and_why_tries_failed() {
    let (dead, alive) = (failing(500).await, good().await);
    let gateway = TestGateway::with_config(&config(&[&dead.url, &alive.url], BOTH)).await;
    for _ in 0..8 {
        assert_eq!(ask(&gateway).await.status, 200);
    }
    let told = gateway.get("/metrics").send().await.text();
    assert!(told.contains("portunus_lane_up{lane=\"a/x\",credential=\"0\"} 0"), "{told}");
    assert!(told.contains("portunus_lane_up{lane=\"b/x\",credential=\"0\"} 1"), "{told}");
    assert!(told.contains("portunus_lane_failures_total{lane=\"a/x\""), "{told}");
}
