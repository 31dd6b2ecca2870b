//! Records of a running call in the journal, from which a dead gateway's calls are settled.

use canon::{Micros, Money};
use ledger::JournalInspection;
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply};
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
        let [open] = &*seen.open else { panic!("{seen:?}") };
        assert_eq!(open.lane, "p/up");
        // Nothing was seen, so the key pays nothing and the operator absorbs the estimate.
        assert_eq!(open.cost, Money::ZERO);
        assert!(open.absorbed > Money::ZERO && open.estimated, "{open:?}");
        assert!(Some(open.absorbed) <= open.held, "{open:?}");
    }
    let long = json!({ "model": "m", "max_tokens": 50,
                       "messages": [{ "role": "user", "content": "harbour ".repeat(1_000) }] });
    let seen = journal_while_running("chat", CHAT, &long).await;
    let [open] = &*seen.open else { panic!("{seen:?}") };
    // Two thousand tokens at the least, which no short prompt costs.
    let [short] = &*journal_while_running("chat", CHAT, &chat(false)).await.open else { panic!() };
    assert!(open.absorbed > short.absorbed, "{open:?} {short:?}");
}
