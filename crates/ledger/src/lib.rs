//! Money of running calls: leases, holds, the journal, settlement.
//!
//! Deterministic: the clock, the disk and the lease store (shared by all nodes) are passed in.
//! Nothing here knows HTTP, wire formats or SQL, so a failing seed reproduces. Start reading at
//! [`LeaseClient::hold`].

mod budget;
mod call_records;
mod clock;
#[cfg(test)]
mod deferred_writes;
mod disk;
mod entry;
mod hold_ticket;
mod journal;
mod journal_inspection;
mod journal_receipt;
mod journal_writer;
mod key_balance;
mod lease_client;
mod lease_store;
mod open_calls;
mod record_encoding;
mod segment_table;
mod write_batch;

pub use budget::{Budget, BudgetPeriod, BudgetShare, BudgetStatus, OverBudget, day_of};
pub use call_records::{HoldRecord, OpenCall, ProgressRecord};
pub use clock::{Clock, SystemClock, TestClock};
pub use disk::{Disk, FileDisk, MemoryDisk, Segment};
pub use entry::{
    CallOutcome, ChargeReason, EndedBy, FailedAttempt, LedgerEntry, SettlementKnowledge,
};
pub use hold_ticket::{CallProgress, HoldTicket, PendingHold};
pub use journal::{JournalError, JournalErrors, JournalRecord, RecoveredCalls};
pub use journal_inspection::JournalInspection;
pub use journal_receipt::JournalReceipt;
pub use key_balance::{KeyBalance, LeaseUse, SpendStatus};
pub use lease_client::{LeaseClient, MAX_BATCH_CALLS, TryHold};
pub use lease_store::{
    ALIVE_WINDOW, ClosedCounts, HeartbeatReply, HeartbeatReport, KeyStatus, LEASE_DURATION,
    LEASE_GRACE, LEASE_MARGIN, LeaseGrant, LeaseRequest, LeaseReturn, LeaseState, LeaseStore,
    LeaseStoreError, LeaseToken, Node, Posting, RECALL_WINDOW, SettledCall, UnreportedSpend,
    lease_slice,
};
pub use open_calls::{HoldError, HoldRefusal, OpenCalls, OpenedJournal, PostingBatch};
