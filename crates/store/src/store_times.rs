//! Durations and failures of accesses to the database, for metrics.
//!
//! They belong to the process and not to a [`crate::Store`], because the macros of `db.rs` see only its
//! connections. A gateway opens one database.

use canon::TimeHistogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Durations by kind of access, the wait for a connection included, and failures.
#[derive(Debug)]
pub struct StoreTimes {
    /// Reads outside a transaction, and snapshots.
    pub read: TimeHistogram,
    /// Single statements that write.
    pub write: TimeHistogram,
    /// Transactions.
    pub transaction: TimeHistogram,
    errors: AtomicU64,
    unreachable: AtomicU64,
}

static TIMES: StoreTimes = StoreTimes {
    read: TimeHistogram::for_storage(),
    write: TimeHistogram::for_storage(),
    transaction: TimeHistogram::for_storage(),
    errors: AtomicU64::new(0),
    unreachable: AtomicU64::new(0),
};

impl StoreTimes {
    /// Returns the durations and failures of this process.
    pub fn of_process() -> &'static Self {
        &TIMES
    }

    /// Returns the number of failures: statements that the database refused, and those that did not
    /// reach it.
    pub fn failures(&self) -> (u64, u64) {
        (self.errors.load(Ordering::Relaxed), self.unreachable.load(Ordering::Relaxed))
    }

    pub(crate) fn note_failure(&self, is_unreachable: bool) {
        let count = if is_unreachable { &self.unreachable } else { &self.errors };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Measures an access until it is dropped.
pub(crate) struct StoreTimer {
    begun: Instant,
    times: &'static TimeHistogram,
}

impl StoreTimer {
    pub(crate) fn read() -> Self {
        Self { begun: Instant::now(), times: &TIMES.read }
    }

    pub(crate) fn write() -> Self {
        Self { begun: Instant::now(), times: &TIMES.write }
    }

    pub(crate) fn transaction() -> Self {
        Self { begun: Instant::now(), times: &TIMES.transaction }
    }
}

impl Drop for StoreTimer {
    fn drop(&mut self) {
        self.times.record(self.begun.elapsed());
    }
}
