//! Records of a running call in the journal, from which a dead gateway's calls are settled.

use canon::{Micros, Money};
use ledger::{JournalInspection, SettledCall};
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream, sse};
use tokio::sync::Semaphore;

use super::{CHAT, chat};

/// Runs a call to the moment at which the provider has it, and returns the journal of that moment.
async fn journal_while_running(format: &str, path: &str, body: &Value) -> JournalInspection {
    let gate = Arc::new(Semaphore::new(0));
    let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
    answer.extend(chat_reply("done", 10, 5));
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config(format)).await;
    let calling = gateway.post(path, body).send();
    let looking = async {
        testkit::until("the provider has the call", async || !provider.requests().is_empty()).await;
        let folder = gateway.data_folder().join("journal");
        let seen = JournalInspection::read(&folder, Micros::MAX).unwrap();
        gate.add_permits(8);
        seen
    };
    tokio::join!(calling, looking).1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_provider_has_is_in_the_journal_with_its_lane_and_cost() {
    for stream in [false, true] {
        let seen = journal_while_running("chat", CHAT, &chat(stream)).await;
        let [SettledCall { entry: open, .. }] = &*seen.open else { panic!("{seen:?}") };
        assert_eq!(open.lane, "p/up");
        // Nothing was seen, so the key pays nothing and the operator absorbs the estimate.
        assert_eq!(open.cost, Money::ZERO);
        assert!(open.absorbed > Money::ZERO && open.estimated, "{open:?}");
        assert!(Some(open.absorbed) <= open.held, "{open:?}");
    }
    let long = json!({ "model": "m", "max_tokens": 50,
                       "messages": [{ "role": "user", "content": "harbour ".repeat(1_000) }] });
    let seen = journal_while_running("chat", CHAT, &long).await;
    let [SettledCall { entry: open, .. }] = &*seen.open else { panic!("{seen:?}") };
    // Two thousand tokens at the least, which no short prompt costs.
    let [short] = &*journal_while_running("chat", CHAT, &chat(false)).await.open else { panic!() };
    assert!(open.absorbed > short.entry.absorbed, "{open:?} {short:?}");
}

/// The first lane has the request and breaks, the second one costs twenty times as much.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_lane_is_in_the_journal_with_its_own_prices_and_the_cost_of_the_first() {
    for stream in [false, true] {
        let gate = Arc::new(Semaphore::new(0));
        let broken = ScriptedProvider::start(vec![vec![AnswerStep::Close]]).await;
        let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
        answer.extend(chat_reply("done", 10, 5));
        let dear = ScriptedProvider::start(vec![answer]).await;
        let provider = |name: &str, url: &str| {
            format!("[providers.{name}]\nspeaks = \"chat\"\nbase = \"{url}\"\nauth = \"none\"\n")
        };
        let price =
            |factor: u32| format!("{{ input = \"{factor}.00\", output = \"{factor}.00\" }}");
        let (cheap_price, dear_price) = (price(1), price(20));
        let config = format!(
            "{}{}[models.m]\nprice = {cheap_price}\nlanes = [\
             {{ lane = \"p/up\", price = {cheap_price} }}, {{ lane = \"q/up\", price = {dear_price} }}]\n",
            provider("p", &broken.url),
            provider("q", &dear.url),
        );
        let gateway = TestGateway::with_config(&config).await;
        let body = json!({ "model": "m", "max_tokens": 50, "stream": stream,
                           "messages": [{ "role": "user", "content": "harbour ".repeat(1_000) }] });
        let calling = gateway.post(CHAT, &body).send();
        let looking = async {
            testkit::until("the second lane has the call", async || !dear.requests().is_empty())
                .await;
            let folder = gateway.data_folder().join("journal");
            let seen = JournalInspection::read(&folder, Micros::MAX).unwrap();
            gate.add_permits(8);
            seen
        };
        let seen = tokio::join!(calling, looking).1;
        let [SettledCall { entry: open, .. }] = &*seen.open else { panic!("{seen:?}") };
        assert_eq!((&*open.lane, open.attempts, open.cost), ("q/up", 2, Money::ZERO), "{open:?}");
        let [failed] = &*open.failed else { panic!("{open:?}") };
        assert_eq!(failed.lane, "p/up");
        // Two thousand tokens of the prompt at twenty dollars a million, and once more at one.
        assert!(open.absorbed >= "0.042".parse().unwrap(), "{open:?}");
    }
}

/// The caller leaves an answer that has ended, before its counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_written_when_the_caller_leaves_and_the_counts_are_awaited() {
    let events = chat_stream(&["words"], 9, 9);
    let mut answer = sse(&events.iter().map(String::as_str).collect::<Vec<_>>());
    let gate = Arc::new(Semaphore::new(0));
    let counts = answer.len() - 3;
    answer.insert(counts, AnswerStep::WaitFor(Arc::clone(&gate)));
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    gateway.post(CHAT, &chat(true)).disconnect_after_events(3).await;
    let folder = gateway.data_folder().join("journal");
    // The name of the record in the file. The counts come only after it.
    let has_checkpoint = async || {
        let files = std::fs::read_dir(&folder).unwrap();
        let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.unwrap().path());
        files
            .filter_map(|file| read(file).ok())
            .any(|bytes| bytes.windows(b"reached".len()).any(|part| part == b"reached"))
    };
    testkit::until("the journal has a checkpoint", has_checkpoint).await;
    gate.add_permits(8);
    gateway.wait_until_settled().await;
}
