//! Counters and gauges that any thread changes without a lock, and rare counts by name.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Largest number of names in [`NamedCounts`]. Further names are counted as `other`.
pub(crate) const MAX_NAMES: usize = 1_000;
/// Value of a label beyond the bound of its metric.
pub(crate) const OTHER: &str = "other";

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Adds an amount.
    pub fn inc_by(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a total that is counted elsewhere.
    pub fn raise_to(&self, total: u64) {
        self.0.fetch_max(total, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets the number. One that is too large becomes the largest.
    pub fn set(&self, number: impl TryInto<i64>) {
        self.0.store(number.try_into().unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts by names that are not known before. They are for events that are rare.
#[derive(Debug)]
pub(crate) struct NamedCounts<const N: usize>(Mutex<BTreeMap<[String; N], i64>>);

impl<const N: usize> Default for NamedCounts<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<const N: usize> NamedCounts<N> {
    /// Adds to the count of these names.
    pub(crate) fn add(&self, names: [&str; N], amount: i64) {
        let mut counts = self.0.lock();
        let mut names = names.map(str::to_owned);
        if counts.len() >= MAX_NAMES && !counts.contains_key(&names) {
            names = names.map(|_| OTHER.to_owned());
        }
        let count = counts.entry(names).or_default();
        *count = count.saturating_add(amount);
    }

    /// Hands every count to `visit`, in the order of the names.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&[String; N], i64)) {
        for (names, count) in &*self.0.lock() {
            visit(names, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let counts = NamedCounts::<2>::default();
        for number in 0..MAX_NAMES + 7 {
            counts.add(["a", &number.to_string()], 1);
        }
        counts.add(["a", "0"], 4);
        let (mut first, mut others, mut names) = (0, 0, 0);
        counts.visit(|name, count| {
            names += 1;
            match [&*name[0], &*name[1]] {
                ["a", "0"] => first = count,
                [OTHER, OTHER] => others = count,
                _ => assert_eq!(count, 1),
            }
        });
        assert_eq!((first, others, names), (5, 7, MAX_NAMES + 1));
    }

    #[test]
    fn a_gauge_takes_any_size() {
        let gauge = Gauge::default();
        gauge.set(u64::MAX);
        assert_eq!(gauge.get(), i64::MAX);
    }
}
