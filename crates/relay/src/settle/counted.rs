//! The ended call in the metrics.

use canon::Money;
use config::{CallEnd, CountedCall};
use ledger::CallOutcome;
use std::time::Instant;

use super::CallAccount;

impl CallAccount {
    /// Counts the call with the counters of its lane. `cost` is what the key pays.
    pub(super) fn count_call(&self, now: Instant, cost: Money) {
        let entry = &self.entry;
        let error = if entry.outcome == CallOutcome::Done {
            ""
        } else if self.error_word.is_empty() {
            entry.outcome.word()
        } else {
            self.error_word
        };
        // The operator pays what is beyond the reservation.
        let absorbed = entry.absorbed.saturating_add(entry.cost.saturating_sub(cost));
        let nanos = |amount: Money| u64::try_from(amount.as_nanos()).unwrap_or(0);
        let call = CountedCall {
            end: CallEnd { format: self.format, status: entry.status, error },
            duration: now.saturating_duration_since(self.arrived),
            first_byte: entry.first_byte_us.map(|wait| wait.to_duration()),
            usage: &entry.usage,
            cost: nanos(cost),
            absorbed: nanos(absorbed),
            retries: entry.attempts.saturating_sub(1),
        };
        self.engine.metrics.record_call(&self.lane_calls, &call, &entry.failed);
    }
}
