//! Invariants of the ledger under random work, crashes at any byte and an unreliable store.

use canon::{Micros, Money, Usage};
use ledger::{
    CallOutcome, CallProgress, Disk, HoldError, HoldRefusal, HoldTicket, KeyBalance, LeaseClient,
    MemoryDisk, OpenCalls, TestClock,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{entry, held, run};
use crate::memory_store::{LineFaults, MemoryStore, StoreLine};

/// A node whose connection works until a test cuts it.
struct TestNode {
    book: Arc<OpenCalls>,
    client: LeaseClient<StoreLine>,
    line: StoreLine,
    interrupted: usize,
}

impl TestNode {
    fn open(clock: &Arc<TestClock>, disk: Arc<dyn Disk>, store: &Arc<Mutex<MemoryStore>>) -> Self {
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
                        Err(HoldRefusal::Cap { left }) => prop_assert!(left < ask.0),
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
fn a_settled_call_that_a_full_disk_refused_is_written_when_there_is_space() {
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
    disk.set_free_space(Some(3));
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

/// A hold of a call whose start costs 20 and every second 10.
fn priced(id: &str) -> Arc<ledger::HoldRecord> {
    Arc::new(ledger::HoldRecord {
        lane: "first".to_owned(),
        start_cost: Money::from_nanos(20),
        cost_per_second: Money::from_nanos(10),
        ..held(id, "k0")
    })
}

#[test]
fn a_call_that_dies_has_its_lane_and_its_estimate_and_one_that_never_began_has_nothing() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(5)));
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock.clone(), disk.clone()).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id: &str| book.hold(&balance, priced(id), hundred, hundred).unwrap();
    let mut silent = run(hold("r1").written()).unwrap();
    silent.note_sent("first");
    let mut moved = run(hold("r2").written()).unwrap();
    moved.note_sent("second");
    // The caller left before the journal had the hold.
    drop(hold("r3"));
    assert_eq!(balance.status().held, Money::from_nanos(200));
    clock.pass(Micros::from_secs(3));
    book.maintain_journal().unwrap();
    // Time after the last sign of life does not count.
    clock.pass(Micros::from_secs(60));
    std::mem::forget((silent, moved));

    let opened = OpenCalls::open(clock, Arc::new(disk.after_crash())).unwrap();
    let settled = opened.found.settled.iter().map(|settled| &settled.entry);
    let found: Vec<_> = settled
        .map(|entry| (&*entry.request_id, &*entry.lane, entry.cost, entry.absorbed.as_nanos()))
        .collect();
    assert_eq!(found, [("r1", "first", Money::ZERO, 50), ("r2", "second", Money::ZERO, 50)]);
}

#[test]
fn a_dropped_ticket_is_settled_like_a_death_if_its_call_was_sent() {
    let clock = Arc::new(TestClock::at(Micros::from_secs(5)));
    let book = OpenCalls::open(clock.clone(), Arc::new(MemoryDisk::default())).unwrap().book;
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    let hold = |id: &str| {
        run(book.hold(&balance, priced(id), hundred, hundred).unwrap().written()).unwrap()
    };
    let unsent = hold("r1");
    let (mut sent, mut seen) = (hold("r2"), hold("r3"));
    sent.note_sent("first");
    seen.note_sent("first");
    clock.pass(Micros::from_secs(2));
    seen.progress(CallProgress {
        lane: "first".to_owned(),
        usage: Usage { output: 4, ..Usage::default() },
        cost: Money::from_nanos(33),
    });
    clock.pass(Micros::from_secs(1));
    drop((unsent, sent, seen));
    let settled = |id: &str| {
        let entry = book.find_unposted(id).unwrap();
        (entry.lane, entry.cost.as_nanos(), entry.absorbed.as_nanos())
    };
    assert_eq!(settled("r1"), (String::new(), 0, 0));
    assert_eq!(settled("r2"), ("first".to_owned(), 0, 50));
    assert_eq!(settled("r3"), ("first".to_owned(), 33, 10));
}
