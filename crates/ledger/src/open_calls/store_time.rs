//! Time of calls: that of the lease store, so that all nodes agree on the day of a budget.

use canon::Micros;
use std::sync::atomic::Ordering;

use super::OpenCalls;

/// Difference of two clocks that is taken for the duration of a message.
const USUAL_DIFFERENCE: Micros = Micros::from_secs(1);

impl OpenCalls {
    /// Returns the time, by the lease store's clock as far as it is known. Budgets are counted by its days.
    pub(crate) fn now(&self) -> Micros {
        self.clock.now() + Micros::new(self.clock_error.load(Ordering::Relaxed))
    }

    /// Compares the clock of the lease store with that of this node.
    pub(crate) fn note_store_time(&self, store: Micros) {
        let error = store - self.clock.now();
        let is_small = error.get().unsigned_abs() < USUAL_DIFFERENCE.get().unsigned_abs();
        self.clock_error.store(if is_small { 0 } else { error.get() }, Ordering::Relaxed);
    }
}
