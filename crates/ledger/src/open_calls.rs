//! Calls that are running on this node, and settled calls that wait to be posted.
//!
//! Admission is one conditional step under the lock of the key's balance, never a read followed by a
//! write. A settled call waits here until the lease store has it. A journal segment is deleted when
//! no open or unposted call needs it any more. A call runs once the journal has its hold;
//! [`crate::journal_writer`] describes how. A settled call that the journal did not take is kept in
//! memory and written again by [`OpenCalls::maintain_journal`].

use canon::{Micros, Money, SharedText, Usage};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use crate::goodwill::GoodwillBook;
use crate::journal::{Written, framed, recover};
use crate::journal_writer::{JournalWriter, KeptRecord, SETTLEMENT_BYTES, WriterThread};
use crate::key_balance::{Shortfall, Taken};
use crate::key_tallies::KeyTallies;
use crate::{
    CallOutcome, ChargeReason, Clock, Disk, EndedBy, HoldRecord, HoldShortage, JournalError,
    JournalErrors, JournalReceipt, JournalRecord, KeyBalance, LeaseToken, LedgerEntry, OpenCall,
    PendingHold, RecoveredCalls, SegmentDamage, SettledCall, SettlementKnowledge,
};

mod call_places;
mod call_table;
mod clean_end;
mod figures;
mod progress;
mod store_time;
mod unleased;

pub(crate) use call_places::CallPlace;
use call_table::{CallTable, RunningCall, UnpostedCall};

/// Reason no money was reserved for a call.
#[derive(Debug, thiserror::Error)]
pub enum HoldRefusal {
    /// A limit is used up.
    #[error("{} of {} USD are spent", .0.spent, .0.limit)]
    Spent(HoldShortage),
    /// Money below the limits is reserved for other calls, or leased to other nodes.
    #[error("{} of {} USD are reserved", .0.reserved(), .0.limit)]
    Held(HoldShortage),
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
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(JournalError),
}

/// The calls of this node that are running or not yet posted.
pub struct OpenCalls {
    clock: Arc<dyn Clock>,
    journal: Arc<JournalWriter>,
    /// The thread that writes the journal, once it is started.
    writer_thread: Mutex<Option<WriterThread>>,
    state: Mutex<CallTable>,
    pub(crate) goodwill: GoodwillBook,
    tallies: KeyTallies,
    /// Microseconds that the lease store's clock is ahead of this node's.
    clock_error: AtomicI64,
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
    /// [`LeaseClient::open`](crate::LeaseClient::open) posts them.
    pub fn open(clock: Arc<dyn Clock>, disk: Arc<dyn Disk>) -> Result<OpenedJournal, JournalError> {
        let segments = disk.segments().map_err(JournalError)?;
        let found = recover(&*disk, clock.now()).map_err(JournalError)?;
        let journal = Arc::new(JournalWriter::open(disk)?);
        let (writer_thread, state) = (Mutex::default(), Mutex::default());
        let (goodwill, clock_error) = (GoodwillBook::default(), AtomicI64::new(0));
        let tallies = KeyTallies::default();
        let book = Self { clock, journal, writer_thread, state, goodwill, tallies, clock_error };
        let book = Arc::new(book);
        Ok(OpenedJournal { book, found, segments })
    }

    /// Starts the thread that writes the journal, so that no other one waits for the disk. It ends
    /// with this value. [`Self::watch_journal`] must be called periodically from now on.
    pub fn start_writer(&self) -> Result<(), JournalError> {
        let mut thread = self.writer_thread.lock();
        if thread.is_none() {
            *thread = Some(self.journal.start_thread().map_err(JournalError)?);
        }
        Ok(())
    }

    /// Leaves writing to a test.
    #[cfg(test)]
    pub(crate) fn defer_writes(&self) {
        self.journal.defer_writes();
    }

    /// Writes the queued records in place of the thread.
    #[cfg(test)]
    pub(crate) fn write_queued(&self) {
        self.journal.write_queued();
    }

