//! The end of a process whose calls are all stored.

use super::OpenCalls;

impl OpenCalls {
    /// Retires the journal at the end of the process if the store has every call. Otherwise the next
    /// process would post them all again, only to find that they are recorded. Blocks on the disk.
    pub fn retire_journal(&self) {
        if self.running_count() == 0 && self.unposted_count() == 0 {
            self.journal.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, HoldRecord, KeyBalance, MemoryDisk, SystemClock};
    use canon::Money;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_journal_is_retired_when_every_call_is_stored() {
        let disk = Arc::new(MemoryDisk::default());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let open = || OpenCalls::open(Arc::clone(&clock), Arc::clone(&disk) as _).unwrap();
        let book = open().book;
        let balance = KeyBalance::new("k", None, Money::ZERO);
        let held = Arc::new(HoldRecord { request_id: "r".into(), ..HoldRecord::default() });
        let pending = book.hold(&balance, held, Money::ZERO, Money::ZERO).ok().unwrap();
        let mut ticket = pending.written().await.unwrap();
        ticket.note_sent();
        book.retire_journal();
        drop(ticket);
        book.retire_journal();
        assert_eq!(open().found.settled.len(), 1, "a call that is not stored stays in the journal");
        let batch = book.take_batch(10);
        assert_eq!(batch.settled().len(), 1);
        book.posted(batch);
        book.retire_journal();
        assert!(open().found.settled.is_empty(), "the next process has nothing to post");
    }
}
