//! The book of running calls: who may spend, what is set aside, what was settled.
//!
//! Admission is one conditional step under the purse's own lock, never a look and then a write.
//! Settled calls wait here until the bank has them; a segment of the journal is forgotten when
//! nothing in it is needed any more.

use canon::{Money, Usage};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::budget::Pot;
use crate::journal::{Held, Reached, Written, frame, recover};
use crate::{Budget, Clock, Disk, Entry, JournalError, Micros, Recovered};

/// When a segment of the journal is long enough.
const SEGMENT: usize = 8 << 20;

/// The money one key may spend.
#[derive(Debug)]
pub struct Purse(Mutex<Standing>);

/// How a purse stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The most that may be spent; `None` for no limit.
    pub cap: Option<Money>,
    /// What was spent.
    pub spent: Money,
    /// What is set aside for running calls.
    pub held: Money,
}

impl Standing {
    /// What is left to set aside; `None` for no limit.
    pub fn remaining(&self) -> Option<Money> {
        let used = self.spent.saturating_add(self.held);
        self.cap.map(|cap| cap.saturating_sub(used).max(Money::ZERO))
    }
}

impl Purse {
    /// A purse with what the bank says was spent.
    pub fn new(cap: Option<Money>, spent: Money) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Standing { cap, spent, held: Money::ZERO })))
    }

    /// How it stands now.
    pub fn standing(&self) -> Standing {
        *self.0.lock()
    }

    /// Changes the cap. Running calls keep what was set aside for them.
    pub fn set_cap(&self, cap: Option<Money>) {
        self.0.lock().cap = cap;
    }

    fn take(&self, full: Money, least: Money) -> Result<Money, Money> {
        let mut standing = self.0.lock();
        let granted = match standing.remaining() {
            None => full,
            Some(left) if left >= full => full,
            Some(left) if left >= least && left > Money::ZERO => left,
            Some(left) => return Err(left),
        };
        standing.held = standing.held.saturating_add(granted);
        Ok(granted)
    }

    fn give_back(&self, granted: Money, spent: Money) {
        let mut standing = self.0.lock();
        standing.held = standing.held.saturating_sub(granted);
        standing.spent = standing.spent.saturating_add(spent);
    }
}

/// Why no money was set aside.
#[derive(Debug)]
pub enum Refused {
    /// Not enough is left.
    Cap {
        /// What is left.
        left: Money,
    },
    /// Not enough is left of this period's budget.
    Budget {
        /// What is left.
        left: Money,
        /// When the next period begins.
        resets: Micros,
    },
    /// The journal could not be written, so nothing may run.
    Journal(JournalError),
}

/// The book.
pub struct Book {
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    segment: u64,
    written: usize,
    /// How many open holds and unposted entries each segment still carries.
    needed: BTreeMap<u64, usize>,
    open: HashMap<String, u64>,
    settled: VecDeque<(Arc<Entry>, Vec<u64>)>,
    /// How many of `settled`, from the front, are on their way to the bank.
    posting: usize,
}

/// Settled calls on their way to the bank. Until it has them they can still be found in the book.
#[derive(Debug, Default)]
pub struct Batch(Vec<Arc<Entry>>);

