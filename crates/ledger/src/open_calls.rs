//! Calls that are running on this node, and settled calls that wait to be posted.
//!
//! Admission is one conditional step under the lock of the key's balance, never a read followed by a
//! write. A settled call waits here until the lease store has it. A journal segment is deleted when
//! no open or unposted call needs it any more. The journal is written before the table of calls
//! changes; [`crate::journal_writer`] describes how. A settled call that the journal did not take is
//! kept in memory and written again by [`OpenCalls::maintain_journal`].

use canon::{Micros, Money, Usage};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::journal::{Written, frame, recover};
use crate::journal_writer::{AppendError, JournalWriter};
use crate::key_balance::{Shortfall, Taken};
use crate::{
    BudgetShare, Clock, Disk, HoldRecord, JournalError, JournalErrors, KeyBalance, LeaseToken,
    LedgerEntry, OpenCall, ProgressRecord, RecoveredCalls, SettledCall,
};

/// Reason no money was reserved for a call.
#[derive(Debug, thiserror::Error)]
pub enum HoldRefusal {
    /// The cap does not leave enough.
    #[error("the cap leaves {left} USD")]
    Cap {
        /// Money the cap leaves.
        left: Money,
    },
    /// This node does not have enough, but other nodes have some and may return it.
    #[error("{left} USD are left on this node")]
    Elsewhere {
        /// Money this node has left.
        left: Money,
    },
    /// The lease store cannot be reached, and this node's lease does not cover the call.
    #[error("{0}")]
    Unreachable(String),
    /// The journal cannot be written, so no call may run.
    #[error(transparent)]
    Journal(JournalError),
}

/// Reason a reservation from this node's own lease failed.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The lease does not cover it.
    #[error("the lease has {free} USD free")]
    Short {
        /// The unfilled hold, for another attempt.
        held: Arc<HoldRecord>,
        /// Money that is free in the lease.
        free: Money,
    },
    /// The journal's disk hangs. [`OpenCalls::journal_ready`] waits for it.
    #[error("the disk of the journal does not answer")]
    Stalled {
        /// The unfilled hold, for another attempt.
        held: Arc<HoldRecord>,
    },
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(JournalError),
}

/// The calls of this node that are running or not yet posted.
pub struct OpenCalls {
    clock: Arc<dyn Clock>,
    journal: JournalWriter,
    state: Mutex<CallTable>,
}

/// An opened journal and the calls that an earlier process left in it.
pub struct OpenedJournal {
    /// The table of calls, empty.
    pub book: Arc<OpenCalls>,
    /// Calls that were found in the journal.
    pub found: RecoveredCalls,
    /// The segments they were found in.
    pub segments: Vec<u64>,
}

#[derive(Default)]
struct CallTable {
    open: HashMap<String, RunningCall>,
    settled: VecDeque<UnpostedCall>,
    /// Number of calls, from the front of `settled`, that are being posted.
    posting: usize,
}

/// A call with reserved money.
struct RunningCall {
    /// The journal segment of its hold.
    segment: u64,
    held: Arc<HoldRecord>,
    reached: Option<ProgressRecord>,
    /// When it was admitted, by the steady clock.
    since: Micros,
    /// True if a heartbeat may have reported it.
    shown: bool,
    /// Number of changes, and number of changes the lease store has confirmed.
    changes: u32,
    confirmed: u32,
}

/// A settled call that is not yet confirmed by the lease store.
struct UnpostedCall {
    settled: SettledCall,
    /// The balance it was paid from; `None` for a call without a hold.
    balance: Option<Arc<KeyBalance>>,
    /// The journal segments it needs.
    segments: Vec<u64>,
    /// True until the journal has its entry. Always false for a call without a hold, which costs
    /// nothing and has no record.
    unwritten: bool,
}

/// Settled calls that are being posted. Until they are confirmed they stay in [`OpenCalls`].
#[derive(Debug, Default)]
pub struct PostingBatch(Vec<SettledCall>);

impl PostingBatch {
    /// The calls to post.
    pub fn settled(&self) -> &[SettledCall] {
        &self.0
    }

