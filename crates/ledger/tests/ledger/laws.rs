//! Invariants of the ledger under random work, crashes at any byte and an unreliable store.

use canon::{Micros, Money, Usage};
use ledger::{
    CallOutcome, CallProgress, Disk, FileDisk, HoldError, HoldRefusal, HoldTicket,
    JournalInspection, KeyBalance, LeaseClient, MemoryDisk, OpenCalls, SettledCall, TestClock,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::cluster::{entry, held, run};
use crate::memory_store::MemoryStore;
use crate::store_line::{LineFaults, MessageFate, StoreLine};

/// A node whose connection works until a test cuts it.
pub(crate) struct TestNode {
    pub(crate) book: Arc<OpenCalls>,
    pub(crate) client: LeaseClient<StoreLine>,
    pub(crate) line: StoreLine,
    pub(crate) interrupted: usize,
}

impl TestNode {
    pub(crate) fn open(
        clock: &Arc<TestClock>,
        disk: Arc<dyn Disk>,
        store: &Arc<Mutex<MemoryStore>>,
    ) -> Self {
        let faults = Arc::new(Mutex::new(LineFaults::Fine));
        let line = StoreLine { store: store.clone(), faults };
        let opened = OpenCalls::open(clock.clone(), disk).unwrap();
        let (book, interrupted) = (opened.book.clone(), opened.found.interrupted);
        let client = run(LeaseClient::open(opened, line.clone(), clock.clone(), "n")).unwrap();
        Self { book, client, line, interrupted }
    }
}

#[derive(Clone, Debug)]
enum Work {
    Hold { full: i64, least: i64 },
    Progress { which: usize, cost: i64 },
    Settle { which: usize, cost: i64 },
    Drop { which: usize },
    Post { arrives: bool },
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        (1..400_i64, 0..100_i64).prop_map(|(full, least)| Work::Hold { full, least }),
        (any::<usize>(), 0..500_i64).prop_map(|(which, cost)| Work::Progress { which, cost }),
        (any::<usize>(), 0..500_i64).prop_map(|(which, cost)| Work::Settle { which, cost }),
        any::<usize>().prop_map(|which| Work::Drop { which }),
        any::<bool>().prop_map(|arrives| Work::Post { arrives }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// For any work and any point of a crash: the cap holds at every step, every admitted call is
    /// recorded exactly once, and the store has the charged amounts.
    #[test]
    fn the_cap_holds_and_no_call_is_lost_or_doubled_after_a_crash(
        works in prop::collection::vec(work(), 1..60),
        cap in 0..2_000_i64,
        dies_after in 0..20_000_usize,
    ) {
        let cap = Money::from_nanos(cap);
        let store = MemoryStore::new(&[Some(cap.as_nanos())]);
        let clock = Arc::new(TestClock::at(Micros::new(1_000)));
        let disk = Arc::new(MemoryDisk::default());
        let node = TestNode::open(&clock, disk.clone(), &store);
        disk.fail_after(dies_after);
        let balance = KeyBalance::new("k0", Some(cap), Money::ZERO);
        let mut running: Vec<(usize, HoldTicket)> = Vec::new();
        let mut admitted = Vec::new();
        let mut charged = BTreeMap::new();

        for (id, work) in works.into_iter().enumerate() {
            clock.pass(Micros::new(7));
            match work {
                Work::Hold { full, least } => {
                    let ask = (Money::from_nanos(full), Money::from_nanos(least.min(full)));
                    let held = Arc::new(held(&format!("r{id}"), "k0"));
                    match run(node.client.hold(&balance, held, ask.0, ask.1)) {
                        Ok(ticket) => {
                            prop_assert!(ticket.amount() <= ask.0);
                            admitted.push(id);
                            running.push((id, ticket));
                        }
                        Err(HoldRefusal::Spent(short)) => {
                            let unspent = cap.saturating_sub(balance.status().spent);
                            prop_assert!(short.is_spent && unspent < ask.0, "{short:?}");
                            prop_assert_eq!(short.left, unspent);
                        }
                        Err(HoldRefusal::Held(short)) => {
                            let unspent = cap.saturating_sub(balance.status().spent);
                            prop_assert!(!short.is_spent && unspent >= ask.1, "{short:?}");
                            prop_assert!(short.reserved() > Money::ZERO, "{short:?}");
                        }
                        // The disk failed: no call may start, and no hold stays.
                        Err(HoldRefusal::Journal(_)) => {}
                        Err(other) => prop_assert!(false, "{other:?}"),
                    }
                }
                Work::Progress { which, cost } if !running.is_empty() => {
                    let (_, ticket) = &running[which % running.len()];
                    let (lane, usage) = ("l".to_owned(), Usage::default());
                    ticket.progress(CallProgress { lane, usage, cost: Money::from_nanos(cost) });
                }
                Work::Settle { which, cost } if !running.is_empty() => {
                    let (id, ticket) = running.swap_remove(which % running.len());
                    charged.insert(id, Money::from_nanos(cost).min(ticket.amount()));
                    ticket.settle(entry(&format!("r{id}"), "k0", cost));
                }
                Work::Drop { which } if !running.is_empty() => {
                    let (id, ticket) = running.swap_remove(which % running.len());
                    charged.insert(id, Money::ZERO);
                    drop(ticket);
                }
                Work::Post { arrives } => {
                    let waiting = node.book.unposted_count();
                    *node.line.faults.lock() = if arrives { LineFaults::Fine } else { LineFaults::Cut };
                    let posted = run(node.client.post());
                    *node.line.faults.lock() = LineFaults::Fine;
                    prop_assert_eq!(posted.is_ok(), arrives || waiting == 0);
                }
                Work::Progress { .. } | Work::Settle { .. } | Work::Drop { .. } => {}
            }
            let standing = balance.status();
            let sum = standing.spent.saturating_add(standing.held);
            prop_assert!(sum <= cap, "{standing:?}");
            let held: Money = running.iter().map(|(_, ticket)| ticket.amount()).sum();
            prop_assert_eq!(standing.held, held);
            prop_assert_eq!(standing.spent, charged.values().copied().sum());
        }

        // The process dies here: its tickets vanish, and only the journal survives.
        let open: Vec<(usize, Money)> = running.iter().map(|(id, t)| (*id, t.amount())).collect();
        let survivor = Arc::new(disk.after_crash());
        std::mem::forget(running);
        let before = survivor.after_crash();
        let again = TestNode::open(&clock, survivor, &store);
        prop_assert!(again.interrupted <= open.len() + charged.len());
        let once = store.lock().entries.clone();

        // A second recovery from the same journal changes nothing.
        drop(TestNode::open(&clock, Arc::new(before), &store));
        let store = store.lock();
        prop_assert_eq!(&once, &store.entries);
        store.check();
        for id in &admitted {
            prop_assert!(store.entries.contains_key(&format!("r{id}")), "call {} is not recorded", id);
        }
        prop_assert_eq!(store.entries.len(), admitted.len());
        for (id, amount) in open {
            let posted = &store.entries[&format!("r{id}")];
            prop_assert!(posted.cost <= amount);
        }
    }
}

#[test]
fn recovery_without_faults_finds_the_charged_amounts() {
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock.clone(), disk.clone()).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id: &str| {
        let pending = book.hold(&balance, Arc::new(held(id, "k0")), hundred, hundred).unwrap();
        run(pending.written()).unwrap()
    };
    let (done, left, silent) = (hold("r1"), hold("r2"), hold("r3"));
    left.progress(CallProgress {
        lane: "l".to_owned(),
        usage: Usage::default(),
        cost: Money::from_nanos(40),
    });
    done.settle(entry("r1", "k0", 30));
    std::mem::forget((left, silent));

    let opened = OpenCalls::open(clock, Arc::new(disk.after_crash())).unwrap();
    let costs: Vec<_> = opened
        .found
        .settled
        .iter()
        .map(|s| (s.entry.request_id.as_str(), s.entry.cost.as_nanos(), s.entry.outcome))
        .collect();
    assert_eq!(
        costs,
        [
            ("r1", 30, CallOutcome::Done),
            ("r2", 40, CallOutcome::Recovered),
            ("r3", 0, CallOutcome::Recovered)
        ]
    );
    assert_eq!((opened.found.interrupted, opened.found.torn, opened.segments.len()), (2, 0, 1));
}

#[test]
fn the_operator_absorbs_cost_beyond_the_hold() {
    let cap = Some(Money::from_nanos(100));
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let node =
        TestNode::open(&clock, Arc::new(MemoryDisk::default()), &MemoryStore::new(&[Some(100)]));
    let balance = KeyBalance::new("k0", cap, Money::ZERO);
    let holding = node.client.hold(
        &balance,
        Arc::new(held("r1", "k0")),
        Money::from_nanos(100),
        Money::from_nanos(1),
    );
    run(holding).unwrap().settle(entry("r1", "k0", 130));
    let settled = node.book.find_unposted("r1").unwrap();
    assert_eq!((settled.cost.as_nanos(), settled.absorbed.as_nanos()), (100, 30));
    assert_eq!(balance.status().remaining(), Some(Money::ZERO));
}

#[test]
fn a_capped_key_needs_a_lease_and_an_uncapped_key_does_not() {
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let book = OpenCalls::open(clock, Arc::new(MemoryDisk::default())).unwrap().book;
    let one = Money::from_nanos(1);
    let capped = KeyBalance::new("k0", Some(Money::from_nanos(100)), Money::ZERO);
    let refused = book.hold(&capped, Arc::new(held("r1", "k0")), one, one);
    assert!(matches!(refused, Err(HoldError::Short { free: Money::ZERO, .. })));
    let free = KeyBalance::new("k0", None, Money::ZERO);
    let pending = book.hold(&free, Arc::new(held("r2", "k0")), one, one).unwrap();
    assert_eq!(run(pending.written()).unwrap().lease(), None);
}

#[test]
fn a_full_disk_admits_no_call_and_keeps_the_cost_of_those_that_run() {
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock.clone(), disk.clone()).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id: &str| {
        let pending = book.hold(&balance, Arc::new(held(id, "k0")), hundred, hundred).unwrap();
        run(pending.written())
    };
    let calls: Vec<_> = (0..10).map(|id| hold(&format!("r{id}")).unwrap()).collect();
    disk.set_free_space(Some(0));
    assert!(hold("refused").is_err());
    for (id, ticket) in calls.into_iter().enumerate() {
        let lane = "l".to_owned();
        ticket.progress(CallProgress { lane, usage: Usage::default(), cost: hundred });
        let mut settled = entry(&format!("r{id}"), "k0", 30);
        if id == 9 {
            // Too large for its room: the details are left out, the cost is not.
            settled.losses = vec!["x".repeat(100); 500];
        }
        ticket.settle(settled);
    }
    drop(book.maintain_journal());
    assert_eq!(book.unwritten(), [""; 0]);
    let opened = OpenCalls::open(clock, Arc::new(disk.after_crash())).unwrap();
    let found: Vec<_> = opened.found.settled.iter().map(|s| s.entry.cost.as_nanos()).collect();
    assert_eq!((opened.found.interrupted, found), (0, vec![30; 10]));
    disk.set_free_space(None);
    assert!(hold("r10").is_ok(), "it goes on when there is room");
}