    /// Returns the number of records that keep their segment.
    #[cfg(test)]
    pub(crate) fn users_of_journal(&self) -> usize {
        self.journal.users()
    }

    /// Sets whether a call waits until its records survive a crash of the machine, and not only one of
    /// the process.
    pub fn set_sync_writes(&self, on: bool) {
        self.journal.set_sync_writes(on);
    }

    /// Returns true while the disk of the journal hangs, so that no call is admitted.
    pub fn is_stalled(&self) -> bool {
        self.journal.is_stalled()
    }

    /// Returns true if the journal could not be written or synced, until it can be again. No call is
    /// admitted meanwhile.
    pub fn is_failing(&self) -> bool {
        self.journal.is_failing()
    }

    /// Looks if the disk of the journal hangs. If a write lasts from one call of this function to the
    /// next, calls no longer wait for it: new ones are refused, and settled ones are written later.
    pub fn watch_journal(&self) {
        self.journal.watch();
    }

    /// Records the settlements of calls that an earlier process left open, and all of them if a segment
    /// is damaged, because it is not retired. They are posted already; the records are for a lease
    /// store that goes back to an earlier state.
    pub(crate) fn record_recovered(&self, found: &RecoveredCalls) {
        let is_sound = found.damage.is_empty();
        let kept = if is_sound { found.settled.len().saturating_sub(found.interrupted) } else { 0 };
        for settled in found.settled.iter().skip(kept) {
            drop(self.append_unkept(&Written::settled(&settled.entry)));
        }
    }

    /// Retires segments whose calls the lease store has confirmed. Damaged and missing ones are set
    /// aside.
    pub(crate) fn forget_recovered(&self, segments: &[u64], damage: &[SegmentDamage]) {
        let is_damaged = |segment: &u64| damage.iter().any(|one| one.segment == *segment);
        let sound: Vec<u64> = segments.iter().copied().filter(|one| !is_damaged(one)).collect();
        self.journal.retire(&sound);
        damage.iter().for_each(|one| self.journal.set_aside(one.segment));
    }

    /// The disk of the journal.
    pub(crate) fn disk(&self) -> &dyn Disk {
        self.journal.disk()
    }

    /// Keeps a damaged or missing segment in mind until an operator accepts the loss.
    pub(crate) fn set_aside(&self, segment: u64) {
        self.journal.set_aside(segment);
    }

    /// Returns the records of a retired segment. A damaged one is set aside.
    pub(crate) fn read_retired(&self, segment: u64) -> Vec<JournalRecord> {
        self.journal.read_retired(segment)
    }

    /// Returns the names of damaged files of the journal that no operator has accepted yet.
    pub fn damaged_files(&self) -> Vec<String> {
        self.journal.damaged_files()
    }

    /// Reserves money from this node's lease: all of `full`, or what is free if that is at least
    /// `least`.
    pub fn hold(
        self: &Arc<Self>,
        balance: &Arc<KeyBalance>,
        held: Arc<HoldRecord>,
        full: Money,
        least: Money,
    ) -> Result<PendingHold, HoldError> {
        self.hold_at(self.clock.steady(), balance, held, full, least)
    }

    /// The same, at that moment of the steady clock.
    pub(crate) fn hold_at(
        self: &Arc<Self>,
        since: Micros,
        balance: &Arc<KeyBalance>,
        mut held: Arc<HoldRecord>,
        full: Money,
        least: Money,
    ) -> Result<PendingHold, HoldError> {
        self.journal.check_stall().map_err(HoldError::Journal)?;
        balance.account_id.get_or_init(|| held.account_id.clone());
        let Taken { amount, lease } = match balance.take(full, least, since) {
            Ok(taken) => taken,
            Err(Shortfall { free }) => return Err(HoldError::Short { held, free }),
        };
        let fill = Arc::make_mut(&mut held);
        fill.amount = amount;
        fill.lease = lease;
        fill.at = self.now();
        let record = match self.append_hold(&held) {
            Ok(record) => record,
            Err(e) => {
                balance.give_back(amount, lease, Money::ZERO, false);
                return Err(HoldError::Journal(e));
            }
        };
        let receipt = JournalReceipt::new(&self.journal, Some(&record));
        let call = RunningCall {
            record,
            held: Arc::clone(&held),
            is_admitted: false,
            reached: None,
            since,
            shown: false,
            is_reported: false,
            changes: 1,
            confirmed: 0,
        };
        let (place, is_alone) = {
            let mut state = self.state.lock();
            (state.open.insert(call), state.open.len() == 1)
        };
        let receipt = receipt.alone(is_alone);
        let (book, balance) = (Arc::clone(self), Arc::clone(balance));
        Ok(PendingHold::new(book, balance, (place, held), receipt))
    }