impl Batch {
    /// The entries to post.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.0
    }

    /// Whether there is nothing to post.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Book {
    /// Opens the journal and settles what a crash left open. The recovered entries must be posted
    /// to the bank before any purse is made, and [`Book::recovered`] be told afterwards.
    pub fn open(
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
    ) -> Result<(Arc<Self>, Recovered, Vec<u64>), JournalError> {
        let old = disk.segments().map_err(JournalError)?;
        let found = recover(&*disk, clock.now()).map_err(JournalError)?;
        let segment = disk.begin().map_err(JournalError)?;
        let state = State { segment, ..State::default() };
        Ok((Arc::new(Self { clock, disk, state: Mutex::new(state) }), found, old))
    }

    /// The bank has what was recovered from these segments: they can be forgotten.
    pub fn recovered(&self, segments: &[u64]) {
        for segment in segments {
            // A segment that stays is read again at the next start and posted again, in vain.
            let _ = self.disk.remove(*segment);
        }
    }

    /// Sets money aside: all of `full`, or what is left if that is at least `least`. Where there is
    /// a budget, its pot for this moment must have the money as well.
    pub fn hold(
        self: &Arc<Self>,
        purse: &Arc<Purse>,
        budget: Option<&Budget>,
        mut held: Held,
        full: Money,
        least: Money,
    ) -> Result<Ticket, Refused> {
        held.at = self.clock.now();
        let mut amount = purse.take(full, least).map_err(|left| Refused::Cap { left })?;
        let budget = match budget {
            None => None,
            Some(budget) => {
                let pot = budget.pot(held.at);
                match pot.take(amount, least) {
                    Ok(granted) => {
                        purse.give_back(amount.saturating_sub(granted), Money::ZERO);
                        amount = granted;
                        Some(pot)
                    }
                    Err(left) => {
                        purse.give_back(amount, Money::ZERO);
                        let resets = budget.period().end(held.at);
                        return Err(Refused::Budget { left, resets });
                    }
                }
            }
        };
        let purses = Purses { purse: Arc::clone(purse), budget };
        held.amount = amount;
        let bytes = frame(&Written::Held(&held));
        {
            let mut state = self.state.lock();
            if let Err(e) = self.append(&mut state, &bytes) {
                drop(state);
                purses.give_back(amount, Money::ZERO);
                return Err(Refused::Journal(e));
            }
            let segment = state.segment;
            state.open.insert(held.request_id.clone(), segment);
            *state.needed.entry(segment).or_default() += 1;
        }
        Ok(Ticket { book: Arc::clone(self), purses, held: Some(held) })
    }

    /// Notes a call that never had money set aside, such as one that was refused.
    pub fn note(&self, entry: Entry) {
        self.state.lock().settled.push_back((Arc::new(entry), Vec::new()));
    }

    /// Up to that many settled calls, oldest first. One batch is on its way at a time: until it
    /// was posted or put back, there is no other.
    pub fn take_batch(&self, most: usize) -> Batch {
        let mut state = self.state.lock();
        if state.posting > 0 {
            return Batch::default();
        }
        state.posting = most.min(state.settled.len());
        Batch(
            state.settled.iter().take(state.posting).map(|(entry, _)| Arc::clone(entry)).collect(),
        )
    }

    /// The bank has the batch.
    pub fn posted(&self, batch: Batch) {
        let mut state = self.state.lock();
        state.posting = 0;
        let posted: Vec<(Arc<Entry>, Vec<u64>)> = state.settled.drain(..batch.0.len()).collect();
        for segment in posted.into_iter().flat_map(|(_, segments)| segments) {
            release(&mut state, segment);
        }
        let idle: Vec<u64> = state
            .needed
            .iter()
            .filter(|(segment, count)| **count == 0 && **segment != state.segment)
            .map(|(segment, _)| *segment)
            .collect();
        for segment in idle {
            state.needed.remove(&segment);
            let _ = self.disk.remove(segment);
        }
    }

    /// The bank could not take the batch: it waits in front of everything else.
    pub fn put_back(&self, _batch: Batch) {
        self.state.lock().posting = 0;
    }

    /// How many settled calls wait for the bank.
    pub fn waiting(&self) -> usize {
        self.state.lock().settled.len()
    }

    /// A settled call that still waits for the bank.
    pub fn find(&self, request_id: &str) -> Option<Entry> {
        let state = self.state.lock();
        // The one asked for is nearly always among the newest.
        let mut newest_first = state.settled.iter().rev();
        let found = newest_first.find(|(entry, _)| entry.request_id == request_id);
        found.map(|(entry, _)| (**entry).clone())
    }

    /// How many calls have money set aside.
    pub fn running(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Waits until the journal survives the death of the machine.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.disk.sync().map_err(JournalError)
    }

    fn append(&self, state: &mut State, bytes: &[u8]) -> Result<(), JournalError> {
        if state.written > SEGMENT {
            state.segment = self.disk.begin().map_err(JournalError)?;
            state.written = 0;
        }
        self.disk.append(bytes).map_err(|e| {
            // The segment may now end in half a record; nothing must be written behind it.
            if let Ok(segment) = self.disk.begin() {
                state.segment = segment;
                state.written = 0;
            }
            JournalError(e)
        })?;
        state.written += bytes.len();
        Ok(())
    }

    fn settle(&self, purses: &Purses, held: &Held, mut entry: Entry) {
        // A provider that reports more than was set aside is the operator's loss: the cap holds.
        let cost = entry.cost.max(Money::ZERO).min(held.amount);
        entry.borne = entry.borne.saturating_add(entry.cost.saturating_sub(cost));
        entry.cost = cost;
        entry.started = held.at;
        entry.ended = self.clock.now().max(held.at);
        let bytes = frame(&Written::Settled(&entry));
        let mut state = self.state.lock();
        // If the disk refuses, the entry is still posted from memory; only a crash before that
        // would settle the call again, from its last progress.
        let _ = self.append(&mut state, &bytes);
        let segment = state.segment;
        *state.needed.entry(segment).or_default() += 1;
        let mut needs = vec![segment];
        needs.extend(state.open.remove(&held.request_id));
        state.settled.push_back((Arc::new(entry), needs));
        drop(state);
        purses.give_back(held.amount, cost);
    }
}

