//! Several gateways, one team: its keys together spend its cap exactly, on all nodes.

use canon::Money;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::nodes::clients::{Callers, ask, soon};
use crate::nodes::cluster::Cluster;
use crate::nodes::{PRICE, nanos};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_spend_a_teams_cap_to_its_end_and_not_beyond() {
    const CALLS: usize = 300;
    let cluster = Arc::new(Cluster::start(3).await);
    let team = cluster.team("Night shift", CALLS as i64 * PRICE).await;
    // One of the keys has a cap of its own that holds as well.
    let keys = [
        cluster.team_key(&team, None),
        cluster.team_key(&team, None),
        cluster.team_key(&team, Some(CALLS as i64 / 10 * PRICE)),
    ];
    let done = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn({
        let (cluster, team, done) = (Arc::clone(&cluster), team.id.clone(), Arc::clone(&done));
        async move {
            let (mut db, mut looks) = (cluster.database().await, 0);
            while !done.load(Ordering::Relaxed) {
                let (cap, spent, leased) = cluster.team_sums(&mut db, &team).await;
                assert!(spent + leased <= cap, "{spent} spent, {leased} leased, of {cap}");
                looks += 1;
            }
            looks
        }
    });
    let callers = keys.each_ref().map(|key| Callers::new(&cluster, &key.text));
    let mut calling = tokio::task::JoinSet::new();
    for (callers, parallel) in callers.iter().cloned().zip([28, 28, 8]) {
        calling.spawn(async move { callers.call_until_refused(parallel).await });
    }
    let admitted: Vec<usize> = calling.join_all().await;
    done.store(true, Ordering::Relaxed);
    assert!(counting.await.unwrap() > 10);
    let admitted: usize = admitted.into_iter().sum();
    assert!(admitted <= CALLS, "{admitted} of {CALLS}");
    assert!(callers[2].admitted() <= CALLS / 10, "{}", callers[2].admitted());
    cluster.verify();
    // Money that one key's leases held back when another was refused is available to the next call.
    let rest = soon(Duration::from_secs(30), || async {
        let mut admitted = callers[2].admitted();
        for callers in &callers[..2] {
            admitted += callers.call_until_refused(4).await;
        }
        (admitted * 100 >= CALLS * 95).then_some(admitted)
    });
    let admitted = rest.await.expect("nearly all of the cap can be spent");
    assert!(admitted <= CALLS, "{admitted} of {CALLS}");
    let spent = admitted as i64 * PRICE;
    for url in cluster.urls() {
        let told = soon(Duration::from_secs(30), || async {
            let (_, seen) = ask(&url, "/v1/key", &keys[0].text).await?;
            let account: &Value = &seen["account"];
            (nanos(&account["spent_usd"]) == spent).then_some(seen)
        });
        let told = told.await.expect("every node tells of all keys of the team");
        assert_eq!(nanos(&told["account"]["cap_usd"]), CALLS as i64 * PRICE);
    }
    assert_eq!(cluster.served().await, admitted, "what the provider served is what was charged");
    cluster.stop();
    cluster.verify();
    let lines = cluster.export();
    let paid: i64 = lines.iter().map(|line| nanos(&line["cost_usd"])).sum();
    assert_eq!(Money::from_nanos(paid), Money::from_nanos(spent));
    assert!(lines.iter().all(|line| line["account_id"] == *team.id), "the team pays");
}
