//! Several gateways on one PostgreSQL, as processes: together they never overspend, although any of
//! them may die at any moment or find its disk full.
//!
//! `cargo xtask soak` runs the same tests for hours with larger parameters (`parameters.rs`).

mod budgets;
mod caps;
mod clients;
mod cluster;
mod disk_full;
mod kills;
mod lost_folder;
mod parameters;
mod restored;
mod teams;

use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clients::{Answer, Callers, ask, soon};
use cluster::Cluster;

/// Fixed price of a call of the model `flat`, so that a cap of so many calls is exact.
const PRICE: i64 = 1_000_000;

/// Nanodollars of a printed amount.
fn nanos(amount: &Value) -> i64 {
    amount.as_str().unwrap().parse::<canon::Money>().unwrap().as_nanos()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_spend_a_cap_to_its_end_and_not_beyond() {
    let nodes = parameters::figure("NODES", 3);
    let parallel = parameters::figure("CALLERS", 64);
    let calls = parameters::figure("CALLS", 400);
    let cluster = Cluster::start(nodes).await;
    let key = cluster.key(calls as i64 * PRICE);
    let callers = Callers::new(&cluster, &key.text);
    let looking = tokio::spawn({
        let (urls, text) = (cluster.urls(), key.text.clone());
        async move {
            let mut looks = 0;
            for node in 0.. {
                let url = &urls[node % urls.len()];
                let (status, seen) = ask(url, "/v1/key", &text).await.unwrap();
                if status == 401 {
                    return looks;
                }
                let [spent, held] = ["spent_usd", "held_usd"].map(|name| nanos(&seen[name]));
                assert!(spent + held <= nanos(&seen["cap_usd"]), "{seen}");
                looks += 1;
            }
            looks
        }
    });
    let cluster = Arc::new(cluster);
    let done = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn({
        let (cluster, key, done) = (Arc::clone(&cluster), key.clone(), Arc::clone(&done));
        async move {
            let (mut db, mut looks) = (cluster.database().await, 0);
            while !done.load(Ordering::Relaxed) {
                let (cap, spent, leased) = cluster.sums(&mut db, &key).await;
                assert!(spent + leased <= cap, "{spent} spent, {leased} leased, of {cap}");
                looks += 1;
            }
            looks
        }
    });
    let admitted = callers.call_until_refused(parallel).await;
    done.store(true, Ordering::Relaxed);
    assert!(counting.await.unwrap() > 10);
    assert!(admitted <= calls, "{admitted} of {calls}");
    assert!(admitted * 100 >= calls * 95, "only {admitted} of {calls}");
    let first = callers.admitted_at_first_refusal();
    assert!(first * 100 >= calls * 95, "the first refusal came after {first} of {calls}");
    cluster.verify();

    // Every node reports the same within five seconds of the last call.
    let spent = admitted as i64 * PRICE;
    for url in cluster.urls() {
        let told = soon(Duration::from_secs(5), || async {
            let (_, seen) = ask(&url, "/v1/key", &key.text).await?;
            let held = nanos(&seen["held_usd"]);
            (nanos(&seen["spent_usd"]) == spent && held == 0).then_some(seen)
        });
        let told = told.await.expect("all nodes' settlements are counted");
        assert_eq!(nanos(&told["remaining_usd"]), calls as i64 * PRICE - spent);
    }
    assert_eq!(cluster.served().await, admitted, "what the provider served is what was charged");

    cluster.revoke(&key.id);
    for url in cluster.urls() {
        let refused = soon(Duration::from_secs(5), || async {
            let (status, _) = ask(&url, "/v1/key", &key.text).await?;
            (status == 401).then_some(())
        });
        refused.await.expect("a revocation reaches every node");
    }
    assert!(looking.await.unwrap() > 10);
    cluster.stop();
    cluster.verify();
    parameters::tell(&[("calls", callers.made())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_nodes_dies_and_nothing_is_lost_or_spent_twice() {
    const CALLS: usize = 300;
    let mut cluster = Cluster::start(3).await;
    let key = cluster.key(CALLS as i64 * PRICE);
    let streaming = cluster.key(1_000_000_000);
    let stream = clients::begin_stream(&cluster.urls()[0], &streaming.text, 400).await;
    let held = soon(Duration::from_secs(5), || async {
        let (_, seen) = ask(&cluster.urls()[1], "/v1/key", &streaming.text).await?;
        (nanos(&seen["held_usd"]) > 0).then_some(())
    });
    held.await.expect("another node knows of the running call");

    let callers = Callers::new(&cluster, &key.text);
    let calling = tokio::spawn({
        let callers = callers.clone();
        async move { callers.call_until_refused(12).await }
    });
    testkit::until("a third of the calls is admitted", async || callers.admitted() >= CALLS / 3)
        .await;
    cluster.kill(0);
    drop(stream.body);
    let before = calling.await.unwrap();
    assert!(before <= CALLS, "{before}");
    cluster.verify();

    // The survivors settle the dead node's call and take over its unspent lease.
    let receipt = soon(Duration::from_secs(60), || async {
        let path = format!("/v1/usage/{}", stream.request_id);
        let (status, seen) = ask(&cluster.urls()[1], &path, &streaming.text).await?;
        (status == 200).then_some(seen)
    });
    let receipt = receipt.await.expect("the dead node's call is settled within a minute");
    assert_eq!(receipt["outcome"], "recovered");
    assert!(nanos(&receipt["cost_usd"]) > 0, "{receipt}");
    let after = callers.call_until_refused(4).await;
    assert!(after <= CALLS, "{after}");

    // It restarts: its journal adds the unreported calls, nothing twice, and the money held
    // for them is free again.
    cluster.restart(0);
    let rest = soon(Duration::from_secs(30), || async {
        let admitted = callers.call_until_refused(4).await;
        (admitted * 100 >= CALLS * 95).then_some(admitted)
    });
    let admitted = rest.await.expect("nearly all of the cap is spent");
    assert!(admitted <= CALLS, "{admitted}");
    cluster.stop();
    cluster.verify();
    let lines = cluster.export();
    let of = |id: &str| lines.iter().filter(|line| line["request_id"] == *id).count();
    assert_eq!(of(&stream.request_id), 1);
    for (id, _) in callers.done() {
        assert_eq!(of(&id), 1, "every answered call is on the books, once");
    }
    let flat = lines.iter().filter(|line| line["model"] == "flat" && line["status"] != 429);
    let paid = flat.clone().filter(|line| nanos(&line["cost_usd"]) > 0);
    assert!(paid.clone().all(|line| nanos(&line["cost_usd"]) == PRICE));
    let (paid, known, served) = (paid.count(), flat.count(), cluster.served().await);
    // Calls under way when it died: their callers got no answer.
    assert!(admitted <= paid && paid <= CALLS, "{admitted} {paid}");
    assert!(paid <= served && served <= known, "{paid} paid, {served} served, {known} known");
    assert!(matches!(callers.one(0).await, Answer::Gone), "all nodes are stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_goes_away_and_comes_back() {
    const CALLS: usize = 200;
    let cluster = Cluster::start(2).await;
    let key = cluster.key(CALLS as i64 * PRICE);
    let callers = Callers::new(&cluster, &key.text);
    let ready = |expected: u16| {
        let urls = cluster.urls();
        soon(Duration::from_secs(10), move || {
            let urls = urls.clone();
            async move {
                for url in &urls {
                    let (status, _) = ask(url, "/readyz", "").await?;
                    if status != expected {
                        return None;
                    }
                }
                Some(())
            }
        })
    };
    cluster.all_tended().await;
    for node in 0..40 {
        let answer = callers.one(node).await;
        assert!(matches!(answer, Answer::Done), "{answer:?}");
    }
    ready(200).await.expect("both are ready");
    // Twice: a node acts on the reply to a heartbeat before it sends the next one.
    cluster.all_tended().await;
    cluster.all_tended().await;

    cluster.cut_store().await;
    let before = callers.admitted();
    let mut away = [false; 2];
    for round in 0..2 * CALLS {
        let node = round % 2;
        match callers.one(node).await {
            Answer::Done => {}
            Answer::Away => away[node] = true,
            other => panic!("{other:?}"),
        }
        if away == [true; 2] {
            break;
        }
    }
    assert_eq!(away, [true; 2], "what is leased and told is spent, nothing more");
    assert!(callers.admitted() > before, "but that is spent");
    ready(503).await.expect("callers are sent elsewhere");

    cluster.mend_store().await;
    ready(200).await.expect("both are ready again");
    let admitted = callers.call_until_refused(4).await;
    assert!(admitted <= CALLS && admitted * 100 >= CALLS * 95, "{admitted}");
    cluster.stop();
    cluster.verify();
    let lines = cluster.export();
    for (id, _) in callers.done() {
        let count = lines.iter().filter(|line| line["request_id"] == *id).count();
        assert_eq!(count, 1, "what was settled while the store was away is on the books, once");
    }
    assert_eq!(cluster.served().await, admitted);
    parameters::tell(&[("calls", callers.made())]);
}
