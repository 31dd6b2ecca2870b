//! Speed of a lane, by which output is estimated that nobody saw.

use canon::Micros;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Output tokens per second of a lane that is not measured.
const DEFAULT_OUTPUT_RATE: u64 = 50;
/// Output tokens per second that a lane is believed to make.
const MAX_OUTPUT_RATE: u64 = 10_000;
/// Output from which on a reply measures the speed of its lane.
const MIN_MEASURED_TOKENS: u64 = 16;
/// Output of a reply that weighs a quarter of the average. Less output weighs less.
const WEIGHTY_TOKENS: u64 = 1_024;

/// Moving average of the output of a lane.
#[derive(Debug)]
pub(crate) struct OutputSpeed {
    /// Output tokens in 1,000 seconds.
    rate: AtomicU64,
    /// True if a reply had thinking. The model of the lane may think before every reply then, whatever the
    /// directory says.
    has_thought: AtomicBool,
    /// True if a reply had counts of its output.
    has_counted: AtomicBool,
}

impl Default for OutputSpeed {
    fn default() -> Self {
        let rate = AtomicU64::new(DEFAULT_OUTPUT_RATE * 1_000);
        Self { rate, has_thought: AtomicBool::new(false), has_counted: AtomicBool::new(false) }
    }
}

impl OutputSpeed {
    /// Records a reply with that much output. Short replies weigh little: their time is mostly the wait
    /// for the first word, and anybody can ask for many.
    pub(crate) fn record(&self, tokens: u64, thinking: u64, time: Micros) {
        if thinking > 0 && !self.has_thought() {
            self.has_thought.store(true, Ordering::Relaxed);
        }
        if tokens > 0 && !self.has_counted() {
            self.has_counted.store(true, Ordering::Relaxed);
        }
        let micros = u64::try_from(time.get()).unwrap_or_default();
        if tokens < MIN_MEASURED_TOKENS || micros == 0 {
            return;
        }
        let rate = (tokens.saturating_mul(1_000_000_000) / micros).min(MAX_OUTPUT_RATE * 1_000);
        let weight = tokens.min(WEIGHTY_TOKENS);
        let old = self.rate.load(Ordering::Relaxed) * (4 * WEIGHTY_TOKENS - weight);
        let new = (old + rate * weight) / (4 * WEIGHTY_TOKENS);
        self.rate.store(new.max(1), Ordering::Relaxed);
    }

    /// Returns true if a reply had thinking.
    pub(crate) fn has_thought(&self) -> bool {
        self.has_thought.load(Ordering::Relaxed)
    }

    /// Returns true if a reply had counts of its output.
    pub(crate) fn has_counted(&self) -> bool {
        self.has_counted.load(Ordering::Relaxed)
    }

    /// Returns the output tokens that the lane usually makes in that time.
    pub(crate) fn usual_output(&self, time: Duration) -> u64 {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.rate.load(Ordering::Relaxed).saturating_mul(millis).div_ceil(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_output_follows_the_speed_of_replies() {
        let (speed, second) = (OutputSpeed::default(), Duration::from_secs(1));
        assert_eq!(speed.usual_output(second), DEFAULT_OUTPUT_RATE);
        speed.record(MIN_MEASURED_TOKENS - 1, 0, Micros::from_secs(1));
        assert_eq!(speed.usual_output(second), DEFAULT_OUTPUT_RATE, "too short to measure");
        for _ in 0..20 {
            speed.record(2_000, 0, Micros::from_secs(10));
        }
        let usual = speed.usual_output(2 * second);
        assert!((390..=400).contains(&usual), "{usual}");
        for _ in 0..12 {
            speed.record(40, 0, Micros::from_secs(4));
        }
        let after = speed.usual_output(2 * second);
        assert!(after > usual * 4 / 5, "{after} after {usual}: short and slow replies");
        speed.record(u64::MAX, 0, Micros::new(1));
        assert!(speed.usual_output(second) <= MAX_OUTPUT_RATE);
    }
}
