//! Money of running calls: leases, holds, the journal, settlement.
//!
//! Deterministic: the clock, the disk and the lease store (shared by all nodes) are passed in.
//! Nothing here knows HTTP, wire formats or SQL, so a failing seed reproduces. Start reading at
//! [`Teller::hold`].

mod budget;
mod clock;
mod disk;
mod entry;
mod journal;
mod journal_writer;
mod key_balance;
mod lease_client;
mod lease_store;
mod open_calls;

pub use budget::{Budget, BudgetStanding, OverBudget, Period, Share, day_of};
pub use clock::{Clock, Micros, SystemClock, TestClock};
pub use disk::{Disk, FileDisk, MemoryDisk, Segment};
pub use entry::{EndedBy, Entry, Outcome, Try};
pub use journal::{
    Held, JournalError, JournalErrors, JournalRecord, OpenCall, Reached, RecoveredCalls,
};
pub use key_balance::{LeaseUse, Purse, Standing};
pub use lease_client::{BATCH, Teller, TryHold};
pub use lease_store::{
    ALIVE_WINDOW, BankError, ClosedCounts, HeartbeatReply, HeartbeatReport, KeyStatus, LEASE,
    LEASE_GRACE, LEASE_MARGIN, LeaseGrant, LeaseRequest, LeaseReturn, LeaseState, LeaseStore,
    LeaseToken, Node, Posting, RECALL_WINDOW, SettledCall, UnreportedSpend, lease_slice,
};
pub use open_calls::{Book, HoldError, OpenedJournal, PostingBatch, Progress, Refused, Ticket};
