//! Money of running calls: leases, holds, the journal, settlement.
//!
//! Deterministic: the clock, the disk and the lease store (shared by all nodes) are passed in.
//! Nothing here knows HTTP, wire formats or SQL, so a failing seed reproduces. Start reading at
//! [`LeaseClient::hold`].

mod budget;
mod call_records;
mod call_tags;
mod clock;
#[cfg(test)]
mod deferred_writes;
mod disk;
mod entry;
mod goodwill;
mod hold_ticket;
mod journal;
mod journal_inspection;
mod journal_receipt;
mod journal_writer;
mod key_balance;
mod key_tallies;
mod lease_client;
mod lease_need;
mod lease_store;
mod lease_totals;
mod memory_disk;
mod money_bounds;
mod offline_service;
mod open_calls;
mod record_encoding;
mod segment_manifest;
mod segment_scan;
mod segment_table;
mod spend_terms;
mod store_rollback;
mod write_batch;
mod write_queue;

pub use budget::{BudgetPeriod, BudgetStatus, BudgetTerms, day_of};
pub use call_records::{HoldRecord, LaterAttempt, OpenCall, ProgressRecord};
pub use call_tags::CallTags;
pub use clock::{Clock, SystemClock, TestClock};
pub use disk::{Disk, FileDisk, ManifestFile, Segment, accept_damage, damaged_files};
pub use entry::{
    CallError, CallOutcome, ChargeReason, EndedBy, FailedAttempt, LedgerEntry, SettlementKnowledge,
};
pub use hold_ticket::{CallProgress, HoldTicket, PendingHold};
pub use journal::{
    JournalError, JournalErrors, JournalRecord, JournalTimes, RecoveredCalls, SegmentDamage,
};
pub use journal_inspection::{JournalInspection, RetiredSegments};
pub use journal_receipt::JournalReceipt;
pub use key_balance::{KeyBalance, LeaseUse};
pub use key_tallies::{KeyUse, MAX_COUNTED_KEYS};
pub use lease_client::{LeaseClient, MAX_BATCH_CALLS, TryHold};
pub use lease_need::LeaseFailure;
pub use lease_store::{
    ALIVE_WINDOW, ClosedCounts, HeartbeatReply, HeartbeatReport, KeyStatus, LEASE_DURATION,
    LEASE_GRACE, LEASE_MARGIN, LeaseGrant, LeaseRequest, LeaseReturn, LeaseState, LeaseStore,
    LeaseStoreError, LeaseToken, MarkRaise, Node, PostedBatch, PostedMark, Posting, RECALL_WINDOW,
    SettledCall, StoreRollback, UnreportedSpend, lease_slice,
};
pub use lease_totals::LeaseTotals;
pub use memory_disk::MemoryDisk;
pub use money_bounds::{BoundState, HoldShortage, MoneyBound, MoneyBounds, UnleasedCost};
pub use offline_service::OfflineService;
pub use open_calls::{HoldError, HoldRefusal, OpenCalls, OpenedJournal, PostingBatch};
pub use segment_scan::DamagedSpan;
pub use spend_terms::{KeySpending, SpendStatus, SpendTerms};
