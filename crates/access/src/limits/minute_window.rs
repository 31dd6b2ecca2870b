//! Sliding window of one minute: no sixty seconds ever exceed the limit.
//!
//! Amounts are counted in steps of a quarter second. A step leaves the window a full minute after
//! its end, so the window is strict by at most one step.
use canon::Micros;
use std::time::Duration;

/// Length of a step.
const STEP_TIME: Micros = Micros::from_millis(250);
/// Steps in the window: one minute, and the current step.
const STEPS: i64 = 241;
const SLOTS: usize = 241;

/// Amounts of the last minute.
#[derive(Debug, Default)]
pub(super) struct MinuteWindow {
    newest: i64,
    sum: u64,
    /// Ring of steps, allocated on first use.
    counts: Vec<u64>,
}

impl MinuteWindow {
    /// Counts an amount if the limit allows it and returns its step. Otherwise returns the time
    /// until it would fit.
    pub(super) fn take(&mut self, now: Micros, amount: u64, limit: u64) -> Result<i64, Duration> {
        let used = self.used(now);
        if used.saturating_add(amount) <= limit {
            self.add(self.newest, amount);
            return Ok(self.newest);
        }
        let mut left = used;
        for step in self.newest - STEPS + 1..=self.newest {
            left = left.saturating_sub(self.count(step));
            if left.saturating_add(amount) <= limit {
                return Err(time_until_expiry(step, now));
            }
        }
        // The amount exceeds the limit on its own, so wait for an empty window.
        Err(self.reset(now))
    }

    /// Corrects the amount of a step that is still in the window.
    pub(super) fn correct(&mut self, now: Micros, step: i64, from: u64, to: u64) {
        self.advance(now);
        if step <= self.newest - STEPS || step > self.newest {
            return;
        }
        let count = self.count(step);
        self.sum = self.sum.saturating_sub(count);
        let corrected = count.saturating_sub(from).saturating_add(to);
        if let Some(slot) = self.slot(step) {
            *slot = corrected;
        }
        self.sum = self.sum.saturating_add(corrected);
    }

    /// Returns the amount in the window.
    pub(super) fn used(&mut self, now: Micros) -> u64 {
        self.advance(now);
        self.sum
    }

    /// Returns the time until the window is empty.
    pub(super) fn reset(&mut self, now: Micros) -> Duration {
        self.advance(now);
        let steps = (self.newest - STEPS + 1..=self.newest).rev();
        let last = steps.into_iter().find(|step| self.count(*step) > 0);
        last.map_or(Duration::ZERO, |step| time_until_expiry(step, now))
    }

    /// Moves the window forward. A clock that goes back leaves it unchanged.
    fn advance(&mut self, now: Micros) {
        let step = now.get().div_euclid(STEP_TIME.get());
        if step <= self.newest {
            return;
        }
        if step - self.newest >= STEPS {
            self.counts.fill(0);
            self.sum = 0;
        } else {
            for passed in self.newest + 1..=step {
                self.sum = self.sum.saturating_sub(self.count(passed));
                if let Some(slot) = self.slot(passed) {
                    *slot = 0;
                }
            }
        }
        self.newest = step;
    }

    fn add(&mut self, step: i64, amount: u64) {
        if self.counts.is_empty() {
            self.counts.resize(SLOTS, 0);
        }
        let Some(slot) = self.slot(step) else { return };
        *slot = slot.saturating_add(amount);
        self.sum = self.sum.saturating_add(amount);
    }

    fn count(&self, step: i64) -> u64 {
        usize::try_from(step.rem_euclid(STEPS))
            .ok()
            .and_then(|place| self.counts.get(place).copied())
            .unwrap_or(0)
    }

    fn slot(&mut self, step: i64) -> Option<&mut u64> {
        self.counts.get_mut(usize::try_from(step.rem_euclid(STEPS)).ok()?)
    }
}

/// Returns the time until a step leaves the window.
fn time_until_expiry(step: i64, now: Micros) -> Duration {
    (STEP_TIME * (step + STEPS) - now).to_duration()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_secs(1);
    const BEGIN: Micros = Micros::from_secs(1_700_000_000);

    #[test]
    fn no_minute_exceeds_the_limit() {
        let mut window = MinuteWindow::default();
        let mut admitted: Vec<Micros> = Vec::new();
        // A caller that tries every 7 ms for five minutes.
        for step in 0..=300_000 / 7 {
            let now = BEGIN + Micros::from_millis(7 * step);
            if window.take(now, 1, 25).is_ok() {
                admitted.push(now);
            }
        }
        for (first, later) in admitted.iter().zip(admitted.iter().skip(25)) {
            assert!(*later - *first >= 60 * SECOND, "26 within {} µs", *later - *first);
        }
        assert!(admitted.len() >= 25 * 4, "and the limit is used: {}", admitted.len());
    }

    #[test]
    fn admits_after_the_returned_wait() {
        let mut window = MinuteWindow::default();
        for second in 0..5 {
            window.take(BEGIN + second * SECOND, 20, 100).unwrap();
        }
        let now = BEGIN + 5 * SECOND;
        let wait = window.take(now, 30, 100).unwrap_err();
        let later = now + Micros::from(wait);
        assert!(window.take(later - Micros::new(1), 30, 100).is_err(), "not earlier");
        window.take(later, 30, 100).unwrap();
        let reset = window.reset(later);
        let empty = later + Micros::from(reset);
        assert!(window.used(empty - Micros::new(1)) > 0);
        assert_eq!(window.used(empty), 0);
    }

    #[test]
    fn corrects_the_step_of_the_estimate() {
        let mut window = MinuteWindow::default();
        let step = window.take(BEGIN, 100, 100).unwrap();
        window.correct(BEGIN + SECOND, step, 100, 30);
        assert_eq!(window.used(BEGIN + SECOND), 30);
        window.correct(BEGIN + SECOND, step, 30, 500);
        assert_eq!(window.used(BEGIN + SECOND), 500);
        assert!(window.take(BEGIN + 59 * SECOND, 1, 100).is_err());
        assert_eq!(window.used(BEGIN + 61 * SECOND), 0);
        let step = window.take(BEGIN + 61 * SECOND, 1, 100).unwrap();
        window.correct(BEGIN + 61 * SECOND, step, 1, u64::MAX);
        window.correct(BEGIN + 62 * SECOND, step, 0, u64::MAX);
        assert_eq!(window.used(BEGIN + 200 * SECOND), 0, "no count is too large to leave again");
    }

    #[test]
    fn expired_step_is_not_corrected() {
        let mut window = MinuteWindow::default();
        let step = window.take(BEGIN, 100, 100).unwrap();
        assert_eq!(window.used(BEGIN + 61 * SECOND), 0);
        window.correct(BEGIN + 61 * SECOND, step, 100, 900);
        assert_eq!(window.used(BEGIN + 61 * SECOND), 0, "its minute is over");
        assert_eq!(window.used(BEGIN), 0, "and a clock that goes back changes nothing");
    }
}
