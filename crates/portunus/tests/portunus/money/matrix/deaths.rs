//! `kill -9` in the midst of calls of every family and format: the next start books them all.

use canon::Money;
use http::Method;
use serde_json::Value;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::{AT_ONCE, AnswerPhases, CallEvent, Cell, config, reach};
use crate::tasks::harness::{GatewayProcess, get, send};

/// Phases of an answer in which the gateway is killed.
const PHASES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_gateway_that_was_killed_are_booked_at_its_next_start() {
    // The same calls in each phase: their providers wait before, in and after the text.
    let cells = Cell::all(&[CallEvent::Nothing; PHASES]).await;
    let mut gateway = GatewayProcess::start(&config(&cells, ""));
    let made = gateway.run(&["keys", "create", "--name", "capped", "--cap", "1000"]);
    let key = serde_json::from_str::<Value>(&made).unwrap()["key"].as_str().unwrap().to_owned();
    // A gateway looks up only so many unknown keys in a second.
    let known = get(&format!("{}/v1/key", gateway.url), &key).await.unwrap();
    assert_eq!(known.status, 200, "{known:?}");
    let mut begun_calls = Vec::new();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    for (at, cell) in cells.iter().enumerate() {
        let (path, body) = cell.request(at);
        let (url, key) = (format!("{}{path}", gateway.url), key.clone());
        let AnswerPhases { asked, begun, said, .. } = cell.phases.clone();
        let moments: [_; PHASES] = [asked, begun, said];
        cell.phases.may_begin.add_permits(usize::from(at % PHASES > 0));
        cell.phases.may_go_on.add_permits(usize::from(at % PHASES > 1));
        let turn = Arc::clone(&turns).acquire_owned().await.unwrap();
        let body = body.to_string();
        let (has_begun, begins) = oneshot::channel();
        calls.spawn(async move {
            let call = async {
                // A call that the slow store of a busy machine refuses has no row.
                loop {
                    let got = send(Method::POST, &url, &key, &[], &body).await;
                    if got.as_ref().is_none_or(|got| got.status != 503) {
                        return got;
                    }
                }
            };
            let mut call = pin!(call);
            tokio::select! {
                got = &mut call => panic!("a call has ended: {got:?}"),
                () = reach(&moments[at % PHASES]) => {}
            }
            drop((turn, has_begun.send(())));
            call.await
        });
        begun_calls.push(begins);
    }
    for begins in begun_calls {
        begins.await.unwrap();
    }
    gateway.kill();
    let answers = calls.join_all().await;
    assert!(answers.iter().all(Option::is_none), "no call came to its end");
    gateway.serve();
    gateway.stop();
    gateway.run(&["ledger", "verify"]);
    let lines = gateway.export();
    assert_eq!(lines.len(), cells.len(), "every call has exactly one row");
    let rows: HashMap<&str, &Value> =
        lines.iter().map(|line| (line["model"].as_str().unwrap(), line)).collect();
    for (at, cell) in cells.iter().enumerate() {
        let row = rows[format!("m{at}").as_str()];
        let amount = |name: &str| row[name].as_str().unwrap().parse::<Money>().unwrap();
        let total = amount("cost_usd").saturating_add(amount("absorbed_usd"));
        let name = cell.name();
        assert_eq!((&row["outcome"], &row["estimated"]), (&"recovered".into(), &true.into()));
        // Output of the last second may be unknown to the journal.
        assert!(total >= cell.least_bill(0), "{name}: {row}");
    }
}
