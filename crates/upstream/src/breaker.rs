//! Circuit breaker: it opens after failures, admits one probe at a time, and closes after a
//! success.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Time after which another call may probe in place of one that has not ended.
const PROBE_TIMEOUT_MICROS: i64 = 60_000_000;

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Calls are admitted.
    Closed,
    /// Calls are refused for this many more microseconds.
    Open(i64),
    /// One call may probe.
    HalfOpen,
    /// A call is probing.
    Probing,
}

/// A circuit breaker. Time is a parameter, in microseconds since any fixed moment.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// End of the open state; zero while closed.
    open_until: AtomicI64,
    /// Time of the last trip.
    tripped_at: AtomicI64,
    /// Trips in a row.
    trips: AtomicU32,
    /// Start of the running probe; zero if there is none.
    probe_started_at: AtomicI64,
}

/// Duration of the open state, doubled with every trip in a row up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) initial_micros: i64,
    pub(crate) max_micros: i64,
}

impl Backoff {
    pub(crate) const fn delay(self, trips: u32) -> i64 {
        let doublings = if trips > 16 { 16 } else { trips };
        let backoff = self.initial_micros.saturating_mul(1 << doublings);
        if backoff < self.max_micros { backoff } else { self.max_micros }
    }
}

impl Breaker {
    pub(crate) fn state(&self, now: i64) -> BreakerState {
        let until = self.open_until.load(Ordering::Relaxed);
        if until == 0 {
            BreakerState::Closed
        } else if now < until {
            BreakerState::Open(until - now)
        } else if self.is_probing(now) {
            BreakerState::Probing
        } else {
            BreakerState::HalfOpen
        }
    }

    fn is_probing(&self, now: i64) -> bool {
        let started_at = self.probe_started_at.load(Ordering::Relaxed);
        started_at != 0 && now.saturating_sub(started_at) < PROBE_TIMEOUT_MICROS
    }

    /// Starts the probe if the breaker is half open and no probe runs.
    pub(crate) fn begin_probe(&self, now: i64) -> bool {
        let started_at = self.probe_started_at.load(Ordering::Relaxed);
        self.state(now) == BreakerState::HalfOpen
            && self
                .probe_started_at
                .compare_exchange(started_at, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Ends the probe without a result.
    pub(crate) fn end_probe(&self) {
        self.probe_started_at.store(0, Ordering::Relaxed);
    }

    /// Opens the breaker for at least `least` microseconds. Returns true if it was closed.
    pub(crate) fn trip(&self, now: i64, backoff: Backoff, least: i64) -> bool {
        let trips = self.trips.fetch_add(1, Ordering::Relaxed);
        let until = now.saturating_add(backoff.delay(trips).max(least)).max(1);
        self.tripped_at.store(now, Ordering::Relaxed);
        self.probe_started_at.store(0, Ordering::Relaxed);
        self.open_until.swap(until, Ordering::Relaxed) == 0
    }

    /// Records a success of a call that began at this time. A call from before the last trip proves
    /// nothing.
    pub(crate) fn record_success(&self, began: i64) {
        if self.open_until.load(Ordering::Relaxed) != 0
            && began >= self.tripped_at.load(Ordering::Relaxed)
        {
            self.trips.store(0, Ordering::Relaxed);
            self.probe_started_at.store(0, Ordering::Relaxed);
            self.open_until.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { initial_micros: 500, max_micros: 1_500 };

    #[test]
    fn backoff_doubles_and_one_call_probes() {
        let breaker = Breaker::default();
        assert_eq!(breaker.state(1), BreakerState::Closed);
        assert!(breaker.trip(10, BACKOFF, 0), "it was closed");
        assert_eq!(breaker.state(10), BreakerState::Open(500));
        assert!(!breaker.begin_probe(509), "not while open");
        assert_eq!(breaker.state(510), BreakerState::HalfOpen);
        assert!(breaker.begin_probe(510) && !breaker.begin_probe(511));
        assert_eq!(breaker.state(511), BreakerState::Probing);
        assert!(!breaker.trip(520, BACKOFF, 0));
        assert_eq!(breaker.state(520), BreakerState::Open(1_000));
        breaker.trip(1_520, BACKOFF, 0);
        breaker.trip(3_020, BACKOFF, 0);
        assert_eq!(breaker.state(3_020), BreakerState::Open(1_500), "the backoff has a maximum");
        breaker.record_success(3_019);
        assert_eq!(breaker.state(3_020), BreakerState::Open(1_500), "begun before the trip");
        breaker.record_success(3_021);
        assert_eq!(breaker.state(3_021), BreakerState::Closed);
        breaker.trip(4_000, BACKOFF, 0);
        assert_eq!(breaker.state(4_000), BreakerState::Open(500), "a success resets the backoff");
    }

    #[test]
    fn endless_probe_does_not_block_the_next() {
        let breaker = Breaker::default();
        breaker.trip(1, BACKOFF, 0);
        assert!(breaker.begin_probe(600));
        assert_eq!(breaker.state(600 + PROBE_TIMEOUT_MICROS), BreakerState::HalfOpen);
        assert!(breaker.begin_probe(600 + PROBE_TIMEOUT_MICROS));
    }

    proptest! {
        /// The open state ends within its maximum, and probes run one at a time.
        #[test]
        fn open_state_ends_and_probes_are_single(steps in prop::collection::vec((0..4u8, 0..900i64), 1..200)) {
            let breaker = Breaker::default();
            let (mut now, mut probing) = (1, false);
            for (what, pass) in steps {
                now += pass;
                match what {
                    0 => { breaker.trip(now, BACKOFF, 0); probing = false; }
                    1 => { breaker.record_success(now); if breaker.state(now) == BreakerState::Closed { probing = false; } }
                    2 => if breaker.begin_probe(now) { prop_assert!(!probing); probing = true; },
                    _ => { breaker.end_probe(); probing = false; }
                }
                if let BreakerState::Open(left) = breaker.state(now) {
                    prop_assert!(left > 0 && left <= BACKOFF.max_micros);
                    prop_assert!(!matches!(breaker.state(now + left), BreakerState::Open(_)));
                }
            }
        }
    }
}
