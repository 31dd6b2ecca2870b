//! Ends without delivery that a caller can provoke: the goodwill of its key covers a few, and then the key
//! pays.

use canon::Money;
use ledger::{CallOutcome, ChargeReason, EndedBy, LedgerEntry};
use serde_json::json;
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream, sse};

use crate::money::{CHAT, capped, chat};

const GOODWILL: Money = Money::from_nanos(100_000);
const TIMES: &str =
    "[timeouts]\nfirst_byte = \"200ms\"\ngap = \"200ms\"\n[limits]\ngoodwill = \"0.0001\"\n";

fn silence() -> AnswerStep {
    AnswerStep::Wait(Duration::from_secs(600))
}

async fn with(answers: Vec<Vec<AnswerStep>>, more: &str) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&format!("{more}{}", provider.config("chat"))).await;
    (provider, gateway)
}

/// The opening of a stream without output, and silence after it.
fn opening() -> Vec<AnswerStep> {
    let events = chat_stream(&[], 9, 9);
    let mut answer = sse(&[&events[0]]);
    *answer.last_mut().unwrap() = silence();
    answer
}

async fn rows(gateway: &TestGateway) -> Vec<LedgerEntry> {
    gateway.wait_until_settled().await;
    gateway.app.store.export(None, 100).await.unwrap()
}

/// Checks that the rows cost the operator at most the goodwill more than the key paid.
fn check_rows(rows: &[LedgerEntry], reason: ChargeReason, ended_by: EndedBy) {
    let sum = |amount: fn(&LedgerEntry) -> Money| {
        rows.iter().map(amount).fold(Money::ZERO, Money::saturating_add)
    };
    let (paid, absorbed) = (sum(|row| row.cost), sum(|row| row.absorbed));
    assert!(absorbed <= GOODWILL.saturating_add(paid), "{absorbed} absorbed, {paid} paid");
    assert!(absorbed > Money::ZERO && paid > Money::ZERO, "{rows:?}");
    for row in rows {
        assert!(row.estimated && Some(row.cost) <= row.held, "{row:?}");
        assert!((row.cost > Money::ZERO) != (row.absorbed > Money::ZERO), "{row:?}");
        assert_eq!(row.ended_by, ended_by, "{row:?}");
        assert_eq!(row.reasons.contains(&reason), row.cost > Money::ZERO, "{row:?}");
    }
}

/// A cap is used up by calls that time out, whole or streamed, before the head or after it.
#[tokio::test]
async fn calls_that_run_into_a_deadline_use_up_the_cap() {
    let head = |kind: &str| {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 900\r\n\r\n");
        AnswerStep::Bytes(head.into_bytes())
    };
    for (stream, answer) in [
        (false, vec![silence()]),
        (true, vec![silence()]),
        (false, vec![head("application/json"), silence()]),
        (true, vec![head("text/event-stream"), silence()]),
    ] {
        let (provider, gateway) = with(vec![answer], TIMES).await;
        let key = capped(&gateway, "0.0005").await;
        let mut statuses = Vec::new();
        for _ in 0..60 {
            let got = gateway.post(CHAT, &chat(stream)).key(&key).send().await;
            statuses.push(got.status.as_u16());
            if got.status == 429 {
                break;
            }
        }
        assert_eq!(statuses.pop(), Some(429), "the cap is used up");
        assert!(statuses.iter().all(|status| *status == 504), "{statuses:?}");
        let rows = rows(&gateway).await;
        assert_eq!((rows.len(), provider.requests().len()), (statuses.len(), statuses.len()));
        check_rows(&rows, ChargeReason::Deadline, EndedBy::Deadline);
        for row in &rows {
            let paid = row.cost > Money::ZERO;
            let outcome = if paid { CallOutcome::BrokeOff } else { CallOutcome::Failed };
            assert_eq!(row.outcome, outcome, "{row:?}");
        }
        let (laws, _) = gateway.app.store.verify().await.unwrap();
        assert!(laws.iter().all(|law| law.violations.is_empty()), "{laws:?}");
    }
}

/// Without goodwill the key pays at once, also for a stream that has begun without output.
#[tokio::test]
async fn goodwill_can_be_switched_off() {
    let times = TIMES.replace("0.0001", "0");
    let (_provider, gateway) = with(vec![opening()], &times).await;
    gateway.post(CHAT, &chat(true)).send().await;
    let rows = rows(&gateway).await;
    let [row] = &*rows else { panic!("{rows:?}") };
    assert_eq!((row.outcome, row.ended_by), (CallOutcome::BrokeOff, EndedBy::Deadline), "{row:?}");
    assert!(row.estimated && row.usage.input > 0 && row.cost > Money::ZERO, "{row:?}");
    assert_eq!((row.absorbed, row.reasons.contains(&ChargeReason::Deadline)), (Money::ZERO, true));
}