#[test]
fn a_settled_call_that_a_failing_disk_refused_is_written_when_it_works_again() {
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock.clone(), disk.clone()).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id: &str| {
        let pending = book.hold(&balance, Arc::new(held(id, "k0")), hundred, hundred).unwrap();
        run(pending.written())
    };
    let calls = [hold("r1").unwrap(), hold("r2").unwrap()];
    disk.fail_after(0);
    for (ticket, id) in calls.into_iter().zip(["r1", "r2"]) {
        ticket.settle(entry(id, "k0", 30));
    }
    assert!(hold("r3").is_err());
    assert!(book.maintain_journal().is_err());
    assert_eq!(book.unwritten(), ["r1", "r2"]);

    disk.set_free_space(None);
    book.maintain_journal().unwrap();
    assert_eq!(book.unwritten(), [""; 0]);
    let opened = OpenCalls::open(clock, Arc::new(disk.after_crash())).unwrap();
    let found: Vec<_> = opened.found.settled.iter().map(|s| s.entry.cost.as_nanos()).collect();
    assert_eq!((opened.found.interrupted, opened.found.torn, found), (0, 0, vec![30, 30]));

    // The record is given up with the call.
    let batch = book.take_batch(10);
    book.posted(batch);
    let ticket = hold("r4").unwrap();
    disk.set_free_space(Some(0));
    ticket.settle(entry("r4", "k0", 30));
    let batch = book.take_batch(10);
    book.posted(batch);
    assert_eq!(book.unwritten(), [""; 0], "the store has it");
}

