//! Ends without delivery that a caller can provoke: the goodwill of its account covers a few, and then the
//! key pays.

use canon::Money;
use ledger::{CallOutcome, ChargeReason, EndedBy, LedgerEntry};
use serde_json::json;
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream, sse};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

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

/// Streams that are left before any output, each with another key: the account has one goodwill, and only
/// what it pays for complete answers refills it.
#[tokio::test]
async fn streams_left_before_any_output_use_up_the_goodwill_of_the_account() {
    let limits = "[limits]\ngoodwill = \"0.0001\"\n";
    let mut answers = vec![opening(); 8];
    answers.push(chat_reply("here", 60, 2));
    answers.push(opening());
    let (_provider, gateway) = with(answers, limits).await;
    let leave = async |count: usize| {
        let key = capped(&gateway, "1").await;
        gateway.post(CHAT, &chat(true)).key(&key).disconnect_after_events(1).await;
        testkit::until("it is settled", async || rows(&gateway).await.len() == count).await;
    };
    for count in 1..=8 {
        leave(count).await;
    }
    let left = rows(&gateway).await;
    check_rows(&left, ChargeReason::CallerLeft, EndedBy::Caller);
    let is_paid: Vec<bool> = left.iter().map(|row| row.cost > Money::ZERO).collect();
    assert!(is_paid.is_sorted() || is_paid.iter().rev().is_sorted(), "{is_paid:?}");
    let absorbed = left.iter().fold(Money::ZERO, |sum, row| sum.saturating_add(row.absorbed));
    assert!(absorbed <= GOODWILL, "{absorbed} absorbed");

    let got = gateway.post(CHAT, &chat(false)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    leave(10).await;
    let absorbed = rows(&gateway).await.iter().filter(|row| row.absorbed > Money::ZERO).count();
    assert_eq!(absorbed, is_paid.iter().filter(|paid| !**paid).count() + 1, "it is refilled");
}

/// A provider that does not take the whole request does not work on it.
#[tokio::test]
async fn a_request_that_is_not_sent_in_full_costs_nobody_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let deaf = tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok(one) = listener.accept().await {
            taken.push(one);
        }
    });
    let gateway = TestGateway::with_config(&format!(
        "{TIMES}[providers.p]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
    ))
    .await;
    for stream in [false, true] {
        let mut body = chat(stream);
        body["messages"][0]["content"] = "much ".repeat(4_000_000).into();
        let got = gateway.post(CHAT, &body).send().await;
        assert_eq!(got.status, 504, "{}", got.text());
    }
    let rows = rows(&gateway).await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert_eq!((row.cost, row.absorbed), (Money::ZERO, Money::ZERO), "{row:?}");
    }
    deaf.abort();
}

/// Seconds are a part of the estimate where they have a price.
#[tokio::test]
async fn seconds_until_a_deadline_are_paid() {
    let provider = ScriptedProvider::start(vec![vec![silence()]]).await;
    let config = provider.config("chat").replace("price = {", "price = { per_second = \"0.01\",");
    assert!(config.contains("per_second"), "{config}");
    let times = TIMES.replace("0.0001", "0");
    let gateway = TestGateway::with_config(&format!("{times}{config}")).await;
    for stream in [false, true] {
        gateway.post(CHAT, &chat(stream)).send().await;
    }
    for row in rows(&gateway).await {
        let second = row.charges.iter().find(|one| one.dimension == canon::PriceDimension::Second);
        assert!(second.is_some_and(|second| second.count > 0), "{row:?}");
        assert_eq!((row.cost >= Money::from_nanos(10_000_000), row.absorbed), (true, Money::ZERO));
    }
}

/// The end of a drain is not the caller's doing.
#[tokio::test]
async fn calls_that_the_end_of_a_drain_cuts_are_absorbed() {
    let times = "[timeouts]\ndrain = \"100ms\"\n[limits]\ngoodwill = \"0\"\n";
    let provider = ScriptedProvider::start(vec![vec![silence()]]).await;
    let config = format!("{times}{}", provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    let mut callers = Vec::new();
    for stream in [false, true] {
        let address = gateway.url.strip_prefix("http://").unwrap();
        let mut caller = TcpStream::connect(address).await.unwrap();
        let (key, body) = (&gateway.key, chat(stream).to_string());
        let length = body.len();
        let ask = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        caller.write_all(ask.as_bytes()).await.unwrap();
        callers.push(caller);
    }
    testkit::until("both are sent", async || provider.requests().len() == 2).await;
    let gateway = gateway.restart(&config).await;
    let rows = rows(&gateway).await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert_eq!((row.cost, row.ended_by), (Money::ZERO, EndedBy::Operator), "{row:?}");
        assert!(row.absorbed > Money::ZERO && row.estimated, "{row:?}");
    }
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

/// A model that nothing is known of may think during a long silence, until a reply tells that it does not.
#[tokio::test]
async fn long_silence_of_an_unknown_model_is_thinking() {
    let times = "[timeouts]\ngap = \"5500ms\"\n[limits]\ngoodwill = \"0\"\n";
    let silent_call = async |answers| {
        let (_provider, gateway) = with(answers, times).await;
        if !matches!(gateway.post(CHAT, &chat(false)).send().await.status.as_u16(), 200 | 504) {
            panic!("neither an answer nor a deadline");
        }
        gateway.post(CHAT, &chat(true)).send().await;
        let rows = rows(&gateway).await;
        rows.into_iter().find(|row| row.stream).unwrap()
    };
    let refused = AnswerStep::Bytes(b"HTTP/1.1 504 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let (unknown, counted) = tokio::join!(
        silent_call(vec![vec![refused], opening()]),
        silent_call(vec![chat_reply("here", 9, 2), opening()]),
    );
    assert_eq!(unknown.usage.output, 50, "all that the request allows: {unknown:?}");
    assert_eq!(counted.usage.output, 0, "{counted:?}");
}
