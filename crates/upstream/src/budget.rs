//! How much may be tried again: a share of the calls and a small floor, so that a provider that
//! fails everything is not asked much more often than by its callers.

use std::sync::atomic::{AtomicI64, Ordering};

/// One retry, in the small change the budget is counted in.
const RETRY: i64 = 1_000;
/// What a call earns: a fifth of a retry.
const CALL: i64 = 200;
/// What time earns: ten retries a second, and never more than one second's worth.
const FLOOR: i64 = 10 * RETRY;
/// The most that is saved up.
const MOST: i64 = 100 * RETRY;
/// What is saved beyond the floor is forgotten over this time.
const MEMORY: i64 = 10_000_000;
const SECOND: i64 = 1_000_000;

/// A provider's budget of retries. Time is passed in, as microseconds since any fixed moment.
#[derive(Debug)]
pub struct Budget {
    saved: AtomicI64,
    /// When time was last counted.
    counted: AtomicI64,
}

impl Budget {
    /// A budget at its floor.
    pub const fn new(now: i64) -> Self {
        Self { saved: AtomicI64::new(FLOOR), counted: AtomicI64::new(now) }
    }

    /// A call is sent for the first time.
    pub fn call(&self) {
        self.earn(CALL);
    }

    /// A retry was answered: it was no waste, and another may follow.
    pub fn worthwhile(&self) {
        self.earn(RETRY);
    }

    /// Takes one retry, if there is one.
    pub fn take(&self, now: i64) -> bool {
        self.count_time(now);
        self.saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
                (saved >= RETRY).then_some(saved - RETRY)
            })
            .is_ok()
    }

    fn earn(&self, amount: i64) {
        if self.saved.load(Ordering::Relaxed) < MOST {
            self.saved.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn count_time(&self, now: i64) {
        let last = self.counted.load(Ordering::Relaxed);
        let passed = now.saturating_sub(last).min(MEMORY);
        // Whoever comes a moment too early counts nothing, so that no time is lost in rounding.
        if passed < SECOND / 1_000
            || self
                .counted
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            Some(if saved > FLOOR {
                saved - (saved - FLOOR) * passed / MEMORY
            } else {
                (saved + FLOOR * passed / SECOND).min(FLOOR)
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fifth_of_the_calls_and_ten_a_second() {
        let budget = Budget::new(0);
        let taken = (0..1_000)
            .filter(|_| {
                budget.call();
                budget.take(0)
            })
            .count();
        assert!((200..=210).contains(&taken), "{taken}");
        assert_eq!((0..100).filter(|_| budget.take(1_000_000)).count(), 10);
        assert_eq!((0..100).filter(|_| budget.take(1_500_000)).count(), 5);
    }

    #[test]
    fn retries_that_are_answered_are_not_counted() {
        let budget = Budget::new(0);
        assert!((0..1_000).all(|_| {
            let taken = budget.take(0);
            budget.worthwhile();
            taken
        }));
    }

    proptest! {
        /// The bound holds for every sequence of calls, answered retries and time.
        #[test]
        fn the_bound_holds(steps in prop::collection::vec((0..4u8, 0..300_000i64), 1..500)) {
            let budget = Budget::new(0);
            let (mut now, mut calls, mut worth, mut taken) = (0, 0, 0, 0);
            for (what, pass) in steps {
                match what {
                    0 => { budget.call(); calls += 1; }
                    1 => { budget.worthwhile(); worth += 1; }
                    2 => now += pass,
                    _ => taken += i64::from(budget.take(now)),
                }
                let bound = FLOOR + CALL * calls + RETRY * worth + FLOOR * now / SECOND;
                prop_assert!(taken * RETRY <= bound, "{taken} of {bound}");
            }
        }
    }
}
