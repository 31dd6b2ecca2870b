//! A store that goes back to an earlier state gets its calls again, as well informed as before.

use canon::{Micros, Money, Usage};
use ledger::{
    CallProgress, Disk as _, HoldTicket, KeyBalance, LeaseClient, MemoryDisk, OpenCalls,
    SettlementKnowledge, StoreRollback, TestClock,
};
use parking_lot::Mutex;
use std::sync::Arc;

use crate::cluster::{entry, held, run};
use crate::laws::TestNode;
use crate::memory_store::MemoryStore;
use crate::store_line::{LineFaults, MessageFate, StoreLine};

/// The only node of a store, with one key whose cap is 1,000.
struct SoleNode {
    store: Arc<Mutex<MemoryStore>>,
    clock: Arc<TestClock>,
    disk: Arc<MemoryDisk>,
    node: TestNode,
    balance: Arc<KeyBalance>,
}

impl SoleNode {
    fn open() -> Self {
        let store = MemoryStore::new(&[Some(1_000)]);
        let clock = Arc::new(TestClock::at(Micros::from_secs(5)));
        let disk = Arc::new(MemoryDisk::default());
        let node = TestNode::open(&clock, disk.clone(), &store);
        let balance = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
        Self { store, clock, disk, node, balance }
    }
}

/// The store fails over to a stale replica, while the node runs or while it is stopped.
#[test]
fn a_store_that_went_back_gets_its_calls_again() {
    const CALLS: i64 = 6;
    for is_stopped in [false, true] {
        let SoleNode { store, clock, disk, mut node, balance } = SoleNode::open();
        let call = |node: &TestNode, id: &str| {
            let (ask, record) = (Money::from_nanos(100), Arc::new(held(id, "k0")));
            run(node.client.hold(&balance, record, ask, ask)).map(|ticket| {
                ticket.settle(entry(id, "k0", 100));
                run(node.client.post()).unwrap();
            })
        };
        call(&node, "r0").unwrap();
        run(node.client.heartbeat()).unwrap();
        let stale = store.lock().clone();
        for id in 1..CALLS {
            call(&node, &format!("r{id}")).unwrap();
        }
        run(node.client.heartbeat()).unwrap();
        assert_eq!(store.lock().rollbacks, []);
        node.client.save_mark().unwrap();
        store.lock().restore(&stale);
        if is_stopped {
            node = TestNode::open(&clock, Arc::new(disk.after_crash()), &store);
        }
        for _ in 0..4 {
            // A segment at a time.
            run(node.client.heartbeat()).unwrap();
        }
        let found = StoreRollback { missing: CALLS - 1, reposted: CALLS - 1 };
        assert_eq!(node.client.take_rollbacks(), [found]);
        {
            let store = store.lock();
            assert_eq!(store.rollbacks, [found]);
            assert_eq!(store.entries.len() as i64, CALLS);
            assert_eq!(store.keys["k0"].spent, Money::from_nanos(CALLS * 100));
            store.check();
        }
        run(node.client.heartbeat()).unwrap();
        assert_eq!(store.lock().rollbacks, [found], "it is told once");
        // The rest of the cap can be spent, and nothing twice.
        let balance = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
        for id in CALLS..10 {
            let (ask, record) = (Money::from_nanos(100), Arc::new(held(&format!("r{id}"), "k0")));
            let ticket = run(node.client.hold(&balance, record, ask, ask)).unwrap();
            ticket.settle(entry(&format!("r{id}"), "k0", 100));
        }
        let (ask, record) = (Money::from_nanos(100), Arc::new(held("above", "k0")));
        assert!(run(node.client.hold(&balance, record, ask, ask)).is_err());
        run(node.client.post()).unwrap();
        store.lock().check();
    }
}

