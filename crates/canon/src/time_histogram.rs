//! Histograms of durations that many threads record at once, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Largest number of bounds of a histogram.
const MAX_BOUNDS: usize = 15;

/// Bounds for calls of models: from an answer out of a cache to a long stream.
const CALL_BOUNDS: &[Duration] = &[
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(600),
];

/// Bounds for disks, databases and other servers near this one.
const STORAGE_BOUNDS: &[Duration] = &[
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Counts of durations by size.
#[derive(Debug)]
pub struct TimeHistogram {
    bounds: &'static [Duration],
    /// The last one in use counts durations above all bounds.
    buckets: [AtomicU64; MAX_BOUNDS + 1],
    sum_micros: AtomicU64,
}

/// State of a [`TimeHistogram`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Upper bound of each bucket with the number of durations up to it, the smaller ones included.
    pub buckets: Vec<(Duration, u64)>,
    /// Number of all durations.
    pub count: u64,
    /// Sum of all durations.
    pub sum: Duration,
}

impl TimeHistogram {
    /// Creates a histogram for calls of models: 0.05 to 600 seconds.
    pub const fn for_calls() -> Self {
        Self::new(CALL_BOUNDS)
    }

    /// Creates a histogram for disks and databases: 0.0001 to 10 seconds.
    pub const fn for_storage() -> Self {
        Self::new(STORAGE_BOUNDS)
    }

    const fn new(bounds: &'static [Duration]) -> Self {
        let buckets = [const { AtomicU64::new(0) }; MAX_BOUNDS + 1];
        Self { bounds, buckets, sum_micros: AtomicU64::new(0) }
    }

    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        let at = self.bounds.partition_point(|bound| *bound < duration);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the counts so far. A duration that is being recorded may be missing in the sum.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0_u64;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        let mut counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        for (bound, one) in self.bounds.iter().zip(&mut counts) {
            count = count.saturating_add(one);
            buckets.push((*bound, count));
        }
        count = counts.fold(count, u64::saturating_add);
        let sum = Duration::from_micros(self.sum_micros.load(Ordering::Relaxed));
        HistogramSnapshot { buckets, count, sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_on_a_bound_counts_below_it() {
        let histogram = TimeHistogram::for_calls();
        for millis in [50, 51, 600_000, 600_001] {
            histogram.record(Duration::from_millis(millis));
        }
        let HistogramSnapshot { buckets, count, sum } = histogram.snapshot();
        assert_eq!((count, sum), (4, Duration::from_millis(1_200_102)));
        assert_eq!(buckets.first(), Some(&(Duration::from_millis(50), 1)));
        assert_eq!(buckets.get(1), Some(&(Duration::from_millis(100), 2)));
        assert_eq!(buckets.last(), Some(&(Duration::from_secs(600), 3)));
    }

    #[test]
    fn every_bound_has_a_bucket_and_bounds_grow() {
        for bounds in [CALL_BOUNDS, STORAGE_BOUNDS] {
            assert!(bounds.len() <= MAX_BOUNDS && bounds.is_sorted());
        }
    }
}
