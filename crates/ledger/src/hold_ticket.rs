//! The reservation of one call, from its hold to its settlement.

use canon::{Money, Usage};
use std::sync::Arc;

use crate::open_calls::CallPlace;
use crate::{
    HoldRecord, JournalError, JournalReceipt, KeyBalance, LaterAttempt, LeaseToken, LedgerEntry,
    OpenCalls,
};

/// Reserved money whose hold is on its way to the journal. Dropping it returns the money.
#[must_use = "the call may begin when the journal has its hold"]
pub struct PendingHold {
    book: Arc<OpenCalls>,
    balance: Arc<KeyBalance>,
    place: CallPlace,
    held: Option<Arc<HoldRecord>>,
    receipt: JournalReceipt,
}

impl PendingHold {
    pub(crate) fn new(
        book: Arc<OpenCalls>,
        balance: Arc<KeyBalance>,
        (place, held): (CallPlace, Arc<HoldRecord>),
        receipt: JournalReceipt,
    ) -> Self {
        Self { book, balance, place, held: Some(held), receipt }
    }

    /// Waits until the journal has the hold.
    pub async fn written(mut self) -> Result<HoldTicket, JournalError> {
        (&mut self.receipt).await?;
        let (held, place) = (self.held.take(), self.place);
        self.book.admit(place);
        let (book, balance) = (Arc::clone(&self.book), Arc::clone(&self.balance));
        Ok(HoldTicket { book, balance, place, held, is_sent: false })
    }
}

impl std::fmt::Debug for PendingHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let request_id = self.held.as_ref().map(|held| &held.request_id);
        f.debug_tuple("PendingHold").field(&request_id).finish()
    }
}

impl Drop for PendingHold {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.book.abandon(&self.balance, self.place, &held);
        }
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

/// Proof that a call was admitted. It is settled exactly once: explicitly, or on drop.
pub struct HoldTicket {
    book: Arc<OpenCalls>,
    balance: Arc<KeyBalance>,
    place: CallPlace,
    held: Option<Arc<HoldRecord>>,
    /// True once a provider may have the request.
    is_sent: bool,
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

    /// The hold; `None` once it is settled.
    pub fn record(&self) -> Option<&HoldRecord> {
        self.held.as_deref()
    }

    /// The key that pays.
    pub fn key_id(&self) -> &str {
        self.held.as_ref().map_or("", |held| &held.key_id)
    }

    /// The lease that pays; `None` for a key without a cap.
    pub fn lease(&self) -> Option<LeaseToken> {
        self.held.as_ref().and_then(|held| held.lease)
    }

    /// Returns true if the hold names this lane as the first one.
    pub fn is_first_lane(&self, lane: &str) -> bool {
        self.held.as_ref().is_some_and(|held| held.lane == lane)
    }

    /// Notes that the request goes to the first lane now, which the hold names.
    pub fn note_sent(&mut self) {
        self.is_sent = true;
    }

    /// Notes that the request goes to a lane now after another attempt, or to another lane than the hold
    /// names. The first byte must wait for the receipt. Without estimates those of the hold apply.
    pub fn note_later_attempt(&mut self, lane: &str, mut attempt: LaterAttempt) -> JournalReceipt {
        self.is_sent = true;
        let Some(held) = &self.held else { return JournalReceipt::default() };
        if (attempt.start_cost, attempt.cost_per_second) == (Money::ZERO, Money::ZERO) {
            attempt.start_cost = held.start_cost;
            attempt.cost_per_second = held.cost_per_second;
        }
        self.book.begin_later_attempt(self.place, held, lane, attempt)
    }

    /// Uses up goodwill of the account, which has `most` at the start. Returns false, and uses nothing, if
    /// less than the amount is left.
    pub fn use_goodwill(&self, amount: Money, most: Money) -> bool {
        let account_id = self.held.as_ref().map_or("", |held| &held.account_id);
        self.book.goodwill.take(account_id, amount, most)
    }

    /// Records the usage so far, so that the call is charged for it after a crash.
    pub fn progress(&self, progress: CallProgress) {
        let Some(held) = &self.held else { return };
        self.book.progress(self.place, held, progress);
    }

    /// Settles the call: its cost is spent, the rest of the hold is released. A caller that must not
    /// be served for free waits for the receipt before the last byte.
    pub fn settle(mut self, entry: LedgerEntry) -> JournalReceipt {
        let Some(held) = self.held.take() else { return JournalReceipt::default() };
        self.book.settle(&self.balance, (self.place, held), entry)
    }
}

impl Drop for HoldTicket {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.book.settle_dropped(&self.balance, (self.place, held), self.is_sent);
    }
}
