//! Time in integers: points in time and durations in microseconds.
//!
//! A point in time counts from 1970-01-01 00:00 UTC. A point of a steady clock counts from a fixed
//! moment of the process. Both fit in `i64`, which is also their form in the database and in JSON.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::arithmetic::bounded_arithmetic;

/// A number of microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(i64);

bounded_arithmetic!(Micros);

impl Micros {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The latest point in time.
    pub const MAX: Self = Self(i64::MAX);

    /// Creates a value from microseconds.
    pub const fn new(micros: i64) -> Self {
        Self(micros)
    }

    /// Creates a duration from milliseconds. Saturates.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Creates a duration from seconds. Saturates.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Creates a duration from hours. Saturates.
    pub const fn from_hours(hours: i64) -> Self {
        Self::from_secs(hours.saturating_mul(3_600))
    }

    /// Creates a duration from days of 24 hours. Saturates.
    pub const fn from_days(days: i64) -> Self {
        Self::from_hours(days.saturating_mul(24))
    }

    /// Returns the microseconds.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the whole seconds, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Returns the whole milliseconds, rounded towards zero.
    pub const fn as_millis(self) -> i64 {
        self.0 / 1_000
    }

    /// Returns the duration; zero for a negative value.
    pub fn to_duration(self) -> Duration {
        Duration::from_micros(u64::try_from(self.0).unwrap_or_default())
    }
}

/// Saturates: a sum that does not fit is later than every point in time in use.
impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Neg for Micros {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

/// Saturates.
impl Sub for Micros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

/// Saturates.
impl Mul<i64> for Micros {
    type Output = Self;

    fn mul(self, factor: i64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

/// Saturates.
impl Mul<Micros> for i64 {
    type Output = Micros;

    fn mul(self, duration: Micros) -> Micros {
        duration * self
    }
}

/// Rounds towards zero. A divisor of zero counts as one.
impl Div<i64> for Micros {
    type Output = Self;

    fn div(self, divisor: i64) -> Self {
        Self(self.0.checked_div(divisor).unwrap_or(self.0))
    }
}

/// Saturates after 292,000 years.
impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        // In 64 bits, because every call reads several clocks.
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Self(seconds.saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into()))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A time that threads share. Every operation is relaxed: it orders no other memory.
#[derive(Debug, Default)]
pub struct AtomicMicros(AtomicI64);

impl AtomicMicros {
    /// Creates a shared time.
    pub const fn new(time: Micros) -> Self {
        Self(AtomicI64::new(time.0))
    }

    /// Returns the time.
    pub fn load(&self) -> Micros {
        Micros(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the time.
    pub fn store(&self, time: Micros) {
        self.0.store(time.0, Ordering::Relaxed);
    }

    /// Replaces the time and returns the one before.
    pub fn swap(&self, time: Micros) -> Micros {
        Micros(self.0.swap(time.0, Ordering::Relaxed))
    }

    /// Replaces the time unless it is later already.
    pub fn advance_to(&self, time: Micros) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }

    /// Adds a duration. Wraps around, as atomic integers do.
    pub fn add(&self, duration: Micros) {
        self.0.fetch_add(duration.0, Ordering::Relaxed);
    }

    /// Replaces the time if it is `expected`. Returns true if it was.
    pub fn replace_if(&self, expected: Micros, new: Micros) -> bool {
        self.0.compare_exchange(expected.0, new.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let one = Micros::new(1);
        assert_eq!(Micros::MAX + one, Micros::MAX);
        assert_eq!(Micros::new(i64::MIN) - one, Micros::new(i64::MIN));
        assert_eq!(2 * Micros::MAX, Micros::MAX);
        assert_eq!((Micros::from_secs(2) - Micros::from_millis(500)).get(), 1_500_000);
    }

    #[test]
    fn durations_are_converted_both_ways() {
        let duration = Duration::from_millis(1_250);
        assert_eq!(Micros::from(duration).to_duration(), duration);
        assert_eq!(Micros::from(Duration::MAX), Micros::MAX);
        assert_eq!(Micros::new(-1).to_duration(), Duration::ZERO);
    }

    #[test]
    fn json_is_a_plain_number() {
        assert_eq!(serde_json::to_string(&Micros::new(-7)).unwrap(), "-7");
        assert_eq!(serde_json::from_str::<Micros>("12").unwrap(), Micros::new(12));
    }
}
