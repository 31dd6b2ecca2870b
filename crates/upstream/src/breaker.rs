//! Rests what failed, lets one call at a time try it again, and forgets once it answers.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// How long a trial may run before another call may try in its place.
const PROBE_TIMEOUT_MICROS: i64 = 60_000_000;

/// How a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Calls go through.
    Closed,
    /// Passed over for that many more microseconds.
    Open(i64),
    /// Its rest is over: one call may try.
    HalfOpen,
    /// Its rest is over and a call is trying.
    Probing,
}

/// A breaker. Time is passed in, as microseconds since any fixed moment.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// When its rest is over; zero when calls go through.
    open_until: AtomicI64,
    /// When it was tripped last.
    tripped_at: AtomicI64,
    /// How often in a row it was tripped.
    trips: AtomicU32,
    /// When the running trial began; zero when there is none.
    probe_started_at: AtomicI64,
}

/// How long a rest takes: it doubles with every trip in a row, up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) initial_micros: i64,
    pub(crate) max_micros: i64,
}

impl Backoff {
    pub(crate) const fn delay(self, trips: u32) -> i64 {
        let doublings = if trips > 16 { 16 } else { trips };
        let rest = self.initial_micros.saturating_mul(1 << doublings);
        if rest < self.max_micros { rest } else { self.max_micros }
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
        let trial = self.probe_started_at.load(Ordering::Relaxed);
        trial != 0 && now.saturating_sub(trial) < PROBE_TIMEOUT_MICROS
    }

    /// Takes the one trial there is, if its rest is over and nobody else has it.
    pub(crate) fn begin_probe(&self, now: i64) -> bool {
        let trial = self.probe_started_at.load(Ordering::Relaxed);
        self.state(now) == BreakerState::HalfOpen
            && self
                .probe_started_at
                .compare_exchange(trial, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Gives the trial back without a verdict.
    pub(crate) fn end_probe(&self) {
        self.probe_started_at.store(0, Ordering::Relaxed);
    }

    /// Begins a rest of at least that long. True when calls went through until now.
    pub(crate) fn trip(&self, now: i64, rest: Backoff, least: i64) -> bool {
        let trips = self.trips.fetch_add(1, Ordering::Relaxed);
        let until = now.saturating_add(rest.delay(trips).max(least)).max(1);
        self.tripped_at.store(now, Ordering::Relaxed);
        self.probe_started_at.store(0, Ordering::Relaxed);
        self.open_until.swap(until, Ordering::Relaxed) == 0
    }

    /// A call that began then was answered. What began before the last trip proves nothing.
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

    const REST: Backoff = Backoff { initial_micros: 500, max_micros: 1_500 };

    #[test]
    fn it_rests_longer_each_time_and_one_call_tries() {
        let breaker = Breaker::default();
        assert_eq!(breaker.state(1), BreakerState::Closed);
        assert!(breaker.trip(10, REST, 0), "it was closed");
        assert_eq!(breaker.state(10), BreakerState::Open(500));
        assert!(!breaker.begin_probe(509), "not before its rest is over");
        assert_eq!(breaker.state(510), BreakerState::HalfOpen);
        assert!(breaker.begin_probe(510) && !breaker.begin_probe(511));
        assert_eq!(breaker.state(511), BreakerState::Probing);
        assert!(!breaker.trip(520, REST, 0));
        assert_eq!(breaker.state(520), BreakerState::Open(1_000));
        breaker.trip(1_520, REST, 0);
        breaker.trip(3_020, REST, 0);
        assert_eq!(breaker.state(3_020), BreakerState::Open(1_500), "there is a longest rest");
        breaker.record_success(3_019);
        assert_eq!(breaker.state(3_020), BreakerState::Open(1_500), "begun before the trip");
        breaker.record_success(3_021);
        assert_eq!(breaker.state(3_021), BreakerState::Closed);
        breaker.trip(4_000, REST, 0);
        assert_eq!(breaker.state(4_000), BreakerState::Open(500), "an answer forgets");
    }

    #[test]
    fn a_trial_that_never_ends_does_not_lock_the_gate() {
        let breaker = Breaker::default();
        breaker.trip(1, REST, 0);
        assert!(breaker.begin_probe(600));
        assert_eq!(breaker.state(600 + PROBE_TIMEOUT_MICROS), BreakerState::HalfOpen);
        assert!(breaker.begin_probe(600 + PROBE_TIMEOUT_MICROS));
    }

    proptest! {
        /// Whatever happens, a rest ends within its longest time, and trials run one at a time.
        #[test]
        fn rests_end_and_trials_are_single(steps in prop::collection::vec((0..4u8, 0..900i64), 1..200)) {
            let breaker = Breaker::default();
            let (mut now, mut trying) = (1, false);
            for (what, pass) in steps {
                now += pass;
                match what {
                    0 => { breaker.trip(now, REST, 0); trying = false; }
                    1 => { breaker.record_success(now); if breaker.state(now) == BreakerState::Closed { trying = false; } }
                    2 => if breaker.begin_probe(now) { prop_assert!(!trying); trying = true; },
                    _ => { breaker.end_probe(); trying = false; }
                }
                if let BreakerState::Open(left) = breaker.state(now) {
                    prop_assert!(left > 0 && left <= REST.max_micros);
                    prop_assert!(!matches!(breaker.state(now + left), BreakerState::Open(_)));
                }
            }
        }
    }
}
