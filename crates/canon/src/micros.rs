//! Time in integers: points in time and durations in microseconds.
//!
//! A point in time counts from 1970-01-01 00:00 UTC. A point of a steady clock counts from a fixed
//! moment of the process. Both fit in `i64`, which is also their form in the database and in JSON.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A number of microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(i64);

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

    /// Returns the microseconds.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the sum, or the nearest value that can be represented.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or the nearest value that can be represented.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the sum; `None` on overflow.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Returns the difference; `None` on overflow.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// Returns the duration; zero for a negative value.
    pub fn to_duration(self) -> Duration {
        Duration::from_micros(u64::try_from(self.0).unwrap_or_default())
    }
}

/// Saturates after 292,000 years.
impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_or_is_checked() {
        let one = Micros::new(1);
        assert_eq!(Micros::MAX.saturating_add(one), Micros::MAX);
        assert_eq!(Micros::MAX.checked_add(one), None);
        assert_eq!(Micros::new(i64::MIN).checked_sub(one), None);
        assert_eq!(Micros::from_secs(2).saturating_sub(Micros::from_millis(500)).get(), 1_500_000);
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