    /// Takes back a reservation that the journal does not have. Its call has not begun.
    pub(crate) fn abandon(&self, balance: &KeyBalance, place: CallPlace, held: &HoldRecord) {
        let open = self.state.lock().open.remove(place);
        balance.give_back(held.amount, held.lease, Money::ZERO, false);
        if open.is_some() {
            self.journal.change_promised(-1);
        }
        // A hold that is written all the same costs nothing.
        drop(self.append_unkept(&Written::Voided(&held.request_id)));
        self.journal.release(open.map(|open| open.record));
    }

    /// Returns the calls admitted before that moment of the steady clock that have unconfirmed
    /// changes, each with its place and its number of changes.
    pub(crate) fn unconfirmed(&self, before: Micros) -> Vec<(OpenCall, (CallPlace, u32))> {
        let mut state = self.state.lock();
        let calls = state.open.with_places();
        let calls = calls.filter(|(_, call)| {
            call.is_admitted && call.confirmed < call.changes && call.since < before
        });
        calls
            .map(|(place, call)| {
                call.shown = true;
                let reached = call.reached.as_deref().cloned();
                let open = OpenCall { held: (*call.held).clone(), reached };
                (open, (place, call.changes))
            })
            .collect()
    }

    /// Returns true if an open or unposted call is paid from that lease.
    pub(crate) fn uses(&self, token: LeaseToken) -> bool {
        let state = self.state.lock();
        state.open.values().any(|open| open.held.lease == Some(token))
            || state.settled.iter().any(|unposted| unposted.settled.lease == Some(token))
    }

    /// Notes that the lease store has these states of calls. Returns the sum of the holds of each
    /// lease that it did not know before.
    pub(crate) fn confirm(
        &self,
        calls: &[OpenCall],
        changes: &[(CallPlace, u32)],
    ) -> HashMap<LeaseToken, Money> {
        let mut reported: HashMap<LeaseToken, Money> = HashMap::new();
        let mut state = self.state.lock();
        for (call, (place, changes)) in calls.iter().zip(changes) {
            // Another call may have the place by now.
            let open = state.open.get_mut(*place);
            if let Some(open) = open.filter(|open| open.held.request_id == call.held.request_id) {
                open.confirmed = *changes;
                if let Some(token) = open.held.lease.filter(|_| !open.is_reported) {
                    let sum = reported.entry(token).or_default();
                    *sum = sum.saturating_add(open.held.amount);
                }
                open.is_reported = true;
            }
        }
        reported
    }

    /// Notes that the lease store has forgotten this node and the state of its calls.
    pub(crate) fn unconfirm_all(&self) {
        for open in self.state.lock().open.values_mut() {
            open.confirmed = 0;
            open.is_reported = false;
        }
    }

