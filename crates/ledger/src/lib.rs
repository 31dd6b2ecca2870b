//! Money of running calls: holds, the journal, settlement.
//!
//! Deterministic: the clock and the disk are passed in, and the bank (the store that keeps
//! accounts) is fed by whoever owns this crate's [`Book`]: it takes batches out, posts them and
//! reports back. Nothing here knows HTTP, wire formats or SQL, so a failing seed reproduces.

mod book;
mod budget;
mod clock;
mod disk;
mod entry;
mod journal;

pub use book::{Batch, Book, Progress, Purse, Refused, Standing, Ticket};
pub use budget::{Budget, BudgetStanding, Period, day_of};
pub use clock::{Clock, Micros, SystemClock, TestClock};
pub use disk::{Disk, FileDisk, MemoryDisk};
pub use entry::{Entry, Outcome, Try};
pub use journal::{Held, JournalError, Reached, Record, Recovered};
