//! Money of running calls: leases, holds, the journal, settlement.
//!
//! Deterministic: the clock, the disk and the bank (the store that keeps accounts, shared by all
//! nodes) are passed in. Nothing here knows HTTP, wire formats or SQL, so a failing seed
//! reproduces. Start reading at [`Teller::hold`].

mod bank;
mod book;
mod budget;
mod clock;
mod disk;
mod entry;
mod journal;
mod purse;
mod teller;

pub use bank::{
    ALIVE, Ask, Bank, BankError, Closed, Exposed, GRACE, GiveBack, Granted, KeyStanding, LEASE,
    LeaseNow, MARGIN, Node, Posting, Report, Settled, Tidings, Token, WANTED, slice,
};
pub use book::{Batch, Book, NotHeld, Opened, Progress, Refused, Ticket};
pub use budget::{Budget, BudgetStanding, OverBudget, Period, Share, day_of};
pub use clock::{Clock, Micros, SystemClock, TestClock};
pub use disk::{Disk, FileDisk, MemoryDisk};
pub use entry::{EndedBy, Entry, Outcome, Try};
pub use journal::{Held, JournalError, JournalErrors, OpenCall, Reached, Record, Recovered};
pub use purse::{Purse, Standing};
pub use teller::{BATCH, Teller};
