//! A node whose data folder is lost, with calls that only its journal had.

use canon::{Micros, Money};
use ledger::MemoryDisk;
use std::sync::Arc;

use crate::cluster::Cluster;

/// The whole history is checked after each second, so that the time grows with the square of the cap.
const CAP: i64 = 30_000;
/// Money that each call reserves, and its cost.
const HOLD: i64 = 100;
const COST: i64 = 3;

/// Makes calls one after the other and returns their real cost.
fn calls(cluster: &mut Cluster, which: usize, count: usize) -> i64 {
    let mut asked = 0;
    for _ in 0..count {
        let before = cluster.process(which).unwrap().running.len();
        cluster.call(which, 0, HOLD, HOLD);
        cluster.finish(which);
        if cluster.process(which).unwrap().running.len() > before {
            asked += COST;
            cluster.settle(which, before, COST);
        }
    }
    asked
}

/// Makes calls for some seconds, as a busy node does, and returns their real cost.
fn seconds(cluster: &mut Cluster, which: usize, seconds: usize) -> i64 {
    let mut asked = 0;
    for _ in 0..seconds {
        asked += calls(cluster, which, 20);
        cluster.post(which);
        cluster.tend(which);
        cluster.finish(which);
        cluster.pass(Micros::from_secs(1));
        cluster.check();
    }
    asked
}

/// Lets the leases of dead nodes expire, with heartbeats of another node.
fn wait_for_expiry(cluster: &mut Cluster, which: usize) {
    for _ in 0..45 {
        cluster.pass(Micros::from_secs(1));
        cluster.tend(which);
        cluster.close_gone(which);
        cluster.finish(which);
    }
    cluster.check();
}

/// Money of a node that nobody can use.
fn set_aside(cluster: &Cluster, node: &str) -> i64 {
    let store = cluster.store.lock();
    let rows = store.leases.values().filter(|row| row.node_id == node);
    rows.map(|row| row.amount.as_nanos()).sum()
}

/// A node that served calls for half a minute, and then some of which the store never heard.
fn lost_node() -> (Cluster, i64) {
    let mut cluster = Cluster::new(2, &[Some(CAP)]);
    assert!(cluster.start(0));
    let mut asked = seconds(&mut cluster, 0, 30);
    asked += calls(&mut cluster, 0, 20);
    assert_eq!(set_aside(&cluster, "node0"), CAP - 30 * 20 * COST, "a single node has it all");
    cluster.kill(0);
    (cluster, asked)
}

#[test]
fn a_lost_folder_keeps_no_more_aside_than_may_be_spent() {
    let (mut cluster, mut asked) = lost_node();
    cluster.machines[0].lost = true;
    assert!(cluster.start(1));
    wait_for_expiry(&mut cluster, 1);
    let kept = set_aside(&cluster, "node0");
    assert!(kept >= 20 * COST, "the unposted calls are covered: {kept}");
    assert!(kept < 10 * HOLD, "{kept} of {CAP} are kept aside");
    // All the rest can be spent, and not more.
    loop {
        let more = seconds(&mut cluster, 1, 1);
        asked += more;
        if more == 0 {
            break;
        }
    }
    assert!(asked <= CAP, "the provider was asked for {asked}");
    assert!(asked > CAP - 10 * HOLD - HOLD, "{asked} of {CAP} could be spent");
}

#[test]
fn an_empty_folder_under_a_lost_name_frees_nothing_that_may_be_spent() {
    let (mut cluster, mut asked) = lost_node();
    cluster.machines[0].memory = Arc::new(MemoryDisk::default());
    assert!(cluster.start(0));
    let name = cluster.process(0).unwrap().client.node_name();
    assert_ne!(name, "node0");
    assert_eq!(set_aside(&cluster, "node0"), CAP - 30 * 20 * COST, "they have to expire");
    wait_for_expiry(&mut cluster, 0);
    let kept = set_aside(&cluster, "node0");
    assert!((20 * COST..10 * HOLD).contains(&kept), "{kept}");
    while calls(&mut cluster, 0, 1) > 0 {
        asked += COST;
        cluster.post(0);
        cluster.finish(0);
    }
    assert!(asked <= CAP, "the provider was asked for {asked}");
    // The next start has a journal, and keeps the name.
    cluster.kill(0);
    assert!(cluster.start(0));
    assert_eq!(cluster.process(0).unwrap().client.node_name(), name);
}

#[test]
fn a_folder_that_returns_pays_for_its_calls_and_frees_the_rest() {
    let (mut cluster, asked) = lost_node();
    assert!(cluster.start(1));
    wait_for_expiry(&mut cluster, 1);
    assert!(set_aside(&cluster, "node0") >= 20 * COST);
    assert!(cluster.start(0));
    cluster.check();
    let store = cluster.store.lock();
    assert_eq!(store.keys["k0"].spent, Money::from_nanos(asked));
    let absorbed: Money = store.entries.values().map(|entry| entry.absorbed).sum();
    assert_eq!(absorbed, Money::ZERO);
    drop(store);
    assert_eq!(set_aside(&cluster, "node0"), 0);
}

/// The bound follows the calls that the store does not know; a long one counts until it is reported.
#[test]
fn a_reported_call_is_not_kept_aside_twice() {
    let mut cluster = Cluster::new(2, &[Some(CAP)]);
    assert!(cluster.start(0));
    for _ in 0..10 {
        cluster.call(0, 0, 1_000, 1_000);
        cluster.finish(0);
    }
    seconds(&mut cluster, 0, 40);
    cluster.kill(0);
    cluster.machines[0].lost = true;
    assert!(cluster.start(1));
    wait_for_expiry(&mut cluster, 1);
    let kept = set_aside(&cluster, "node0");
    assert!(kept < 2_000, "{kept} are kept for ten calls that hold 10000");
    assert_eq!(cluster.store.lock().holds.len(), 0, "they are settled from their report");
}

/// A call that reserves more than half of the cap leaves nothing aside once it is posted.
#[test]
fn a_quiet_key_with_a_small_cap_keeps_nothing_aside() {
    let mut cluster = Cluster::new(2, &[Some(180)]);
    assert!(cluster.start(0));
    assert_eq!(calls(&mut cluster, 0, 1), COST);
    for _ in 0..5 {
        cluster.post(0);
        cluster.tend(0);
        cluster.finish(0);
        cluster.pass(Micros::from_secs(1));
    }
    cluster.kill(0);
    cluster.machines[0].lost = true;
    assert!(cluster.start(1));
    wait_for_expiry(&mut cluster, 1);
    assert_eq!(set_aside(&cluster, "node0"), 0);
    assert_eq!(calls(&mut cluster, 1, 1), COST, "it can be spent");
    // One that was running when its node died may be spent.
    cluster.call(1, 0, HOLD, HOLD);
    cluster.finish(1);
    cluster.kill(1);
    cluster.machines[1].lost = true;
    let third = cluster.add_machine();
    assert!(cluster.start(third));
    wait_for_expiry(&mut cluster, third);
    assert!(set_aside(&cluster, "node1") >= HOLD);
    assert_eq!(calls(&mut cluster, third, 1), 0);
}
