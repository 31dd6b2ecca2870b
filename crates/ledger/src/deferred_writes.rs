//! Law: a crash loses nothing that the journal confirmed, whenever the writer thread writes.
//!
//! The test takes the place of the thread, so that a failing case reproduces.

use canon::{Micros, Money};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::{
    CallOutcome, HoldRecord, HoldTicket, JournalError, JournalReceipt, KeyBalance, LedgerEntry,
    MemoryDisk, OpenCalls, PendingHold, TestClock,
};

/// Money reserved for each call.
const HOLD: Money = Money::from_nanos(100);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A call asks for its hold, and waits for the journal in a later step.
    Hold,
    /// The oldest waiting call looks if the journal has its hold.
    Admit,
    /// The oldest waiting call leaves.
    Leave,
    /// The oldest running call ends at this cost, and waits for the journal in a later step.
    Settle(i64),
    /// The oldest settled call looks if the journal has its entry.
    Confirm,
    /// The thread writes what is queued.
    Write,
    /// The background looks after the disk.
    Maintain,
    Watch,
    /// The store takes the settled calls.
    Post,
    /// The disk has this much free space.
    Space(Option<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Hold),
        4 => Just(Step::Admit),
        1 => Just(Step::Leave),
        4 => (0_i64..100).prop_map(Step::Settle),
        4 => Just(Step::Confirm),
        4 => Just(Step::Write),
        1 => Just(Step::Maintain),
        1 => Just(Step::Watch),
        1 => Just(Step::Post),
        1 => proptest::option::of(0_usize..1_000).prop_map(Step::Space),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A node whose journal is written by the steps of a test.
struct DeferredNode {
    disk: Arc<MemoryDisk>,
    book: Arc<OpenCalls>,
    balance: Arc<KeyBalance>,
    next: u32,
    waiting: Vec<Waiting>,
    running: Vec<(String, HoldTicket)>,
    settling: Vec<(String, i64, JournalReceipt)>,
    confirmed: BTreeMap<String, i64>,
    posted: BTreeMap<String, i64>,
    abandoned: BTreeSet<String>,
}

/// A call that waits for its hold.
struct Waiting {
    id: String,
    admission: Pin<Box<dyn Future<Output = Result<HoldTicket, JournalError>>>>,
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

impl DeferredNode {
    fn open() -> Self {
        let disk = Arc::new(MemoryDisk::default());
        let clock = Arc::new(TestClock::at(Micros::new(5)));
        let book = OpenCalls::open(clock, Arc::clone(&disk) as _).unwrap().book;
        book.defer_writes();
        Self {
            disk,
            book,
            balance: KeyBalance::new("k", None, Money::ZERO),
            next: 0,
            waiting: Vec::new(),
            running: Vec::new(),
            settling: Vec::new(),
            confirmed: BTreeMap::new(),
            posted: BTreeMap::new(),
            abandoned: BTreeSet::new(),
        }
    }

    fn hold(&mut self) {
        self.next += 1;
        let id = format!("r{:04}", self.next);
        let held = HoldRecord {
            request_id: id.clone().into(),
            key_id: "k".into(),
            account_id: "".into(),
            at: Micros::ZERO,
            amount: Money::ZERO,
            dialect: "chat".into(),
            model: "m".into(),
            stream: false,
            price_version: "1".into(),
            lease: None,
            ..HoldRecord::default()
        };
        if let Ok(pending) = self.book.hold(&self.balance, Arc::new(held), HOLD, HOLD) {
            self.waiting.push(Waiting { id, admission: Box::pin(PendingHold::written(pending)) });
        }
    }

    fn admit(&mut self) {
        let Some(Waiting { id, mut admission }) = self.pop_waiting() else { return };
        match poll(admission.as_mut()) {
            Some(Ok(ticket)) => self.running.push((id, ticket)),
            Some(Err(_)) => drop(self.abandoned.insert(id)),
            None => self.waiting.insert(0, Waiting { id, admission }),
        }
    }

