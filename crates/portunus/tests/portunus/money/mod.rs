//! Money as callers and operators see it: charging rules, receipts, caps that hold against
//! misbehaving providers, and caps that the keys of an account share.

mod accounts;
mod charging_rules;
mod deaths;
mod goodwill;
mod held;
mod matrix;
mod new_limits;
mod overrun;
mod pictures;
mod receipt;
mod recorded;
mod sizing;
mod teams;
mod tiers;

use canon::Money;
use serde_json::{Value, json};
use store::KeyRecord;
use testkit::{TestGateway, TestResponse};

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A key of the first account, edited by `change`.
pub(crate) async fn key(gateway: &TestGateway, change: impl FnOnce(&mut KeyRecord)) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask = testkit::NewKey {
        name: "a test's own".to_owned(),
        cap: None,
        models: vec![],
        expires: None,
    };
    let (mut record, text) =
        ask.into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    change(&mut record);
    gateway.app.store.add_key(&record).await.unwrap();
    text
}

pub(crate) async fn capped(gateway: &TestGateway, usd: &str) -> String {
    let cap: Money = usd.parse().unwrap();
    key(gateway, |record| record.cap = Some(cap)).await
}

/// The receipt of a call.
pub(crate) async fn receipt(gateway: &TestGateway, got: &TestResponse) -> Value {
    let path = format!("/v1/usage/{}", got.header("x-request-id"));
    gateway.get(&path).send().await.json()
}

/// The one row of the ledger.
pub(crate) async fn row(gateway: &TestGateway) -> ledger::LedgerEntry {
    gateway.wait_until_settled().await;
    let mut rows = gateway.app.store.export(None, 10).await.unwrap();
    assert_eq!(rows.len(), 1, "every call has exactly one row");
    rows.remove(0)
}

/// A chat request.
pub(crate) fn chat(stream: bool) -> Value {
    json!({ "model": "m", "max_tokens": 50, "stream": stream,
            "messages": [{ "role": "user", "content": "Tell me of the harbour." }] })
}
