//! Rests what failed, lets one call at a time try it again, and forgets once it answers.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// How long a trial may run before another call may try in its place.
const TRIAL: i64 = 60_000_000;

/// How a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Calls go through.
    Closed,
    /// Passed over for that many more microseconds.
    Resting(i64),
    /// Its rest is over: one call may try.
    Ajar,
    /// Its rest is over and a call is trying.
    Tried,
}

/// A breaker. Time is passed in, as microseconds since any fixed moment.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// When its rest is over; zero when calls go through.
    until: AtomicI64,
    /// When it was tripped last.
    tripped: AtomicI64,
    /// How often in a row it was tripped.
    trips: AtomicU32,
    /// When the running trial began; zero when there is none.
    trial: AtomicI64,
}

/// How long a rest takes: it doubles with every trip in a row, up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) first: i64,
    pub(crate) most: i64,
}

impl Rest {
    pub(crate) const fn after(self, trips: u32) -> i64 {
        let doublings = if trips > 16 { 16 } else { trips };
        let rest = self.first.saturating_mul(1 << doublings);
        if rest < self.most { rest } else { self.most }
    }
}

impl Breaker {
    pub(crate) fn gate(&self, now: i64) -> Gate {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            Gate::Closed
        } else if now < until {
            Gate::Resting(until - now)
        } else if self.is_tried(now) {
            Gate::Tried
        } else {
            Gate::Ajar
        }
    }

    fn is_tried(&self, now: i64) -> bool {
        let trial = self.trial.load(Ordering::Relaxed);
        trial != 0 && now.saturating_sub(trial) < TRIAL
    }

    /// Takes the one trial there is, if its rest is over and nobody else has it.
    pub(crate) fn begin_trial(&self, now: i64) -> bool {
        let trial = self.trial.load(Ordering::Relaxed);
        self.gate(now) == Gate::Ajar
            && self
                .trial
                .compare_exchange(trial, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Gives the trial back without a verdict.
    pub(crate) fn end_trial(&self) {
        self.trial.store(0, Ordering::Relaxed);
    }

    /// Begins a rest of at least that long. True when calls went through until now.
    pub(crate) fn trip(&self, now: i64, rest: Rest, least: i64) -> bool {
        let trips = self.trips.fetch_add(1, Ordering::Relaxed);
        let until = now.saturating_add(rest.after(trips).max(least)).max(1);
        self.tripped.store(now, Ordering::Relaxed);
        self.trial.store(0, Ordering::Relaxed);
        self.until.swap(until, Ordering::Relaxed) == 0
    }

    /// A call that began then was answered. What began before the last trip proves nothing.
    pub(crate) fn answered(&self, began: i64) {
        if self.until.load(Ordering::Relaxed) != 0 && began >= self.tripped.load(Ordering::Relaxed)
        {
            self.trips.store(0, Ordering::Relaxed);
            self.trial.store(0, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REST: Rest = Rest { first: 500, most: 1_500 };

    #[test]
    fn it_rests_longer_each_time_and_one_call_tries() {
        let breaker = Breaker::default();
        assert_eq!(breaker.gate(1), Gate::Closed);
        assert!(breaker.trip(10, REST, 0), "it was closed");
        assert_eq!(breaker.gate(10), Gate::Resting(500));
        assert!(!breaker.begin_trial(509), "not before its rest is over");
        assert_eq!(breaker.gate(510), Gate::Ajar);
        assert!(breaker.begin_trial(510) && !breaker.begin_trial(511));
        assert_eq!(breaker.gate(511), Gate::Tried);
        assert!(!breaker.trip(520, REST, 0));
        assert_eq!(breaker.gate(520), Gate::Resting(1_000));
        breaker.trip(1_520, REST, 0);
        breaker.trip(3_020, REST, 0);
        assert_eq!(breaker.gate(3_020), Gate::Resting(1_500), "there is a longest rest");
        breaker.answered(3_019);
        assert_eq!(breaker.gate(3_020), Gate::Resting(1_500), "begun before the trip");
        breaker.answered(3_021);
        assert_eq!(breaker.gate(3_021), Gate::Closed);
        breaker.trip(4_000, REST, 0);
        assert_eq!(breaker.gate(4_000), Gate::Resting(500), "an answer forgets");
    }

    #[test]
    fn a_trial_that_never_ends_does_not_lock_the_gate() {
        let breaker = Breaker::default();
        breaker.trip(1, REST, 0);
        assert!(breaker.begin_trial(600));
        assert_eq!(breaker.gate(600 + TRIAL), Gate::Ajar);
        assert!(breaker.begin_trial(600 + TRIAL));
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
                    1 => { breaker.answered(now); if breaker.gate(now) == Gate::Closed { trying = false; } }
                    2 => if breaker.begin_trial(now) { prop_assert!(!trying); trying = true; },
                    _ => { breaker.end_trial(); trying = false; }
                }
                if let Gate::Resting(left) = breaker.gate(now) {
                    prop_assert!(left > 0 && left <= REST.most);
                    prop_assert!(!matches!(breaker.gate(now + left), Gate::Resting(_)));
                }
            }
        }
    }
}