/// Lowers a cap of 1,000 to 100 while ten calls hold 50 each, which the node hears with the next
/// heartbeat or from its cache of keys. Returns the node, its balance and the running calls.
fn lowered_under_load(
    store: &Arc<Mutex<MemoryStore>>,
    by_heartbeat: bool,
) -> (TestNode, Arc<KeyBalance>, Vec<HoldTicket>) {
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), store);
    let balance = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
    let running = (0..10).map(|id| hold_fifty(&node, &balance, &format!("r{id}")).unwrap());
    let running = running.collect();
    store.lock().set_cap("k0", Some(Money::from_nanos(100)));
    if by_heartbeat {
        run(node.client.heartbeat()).unwrap();
    } else {
        balance.set_terms(Some(Money::from_nanos(100)));
    }
    (node, balance, running)
}

fn hold_fifty(
    node: &TestNode,
    balance: &Arc<KeyBalance>,
    id: &str,
) -> Result<HoldTicket, HoldRefusal> {
    let fifty = Money::from_nanos(50);
    run(node.client.hold(balance, Arc::new(held(id, "k0")), fifty, fifty))
}

#[test]
fn money_that_flows_back_under_a_lowered_cap_admits_nothing_more() {
    for by_heartbeat in [false, true] {
        let store = MemoryStore::new(&[Some(1_000)]);
        let (node, balance, running) = lowered_under_load(&store, by_heartbeat);
        for (number, ticket) in running.into_iter().enumerate() {
            ticket.settle(entry(&format!("r{number}"), "k0", 10));
            assert!(hold_fifty(&node, &balance, &format!("again{number}")).is_err());
            if number % 3 == 0 {
                run(node.client.post()).unwrap();
                run(node.client.heartbeat()).unwrap();
                store.lock().check();
            }
        }
        run(node.client.post()).unwrap();
        run(node.client.heartbeat()).unwrap();
        assert!(hold_fifty(&node, &balance, "last").is_err(), "the new cap is spent");
        let store = store.lock();
        assert_eq!(store.keys["k0"].spent, Money::from_nanos(100));
        assert_eq!(store.entries.len(), 10);
    }
}

