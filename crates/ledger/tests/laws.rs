//! The laws of the ledger, under random work, crashes at any byte and a bank that comes and goes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where its ground gives way"
)]

use canon::{Money, Usage};
use ledger::{
    Book, Clock as _, Entry, Held, MemoryDisk, Outcome, Progress, Purse, Refused, TestClock, Ticket,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A bank in memory: each call counts once, however often it is posted.
#[derive(Default)]
struct Bank(BTreeMap<String, Entry>);

impl Bank {
    fn post(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.0.entry(entry.request_id.clone()).or_insert(entry);
        }
    }

    fn spent(&self) -> Money {
        self.0.values().map(|entry| entry.cost).sum()
    }
}

fn held(id: usize) -> Held {
    Held {
        request_id: format!("r{id}"),
        key_id: "k".to_owned(),
        account_id: "a".to_owned(),
        at: 0,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: true,
        price_version: "p".to_owned(),
    }
}

fn entry(id: usize, cost: i64) -> Entry {
    Entry {
        request_id: format!("r{id}"),
        key_id: "k".to_owned(),
        account_id: "a".to_owned(),
        started: 0,
        ended: 0,
        first_byte_us: None,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        lane: "l".to_owned(),
        attempts: 1,
        failed: Vec::new(),
        stream: true,
        status: 200,
        outcome: Outcome::Done,
        usage: Usage::default(),
        estimated: false,
        cost: Money::nanos(cost),
        borne: Money::ZERO,
        price_version: "p".to_owned(),
        losses: vec![],
    }
}

#[derive(Clone, Debug)]
enum Work {
    Hold { full: i64, least: i64 },
    Progress { which: usize, cost: i64 },
    Settle { which: usize, cost: i64 },
    Drop { which: usize },
    Post { most: usize, arrives: bool },
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        (1..400_i64, 0..100_i64).prop_map(|(full, least)| Work::Hold { full, least }),
        (any::<usize>(), 0..500_i64).prop_map(|(which, cost)| Work::Progress { which, cost }),
        (any::<usize>(), 0..500_i64).prop_map(|(which, cost)| Work::Settle { which, cost }),
        any::<usize>().prop_map(|which| Work::Drop { which }),
        (1..5_usize, any::<bool>()).prop_map(|(most, arrives)| Work::Post { most, arrives }),
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
        let clock = Arc::new(TestClock::at(1_000));
        let disk = Arc::new(MemoryDisk::default());
        let (book, found, _) = Book::open(clock.clone(), disk.clone()).unwrap();
        prop_assert!(found.entries.is_empty());
        disk.fail_after(dies_after);
        let purse = Purse::new(Some(cap), Money::ZERO);
        let mut bank = Bank::default();
        let mut running: Vec<(usize, Ticket)> = Vec::new();
        let mut admitted = Vec::new();
        let mut charged = BTreeMap::new();

        for (id, work) in works.into_iter().enumerate() {
            clock.pass(7);
            match work {
                Work::Hold { full, least } => {
                    let ask = (Money::nanos(full), Money::nanos(least.min(full)));
                    match book.hold(&purse, None, held(id), ask.0, ask.1) {
                        Ok(ticket) => {
                            prop_assert!(ticket.amount() <= ask.0);
                            admitted.push(id);
                            running.push((id, ticket));
                        }
                        Err(Refused::Cap { left }) => prop_assert!(left < ask.0),
                        // The disk is gone: nothing new may run, and nothing stays set aside.
                        Err(Refused::Budget { .. }) => panic!("there is no budget here"),
                        Err(Refused::Journal(_)) => {}
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
                    ticket.settle(entry(id, cost));
                }
                Work::Drop { which } if !running.is_empty() => {
                    let (id, ticket) = running.swap_remove(which % running.len());
                    charged.insert(id, Money::ZERO);
                    drop(ticket);
                }
                Work::Post { most, arrives } => {
                    let batch = book.take_batch(most);
                    if arrives {
                        bank.post(batch.entries().iter().map(|entry| (**entry).clone()).collect());
                        book.posted(batch);
                    } else {
                        book.put_back(batch);
                    }
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
        let (_, found, _) = Book::open(clock.clone(), survivor.clone()).unwrap();
        prop_assert!(found.interrupted <= open.len() + charged.len());
        bank.post(found.entries.clone());

        // Recovery that dies and starts over finds the same.
        let again = Arc::new(survivor.after_crash());
        let (_, second, _) = Book::open(clock.clone(), again).unwrap();
        bank.post(second.entries);

        for id in &admitted {
            let posted = bank.0.get(&format!("r{id}"));
            prop_assert!(posted.is_some(), "call {} is on no book", id);
        }
        prop_assert_eq!(bank.0.len(), admitted.len());
        prop_assert!(bank.spent() <= cap);
        for (id, amount) in open {
            let posted = &bank.0[&format!("r{id}")];
            prop_assert!(posted.cost <= amount);
        }
        prop_assert!(clock.now() > 0);
    }
}

#[test]
fn a_journal_without_faults_says_exactly_what_was_charged() {
    let clock = Arc::new(TestClock::at(5));
    let disk = Arc::new(MemoryDisk::default());
    let (book, _, _) = Book::open(clock.clone(), disk.clone()).unwrap();
    let purse = Purse::new(None, Money::ZERO);
    let hundred = Money::nanos(100);
    let done = book.hold(&purse, None, held(1), hundred, hundred).unwrap();
    let left = book.hold(&purse, None, held(2), hundred, hundred).unwrap();
    let silent = book.hold(&purse, None, held(3), hundred, hundred).unwrap();
    left.progress(Progress {
        lane: "l".to_owned(),
        usage: Usage::default(),
        cost: Money::nanos(40),
    });
    done.settle(entry(1, 30));
    std::mem::forget((left, silent));

    let (_, found, old) = Book::open(clock, Arc::new(disk.after_crash())).unwrap();
    let costs: Vec<_> = found
        .entries
        .iter()
        .map(|e| (e.request_id.as_str(), e.cost.as_nanos(), e.outcome))
        .collect();
    assert_eq!(
        costs,
        [("r1", 30, Outcome::Done), ("r2", 40, Outcome::Recovered), ("r3", 0, Outcome::Recovered)]
    );
    assert_eq!((found.interrupted, found.torn, old.len()), (2, 0, 1));
}

#[test]
fn what_a_provider_charges_beyond_the_hold_is_the_operators_loss() {
    let (book, _, _) =
        Book::open(Arc::new(TestClock::at(5)), Arc::new(MemoryDisk::default())).unwrap();
    let purse = Purse::new(Some(Money::nanos(100)), Money::ZERO);
    book.hold(&purse, None, held(1), Money::nanos(100), Money::nanos(1))
        .unwrap()
        .settle(entry(1, 130));
    let settled = book.find("r1").unwrap();
    assert_eq!((settled.cost.as_nanos(), settled.borne.as_nanos()), (100, 30));
    assert_eq!(purse.standing().remaining(), Some(Money::ZERO));
}
