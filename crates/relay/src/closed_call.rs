//! The end of a call: its cost, and the way of its entry to the journal.

use canon::Money;
use ledger::JournalReceipt;

/// A settled call.
#[derive(Default)]
pub(super) struct ClosedCall {
    pub(super) cost: Money,
    /// The way of the entry to the journal.
    pub(super) receipt: Option<JournalReceipt>,
}

impl ClosedCall {
    /// Waits until the journal has the entry, so that a crash cannot lose the cost of a reply that the
    /// caller has. A failure is counted by the journal, which writes the entry later.
    pub(super) async fn written(self) -> Money {
        if let Some(receipt) = self.receipt {
            let _ = receipt.await;
        }
        self.cost
    }
}