/// An operator restores a copy: the node posts its calls again, and only lost ones are an alarm.
#[test]
fn a_store_that_an_operator_set_back_is_an_alarm_only_if_calls_are_lost() {
    for is_lost in [false, true] {
        let store = MemoryStore::new(&[Some(1_000)]);
        let clock = Arc::new(TestClock::at(Micros::new(5)));
        let disk = Arc::new(MemoryDisk::default());
        let node = TestNode::open(&clock, disk.clone(), &store);
        let balance = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
        let stale = store.lock().clone();
        for id in ["first", "second"] {
            begin(&node, &balance, id).settle(entry(id, "k0", 50));
            run(node.client.post()).unwrap();
        }
        node.client.save_mark().unwrap();
        drop(node);
        let disk = disk.after_crash();
        if is_lost {
            let [segment] = disk.segments().unwrap()[..] else { panic!("one segment") };
            disk.lose(segment);
        }
        store.lock().restore(&stale);
        store.lock().adopted.insert("n".to_owned());
        let node = TestNode::open(&clock, Arc::new(disk), &store);
        let found = is_lost.then_some(StoreRollback { missing: 2, reposted: 0 });
        assert_eq!(node.client.take_rollbacks(), Vec::from_iter(found));
        assert_eq!(store.lock().rollbacks, Vec::from_iter(found));
        assert_eq!(store.lock().entries.len(), if is_lost { 0 } else { 2 });
        // The next one is not expected.
        store.lock().restore(&stale);
        run(node.client.heartbeat()).unwrap();
        for _ in 0..6 {
            run(node.client.heartbeat()).unwrap();
        }
        assert_eq!(store.lock().rollbacks.len(), 1);
    }
}

/// Reserves 100 for a call that reaches a cost of 40.
fn begin(node: &TestNode, balance: &Arc<KeyBalance>, id: &str) -> HoldTicket {
    let hundred = Money::from_nanos(100);
    let ticket =
        run(node.client.hold(balance, Arc::new(held(id, "k0")), hundred, hundred)).unwrap();
    let usage = Usage { output: 4, ..Usage::default() };
    let (lane, cost) = ("lane".to_owned(), Money::from_nanos(40));
    ticket.progress(CallProgress { lane, usage, cost });
    ticket
}

fn posted(store: &Mutex<MemoryStore>, id: &str) -> Option<(i64, SettlementKnowledge)> {
    store.lock().entries.get(id).map(|entry| (entry.cost.as_nanos(), entry.knowledge))
}

/// A call that an earlier process left open has no settlement in that process's records.
#[test]
fn a_call_that_a_start_recovered_is_posted_again() {
    for is_stopped in [false, true] {
        let SoleNode { store, clock, disk, node: dead, balance } = SoleNode::open();
        std::mem::forget(begin(&dead, &balance, "left"));
        let stale = store.lock().clone();
        drop(dead);
        let disk = Arc::new(disk.after_crash());
        let mut node = TestNode::open(&clock, disk.clone(), &store);
        assert_eq!(node.interrupted, 1);
        let recovered = Some((40, SettlementKnowledge::Journal));
        assert_eq!(posted(&store, "left"), recovered);
        node.client.save_mark().unwrap();
        store.lock().restore(&stale);
        assert_eq!(posted(&store, "left"), None);
        if is_stopped {
            drop(node);
            node = TestNode::open(&clock, Arc::new(disk.after_crash()), &store);
        }
        for _ in 0..4 {
            run(node.client.heartbeat()).unwrap();
        }
        assert_eq!(posted(&store, "left"), recovered);
        assert_eq!(store.lock().rollbacks.len(), 1);
        assert_eq!(store.lock().keys["k0"].spent, Money::from_nanos(40));
        store.lock().check();
    }
}

/// A start that fails has perhaps posted its calls, and retired their records.
#[test]
fn a_start_that_fails_hides_no_rollback() {
    for (number, is_stopped) in (1..8).flat_map(|number| [(number, false), (number, true)]) {
        let SoleNode { store, clock, disk, node: dead, balance } = SoleNode::open();
        std::mem::forget(begin(&dead, &balance, "left"));
        let stale = store.lock().clone();
        drop(dead);
        let disk = Arc::new(disk.after_crash());
        let fate = MessageFate { answer_lost: true, ..MessageFate::default() };
        let faults = Arc::new(Mutex::new(LineFaults::Nth { number, count: 0, fate }));
        let opened = OpenCalls::open(clock.clone(), disk.clone()).unwrap();
        let line = StoreLine { store: store.clone(), faults };
        drop(run(LeaseClient::open(opened, line, clock.clone(), "n")));
        if is_stopped {
            store.lock().restore(&stale);
        }
        let node = TestNode::open(&clock, disk, &store);
        assert_eq!(posted(&store, "left"), Some((40, SettlementKnowledge::Journal)));
        if !is_stopped {
            store.lock().restore(&stale);
        }
        for _ in 0..6 {
            run(node.client.heartbeat()).unwrap();
        }
        let found = posted(&store, "left");
        assert_eq!(found, Some((40, SettlementKnowledge::Journal)), "message {number}");
    }
}

