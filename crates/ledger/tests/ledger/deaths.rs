//! Settlement of calls whose process died, or whose handler panicked.

use canon::{Micros, Money, Usage};
use ledger::{
    CallProgress, FailedAttempt, HoldRecord, KeyBalance, LaterAttempt, MemoryDisk, OpenCalls,
    TestClock,
};
use std::sync::Arc;

use crate::cluster::{held, run};

/// A hold of a call whose start costs 20 and every second 10.
fn priced(id: &str) -> Arc<HoldRecord> {
    Arc::new(HoldRecord {
        lane: "first".into(),
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
    silent.note_sent();
    let mut moved = run(hold("r2").written()).unwrap();
    moved.note_sent();
    clock.pass(Micros::from_secs(1));
    // The first lane failed and cost 1,000. The second one is dearer.
    let attempt = LaterAttempt {
        start_cost: Money::from_nanos(40),
        cost_per_second: Money::from_nanos(15),
        absorbed: Money::from_nanos(1_000),
        failed: vec![FailedAttempt { lane: "first".to_owned(), ..FailedAttempt::default() }],
        ..LaterAttempt::default()
    };
    run(moved.note_later_attempt("second", attempt)).unwrap();
    // A checkpoint without output keeps all of that.
    let (lane, usage, cost) = ("second".to_owned(), Usage::default(), Money::ZERO);
    moved.progress(CallProgress { lane, usage, cost });
    // The caller left before the journal had the hold.
    drop(hold("r3"));
    assert_eq!(balance.status().held, Money::from_nanos(200));
    clock.pass(Micros::from_secs(2));
    book.maintain_journal().unwrap();
    // Time after the last sign of life does not count.
    clock.pass(Micros::from_secs(60));
    std::mem::forget((silent, moved));

    let opened = OpenCalls::open(clock, Arc::new(disk.after_crash())).unwrap();
    let settled = opened.found.settled.iter().map(|settled| &settled.entry);
    let found: Vec<_> = settled
        .map(|entry| (&*entry.request_id, &*entry.lane, entry.cost, entry.absorbed.as_nanos()))
        .collect();
    assert_eq!(found, [("r1", "first", Money::ZERO, 50), ("r2", "second", Money::ZERO, 1_070)]);
    let attempts: Vec<_> = opened
        .found
        .settled
        .iter()
        .map(|one| (one.entry.attempts, one.entry.failed.len()))
        .collect();
    assert_eq!(attempts, [(1, 0), (2, 1)]);
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
    sent.note_sent();
    seen.note_sent();
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
        (String::from(entry.lane), entry.cost.as_nanos(), entry.absorbed.as_nanos())
    };
    assert_eq!(settled("r1"), (String::new(), 0, 0));
    assert_eq!(settled("r2"), ("first".to_owned(), 0, 50));
    assert_eq!(settled("r3"), ("first".to_owned(), 33, 10));
}
