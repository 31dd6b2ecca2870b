//! Waiting for a record of the journal.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::JournalError;
use crate::journal_writer::{JournalWriter, KeptRecord};

/// Waits until the journal has a record, or cannot have it for the time being.
///
/// The first of the tasks that wait for a batch lets the other tasks of the thread run, because they may
/// append too. At its second poll it wakes the writer thread, which then writes all their records at once.
/// The other tasks are polled again when that is done. The only running call of a node wakes the thread at
/// once.
#[derive(Default)]
pub struct JournalReceipt {
    /// `None` if nothing is to be waited for.
    record: Option<(Arc<JournalWriter>, KeptRecord)>,
    /// Place of the task among those that wait; `None` before the first poll.
    place: Option<usize>,
    /// True if no other call runs that may append.
    is_alone: bool,
    /// True once the thread is woken, or if that is the task of another one.
    has_notified: bool,
}

impl JournalReceipt {
    /// Creates the receipt of a record; `None` if the journal did not take it.
    pub(crate) fn new(journal: &Arc<JournalWriter>, record: Option<&KeptRecord>) -> Self {
        let record = record.map(|record| (Arc::clone(journal), record.clone()));
        Self { record, place: None, is_alone: false, has_notified: false }
    }

    /// Sets whether no other call runs that may append.
    pub(crate) const fn alone(mut self, is_alone: bool) -> Self {
        self.is_alone = is_alone;
        self
    }
}

impl Future for JournalReceipt {
    type Output = Result<(), JournalError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { record, place, is_alone, has_notified } = self.get_mut();
        let Some((journal, record)) = record else { return Poll::Ready(Ok(())) };
        let is_first = place.is_none();
        // Registered before the check, so that a hang in between is not missed.
        if let Poll::Ready(ended) = record.poll_end(place, cx) {
            return Poll::Ready(ended);
        }
        if let Err(e) = journal.check_stall() {
            return Poll::Ready(Err(e));
        }
        if *place != Some(0) {
            *has_notified = true;
        } else if is_first && !*is_alone {
            cx.waker().wake_by_ref();
        } else if !std::mem::replace(has_notified, true) {
            journal.wake_thread();
        }
        Poll::Pending
    }
}

impl Drop for JournalReceipt {
    fn drop(&mut self) {
        // Nobody waits for the record, but it must be written soon.
        if let Some((journal, record)) = &self.record
            && !self.has_notified
            && record.is_waiting()
        {
            journal.wake_thread();
        }
    }
}
