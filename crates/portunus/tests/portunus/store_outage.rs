//! The embedded store is locked by another process: leased money can be spent, nothing more, and no
//! settled call is lost.

use canon::Money;
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};
use testkit::{TestGateway, until};

const CHAT: &str = "/v1/chat/completions";

/// Readiness: 200 while calls are served without the store, 503 once they are not, 200 when the store
/// answers again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_store_makes_a_node_unready_only_when_no_call_can_be_served() {
    for (away, status, state) in [("1h", 200, "warning"), ("1s", 503, "failing")] {
        let gateway = TestGateway::with_config(&format!("[store]\naway = \"{away}\"\n")).await;
        let hello =
            json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] });
        assert_eq!(gateway.post(CHAT, &hello).send().await.status, 200);
        let ready = async || gateway.get("/readyz").without_key().send().await;
        assert_eq!(ready().await.status, 200);

        let url = format!("sqlite:{}", gateway.data_folder().join("portunus.db").display());
        let mut lock = SqliteConnection::connect(&url).await.unwrap();
        let held = lock.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let store = async || {
            let report = gateway.get("/readyz?verbose").without_key().send().await;
            let checks = report.json()["checks"].clone();
            let checks = checks.as_array().unwrap();
            assert!(checks.iter().all(|check| check.get("message").is_none()), "{checks:?}");
            checks.iter().find(|check| check["name"] == "store").unwrap()["state"].clone()
        };
        until("the silence is noticed", async || store().await == state).await;
        let told = ready().await;
        assert_eq!(told.status, status, "{away}: {}", told.text());
        let report = gateway.get("/readyz?verbose").without_key().send().await;
        assert_eq!(report.status, status, "the verbose form agrees");
        let served = gateway.post(CHAT, &hello).send().await;
        assert_eq!(served.status, status, "and calls do: {}", served.text());

        held.rollback().await.unwrap();
        lock.close().await.unwrap();
        until("it is ready again", async || ready().await.status == 200).await;
        until("the store is good", async || store().await == "good").await;
        gateway.stop().await;
    }
}

/// Makes a key with a cap of a dollar.
async fn capped(gateway: &TestGateway, name: &str) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let cap = Some(Money::from_nanos(1_000_000_000));
    let ask = testkit::NewKey { name: name.to_owned(), cap, models: Vec::new(), expires: None };
    let now = gateway.app.clock.now();
    let (record, key) = ask.into_record(&account.id, &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    gateway.app.engine.keys.insert_changed(record);
    key
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_store_stops_only_what_it_has_to() {
    let gateway = TestGateway::with_config("[store]\naway = \"2s\"\n").await;
    let (leased, fresh) = (capped(&gateway, "leased").await, capped(&gateway, "fresh").await);
    let hello =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] });
    assert_eq!(gateway.post(CHAT, &hello).key(&leased).send().await.status, 200);
    gateway.wait_until_settled().await;
    let stored = gateway.app.store.export(None, 100).await.unwrap().len();
    // After two heartbeats the lease covers another call without asking the store.
    let id = leased.split('-').nth(2).unwrap();
    let lease_end = || gateway.app.engine.keys.get(id).unwrap().balance.lease().unwrap().until;
    for _ in 0..2 {
        let before = lease_end();
        until("the lease is renewed", async || lease_end() != before).await;
    }

    let url = format!("sqlite:{}", gateway.data_folder().join("portunus.db").display());
    let mut lock = SqliteConnection::connect(&url).await.unwrap();
    let held = lock.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert_eq!(gateway.post(CHAT, &hello).key(&leased).send().await.status, 200);
    assert_eq!(gateway.post(CHAT, &hello).send().await.status, 200, "it has no cap");
    let got = gateway.post(CHAT, &hello).key(&fresh).send().await;
    assert_eq!(got.status, 503, "{}", got.text());
    // A key without a cap is served for the configured time.
    until("calls without a cap are refused too", async || {
        match gateway.post(CHAT, &hello).send().await.status.as_u16() {
            200 => false,
            503 => true,
            other => panic!("{other}"),
        }
    })
    .await;
    let waiting = gateway.app.engine.funds.open_calls.unposted_count();
    assert!(waiting > 0, "what is settled waits");

    held.rollback().await.unwrap();
    lock.close().await.unwrap();
    gateway.wait_until_settled().await;
    let now = gateway.app.store.export(None, 1_000).await.unwrap().len();
    assert!(now >= stored + waiting, "{now} {stored} {waiting}");
    until("everything works again", async || {
        gateway.post(CHAT, &hello).key(&fresh).send().await.status == 200
    })
    .await;
    gateway.stop().await;
}

/// The calls of a gateway whose database was deleted stay in its journal. A start with another database tells it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_kept_while_the_file_of_the_database_is_gone() {
    let gateway = TestGateway::start().await;
    let hello =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] });
    assert_eq!(gateway.post(CHAT, &hello).send().await.status, 200);
    gateway.wait_until_settled().await;
    let file = gateway.data_folder().join("portunus.db");
    let copy = gateway.data_folder().join("copy.db");
    gateway.app.store.write_copy(&copy).await.unwrap();
    assert_eq!(gateway.post(CHAT, &hello).send().await.status, 200);
    gateway.wait_until_settled().await;
    for ending in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{ending}", file.display())));
    }
    assert_eq!(
        gateway.post(CHAT, &hello).send().await.status,
        200,
        "as long as `store.away` lasts"
    );
    let ready = async || gateway.get("/readyz").without_key().send().await.status;
    until("it is not ready", async || ready().await == 503).await;
    assert!(gateway.app.engine.funds.open_calls.unposted_count() > 0, "it is not posted");
    assert!(!file.exists());
    // The copy lacks the second call, which the journal still has.
    std::fs::rename(&copy, &file).unwrap();
    until("it is ready again", async || ready().await == 200).await;
    until("all three calls are in the copy", async || {
        gateway.app.store.export(None, 10).await.is_ok_and(|calls| calls.len() == 3)
    })
    .await;
    gateway.stop().await;
}
