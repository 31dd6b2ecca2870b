//! `kill -9` in a loop, under load of all formats, streamed and whole: the ledger equals the
//! provider's meter for every answered call, to the nanodollar.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::nodes::clients::Callers;
use crate::nodes::cluster::Cluster;
use crate::nodes::{nanos, parameters};

/// Price of a call of the model `metered` with this usage.
fn cost(input: i64, output: i64) -> i64 {
    100_000 + input * 3_000 + output * 15_000
}

/// Usage of each call by the provider's meter, by the call's tag. The meter remembers the last ten
/// thousand: it is read more often than that.
async fn read_meter(cluster: &Cluster, bills: &mut HashMap<String, i64>) {
    let meter = cluster.meter().await;
    for row in meter["calls"].as_array().unwrap() {
        let Some(tag) = row["tag"].as_str() else { continue };
        let count = |name: &str| row[name].as_i64().unwrap();
        bills.insert(tag.to_owned(), cost(count("input_tokens"), count("output_tokens")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_nodes_leave_every_answered_call_charged_as_metered() {
    let nodes = parameters::figure("NODES", 2);
    let kills = parameters::figure("KILLS", 6);
    let parallel = parameters::figure("CALLERS", 16);
    let mut random = parameters::SeededRandom::new();
    let mut cluster = Cluster::start(nodes).await;
    let key = cluster.key(1_000_000_000_000);
    let callers = Callers::of(&cluster, &key.text, "metered");
    let stop = Arc::new(AtomicBool::new(false));
    let calling = tokio::spawn({
        let (callers, stop) = (callers.clone(), Arc::clone(&stop));
        async move { callers.call_until(parallel, stop).await }
    });
    let mut bills = HashMap::new();
    let pause =
        |random: &mut parameters::SeededRandom, most| Duration::from_millis(random.below(most));
    for round in 1..=kills {
        // A varying amount of work between two kills.
        let enough = callers.admitted() + 10 + random.below(60) as usize;
        testkit::until("enough calls are admitted", async || callers.admitted() >= enough).await;
        tokio::time::sleep(pause(&mut random, 50)).await;
        let number = random.below(nodes as u64) as usize;
        cluster.kill(number);
        if round % 5 == 0 {
            // It is killed again while it reads its journal.
            cluster.start_and_kill(number, pause(&mut random, 60));
        }
        tokio::time::sleep(pause(&mut random, 300)).await;
        cluster.restart(number);
        read_meter(&cluster, &mut bills).await;
    }
    stop.store(true, Ordering::Relaxed);
    calling.await.unwrap();
    cluster.verify();
    cluster.stop();
    cluster.verify();
    read_meter(&cluster, &mut bills).await;

    let lines = cluster.export();
    let mut rows: HashMap<&str, &Value> = HashMap::new();
    for line in &lines {
        let before = rows.insert(line["request_id"].as_str().unwrap(), line);
        assert!(before.is_none(), "{line} is on the books twice");
    }
    let done = callers.done();
    let (mut charged, mut metered) = (0, 0);
    for (id, number) in &done {
        let row = rows.remove(id.as_str()).expect("an answered call is on the books");
        let bill = bills.remove(&format!("c{number}")).expect("an answered call was metered");
        assert_eq!(nanos(&row["cost_usd"]), bill, "call {number}: {row}");
        charged += nanos(&row["cost_usd"]);
        metered += bill;
    }
    assert_eq!(charged, metered);
    // The remaining calls were under way when their node died: they cost no more than was used, and
    // the operator absorbs an estimate of the rest. No call vanishes from both columns.
    for row in rows.values().filter(|row| row["outcome"] == "recovered") {
        assert_ne!(row["lane"], "", "{row}");
        assert!(nanos(&row["cost_usd"]) + nanos(&row["absorbed_usd"]) > 0, "{row}");
    }
    let paid: i64 = rows.values().map(|row| nanos(&row["cost_usd"])).sum();
    assert!(bills.len() <= rows.len(), "{} served, {} known", bills.len(), rows.len());
    assert!(paid <= bills.values().sum(), "{paid} of {bills:?}");
    let mut ends: HashMap<String, usize> = HashMap::new();
    for row in rows.values() {
        *ends
            .entry(format!("{} {} {}", row["outcome"], row["status"], row["ended_by"]))
            .or_default() += 1;
    }
    let lost = rows.len();
    assert!(lost <= kills * (parallel + 1), "{lost} calls lost their callers: {ends:?}");
    let spent: i64 = lines.iter().map(|line| nanos(&line["cost_usd"])).sum();
    assert_eq!(spent, charged + paid);
    parameters::tell(&[("calls", callers.made()), ("kills", kills), ("cut", rows.len())]);
}
