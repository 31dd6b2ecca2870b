//! `kill -9` during a run.

use serde_json::{Value, json};
use sqlx::Connection as _;
use std::io::Write as _;
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, until};
use tokio::net::TcpStream;

use crate::tasks::harness::{
    GatewayProcess, PNG, PRICE, config, get, order, over, picture, silence, soon,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_process_dies_is_begun_again_and_paid_once() {
    let provider = ScriptedProvider::start(vec![silence(), picture()]).await;
    let mut gateway = GatewayProcess::start(&config(&provider.url, ""));
    let id = gateway.submit(&order()).await;
    let asked = soon(Duration::from_secs(30), || async { provider.requests().pop() });
    asked.await.expect("the provider was asked");
    let task = get(&format!("{}/v1/tasks/{id}", gateway.url), &gateway.key).await.unwrap().json();
    assert_eq!(task["status"], "processing");
    let first = task["request_id"].as_str().unwrap().to_owned();
    let journal = |gateway: &GatewayProcess| {
        let said = gateway.run(&["ledger", "verify"]);
        serde_json::from_str::<Value>(&said).unwrap()["journal"].clone()
    };
    let open = json!({ "unposted": [], "open": [first], "torn_bytes": 0 });
    assert_eq!(journal(&gateway), open, "a running call is in the journal only");

    gateway.kill();
    let segments = std::fs::read_dir(gateway.folder().join("data").join("journal")).unwrap();
    let segments = segments.map(|file| file.unwrap().path());
    let last = segments.filter(|path| path.extension().is_some()).max().unwrap();
    let mut segment = std::fs::OpenOptions::new().append(true).open(last).unwrap();
    segment.write_all(b"half a record").unwrap();
    let torn = json!({ "unposted": [], "open": [first], "torn_bytes": 13 });
    assert_eq!(journal(&gateway), torn);
    gateway.serve();
    let task = over(&gateway.url, &gateway.key, &id).await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(provider.requests().len(), 2);
    let second = task["request_id"].as_str().unwrap();
    assert_ne!(second, first, "every run is a call of its own");
    let link = task["data"][0]["url"].as_str().unwrap();
    assert_eq!(get(link, "").await.unwrap().body, PNG);

    let receipt = format!("{}/v1/usage/{second}", gateway.url);
    let receipt = get(&receipt, &gateway.key).await.unwrap().json();
    assert_eq!((&receipt["outcome"], &receipt["cost_usd"]), (&"done".into(), &PRICE.into()));
    gateway.stop();
    gateway.run(&["ledger", "verify"]);
    let lines = gateway.export();
    let cost = |id: &str| {
        let mut own = lines.iter().filter(|line| line["request_id"] == id);
        let cost = own.next().map(|line| line["cost_usd"].as_str().unwrap().to_owned());
        assert!(own.next().is_none(), "a call is on the books once");
        cost
    };
    assert_eq!(cost(&first).as_deref(), Some("0.000000000"), "what was lost costs nothing");
    assert_eq!(cost(second).as_deref(), Some(PRICE));
    assert_eq!(lines.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_between_a_kept_picture_and_its_bill_is_paid_by_nobody() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let mut first = vec![AnswerStep::WaitFor(gate.clone())];
    first.extend(picture());
    let provider = ScriptedProvider::start(vec![first, picture()]).await;
    let mut gateway = GatewayProcess::start(&config(&provider.url, ""));
    let id = gateway.submit(&order()).await;
    let asked = soon(Duration::from_secs(30), || async { provider.requests().pop() });
    asked.await.expect("the provider was asked");
    let task = get(&format!("{}/v1/tasks/{id}", gateway.url), &gateway.key).await.unwrap().json();
    let first = task["request_id"].as_str().unwrap().to_owned();

    // A lock on the database keeps the end, and so the charge, from being written.
    let url = format!("sqlite:{}", gateway.folder().join("data/portunus.db").display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    gate.add_permits(1);
    let files = gateway.folder().join("data/files");
    let kept = soon(Duration::from_secs(30), || async { holds_sealed(&files, PNG).then_some(()) });
    kept.await.expect("the picture was kept");
    gateway.kill();
    other.close().await.unwrap();

    gateway.serve();
    let task = over(&gateway.url, &gateway.key, &id).await;
    assert_eq!(task["status"], "completed", "{task}");
    let link = task["data"][0]["url"].as_str().unwrap();
    assert_eq!(get(link, "").await.unwrap().body, PNG);
    gateway.stop();
    gateway.run(&["ledger", "verify"]);
    let lines = gateway.export();
    let cost = |line: &Value| line["cost_usd"].as_str().unwrap().to_owned();
    let (lost, paid): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line["request_id"] == first.as_str());
    assert_eq!(lost.into_iter().map(cost).collect::<Vec<_>>(), ["0.000000000"]);
    assert_eq!(paid.into_iter().map(cost).collect::<Vec<_>>(), [PRICE]);
}

/// Returns true if a complete file of the size that these bytes have sealed exists below the folder.
fn holds_sealed(folder: &std::path::Path, bytes: &[u8]) -> bool {
    // A header and the tag of one segment.
    let size = 48 + bytes.len() + 16;
    let Ok(inside) = std::fs::read_dir(folder) else { return false };
    inside.flatten().any(|one| match one.file_type() {
        Ok(kind) if kind.is_dir() => holds_sealed(&one.path(), bytes),
        Ok(_) => {
            let is_complete = !one.file_name().to_string_lossy().contains('#');
            is_complete && std::fs::read(one.path()).is_ok_and(|found| found.len() == size)
        }
        Err(_) => false,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_takes_its_process_down_every_time_is_given_up() {
    let provider = ScriptedProvider::start(vec![silence()]).await;
    let mut gateway = GatewayProcess::start(&config(&provider.url, "[tasks]\nruns = 2"));
    let id = gateway.submit(&order()).await;
    for run in 1..=2 {
        let asked = soon(Duration::from_secs(30), || async {
            (provider.requests().len() == run).then_some(())
        });
        asked.await.expect("the provider was asked");
        gateway.kill();
        gateway.serve();
    }
    let task = over(&gateway.url, &gateway.key, &id).await;
    assert_eq!(task["status"], "failed", "{task}");
    assert!(task["error"]["message"].as_str().unwrap().contains("started 2 times"), "{task}");
    assert_eq!(provider.requests().len(), 2);
    gateway.stop();
    gateway.run(&["ledger", "verify"]);
    let paid = gateway.export().iter().filter(|line| line["cost_usd"] != "0.000000000").count();
    assert_eq!(paid, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_under_way_is_finished_before_the_gateway_ends() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let mut slow = vec![AnswerStep::WaitFor(gate.clone())];
    slow.extend(picture());
    let provider = ScriptedProvider::start(vec![slow]).await;
    let mut gateway = GatewayProcess::start(&config(&provider.url, ""));
    let id = gateway.submit(&order()).await;
    let asked = soon(Duration::from_secs(30), || async { provider.requests().pop() });
    asked.await.expect("the provider was asked");
    // The signal is heard before the picture comes.
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let ending = tokio::task::spawn_blocking(move || {
        gateway.stop();
        gateway
    });
    until("the signal is heard", async || TcpStream::connect(&address).await.is_err()).await;
    gate.add_permits(1);
    let mut gateway = ending.await.unwrap();
    gateway.serve();
    let task = over(&gateway.url, &gateway.key, &id).await;
    assert_eq!((&task["status"], provider.requests().len()), (&"completed".into(), 1), "{task}");
}