#[test]
fn a_lowered_cap_can_be_spent_once_the_store_has_the_money_back() {
    for by_heartbeat in [false, true] {
        let store = MemoryStore::new(&[Some(1_000)]);
        let (node, balance, running) = lowered_under_load(&store, by_heartbeat);
        for (number, ticket) in running.into_iter().enumerate() {
            ticket.settle(entry(&format!("r{number}"), "k0", 5));
        }
        assert!(hold_fifty(&node, &balance, "early").is_err());
        run(node.client.post()).unwrap();
        run(node.client.heartbeat()).unwrap();
        let ticket = hold_fifty(&node, &balance, "later").unwrap();
        assert!(hold_fifty(&node, &balance, "more").is_err(), "50 are spent and 50 held of 100");
        // This money is covered by the new cap, so it may be used again.
        ticket.settle(entry("later", "k0", 0));
        drop(hold_fifty(&node, &balance, "again").unwrap());
        store.lock().check();
    }
}

#[test]
fn an_answer_from_before_a_change_does_not_lift_a_new_cap() {
    let store = MemoryStore::new(&[None]);
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let node = TestNode::open(&clock, Arc::new(MemoryDisk::default()), &store);
    let balance = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
    let fate = MessageFate { waits: [0, 1], ..MessageFate::default() };
    *node.line.faults.lock() = LineFaults::Nth { number: 1, count: 0, fate };
    let fifty = Money::from_nanos(50);
    let mut holding =
        Box::pin(node.client.hold(&balance, Arc::new(held("r1", "k0")), fifty, fifty));
    let first = holding.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending(), "the store has answered that there is no cap");
    store.lock().set_cap("k0", Some(Money::from_nanos(10)));
    balance.set_terms(Some(Money::from_nanos(10)));
    assert!(run(holding).is_err(), "the new cap of 10 does not cover it");
    assert!(!balance.is_unlimited());
}

