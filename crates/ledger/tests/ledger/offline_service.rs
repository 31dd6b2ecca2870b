//! Keys that a node serves while its store is silent.

use canon::{Micros, Money};
use ledger::{KeyBalance, MemoryDisk, OfflineService, TestClock};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::cluster::{held, run};
use crate::laws::TestNode;
use crate::memory_store::MemoryStore;
use crate::store_line::LineFaults;

fn counts(served: usize, refused: usize) -> OfflineService {
    OfflineService { served, refused }
}

#[test]
fn the_keys_in_use_decide_and_the_others_only_if_there_are_none() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(1_000)));
    clock.pass(Micros::from_secs(1));
    let store = Arc::new(Mutex::new(MemoryStore::default()));
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), &store);
    node.client.set_outage_limit(Micros::from_secs(60));
    let capped = KeyBalance::new("capped", Some(Money::from_nanos(100)), Money::ZERO);
    let free = KeyBalance::new("free", None, Money::ZERO);
    let all = [capped, Arc::clone(&free)];
    assert_eq!(node.client.offline_service(&all), counts(1, 1), "none is in use: all count");

    let one = Money::from_nanos(1);
    let hold = |id: &str| run(node.client.hold(&free, Arc::new(held(id, "free")), one, one));
    assert!(hold("r1").is_ok());
    assert_eq!(node.client.offline_service(&all), counts(1, 0), "only this one is in use");
    clock.pass(Micros::from_secs(61));
    assert_eq!(node.client.offline_service(&all), counts(0, 1), "`store.away` is over");
    assert!(hold("r2").is_err(), "and calls are refused");
    clock.pass(Micros::from_secs(300));
    assert_eq!(node.client.offline_service(&all), counts(0, 2), "it was not used for a while");
}

#[test]
fn a_key_whose_calls_are_all_refused_is_in_use() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(1_000)));
    let store = MemoryStore::new(&[Some(1_000)]);
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), &store);
    node.client.set_outage_limit(Micros::from_secs(60));
    let key = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
    let free = KeyBalance::new("free", None, Money::ZERO);
    let all = [Arc::clone(&key), Arc::clone(&free)];
    *node.line.faults.lock() = LineFaults::Cut;
    let one = Money::from_nanos(1);
    assert!(run(node.client.hold(&key, Arc::new(held("r1", "k0")), one, one)).is_err());
    assert_eq!(node.client.offline_service(&all), counts(0, 1), "the unlimited key has no calls");
    // One that is refused because `store.away` is over is in use too.
    clock.pass(Micros::from_secs(301));
    assert!(run(node.client.hold(&free, Arc::new(held("r2", "free")), one, one)).is_err());
    assert_eq!(node.client.offline_service(&all), counts(0, 1));
}

/// A store may answer heartbeats and leave requests for money without an answer.
#[test]
fn a_request_for_money_without_an_answer_is_a_failure() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(1_000)));
    let store = MemoryStore::new(&[Some(1_000), Some(1_000)]);
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), &store);
    let keys =
        ["k0", "k1"].map(|id| KeyBalance::new(id, Some(Money::from_nanos(1_000)), Money::ZERO));
    let one = Money::from_nanos(1);
    let call = |key: usize| {
        let record = Arc::new(held(&format!("r{key}"), &format!("k{key}")));
        Box::pin(node.client.hold(&keys[key], record, one, one))
    };
    let lasts = || node.client.lease_failure().map(|(lasts, _)| lasts);
    let is_pending = |call: &mut Pin<Box<_>>| {
        Future::poll(Pin::as_mut(call), &mut Context::from_waker(Waker::noop())).is_pending()
    };
    *node.line.faults.lock() = LineFaults::SilentGrants;
    let mut left = call(0);
    assert!(is_pending(&mut left));
    clock.pass(Micros::from_millis(900));
    drop(left);
    assert_eq!(lasts(), None, "a caller who leaves is no failure of the store");

    let mut waiting = call(0);
    assert!(is_pending(&mut waiting));
    for seconds in 1..=5 {
        clock.pass(Micros::from_secs(1));
        run(node.client.heartbeat()).unwrap();
        assert_eq!(lasts(), Some(Micros::from_secs(seconds)), "while it waits");
    }
    *node.line.faults.lock() = LineFaults::Fine;
    assert!(run(call(1)).is_ok());
    assert_eq!(lasts(), Some(Micros::ZERO), "another key gets money");
    clock.pass(Micros::from_secs(6));
    drop(waiting);
    assert_eq!(lasts(), Some(Micros::from_secs(6)), "after it was given up");
    run(node.client.heartbeat()).unwrap();
    assert_eq!(lasts(), None, "asked again without a call");
}

/// A store on a full disk may answer heartbeats and still lease no money.
#[test]
fn a_store_that_leases_no_money_is_asked_again_with_every_heartbeat() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(1_000)));
    let store = MemoryStore::new(&[Some(1_000)]);
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), &store);
    let key = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id| run(node.client.hold(&key, Arc::new(held(id, "k0")), hundred, hundred));
    *node.line.faults.lock() = LineFaults::NoGrants;
    let lasts = || node.client.lease_failure().map(|(lasts, _)| lasts);
    assert_eq!(lasts(), None, "nobody has asked");
    assert!(hold("r1").is_err());
    for seconds in 1..9 {
        clock.pass(Micros::from_secs(1));
        assert!(run(node.client.heartbeat()).is_err(), "it asks again, and says that it fails");
        assert_eq!(lasts(), Some(Micros::from_secs(seconds)));
        assert_eq!(node.client.time_since_contact(), Micros::ZERO, "though the store answers");
    }
    *node.line.faults.lock() = LineFaults::Fine;
    clock.pass(Micros::from_secs(1));
    run(node.client.heartbeat()).unwrap();
    assert_eq!(lasts(), None, "without a call");
    assert_eq!(store.lock().keys["k0"].leased, Money::ZERO, "and without money");
    assert!(hold("r2").is_ok());
}

/// A store that went back to a state from before a key works, and knows nothing of the key.
#[test]
fn a_key_that_the_store_does_not_have_is_no_failure_of_the_store() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(1_000)));
    let store = MemoryStore::new(&[Some(1_000)]);
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), &store);
    let key = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
    let hundred = Money::from_nanos(100);
    *node.line.faults.lock() = LineFaults::NoGrants;
    assert!(run(node.client.hold(&key, Arc::new(held("r1", "k0")), hundred, hundred)).is_err());
    assert!(node.client.lease_failure().is_some());
    *node.line.faults.lock() = LineFaults::UnknownKey;
    clock.pass(Micros::from_secs(1));
    run(node.client.heartbeat()).unwrap();
    assert!(node.client.lease_failure().is_none());
}
