//! The laws of the ledger, under random work, crashes at any byte and a bank that comes and goes.

use canon::{Money, Usage};
use ledger::{
    Book, Disk, MemoryDisk, NotHeld, Outcome, Progress, Purse, Refused, Teller, TestClock, Ticket,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::vault::{Line, Vault, Weather};
use crate::world::{entry, held, run};

/// A node on a line where nothing goes wrong, until it is cut.
struct Desk {
    book: Arc<Book>,
    teller: Teller<Line>,
    line: Line,
    interrupted: usize,
}

impl Desk {
    fn open(clock: &Arc<TestClock>, disk: Arc<dyn Disk>, vault: &Arc<Mutex<Vault>>) -> Self {
        let weather = Arc::new(Mutex::new(Weather::Fine));
        let line = Line { vault: vault.clone(), weather };
        let opened = Book::open(clock.clone(), disk).unwrap();
        let (book, interrupted) = (opened.book.clone(), opened.found.interrupted);
        let teller = run(Teller::open(opened, line.clone(), clock.clone(), "n")).unwrap();
        Self { book, teller, line, interrupted }
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

    /// Whatever is done and wherever the process dies: the cap holds at every step, every admitted
    /// call ends on the books exactly once, and what the bank has is what was charged.
    #[test]
    fn the_cap_holds_and_no_call_is_lost_or_doubled(
        works in prop::collection::vec(work(), 1..60),
        cap in 0..2_000_i64,
        dies_after in 0..20_000_usize,
    ) {
        let cap = Money::nanos(cap);
        let vault = Vault::new(&[Some(cap.as_nanos())]);
        let clock = Arc::new(TestClock::at(1_000));
        let disk = Arc::new(MemoryDisk::default());
        let desk = Desk::open(&clock, disk.clone(), &vault);
        disk.fail_after(dies_after);
        let purse = Purse::new("k0", Some(cap), Money::ZERO);
        let mut running: Vec<(usize, Ticket)> = Vec::new();
        let mut admitted = Vec::new();
        let mut charged = BTreeMap::new();

        for (id, work) in works.into_iter().enumerate() {
            clock.pass(7);
            match work {
                Work::Hold { full, least } => {
                    let ask = (Money::nanos(full), Money::nanos(least.min(full)));
                    let held = Arc::new(held(&format!("r{id}"), "k0"));
                    match run(desk.teller.hold(&purse, held, ask.0, ask.1)) {
                        Ok(ticket) => {
                            prop_assert!(ticket.amount() <= ask.0);
                            admitted.push(id);
                            running.push((id, ticket));
                        }
                        Err(Refused::Cap { left }) => prop_assert!(left < ask.0),
                        // The disk is gone: nothing new may run, and nothing stays set aside.
                        Err(Refused::Journal(_)) => {}
                        Err(other) => prop_assert!(false, "{other:?}"),
                    }
                }
                Work::Progress { which, cost } if !running.is_empty() => {
                    let (_, ticket) = &running[which % running.len()];
                    let (lane, usage) = ("l".to_owned(), Usage::default());
                    ticket.progress(Progress { lane, usage, cost: Money::nanos(cost) });
                }
                Work::Settle { which, cost } if !running.is_empty() => {
                    let (id, ticket) = running.swap_remove(which % running.len());
                    charged.insert(id, Money::nanos(cost).min(ticket.amount()));
                    ticket.settle(entry(&format!("r{id}"), "k0", cost));
                }
                Work::Drop { which } if !running.is_empty() => {
                    let (id, ticket) = running.swap_remove(which % running.len());
                    charged.insert(id, Money::ZERO);
                    drop(ticket);
                }
                Work::Post { arrives } => {
                    let waiting = desk.book.waiting();
                    *desk.line.weather.lock() = if arrives { Weather::Fine } else { Weather::Cut };
                    let posted = run(desk.teller.post());
                    *desk.line.weather.lock() = Weather::Fine;
                    prop_assert_eq!(posted.is_ok(), arrives || waiting == 0);
                }
                Work::Progress { .. } | Work::Settle { .. } | Work::Drop { .. } => {}
            }
            let standing = purse.standing();
            let sum = standing.spent.saturating_add(standing.held);
            prop_assert!(sum <= cap, "{standing:?}");
            let held: Money = running.iter().map(|(_, ticket)| ticket.amount()).sum();
            prop_assert_eq!(standing.held, held);
            prop_assert_eq!(standing.spent, charged.values().copied().sum());
        }

        // The process dies here: tickets vanish without a word, and the journal is all there is.
        let open: Vec<(usize, Money)> = running.iter().map(|(id, t)| (*id, t.amount())).collect();
        let survivor = Arc::new(disk.after_crash());
        std::mem::forget(running);
        let before = survivor.after_crash();
        let again = Desk::open(&clock, survivor, &vault);
        prop_assert!(again.interrupted <= open.len() + charged.len());
        let once = vault.lock().entries.clone();

        // Recovery that dies before it has forgotten the journal starts over and changes nothing.
        drop(Desk::open(&clock, Arc::new(before), &vault));
        let vault = vault.lock();
        prop_assert_eq!(&once, &vault.entries);
        vault.check();
        for id in &admitted {
            prop_assert!(vault.entries.contains_key(&format!("r{id}")), "call {} is on no book", id);
        }
        prop_assert_eq!(vault.entries.len(), admitted.len());
        for (id, amount) in open {
            let posted = &vault.entries[&format!("r{id}")];
            prop_assert!(posted.cost <= amount);
        }
    }
}

#[test]
fn a_journal_without_faults_says_exactly_what_was_charged() {
    let clock = Arc::new(TestClock::at(5));
    let disk = Arc::new(MemoryDisk::default());
    let book = Book::open(clock.clone(), disk.clone()).unwrap().book;
    let purse = Purse::new("k0", None, Money::ZERO);
    let hundred = Money::nanos(100);
    let hold = |id: &str| book.hold(&purse, Arc::new(held(id, "k0")), hundred, hundred).unwrap();
    let (done, left, silent) = (hold("r1"), hold("r2"), hold("r3"));
    left.progress(Progress {
        lane: "l".to_owned(),
        usage: Usage::default(),
        cost: Money::nanos(40),
    });
    done.settle(entry("r1", "k0", 30));
    std::mem::forget((left, silent));

    let opened = Book::open(clock, Arc::new(disk.after_crash())).unwrap();
    let costs: Vec<_> = opened
        .found
        .settled
        .iter()
        .map(|s| (s.entry.request_id.as_str(), s.entry.cost.as_nanos(), s.entry.outcome))
        .collect();
    assert_eq!(
        costs,
        [("r1", 30, Outcome::Done), ("r2", 40, Outcome::Recovered), ("r3", 0, Outcome::Recovered)]
    );
    assert_eq!((opened.found.interrupted, opened.found.torn, opened.segments.len()), (2, 0, 1));
}

#[test]
fn what_a_provider_charges_beyond_the_hold_is_the_operators_loss() {
    let cap = Some(Money::nanos(100));
    let clock = Arc::new(TestClock::at(5));
    let desk = Desk::open(&clock, Arc::new(MemoryDisk::default()), &Vault::new(&[Some(100)]));
    let purse = Purse::new("k0", cap, Money::ZERO);
    let holding =
        desk.teller.hold(&purse, Arc::new(held("r1", "k0")), Money::nanos(100), Money::nanos(1));
    run(holding).unwrap().settle(entry("r1", "k0", 130));
    let settled = desk.book.find("r1").unwrap();
    assert_eq!((settled.cost.as_nanos(), settled.borne.as_nanos()), (100, 30));
    assert_eq!(purse.standing().remaining(), Some(Money::ZERO));
}

#[test]
fn without_a_lease_nothing_of_a_cap_is_spent_and_a_key_without_a_cap_needs_none() {
    let clock = Arc::new(TestClock::at(5));
    let book = Book::open(clock, Arc::new(MemoryDisk::default())).unwrap().book;
    let one = Money::nanos(1);
    let capped = Purse::new("k0", Some(Money::nanos(100)), Money::ZERO);
    let refused = book.hold(&capped, Arc::new(held("r1", "k0")), one, one);
    assert!(matches!(refused, Err(NotHeld::Short { free: Money::ZERO, .. })));
    let free = Purse::new("k0", None, Money::ZERO);
    assert_eq!(book.hold(&free, Arc::new(held("r2", "k0")), one, one).unwrap().lease(), None);
}