/// The readable records of a damaged segment are posted again too.
#[test]
fn calls_of_a_damaged_segment_are_posted_again() {
    let SoleNode { store, clock, disk, node, balance } = SoleNode::open();
    let stale = store.lock().clone();
    begin(&node, &balance, "sound").settle(entry("sound", "k0", 70));
    std::mem::forget(begin(&node, &balance, "damaged"));
    run(node.client.post()).unwrap();
    node.client.save_mark().unwrap();
    drop(node);
    let disk = disk.after_crash();
    let [segment] = disk.segments().unwrap()[..] else { panic!("one segment") };
    let last_bit = disk.read(segment).unwrap().len() * 8 - 1;
    disk.flip_bit(segment, last_bit);
    let node = TestNode::open(&clock, Arc::new(disk), &store);
    assert_eq!(node.book.damaged_files().len(), 1);
    store.lock().restore(&stale);
    for _ in 0..6 {
        run(node.client.heartbeat()).unwrap();
    }
    assert_eq!(posted(&store, "sound"), Some((70, SettlementKnowledge::Settled)));
    assert!(posted(&store, "damaged").is_some());
    store.lock().check();
}

/// A batch that is posted before the next heartbeat must not hide the rollback.
#[test]
fn a_batch_after_the_rollback_does_not_hide_it() {
    let SoleNode { store, node, balance, .. } = SoleNode::open();
    let stale = store.lock().clone();
    for id in ["lost", "later"] {
        begin(&node, &balance, id).settle(entry(id, "k0", 50));
        if id == "later" {
            store.lock().restore(&stale);
        }
        run(node.client.post()).unwrap();
    }
    assert_eq!(posted(&store, "lost"), None);
    for _ in 0..4 {
        run(node.client.heartbeat()).unwrap();
    }
    assert_eq!(posted(&store, "lost"), Some((50, SettlementKnowledge::Settled)));
    assert_eq!(posted(&store, "later"), Some((50, SettlementKnowledge::Settled)));
    assert_eq!(store.lock().rollbacks, [StoreRollback { missing: 2, reposted: 1 }]);
    store.lock().check();
}

/// The store goes back again while its calls are posted again.
#[test]
fn a_second_rollback_during_the_first_is_noticed_too() {
    let SoleNode { store, node, balance, .. } = SoleNode::open();
    let stale = store.lock().clone();
    let settle = |id: &str, ticket: HoldTicket| {
        ticket.settle(entry(id, "k0", 50));
        run(node.client.post()).unwrap();
    };
    let running = begin(&node, &balance, "second");
    settle("first", begin(&node, &balance, "first"));
    store.lock().restore(&stale);
    run(node.client.heartbeat()).unwrap();
    assert_eq!(posted(&store, "first"), Some((50, SettlementKnowledge::Settled)));
    let stale = store.lock().clone();
    settle("second", running);
    store.lock().restore(&stale);
    assert_eq!(posted(&store, "second"), None);
    for _ in 0..6 {
        run(node.client.heartbeat()).unwrap();
    }
    assert_eq!(posted(&store, "second"), Some((50, SettlementKnowledge::Settled)));
    assert_eq!(store.lock().keys["k0"].spent, Money::from_nanos(100));
    store.lock().check();
}

/// The store knows a call only as it was reported, at a time when the node knows more.
#[test]
fn a_call_that_the_earlier_store_knows_from_a_heartbeat_is_corrected() {
    let SoleNode { store, clock, node, balance, .. } = SoleNode::open();
    let (ended, running) = (begin(&node, &balance, "ended"), begin(&node, &balance, "running"));
    for _ in 0..2 {
        // Calls that run from one heartbeat to the next are reported.
        clock.pass(Micros::from_secs(1));
        run(node.client.heartbeat()).unwrap();
    }
    assert_eq!(store.lock().holds.len(), 2);
    let stale = store.lock().clone();
    ended.settle(entry("ended", "k0", 70));
    run(node.client.post()).unwrap();
    store.lock().restore(&stale);
    for _ in 0..4 {
        run(node.client.heartbeat()).unwrap();
    }
    // The node gave up its leases, so that the store settled both calls from their reports.
    assert_eq!(posted(&store, "ended"), Some((70, SettlementKnowledge::Settled)));
    assert_eq!(posted(&store, "running"), Some((40, SettlementKnowledge::Reported)));
    running.settle(entry("running", "k0", 90));
    run(node.client.post()).unwrap();
    assert_eq!(posted(&store, "running"), Some((90, SettlementKnowledge::Settled)));
    let store = store.lock();
    assert_eq!(store.keys["k0"].spent, Money::from_nanos(160));
    store.check();
}