    /// Returns true if there is no call to post.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl OpenCalls {
    /// Opens the journal and settles the calls that a crash left open.
    ///
    /// [`Teller::open`](crate::Teller::open) completes the start: it posts these calls first.
    pub fn open(clock: Arc<dyn Clock>, disk: Arc<dyn Disk>) -> Result<OpenedJournal, JournalError> {
        let segments = disk.segments().map_err(JournalError)?;
        let found = recover(&*disk, clock.now()).map_err(JournalError)?;
        let journal = JournalWriter::open(disk)?;
        let book = Arc::new(Self { clock, journal, state: Mutex::default() });
        Ok(OpenedJournal { book, found, segments })
    }

    /// Deletes segments whose calls the lease store has confirmed.
    pub(crate) fn forget_recovered(&self, segments: &[u64]) {
        self.journal.remove(segments);
    }

    /// Reserves money from this node's lease: all of `full`, or what is free if that is at least
    /// `least`.
    pub fn hold(
        self: &Arc<Self>,
        balance: &Arc<KeyBalance>,
        mut held: Arc<HoldRecord>,
        full: Money,
        least: Money,
    ) -> Result<HoldTicket, HoldError> {
        let since = self.clock.steady();
        let Taken { amount, lease } = match balance.take(full, least, since) {
            Ok(taken) => taken,
            Err(Shortfall { free }) => return Err(HoldError::Short { held, free }),
        };
        let fill = Arc::make_mut(&mut held);
        fill.amount = amount;
        fill.lease = lease;
        fill.at = self.clock.now();
        let segment = match self.journal.append(&frame(&Written::Held(&held))) {
            Ok(segment) => segment,
            Err(e) => {
                balance.give_back(amount, lease, Money::ZERO);
                return Err(match e {
                    AppendError::Stalled => HoldError::Stalled { held },
                    AppendError::Failed(e) => HoldError::Journal(e),
                });
            }
        };
        let call = RunningCall {
            segment,
            held: Arc::clone(&held),
            reached: None,
            since,
            shown: false,
            changes: 1,
            confirmed: 0,
        };
        self.state.lock().open.insert(held.request_id.clone(), call);
        let (book, balance) = (Arc::clone(self), Arc::clone(balance));
        Ok(HoldTicket { book, balance, shares: Vec::new(), held: Some(held) })
    }

    /// Records a call without a hold, for example a refused one.
    pub fn record_unheld(&self, entry: LedgerEntry) {
        let settled = SettledCall { entry: Arc::new(entry), lease: None, shown: false };
        let unposted =
            UnpostedCall { settled, balance: None, segments: Vec::new(), unwritten: false };
        self.state.lock().settled.push_back(unposted);
    }

    /// Returns the calls admitted before that moment of the steady clock that have unconfirmed
    /// changes, each with its number of changes.
    pub(crate) fn unconfirmed(&self, before: Micros) -> Vec<(OpenCall, u32)> {
        let mut state = self.state.lock();
        let calls = state.open.values_mut();
        let calls = calls.filter(|call| call.confirmed < call.changes && call.since < before);
        calls
            .map(|call| {
                call.shown = true;
                let open = OpenCall { held: (*call.held).clone(), reached: call.reached.clone() };
                (open, call.changes)
            })
            .collect()
    }

    /// Returns the sum of the holds of each lease that the lease store knows or is about to know.
    pub(crate) fn shown(&self) -> HashMap<LeaseToken, Money> {
        let mut sums: HashMap<LeaseToken, Money> = HashMap::new();
        for open in self.state.lock().open.values().filter(|open| open.shown) {
            if let Some(token) = open.held.lease {
                let sum = sums.entry(token).or_default();
                *sum = sum.saturating_add(open.held.amount);
            }
        }
        sums
    }

    /// Returns true if an open or unposted call is paid from that lease.
    pub(crate) fn uses(&self, token: LeaseToken) -> bool {
        let state = self.state.lock();
        state.open.values().any(|open| open.held.lease == Some(token))
            || state.settled.iter().any(|unposted| unposted.settled.lease == Some(token))
    }

    /// Notes that the lease store has these states of calls.
    pub(crate) fn confirm(&self, calls: &[OpenCall], changes: &[u32]) {
        let mut state = self.state.lock();
        for (call, changes) in calls.iter().zip(changes) {
            if let Some(open) = state.open.get_mut(&call.held.request_id) {
                open.confirmed = *changes;
            }
        }
    }

