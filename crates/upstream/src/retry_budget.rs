//! Retry budget of a provider: a share of its calls plus a small floor, so that retries cannot
//! multiply the load on a failing provider.

use canon::{AtomicMicros, Micros};
use std::sync::atomic::{AtomicI64, Ordering};

/// Cost of one retry, in credit units.
const RETRY_COST: i64 = 1_000;
/// Credit of a call: a fifth of a retry.
const CALL_CREDIT: i64 = 200;
/// Credit per second, and its upper bound: ten retries.
const FLOOR_CREDIT: i64 = 10 * RETRY_COST;
/// Upper bound of the credit.
const MAX_CREDIT: i64 = 100 * RETRY_COST;
/// Time in which credit above the floor decays.
const DECAY_TIME: Micros = Micros::from_secs(10);
const SECOND: Micros = Micros::from_secs(1);

/// A provider's retry budget. Time is a parameter, since any fixed moment.
#[derive(Debug)]
pub struct RetryBudget {
    credit: AtomicI64,
    /// Time of the last refill.
    refilled_at: AtomicMicros,
}

impl RetryBudget {
    /// Creates a budget at its floor.
    pub const fn new(now: Micros) -> Self {
        Self { credit: AtomicI64::new(FLOOR_CREDIT), refilled_at: AtomicMicros::new(now) }
    }

    /// Adds the credit of a first attempt.
    pub fn record_call(&self) {
        self.earn(CALL_CREDIT);
    }

    /// Refunds a retry that was answered.
    pub fn record_useful_retry(&self) {
        self.earn(RETRY_COST);
    }

    /// Takes one retry from the budget, if it has enough credit.
    pub fn try_take(&self, now: Micros) -> bool {
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

    fn refill(&self, now: Micros) {
        let last = self.refilled_at.load();
        let passed = (now - last).min(DECAY_TIME);
        // A shorter time would round to zero credit and be lost.
        if passed < SECOND / 1_000 || !self.refilled_at.replace_if(last, now) {
            return;
        }
        let part_of = |credit: i64, time: Micros| credit * passed.get() / time.get();
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            Some(if saved > FLOOR_CREDIT {
                saved - part_of(saved - FLOOR_CREDIT, DECAY_TIME)
            } else {
                (saved + part_of(FLOOR_CREDIT, SECOND)).min(FLOOR_CREDIT)
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn allows_a_fifth_of_calls_plus_ten_per_second() {
        let budget = RetryBudget::new(Micros::ZERO);
        let taken = (0..1_000)
            .filter(|_| {
                budget.record_call();
                budget.try_take(Micros::ZERO)
            })
            .count();
        assert!((200..=210).contains(&taken), "{taken}");
        assert_eq!((0..100).filter(|_| budget.try_take(SECOND)).count(), 10);
        assert_eq!((0..100).filter(|_| budget.try_take(Micros::from_millis(1_500))).count(), 5);
    }

    #[test]
    fn answered_retries_are_refunded() {
        let budget = RetryBudget::new(Micros::ZERO);
        assert!((0..1_000).all(|_| {
            let taken = budget.try_take(Micros::ZERO);
            budget.record_useful_retry();
            taken
        }));
    }

    proptest! {
        /// The bound holds for every sequence of calls, answered retries and time.
        #[test]
        fn the_bound_holds(steps in prop::collection::vec((0..4u8, 0..300_000i64), 1..500)) {
            let budget = RetryBudget::new(Micros::ZERO);
            let (mut now, mut calls, mut worth, mut taken) = (Micros::ZERO, 0, 0, 0);
            for (what, pass) in steps {
                match what {
                    0 => { budget.record_call(); calls += 1; }
                    1 => { budget.record_useful_retry(); worth += 1; }
                    2 => now += Micros::new(pass),
                    _ => taken += i64::from(budget.try_take(now)),
                }
                let bound = FLOOR_CREDIT + CALL_CREDIT * calls + RETRY_COST * worth + FLOOR_CREDIT * now.get() / SECOND.get();
                prop_assert!(taken * RETRY_COST <= bound, "{taken} of {bound}");
            }
        }
    }
}
