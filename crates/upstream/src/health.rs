//! Whether a lane can be expected to answer.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

/// Failures in a row after which a lane is passed over.
const TRIPPED: u32 = 3;
/// How long it is passed over after the last failure.
const REST: Duration = Duration::from_secs(10);

/// Counts failures in a row. Time is passed in, as microseconds since any fixed moment.
#[derive(Debug, Default)]
pub struct Health {
    failures: AtomicU32,
    last: AtomicI64,
}

impl Health {
    /// It answered.
    pub fn good(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// It failed to answer.
    pub fn bad(&self, now: i64) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Whether to try it before others.
    pub fn is_good(&self, now: i64) -> bool {
        let rest = i64::try_from(REST.as_micros()).unwrap_or(i64::MAX);
        self.failures.load(Ordering::Relaxed) < TRIPPED
            || now.saturating_sub(self.last.load(Ordering::Relaxed)) > rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_fails_in_a_row_rests_and_is_tried_again() {
        let health = Health::default();
        for now in 0..3 {
            assert!(health.is_good(now));
            health.bad(now);
        }
        assert!(!health.is_good(3));
        assert!(health.is_good(20_000_000));
        health.bad(20_000_000);
        assert!(!health.is_good(20_000_001));
        health.good();
        assert!(health.is_good(20_000_002));
    }
}
