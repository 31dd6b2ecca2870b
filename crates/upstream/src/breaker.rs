//! Circuit breaker: it opens after failures, admits one probe at a time, and closes after a
//! success.

use canon::{AtomicMicros, Micros};
use std::sync::atomic::{AtomicU32, Ordering};

/// Time after which another call may probe in place of one that has not ended.
const PROBE_TIMEOUT: Micros = Micros::from_secs(60);

/// Earliest time that is stored. Zero means that there is none.
const EARLIEST: Micros = Micros::new(1);

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Calls are admitted.
    Closed,
    /// Calls are refused for this time.
    Open(Micros),
    /// One call may probe.
    HalfOpen,
    /// A call is probing.
    Probing,
}

/// A circuit breaker. Time is a parameter, since any fixed moment.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// End of the open state; zero while closed.
    open_until: AtomicMicros,
    /// Time of the last trip.
    tripped_at: AtomicMicros,
    /// Trips in a row.
    trips: AtomicU32,
    /// Start of the running probe; zero if there is none.
    probe_started_at: AtomicMicros,
}

/// Duration of the open state, doubled with every trip in a row up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) initial: Micros,
    pub(crate) max: Micros,
}

impl Backoff {
    pub(crate) fn delay(self, trips: u32) -> Micros {
        let doublings = if trips > 16 { 16 } else { trips };
        let backoff = self.initial * (1 << doublings);
        backoff.min(self.max)
    }
}

impl Breaker {
    pub(crate) fn state(&self, now: Micros) -> BreakerState {
        let until = self.open_until.load();
        if until == Micros::ZERO {
            BreakerState::Closed
        } else if now < until {
            BreakerState::Open(until - now)
        } else if self.is_probing(now) {
            BreakerState::Probing
        } else {
            BreakerState::HalfOpen
        }
    }

    fn is_probing(&self, now: Micros) -> bool {
        let started_at = self.probe_started_at.load();
        started_at != Micros::ZERO && now - started_at < PROBE_TIMEOUT
    }

    /// Starts the probe if the breaker is half open and no probe runs.
    pub(crate) fn begin_probe(&self, now: Micros) -> bool {
        let started_at = self.probe_started_at.load();
        self.state(now) == BreakerState::HalfOpen
            && self.probe_started_at.replace_if(started_at, now.max(EARLIEST))
    }

    /// Ends the probe without a result.
    pub(crate) fn end_probe(&self) {
        self.probe_started_at.store(Micros::ZERO);
    }

    /// Opens the breaker for at least `least`. Returns true if it was closed.
    pub(crate) fn trip(&self, now: Micros, backoff: Backoff, least: Micros) -> bool {
        let trips = self.trips.fetch_add(1, Ordering::Relaxed);
        let until = (now + backoff.delay(trips).max(least)).max(EARLIEST);
        self.tripped_at.store(now);
        self.probe_started_at.store(Micros::ZERO);
        self.open_until.swap(until) == Micros::ZERO
    }

    /// Records a success of a call that began at this time. A call from before the last trip proves
    /// nothing.
    pub(crate) fn record_success(&self, began: Micros) {
        if self.open_until.load() != Micros::ZERO && began >= self.tripped_at.load() {
            self.trips.store(0, Ordering::Relaxed);
            self.probe_started_at.store(Micros::ZERO);
            self.open_until.store(Micros::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { initial: Micros::new(500), max: Micros::new(1_500) };

    const fn at(micros: i64) -> Micros {
        Micros::new(micros)
    }

    #[test]
    fn backoff_doubles_and_one_call_probes() {
        let breaker = Breaker::default();
        assert_eq!(breaker.state(at(1)), BreakerState::Closed);
        assert!(breaker.trip(at(10), BACKOFF, Micros::ZERO), "it was closed");
        assert_eq!(breaker.state(at(10)), BreakerState::Open(at(500)));
        assert!(!breaker.begin_probe(at(509)), "not while open");
        assert_eq!(breaker.state(at(510)), BreakerState::HalfOpen);
        assert!(breaker.begin_probe(at(510)) && !breaker.begin_probe(at(511)));
        assert_eq!(breaker.state(at(511)), BreakerState::Probing);
        assert!(!breaker.trip(at(520), BACKOFF, Micros::ZERO));
        assert_eq!(breaker.state(at(520)), BreakerState::Open(at(1_000)));
        breaker.trip(at(1_520), BACKOFF, Micros::ZERO);
        breaker.trip(at(3_020), BACKOFF, Micros::ZERO);
        assert_eq!(
            breaker.state(at(3_020)),
            BreakerState::Open(at(1_500)),
            "the backoff has a maximum"
        );
        breaker.record_success(at(3_019));
        assert_eq!(
            breaker.state(at(3_020)),
            BreakerState::Open(at(1_500)),
            "begun before the trip"
        );
        breaker.record_success(at(3_021));
        assert_eq!(breaker.state(at(3_021)), BreakerState::Closed);
        breaker.trip(at(4_000), BACKOFF, Micros::ZERO);
        assert_eq!(
            breaker.state(at(4_000)),
            BreakerState::Open(at(500)),
            "a success resets the backoff"
        );
    }

    #[test]
    fn endless_probe_does_not_block_the_next() {
        let breaker = Breaker::default();
        breaker.trip(at(1), BACKOFF, Micros::ZERO);
        assert!(breaker.begin_probe(at(600)));
        assert_eq!(breaker.state(at(600) + PROBE_TIMEOUT), BreakerState::HalfOpen);
        assert!(breaker.begin_probe(at(600) + PROBE_TIMEOUT));
    }

    proptest! {
        /// The open state ends within its maximum, and probes run one at a time.
        #[test]
        fn open_state_ends_and_probes_are_single(steps in prop::collection::vec((0..4u8, 0..900i64), 1..200)) {
            let breaker = Breaker::default();
            let (mut now, mut probing) = (at(1), false);
            for (what, pass) in steps {
                now += at(pass);
                match what {
                    0 => { breaker.trip(now, BACKOFF, Micros::ZERO); probing = false; }
                    1 => { breaker.record_success(now); if breaker.state(now) == BreakerState::Closed { probing = false; } }
                    2 => if breaker.begin_probe(now) { prop_assert!(!probing); probing = true; },
                    _ => { breaker.end_probe(); probing = false; }
                }
                if let BreakerState::Open(left) = breaker.state(now) {
                    prop_assert!(left > Micros::ZERO && left <= BACKOFF.max);
                    prop_assert!(!matches!(breaker.state(now + left), BreakerState::Open(_)));
                }
            }
        }
    }
}