    /// Notes that the lease store has forgotten this node and the state of its calls.
    pub(crate) fn unconfirm_all(&self) {
        for open in self.state.lock().open.values_mut() {
            open.confirmed = 0;
        }
    }

    /// Returns up to that many settled calls, oldest first. There is one batch at a time: the next
    /// one is empty until this one was posted or put back.
    pub fn take_batch(&self, most: usize) -> PostingBatch {
        let mut state = self.state.lock();
        if state.posting > 0 {
            return PostingBatch::default();
        }
        state.posting = most.min(state.settled.len());
        let batch = state.settled.iter().take(state.posting);
        PostingBatch(batch.map(|unposted| unposted.settled.clone()).collect())
    }

    /// Drops a batch that the lease store has confirmed.
    pub fn posted(&self, batch: PostingBatch) {
        let posted: Vec<UnpostedCall> = {
            let mut state = self.state.lock();
            state.posting = 0;
            let count = batch.0.len().min(state.settled.len());
            let posted: Vec<UnpostedCall> = state.settled.drain(..count).collect();
            for UnpostedCall { settled, balance, .. } in &posted {
                if let Some(balance) = balance {
                    balance.posted(settled.lease, settled.entry.cost);
                }
            }
            posted
        };
        self.journal.release(posted.into_iter().flat_map(|unposted| unposted.segments));
    }

    /// Puts the batch back that is being posted, because it may not have arrived. It comes first in
    /// the next batch.
    pub fn put_back(&self) {
        self.state.lock().posting = 0;
    }

    /// Returns the number of settled calls that are not posted.
    pub fn unposted_count(&self) -> usize {
        self.state.lock().settled.len()
    }

    /// Returns a settled call that is not posted.
    pub fn find_unposted(&self, request_id: &str) -> Option<LedgerEntry> {
        let state = self.state.lock();
        // Callers nearly always ask for one of the newest.
        let mut newest_first = state.settled.iter().rev();
        let found = newest_first.find(|unposted| unposted.settled.entry.request_id == request_id);
        found.map(|unposted| (*unposted.settled.entry).clone())
    }

    /// Returns the number of running calls.
    pub fn running_count(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Waits until the journal survives a crash of the machine. Blocks on the disk.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.journal.sync()
    }

    /// Writes settled calls that the journal has not taken yet, creates the next segment in time and
    /// deletes segments that no call needs. To be called several times a second. Blocks on the disk;
    /// failures are counted.
    pub fn maintain_journal(&self) -> Result<(), JournalError> {
        let maintained = self.journal.maintain();
        self.write_missing().and(maintained)
    }

