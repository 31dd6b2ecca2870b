//! How much may be tried again: a share of the calls and a small floor, so that a provider that
//! fails everything is not asked much more often than by its callers.

use std::sync::atomic::{AtomicI64, Ordering};

/// One retry, in the small change the budget is counted in.
const RETRY_COST: i64 = 1_000;
/// What a call earns: a fifth of a retry.
const CALL_CREDIT: i64 = 200;
/// What time earns: ten retries a second, and never more than one second's worth.
const FLOOR_CREDIT: i64 = 10 * RETRY_COST;
/// The most that is saved up.
const MAX_CREDIT: i64 = 100 * RETRY_COST;
/// What is saved beyond the floor is forgotten over this time.
const DECAY_MICROS: i64 = 10_000_000;
const SECOND_MICROS: i64 = 1_000_000;

/// A provider's budget of retries. Time is passed in, as microseconds since any fixed moment.
#[derive(Debug)]
pub struct RetryBudget {
    credit: AtomicI64,
    /// When time was last counted.
    refilled_at: AtomicI64,
}

impl RetryBudget {
    /// A budget at its floor.
    pub const fn new(now: i64) -> Self {
        Self { credit: AtomicI64::new(FLOOR_CREDIT), refilled_at: AtomicI64::new(now) }
    }

    /// A call is sent for the first time.
    pub fn record_call(&self) {
        self.earn(CALL_CREDIT);
    }

    /// A retry was answered: it was no waste, and another may follow.
    pub fn record_useful_retry(&self) {
        self.earn(RETRY_COST);
    }

    /// Takes one retry, if there is one.
    pub fn try_take(&self, now: i64) -> bool {
        self.refill(now);
        self.credit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
                (saved >= RETRY_COST).then_some(saved - RETRY_COST)
            })
            .is_ok()
    }

    fn earn(&self, amount: i64) {
        if self.credit.load(Ordering::Relaxed) < MAX_CREDIT {
            self.credit.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn refill(&self, now: i64) {
        let last = self.refilled_at.load(Ordering::Relaxed);
        let passed = now.saturating_sub(last).min(DECAY_MICROS);
        // Whoever comes a moment too early counts nothing, so that no time is lost in rounding.
        if passed < SECOND_MICROS / 1_000
            || self
                .refilled_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            Some(if saved > FLOOR_CREDIT {
                saved - (saved - FLOOR_CREDIT) * passed / DECAY_MICROS
            } else {
                (saved + FLOOR_CREDIT * passed / SECOND_MICROS).min(FLOOR_CREDIT)
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
        let budget = RetryBudget::new(0);
        let taken = (0..1_000)
            .filter(|_| {
                budget.record_call();
                budget.try_take(0)
            })
            .count();
        assert!((200..=210).contains(&taken), "{taken}");
        assert_eq!((0..100).filter(|_| budget.try_take(1_000_000)).count(), 10);
        assert_eq!((0..100).filter(|_| budget.try_take(1_500_000)).count(), 5);
    }

    #[test]
    fn retries_that_are_answered_are_not_counted() {
        let budget = RetryBudget::new(0);
        assert!((0..1_000).all(|_| {
            let taken = budget.try_take(0);
            budget.record_useful_retry();
            taken
        }));
    }

    proptest! {
        /// The bound holds for every sequence of calls, answered retries and time.
        #[test]
        fn the_bound_holds(steps in prop::collection::vec((0..4u8, 0..300_000i64), 1..500)) {
            let budget = RetryBudget::new(0);
            let (mut now, mut calls, mut worth, mut taken) = (0, 0, 0, 0);
            for (what, pass) in steps {
                match what {
                    0 => { budget.record_call(); calls += 1; }
                    1 => { budget.record_useful_retry(); worth += 1; }
                    2 => now += pass,
                    _ => taken += i64::from(budget.try_take(now)),
                }
                let bound = FLOOR_CREDIT + CALL_CREDIT * calls + RETRY_COST * worth + FLOOR_CREDIT * now / SECOND_MICROS;
                prop_assert!(taken * RETRY_COST <= bound, "{taken} of {bound}");
            }
        }
    }
}
