//! A node is killed and its data folder deleted, under load: its leases are free within a minute without
//! a command of an operator, and the provider is never asked for more than the cap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::nodes::clients::{Callers, ask, soon};
use crate::nodes::cluster::Cluster;
use crate::nodes::{PRICE, nanos, parameters};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_folder_locks_nothing_and_the_provider_is_not_asked_for_more_than_the_cap() {
    const CALLS: usize = 3_000;
    let mut cluster = Cluster::start(2).await;
    let key = cluster.key(CALLS as i64 * PRICE);
    let callers = Callers::new(&cluster, &key.text);
    let stop = Arc::new(AtomicBool::new(false));
    let calling = tokio::spawn({
        let (callers, stop) = (callers.clone(), Arc::clone(&stop));
        async move { callers.call_until(12, stop).await }
    });
    testkit::until("a third of the calls is admitted", async || callers.admitted() >= CALLS / 3)
        .await;
    cluster.kill(0);
    let name = std::fs::read_to_string(cluster.data(0).join("node")).unwrap();
    let name = name.trim().to_owned();
    std::fs::remove_dir_all(cluster.data(0)).unwrap();
    stop.store(true, Ordering::Relaxed);
    calling.await.unwrap();
    let mut db = cluster.database().await;
    testkit::until("the leases are closed within a minute", async || {
        let open = "SELECT COUNT(*) FROM leases WHERE node_id = $1 AND closed = 0";
        let open: i64 = sqlx::query_scalar(open).bind(&name).fetch_one(&mut db).await.unwrap();
        open == 0
    })
    .await;
    let kept = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM leases WHERE node_id = $1";
    let kept: i64 = sqlx::query_scalar(kept).bind(&name).fetch_one(&mut db).await.unwrap();
    // A call costs what it reserves. Twelve callers and their costs of some seconds are uncertain.
    assert!(kept < CALLS as i64 * PRICE / 4, "{kept} are kept aside");

    // A node with an empty folder and the name of the lost one frees none of that.
    std::fs::create_dir_all(cluster.data(0)).unwrap();
    std::fs::write(cluster.data(0).join("node"), format!("{name}\n")).unwrap();
    cluster.restart(0);
    let now = std::fs::read_to_string(cluster.data(0).join("node")).unwrap();
    assert!(now.starts_with(&format!("{name}.")), "{now}");
    let spent = soon(Duration::from_secs(60), || async {
        callers.call_until_refused(4).await;
        let (_, seen) = ask(&cluster.urls()[1], "/v1/key", &key.text).await?;
        let spent = nanos(&seen["spent_usd"]);
        (spent + kept + 20 * PRICE >= CALLS as i64 * PRICE).then_some(spent)
    });
    let spent = spent.await.expect("all but the kept money can be spent");
    let served = cluster.served().await;
    assert!(served <= CALLS, "the provider was asked {served} times");
    parameters::tell(&[
        ("kept", usize::try_from(kept / PRICE).unwrap()),
        ("spent", usize::try_from(spent / PRICE).unwrap()),
        ("served", served),
    ]);
    drop(db);
    cluster.stop();
    cluster.verify();
}