/// Where the money of a call was set aside: the key's own purse, and its budget's pot of that period.
struct Purses {
    purse: Arc<Purse>,
    budget: Option<Arc<Pot>>,
}

impl Purses {
    fn give_back(&self, granted: Money, spent: Money) {
        self.purse.give_back(granted, spent);
        if let Some(budget) = &self.budget {
            budget.give_back(granted, spent);
        }
    }
}

fn release(state: &mut State, segment: u64) {
    if let Some(count) = state.needed.get_mut(&segment) {
        *count = count.saturating_sub(1);
    }
}

/// How far a running call has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The lane that answers.
    pub lane: String,
    /// What was used so far, as far as is known.
    pub usage: Usage,
    /// What that costs.
    pub cost: Money,
}

/// Proof that a call was admitted. It is settled exactly once: by hand, or as failed when dropped.
pub struct Ticket {
    book: Arc<Book>,
    purses: Purses,
    held: Option<Held>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.held.as_ref().map(|held| &held.request_id)).finish()
    }
}

impl Ticket {
    /// What was set aside.
    pub fn amount(&self) -> Money {
        self.held.as_ref().map_or(Money::ZERO, |held| held.amount)
    }

    /// Notes how far the call has come, so that a crash charges for it.
    pub fn progress(&self, progress: Progress) {
        let Some(held) = &self.held else { return };
        let Progress { lane, usage, cost } = progress;
        let at = self.book.clock.now();
        let reached = Reached { request_id: held.request_id.clone(), at, lane, usage, cost };
        let bytes = frame(&Written::Reached(&reached));
        let mut state = self.book.state.lock();
        let _ = self.book.append(&mut state, &bytes);
    }

    /// Settles the call: what it cost is spent, the rest is free again.
    pub fn settle(mut self, entry: Entry) {
        if let Some(held) = self.held.take() {
            self.book.settle(&self.purses, &held, entry);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let entry = Entry {
            request_id: held.request_id.clone(),
            key_id: held.key_id.clone(),
            account_id: held.account_id.clone(),
            dialect: held.dialect.clone(),
            model: held.model.clone(),
            stream: held.stream,
            status: 503,
            price_version: held.price_version.clone(),
            ..Entry::default()
        };
        self.book.settle(&self.purses, &held, entry);
    }
}