    fn pop_waiting(&mut self) -> Option<Waiting> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    fn settle(&mut self, nanos: i64) {
        if self.running.is_empty() {
            return;
        }
        let (id, ticket) = self.running.remove(0);
        let cost = Money::from_nanos(nanos);
        let entry = LedgerEntry {
            request_id: id.clone().into(),
            outcome: CallOutcome::Done,
            cost,
            ..LedgerEntry::default()
        };
        self.settling.push((id, nanos, ticket.settle(entry)));
    }

    fn confirm(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let (id, cost, mut receipt) = self.settling.remove(0);
        match poll(pin!(&mut receipt)) {
            Some(Ok(())) => drop(self.confirmed.insert(id, cost)),
            Some(Err(_)) => {}
            None => self.settling.insert(0, (id, cost, receipt)),
        }
    }

    fn post(&mut self) {
        let batch = self.book.take_batch(10);
        for settled in batch.settled() {
            let entry = &settled.entry;
            let before = self.posted.insert(entry.request_id.to_string(), entry.cost.as_nanos());
            assert_eq!(before, None, "posted twice");
        }
        self.book.posted(batch);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Hold => self.hold(),
            Step::Admit => self.admit(),
            Step::Leave => {
                let left = self.pop_waiting();
                self.abandoned.extend(left.map(|waiting| waiting.id));
            }
            Step::Settle(cost) => self.settle(cost),
            Step::Confirm => self.confirm(),
            Step::Write => {
                self.book.write_queued();
                assert_eq!(self.book.unwritten(), [""; 0], "a full disk has room for settlements");
            }
            Step::Maintain => drop(self.book.maintain_journal()),
            Step::Watch => self.book.watch_journal(),
            Step::Post => self.post(),
            Step::Space(bytes) => self.disk.set_free_space(bytes),
        }
    }

    /// Checks what a new process finds after a crash.
    fn check_crash(&self) {
        let clock = Arc::new(TestClock::at(Micros::new(9)));
        let opened = OpenCalls::open(clock, Arc::new(self.disk.after_crash())).unwrap();
        let mut found: BTreeMap<&str, i64> = BTreeMap::new();
        for settled in &opened.found.settled {
            let entry = &settled.entry;
            let cost = entry.cost.as_nanos();
            let before = found.insert(&*entry.request_id, cost);
            assert!(before.is_none_or(|before| before == cost), "{entry:?}");
            if let Some(posted) = self.posted.get(&*entry.request_id) {
                // The store ignores what it has, but the amounts must not differ unless the entry was
                // posted before its record was written.
                assert!(*posted == cost || entry.outcome == CallOutcome::Recovered, "{entry:?}");
            }
        }
        for (id, cost) in &self.confirmed {
            let known = self.posted.get(id).or_else(|| found.get(id.as_str()));
            assert_eq!(known, Some(cost), "{id} was confirmed");
        }
        for (id, _) in &self.running {
            assert_eq!(found.get(id.as_str()), Some(&0), "{id} was running");
        }
        for id in &self.abandoned {
            assert!(found.get(id.as_str()).is_none_or(|cost| *cost == 0), "{id} never began");
        }
    }
}

proptest! {
    #[test]
    fn a_crash_loses_nothing_that_was_confirmed(steps in steps()) {
        let mut node = DeferredNode::open();
        for step in steps {
            node.run(step);
            let open = node.waiting.len() + node.running.len();
            prop_assert_eq!(node.balance.status().held, Money::from_nanos(HOLD.as_nanos() * open as i64));
        }
        node.check_crash();
        // In the end every segment that no call needs is deleted.
        node.disk.set_free_space(None);
        node.waiting.clear();
        node.running.clear();
        node.settling.clear();
        node.book.maintain_journal().unwrap();
        while node.book.unposted_count() > 0 {
            node.post();
        }
        prop_assert_eq!(node.balance.status().held, Money::ZERO);
        let spent: i64 = node.posted.values().sum();
        prop_assert_eq!(node.balance.status().spent.as_nanos(), spent);
        prop_assert_eq!(node.book.users_of_journal(), 0);
    }
}