    fn write_missing(&self) -> Result<(), JournalError> {
        let mut written: HashMap<String, u64> = HashMap::new();
        let mut outcome = Ok(());
        for entry in self.unwritten_entries() {
            match self.journal.append_blocking(&frame(&Written::Settled(&entry))) {
                Ok(segment) => drop(written.insert(entry.request_id.clone(), segment)),
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        if written.is_empty() {
            return outcome;
        }
        for unposted in &mut self.state.lock().settled {
            if let Some(segment) = written.remove(&unposted.settled.entry.request_id) {
                unposted.segments.push(segment);
                unposted.unwritten = false;
            }
        }
        // The others were posted in the meantime.
        self.journal.release(written.into_values());
        outcome
    }

    fn unwritten_entries(&self) -> Vec<Arc<LedgerEntry>> {
        let state = self.state.lock();
        let unwritten = state.settled.iter().filter(|unposted| unposted.unwritten);
        unwritten.map(|unposted| Arc::clone(&unposted.settled.entry)).collect()
    }

    /// Returns the ids of settled calls that are neither posted nor in the journal. They are lost
    /// when the process ends.
    pub fn unwritten(&self) -> Vec<String> {
        self.unwritten_entries().iter().map(|entry| entry.request_id.clone()).collect()
    }

    /// Waits while the journal's disk hangs.
    pub(crate) async fn journal_ready(&self) {
        self.journal.stall_end().await;
    }

    /// Failures of the journal, including those that no caller hears of.
    pub fn errors(&self) -> &JournalErrors {
        self.journal.errors()
    }

    /// Settles a call and returns the amount the key pays.
    fn settle(
        &self,
        balance: &Arc<KeyBalance>,
        held: &HoldRecord,
        mut entry: LedgerEntry,
    ) -> Money {
        // The operator pays for usage beyond the hold, so that the cap is never passed.
        let cost = entry.cost.max(Money::ZERO).min(held.amount);
        entry.absorbed = entry.absorbed.saturating_add(entry.cost.saturating_sub(cost));
        entry.cost = cost;
        entry.held = Some(held.amount);
        entry.started = held.at;
        entry.ended = self.clock.now().max(held.at);
        // If the disk fails, the entry is posted from memory, or written again later. A crash before
        // that settles the call from its last recorded progress. The writer counts the failure.
        let segment = self.journal.append(&frame(&Written::Settled(&entry))).ok();
        let mut state = self.state.lock();
        let open = state.open.remove(&held.request_id);
        let shown = open.as_ref().is_some_and(|open| open.shown);
        let unwritten = segment.is_none();
        let segments = segment.into_iter().chain(open.map(|open| open.segment)).collect();
        let settled = SettledCall { entry: Arc::new(entry), lease: held.lease, shown };
        // Before the call can be posted: `KeyBalance::posted` expects the hold to be released.
        balance.give_back(held.amount, held.lease, cost);
        let balance = Some(Arc::clone(balance));
        state.settled.push_back(UnpostedCall { settled, balance, segments, unwritten });
        cost
    }
}

/// The state of a running call, as its handler reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallProgress {
    /// The lane that answers.
    pub lane: String,
    /// Usage so far, as far as it is known.
    pub usage: Usage,
    /// Cost of that usage.
    pub cost: Money,
}

/// Proof that a call was admitted. It is settled exactly once: explicitly, or as failed on drop.
pub struct HoldTicket {
    book: Arc<OpenCalls>,
    balance: Arc<KeyBalance>,
    /// Reservations from periodic budgets.
    shares: Vec<BudgetShare>,
    held: Option<Arc<HoldRecord>>,
}

impl std::fmt::Debug for HoldTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.held.as_ref().map(|held| &held.request_id)).finish()
    }
}

impl HoldTicket {
    /// The reserved amount.
    pub fn amount(&self) -> Money {
        self.held.as_ref().map_or(Money::ZERO, |held| held.amount)
    }

    /// Adds the reservation from a budget, which is settled with this ticket.
    #[must_use]
    pub fn with_share(mut self, mut share: BudgetShare) -> Self {
        share.shrink(self.amount());
        self.shares.push(share);
        self
    }

    /// The key that pays.
    pub fn key_id(&self) -> &str {
        self.held.as_ref().map_or("", |held| &held.key_id)
    }

    /// The lease that pays; `None` for a key without a cap.
    pub fn lease(&self) -> Option<LeaseToken> {
        self.held.as_ref().and_then(|held| held.lease)
    }

    /// Records the usage so far, so that the call is charged for it after a crash.
    pub fn progress(&self, progress: CallProgress) {
        let Some(held) = &self.held else { return };
        let CallProgress { lane, usage, cost } = progress;
        let at = self.book.clock.now();
        let reached = ProgressRecord { request_id: held.request_id.clone(), at, lane, usage, cost };
        // A lost record makes recovery charge less. The writer counts the failure.
        let _ = self.book.journal.append_unkept(&frame(&Written::Reached(&reached)));
        let mut state = self.book.state.lock();
        if let Some(open) = state.open.get_mut(&held.request_id) {
            open.reached = Some(reached);
            open.changes = open.changes.saturating_add(1);
        }
    }

    /// Settles the call: its cost is spent, the rest of the hold is released.
    pub fn settle(mut self, entry: LedgerEntry) {
        if let Some(held) = self.held.take() {
            let cost = self.book.settle(&self.balance, &held, entry);
            for share in self.shares.drain(..) {
                share.settle(cost);
            }
        }
    }
}

impl Drop for HoldTicket {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let entry = LedgerEntry {
            request_id: held.request_id.clone(),
            key_id: held.key_id.clone(),
            account_id: held.account_id.clone(),
            dialect: held.dialect.clone(),
            model: held.model.clone(),
            stream: held.stream,
            status: 503,
            price_version: held.price_version.clone(),
            ..LedgerEntry::default()
        };
        self.book.settle(&self.balance, &held, entry);
    }
}
