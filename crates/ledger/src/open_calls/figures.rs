//! Figures of the open calls and of the journal, for metrics.

use canon::Money;

use super::{OpenCalls, RunningCall};
use crate::{JournalTimes, KeyUse};

impl OpenCalls {
    /// Returns the number of running calls and the money that is reserved for them.
    pub fn held(&self) -> (usize, Money) {
        let state = self.state.lock();
        let sum = |sum: Money, open: &RunningCall| sum.saturating_add(open.held.amount);
        (state.open.len(), state.open.values().fold(Money::ZERO, sum))
    }

    /// Returns the settled calls of each key since start.
    pub fn key_uses(&self) -> Vec<KeyUse> {
        self.tallies.read()
    }

    /// Durations of the writes and syncs of the journal.
    pub fn journal_times(&self) -> &JournalTimes {
        self.journal.times()
    }
}