/// For each bit of a journal of some calls: the others are posted as they were, and the file is kept.
#[test]
fn a_damaged_segment_is_kept_and_its_other_calls_are_posted() {
    const CALLS: i64 = 2;
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock.clone(), disk.clone()).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    for id in 0..CALLS {
        let id = format!("r{id}");
        let pending = book.hold(&balance, Arc::new(held(&id, "k0")), hundred, hundred).unwrap();
        run(pending.written()).unwrap().settle(entry(&id, "k0", 30));
    }
    let [segment] = disk.segments().unwrap()[..] else { panic!("one segment") };
    for bit in 0..disk.read(segment).unwrap().len() * 8 {
        let damaged = Arc::new(disk.after_crash());
        damaged.flip_bit(segment, bit);
        let store = MemoryStore::new(&[None]);
        let node = TestNode::open(&clock, damaged.clone(), &store);
        assert_eq!(node.book.damaged_files().len(), 1, "bit {bit}");
        assert!(!damaged.segments().unwrap().contains(&segment));
        let costs: Vec<i64> =
            store.lock().entries.values().map(|entry| entry.cost.as_nanos()).collect();
        assert_eq!(costs.len() as i64, CALLS, "every call has a hold or a settlement left");
        assert!(costs.iter().sum::<i64>() >= (CALLS - 1) * 30, "bit {bit}");
        drop(node);
        let again = TestNode::open(&clock, damaged, &store);
        assert_eq!(again.interrupted, 0);
    }
}

/// Somebody moves the folder of the journal away while calls run.
#[test]
fn a_moved_journal_is_noticed_and_all_calls_are_written_again() {
    let folder = std::env::temp_dir().join(format!("moved-journal-{}", std::process::id()));
    let elsewhere = folder.with_extension("moved");
    let clock = Arc::new(TestClock::at(Micros::new(5)));
    let disk = Arc::new(FileDisk::open(&folder).unwrap());
    let book = OpenCalls::open(clock.clone(), disk).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id: &str| {
        let pending = book.hold(&balance, Arc::new(held(id, "k0")), hundred, hundred).unwrap();
        run(pending.written()).unwrap()
    };
    let (running, settled) = (hold("running"), hold("settled"));
    settled.settle(entry("settled", "k0", 30));
    std::fs::rename(&folder, &elsewhere).unwrap();
    assert!(!book.is_failing());
    assert!(book.sync().is_err() && book.is_failing());
    book.maintain_journal().unwrap();
    assert!(!book.is_failing());
    book.sync().unwrap();
    let found = JournalInspection::read(&folder, Micros::new(9)).unwrap();
    let ids = |calls: &[SettledCall]| -> Vec<String> {
        calls.iter().map(|call| call.entry.request_id.to_string()).collect()
    };
    assert_eq!(
        (ids(&found.settled), ids(&found.open)),
        (vec!["settled".into()], vec!["running".into()])
    );
    drop(running);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::remove_dir_all(&elsewhere).unwrap();
}

/// A call has the time of the store, whose days the budgets count. A node's own clock may be wrong.
#[test]
fn calls_have_the_time_of_the_store() {
    let store = MemoryStore::new(&[Some(1_000)]);
    let stored = store.lock().now;
    let disk = Arc::new(MemoryDisk::default());
    for wrong in [Micros::new(5), stored + Micros::from_secs(86_400)] {
        let clock = Arc::new(TestClock::at(wrong));
        let node = TestNode::open(&clock, disk.clone(), &store);
        run(node.client.heartbeat()).unwrap();
        let balance = KeyBalance::new("k0", Some(Money::from_nanos(1_000)), Money::ZERO);
        clock.pass(Micros::from_secs(3));
        let ticket = hold_fifty(&node, &balance, &format!("r{}", wrong.get())).unwrap();
        ticket.settle(entry(&format!("r{}", wrong.get()), "k0", 10));
        run(node.client.post()).unwrap();
        let settled = store.lock().entries[&format!("r{}", wrong.get())].clone();
        let expected = stored + Micros::from_secs(3);
        assert_eq!((settled.started, settled.ended), (expected, expected));
    }
}
