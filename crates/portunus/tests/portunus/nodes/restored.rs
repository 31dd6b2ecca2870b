//! `portunus backup` and `portunus restore` of PostgreSQL: made under load, and restored into an empty database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::nodes::PRICE;
use crate::nodes::clients::Callers;
use crate::nodes::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_has_every_call_of_the_journals_once() {
    const MORE_CALLS: usize = 60;
    let mut cluster = Cluster::start(2).await;
    let key = cluster.key(1_000_000 * PRICE);
    let callers = Callers::new(&cluster, &key.text);
    let stop = Arc::new(AtomicBool::new(false));
    let calling = tokio::spawn({
        let (callers, stop) = (callers.clone(), Arc::clone(&stop));
        async move { callers.call_until(8, stop).await }
    });
    let admitted = async |least: usize| {
        testkit::until("calls are admitted", async || callers.admitted() >= least).await;
    };
    admitted(MORE_CALLS).await;
    let (is_made, said) = cluster.command_at(0, &["backup", "copy"]);
    assert!(is_made && said.contains("is a backup of the database"), "{said}");
    admitted(callers.admitted() + MORE_CALLS).await;
    stop.store(true, Ordering::Relaxed);
    calling.await.unwrap();
    cluster.stop();
    let served = cluster.served().await as i64;

    let (is_restored, said) = cluster.command_at(0, &["restore", "copy"]);
    assert!(!is_restored && said.contains("createdb"), "{said}");
    cluster.replace_database().await;
    let (is_restored, said) = cluster.command_at(0, &["restore", "copy"]);
    assert!(is_restored && said.contains("the books balance"), "{said}");
    // Calls that the backup has from the journal are none that were lost.
    assert!(!said.contains("any more"), "{said}");
    // The other node adds the calls of its own journal.
    cluster.restart(1);
    let mut db = cluster.database().await;
    testkit::until("every call is paid", async || {
        cluster.sums(&mut db, &key).await.1 == served * PRICE
    })
    .await;
    cluster.restart(0);
    cluster.stop();
    assert_eq!(cluster.sums(&mut db, &key).await.1, served * PRICE, "and none of them twice");
    drop(db);
    cluster.verify();
}
