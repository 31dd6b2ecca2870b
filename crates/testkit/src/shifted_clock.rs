//! A clock whose time of day a test sets wrong.

use canon::{AtomicMicros, Micros};
use ledger::{Clock, SystemClock};

/// The clock of the machine, with another time of day.
#[derive(Debug, Default)]
pub struct ShiftedClock {
    offset: AtomicMicros,
}

impl ShiftedClock {
    /// Changes the time of day, as an administrator may. No time passes.
    pub fn step(&self, time: Micros) {
        self.offset.add(time);
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> Micros {
        SystemClock.now() + self.offset.load()
    }

    fn steady(&self) -> Micros {
        SystemClock.steady()
    }
}
