//! Faults where another lane is left, and callers that leave: the meter of the provider beside our
//! ledger.

use serde_json::{Value, json};
use testkit::Gateway;
use tokio::net::TcpListener;

use crate::caller::{FORMATS, ask};
use crate::judge::complete;
use crate::matrix::{meter, provider};

/// Faults after which nothing has reached the caller, so that the next lane may answer.
const LOST: [&str; 10] = [
    "reset",
    "close",
    "garbage",
    "status code=500",
    "status code=529",
    "status code=401",
    "empty",
    "html",
    "truncate after=0",
    "not-json",
];

/// Two lanes: one that always fails, one that never does.
async fn two_lanes(bad: &str, good: &str) -> Gateway {
    let speaks = r#"["chat", "responses", "messages", "native"]"#;
    Gateway::with(&format!(
        "[providers.bad]\nspeaks = {speaks}\nbase = \"http://{bad}\"\nauth = \"none\"\n\
         [providers.good]\nspeaks = {speaks}\nbase = \"http://{good}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"bad/x\", \"good/y\"]\n\
         price = {{ input = \"1.00\", output = \"2.00\" }}\n"
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_lane_answers_as_long_as_the_caller_saw_nothing() {
    let good = provider("").await;
    for fault in LOST {
        let bad = provider(&format!("[[rule]]\nfault = \"{fault}\"\n")).await;
        let gateway = two_lanes(&bad, &good).await;
        for format in FORMATS {
            for stream in [false, true] {
                let (path, body) = ask(format, "m", "", stream);
                let got = gateway.post(&path, &body).send().await;
                complete(format, &got, stream, true)
                    .unwrap_or_else(|why| panic!("{fault} {} {stream}: {why}", format.name()));
                assert_eq!(got.header("x-portunus-lane"), "good/y", "{fault}");
            }
        }
        gateway.settled().await;
        let rows = gateway.app.store.export(None, 100).await.unwrap();
        assert_eq!(rows.len(), 8, "{fault}: one row per call, whatever was tried");
        assert!(rows.iter().all(|row| row.cost.as_nanos() > 0 && !row.estimated));
    }
    let told = meter(&good).await;
    assert_eq!(told["requests"], 8 * LOST.len(), "each call was answered once");
}

#[tokio::test]
async fn a_refused_connection_is_the_next_lanes_turn_or_a_503() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = listener.local_addr().unwrap().to_string();
    drop(listener);
    let good = provider("").await;
    let gateway = two_lanes(&dead, &good).await;
    let (path, body) = ask(canon::Origin::Chat, "m", "", false);
    let got = gateway.post(&path, &body).send().await;
    assert_eq!((got.status.as_u16(), got.header("x-portunus-lane")), (200, "good/y"));
    let gateway = two_lanes(&dead, &dead).await;
    let got = gateway.post(&path, &body).send().await;
    assert_eq!(got.status, 503, "{}", got.text());
    assert_eq!(got.json()["error"]["code"], "upstream_unavailable");
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(
        (&key["spent_usd"], &key["held_usd"]),
        (&json!("0.000000000"), &json!("0.000000000"))
    );
}

/// The provider's row of a call, once its caller is seen to have left.
async fn left(address: &str, tag: &str) -> Value {
    loop {
        let told = meter(address).await;
        let calls = told["calls"].as_array().unwrap();
        if let Some(call) = calls.iter().find(|call| call["tag"] == tag && call["state"] == "left")
        {
            return call.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_is_seen_by_the_provider_and_pays_for_what_came() {
    let address = provider("").await;
    for format in FORMATS {
        let speaks = format.name();
        let gateway = Gateway::with(&format!(
            "[providers.p]\nspeaks = \"{speaks}\"\nbase = \"http://{address}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/x\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n"
        ))
        .await;
        let order = format!("[[fault: stall-between after=9 tag={speaks}]]");
        let (path, body) = ask(format, "m", &order, true);
        gateway.post(&path, &body).leave_after(1_200).await;
        let seen = left(&address, speaks).await;
        gateway.settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        assert_eq!(rows.len(), 1, "{speaks}");
        let row = &rows[0];
        assert_eq!((row.outcome, row.estimated), (ledger::Outcome::CallerLeft, true), "{speaks}");
        let produced = seen["produced_tokens"].as_u64().unwrap();
        assert!(row.usage.output > 0 && row.usage.output <= produced * 4 + 16, "{speaks}: {row:?}");
        assert!(row.cost.as_nanos() > 0);
    }
}
