//! Caps that are lowered while many calls run: two seconds later no node admits anything beyond them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::nodes::PRICE;
use crate::nodes::clients::Callers;
use crate::nodes::cluster::Cluster;

/// Time within which changed terms take effect on every node.
const EFFECT_TIME: Duration = Duration::from_secs(2);

/// Lowers a cap under ten callers on three nodes. No call that begins two seconds later is answered.
async fn lower(cluster: &Cluster, key: &str, lower: impl FnOnce()) {
    let callers = Callers::new(cluster, key);
    let stop = Arc::new(AtomicBool::new(false));
    let calling = tokio::spawn({
        let (callers, stop) = (callers.clone(), Arc::clone(&stop));
        async move { callers.call_until(10, stop).await }
    });
    testkit::until("all nodes spend", async || callers.admitted() >= 60).await;
    lower();
    let lowered = Instant::now();
    testkit::until("two seconds are over", async || lowered.elapsed() >= EFFECT_TIME).await;
    let (before, made) = (callers.admitted(), callers.made());
    testkit::until("many more calls were made", async || {
        callers.made() >= made + 100 && lowered.elapsed() >= 2 * EFFECT_TIME
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    calling.await.unwrap();
    assert!(before >= 60);
    let late: Vec<_> = callers.done().into_iter().filter(|(_, number)| *number >= made).collect();
    assert_eq!(late, [], "{made} calls were made before");
    assert_eq!(cluster.served().await, callers.admitted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_cap_of_a_key_takes_effect_within_two_seconds() {
    let cluster = Cluster::start(3).await;
    let key = cluster.key(5_000 * PRICE);
    lower(&cluster, &key.text, || cluster.set_cap(&key.id, PRICE)).await;
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_cap_of_an_account_takes_effect_within_two_seconds() {
    let cluster = Cluster::start(3).await;
    let team = cluster.team("Night shift", 5_000 * PRICE).await;
    let key = cluster.team_key(&team, Some(4_000 * PRICE));
    lower(&cluster, &key.text, || cluster.set_team_cap(&team, PRICE)).await;
    cluster.stop();
}