/// Streams that are left before any output: what the key pays refills its goodwill.
#[tokio::test]
async fn streams_left_before_any_output_use_up_the_cap() {
    let limits = "[limits]\ngoodwill = \"0.0001\"\n";
    let (_provider, gateway) = with(vec![opening()], limits).await;
    let key = capped(&gateway, "1").await;
    for count in 1..=8 {
        gateway.post(CHAT, &chat(true)).key(&key).disconnect_after_events(1).await;
        testkit::until("it is settled", async || rows(&gateway).await.len() == count).await;
    }
    let rows = rows(&gateway).await;
    check_rows(&rows, ChargeReason::CallerLeft, EndedBy::Caller);
    let last = rows.iter().rev().take(2).filter(|row| row.cost > Money::ZERO).count();
    assert_eq!(last, 1, "one pays the goodwill of the next: {rows:?}");
}

/// A deadline at one lane and a success at the next: the key pays for what it got.
#[tokio::test]
async fn a_deadline_before_an_answer_is_paid_by_the_operator() {
    let provider = ScriptedProvider::start(vec![vec![silence()], chat_reply("here", 9, 2)]).await;
    let (times, url) = (TIMES.replace("0.0001", "0"), &provider.url);
    let gateway = TestGateway::with_config(&format!(
        "{times}[providers.p]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n\
         [providers.q]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\", \"q/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
    ))
    .await;
    let got = gateway.post(CHAT, &chat(false)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let rows = rows(&gateway).await;
    assert_eq!((rows[0].cost, rows[0].estimated), (Money::from_nanos(13_000), false), "{rows:?}");
    assert!(rows[0].absorbed > Money::ZERO, "{rows:?}");
}

/// Every attempt that ran into a deadline is paid, at the prices of its own lane.
#[tokio::test]
async fn deadlines_at_several_lanes_are_paid_at_their_own_prices() {
    let broken = AnswerStep::Bytes(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let mut costs = Vec::new();
    for (answers, prices) in [
        (vec![vec![silence()]], ["1.00", "1.00"]),
        (vec![vec![silence()], vec![broken.clone()]], ["1.00", "50.00"]),
        (vec![vec![silence()]], ["1.00", "50.00"]),
    ] {
        let provider = ScriptedProvider::start(answers).await;
        let (times, url) = (TIMES.replace("0.0001", "0"), &provider.url);
        let lane = |lane: &str, price: &str| {
            format!(
                "{{ lane = \"{lane}/up\", price = {{ input = \"{price}\", output = \"0.00\" }} }}"
            )
        };
        let gateway = TestGateway::with_config(&format!(
            "{times}[providers.p]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n\
             [providers.q]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [{}, {}]\nprice = {{ input = \"50.00\", output = \"0.00\" }}\n",
            lane("p", prices[0]),
            lane("q", prices[1]),
        ))
        .await;
        gateway.post(CHAT, &chat(false)).send().await;
        let rows = rows(&gateway).await;
        let [row] = &*rows else { panic!("{rows:?}") };
        assert!(row.estimated && row.reasons.contains(&ChargeReason::Deadline), "{row:?}");
        assert_eq!(row.cost, canon::Charge::total(&row.charges), "{row:?}");
        costs.push(row.cost.as_nanos());
    }
    let [both, first, dear] = *costs else { panic!("{costs:?}") };
    assert_eq!((both, dear), (2 * first, 51 * first), "{costs:?}");
}

/// The prompt that a provider has counted is paid, whoever leaves when.
#[tokio::test]
async fn a_prompt_that_is_counted_is_paid_by_a_caller_who_leaves() {
    let start = json!({ "type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 90, "output_tokens": 1 } } });
    let mut answer = sse(&[&start.to_string()]);
    *answer.last_mut().unwrap() = silence();
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    gateway.post("/v1/messages", &chat(true)).disconnect_after_events(1).await;
    let rows = rows(&gateway).await;
    let [row] = &*rows else { panic!("{rows:?}") };
    assert_eq!((row.usage.input, row.usage.output), (90, 0), "{row:?}");
    assert_eq!((row.cost, row.estimated), (Money::from_nanos(90_000), false), "{row:?}");
}