    /// Returns up to that many settled calls, oldest first; none until the last batch was posted or put back.
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
                balance.posted(settled.lease, settled.entry.cost);
            }
            posted
        };
        for UnpostedCall { hold_record, record, .. } in posted {
            self.journal.release(hold_record);
            self.journal.release_settlement(record);
        }
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

    /// Returns the end of the settled call that waits the longest to be posted.
    pub fn oldest_unposted(&self) -> Option<Micros> {
        self.state.lock().settled.front().map(|unposted| unposted.settled.entry.ended)
    }

    /// Returns a settled call that is not posted.
    pub fn find_unposted(&self, request_id: &str) -> Option<LedgerEntry> {
        let state = self.state.lock();
        // Callers nearly always ask for one of the newest.
        let mut newest_first = state.settled.iter().rev().map(|unposted| &unposted.settled.entry);
        newest_first.find(|entry| entry.request_id == request_id).map(|entry| (**entry).clone())
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
        if self.journal.take_lost_segment() {
            self.write_again();
        }
        if self.running_count() > 0 {
            // Tells how long a call without progress has run.
            drop(self.append_unkept(&Written::Alive(self.clock.now())));
        }
        self.write_missing().and(maintained)
    }

    /// Writes the records of all calls again, because a file of the journal was deleted or moved.
    fn write_again(&self) {
        let mut state = self.state.lock();
        for call in state.open.values_mut() {
            if let Ok(record) = self.append_hold(&call.held) {
                // The room is that of the first record.
                self.journal.change_promised(-1);
                self.journal.release([std::mem::replace(&mut call.record, record)]);
            }
        }
        let written = |unposted: &&mut UnpostedCall| {
            unposted.record.as_ref().is_some_and(KeptRecord::is_written)
        };
        for unposted in state.settled.iter_mut().filter(written) {
            // It takes room that nobody has reserved for it.
            self.journal.change_promised(1);
            let again = self.append_within_room(&unposted.settled.entry).ok();
            self.journal.release(std::mem::replace(&mut unposted.record, again));
        }
    }

    fn write_missing(&self) -> Result<(), JournalError> {
        self.journal.write_queued();
        let entries = self.settled_entries(UnpostedCall::must_be_rewritten);
        let mut records: HashMap<SharedText, KeptRecord> = HashMap::new();
        let mut refusal = None;
        for entry in entries {
            match self.append_within_room(&entry) {
                Ok(record) => drop(records.insert(entry.request_id.clone(), record)),
                Err(e) => {
                    refusal = Some(e);
                    break;
                }
            }
        }
        self.journal.write_queued();
        let failure = refusal.or_else(|| records.values().find_map(KeptRecord::failure));
        for unposted in &mut self.state.lock().settled {
            if let Some(record) = records.remove(&unposted.settled.entry.request_id) {
                unposted.record = Some(record);
            }
        }
        // The others were posted in the meantime, and their room was given up then.
        self.journal.change_promised(isize::try_from(records.len()).unwrap_or(0));
        records.into_values().for_each(|record| self.journal.release_settlement(Some(record)));
        failure.map_or(Ok(()), Err)
    }

    fn settled_entries(&self, is_wanted: impl Fn(&UnpostedCall) -> bool) -> Vec<Arc<LedgerEntry>> {
        let state = self.state.lock();
        let wanted = state.settled.iter().filter(|unposted| is_wanted(unposted));
        wanted.map(|unposted| Arc::clone(&unposted.settled.entry)).collect()
    }

    /// Returns the ids of settled calls that are neither posted nor in the journal. They are lost
    /// when the process ends.
    pub fn unwritten(&self) -> Vec<String> {
        let entries = self.settled_entries(UnpostedCall::is_unwritten);
        entries.iter().map(|entry| entry.request_id.to_string()).collect()
    }

    /// Failures of the journal, including those that no caller hears of.
    pub fn errors(&self) -> &JournalErrors {
        self.journal.errors()
    }

    /// Notes that the journal has the hold of a call.
    pub(crate) fn admit(&self, place: CallPlace) {
        if let Some(open) = self.state.lock().open.get_mut(place) {
            open.is_admitted = true;
        }
    }

    /// Settles a call whose ticket was dropped. If it was sent to a provider, its handler panicked,
    /// and it is settled like a call whose process died.
    pub(crate) fn settle_dropped(
        &self,
        balance: &Arc<KeyBalance>,
        (place, held): (CallPlace, Arc<HoldRecord>),
        is_sent: bool,
    ) {
        let reached = {
            let state = self.state.lock();
            let open = state.open.get(place);
            open.and_then(|open| open.reached.as_deref().cloned())
        };
        let open = OpenCall { held: (*held).clone(), reached };
        let now = self.now();
        let mut entry = open.settle(now, Some(now), SettlementKnowledge::Settled);
        if !is_sent {
            entry = LedgerEntry {
                outcome: CallOutcome::Failed,
                ended_by: EndedBy::Provider,
                lane: SharedText::default(),
                attempts: 0,
                usage: Usage::default(),
                estimated: false,
                cost: Money::ZERO,
                absorbed: Money::ZERO,
                reasons: Vec::new(),
                ..entry
            };
        }
        // Nobody waits for the record of a call that failed.
        drop(self.settle(balance, (place, held), entry));
    }

    /// Settles a call and returns the entry's way to the journal.
    pub(crate) fn settle(
        &self,
        balance: &Arc<KeyBalance>,
        (place, held): (CallPlace, Arc<HoldRecord>),
        mut entry: LedgerEntry,
    ) -> JournalReceipt {
        // The operator pays for usage beyond the hold, so that the cap is never passed.
        let cost = entry.cost.max(Money::ZERO).min(held.amount);
        if cost < entry.cost {
            entry.explain(ChargeReason::BeyondHold);
        }
        entry.absorbed = entry.absorbed.saturating_add(entry.cost.saturating_sub(cost));
        entry.cost = cost;
        entry.held = Some(held.amount);
        entry.started = held.at;
        entry.ended = self.now().max(held.at);
        // If the disk fails, the entry is posted from memory, or written again later. A crash before
        // that settles the call from its last recorded progress. The writer counts the failure.
        let record = Written::Settled { entry: &entry, held: Some(&held) };
        let record = framed(&record, |record| self.journal.append_settlement(record)).ok();
        let receipt = JournalReceipt::new(&self.journal, record.as_ref());
        let mut state = self.state.lock();
        let open = state.open.remove(place);
        let receipt = receipt.alone(state.open.len() == 0);
        let shown = open.as_ref().is_some_and(|open| open.shown);
        let is_reported = open.as_ref().is_some_and(|open| open.is_reported);
        let hold_record = open.map(|open| open.record);
        let HoldRecord { amount, lease, .. } = *held;
        // The table had the other reference, so that the texts are moved.
        entry.complete(Arc::unwrap_or_clone(held));
        // An end that its caller can provoke does not pay for the next one.
        if entry.outcome == CallOutcome::Done {
            self.goodwill.refill(&entry.account_id, cost);
        }
        let settled = SettledCall { entry: Arc::new(entry), lease, shown };
        self.tallies.add(balance, &settled.entry);
        // Before the call can be posted: `KeyBalance::posted` expects the hold to be released.
        balance.give_back(amount, lease, cost, is_reported);
        let balance = Arc::clone(balance);
        state.settled.push_back(UnpostedCall { settled, balance, hold_record, record });
        receipt
    }

    fn append_hold(&self, held: &HoldRecord) -> Result<KeptRecord, JournalError> {
        framed(&Written::Held(held), |record| self.journal.append_hold(record))
    }

    fn append_unkept(&self, record: &Written<'_>) -> Option<KeptRecord> {
        framed(record, |record| self.journal.append_unkept(record))
    }

    /// Appends a settled call, without details that the receipt can miss if the reserved room is too
    /// small for them.
    fn append_within_room(&self, entry: &LedgerEntry) -> Result<KeptRecord, JournalError> {
        let append = |record: &[u8]| self.journal.append_settlement(record);
        let fits = |record: &[u8]| (record.len() <= SETTLEMENT_BYTES).then(|| append(record));
        framed(&Written::settled(entry), fits).unwrap_or_else(|| {
            let (losses, charges) = (Vec::new(), Vec::new());
            let entry = LedgerEntry { losses, charges, ..entry.clone() };
            framed(&Written::settled(&entry), append)
        })
    }
}

impl Drop for OpenCalls {
    fn drop(&mut self) {
        self.journal.end_thread();
        if let Some(thread) = self.writer_thread.get_mut().take() {
            thread.wait();
        }
    }
}
