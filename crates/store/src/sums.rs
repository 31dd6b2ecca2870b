//! Sums of usage and latencies, as they are stored in the columns of the table `usage`.

use canon::{Micros, Money};

use crate::StoreError;

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram(pub(crate) [i64; DurationHistogram::COUNTS]);

impl DurationHistogram {
    /// Upper bounds of the buckets in milliseconds. The last bucket has none.
    pub const BOUNDS: [i64; 11] =
        [50, 100, 200, 400, 700, 1_000, 2_000, 4_000, 10_000, 30_000, 60_000];
    pub(crate) const COUNTS: usize = Self::BOUNDS.len() + 1;

    pub(crate) fn add(&mut self, time: Micros) {
        let place =
            Self::BOUNDS.iter().take_while(|bound| time >= Micros::from_millis(**bound)).count();
        if let Some(count) = self.0.get_mut(place) {
            *count += 1;
        }
    }

    /// Returns the number of calls.
    pub fn count(&self) -> i64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the percentile of the durations, interpolated within its bucket;
    /// `None` if there are no calls. In the last bucket it is the last bound.
    pub fn percentile(&self, percent: u8) -> Option<Micros> {
        let all = i128::from(self.count());
        if all == 0 {
            return None;
        }
        // Computed in hundredths of a call, to stay with integers.
        let wanted = all * i128::from(percent.min(100));
        let mut below = 0;
        let mut from = 0;
        for (count, bound) in self.0.iter().zip(Self::BOUNDS) {
            let count = i128::from(*count) * 100;
            let to = i128::from(bound) * 1_000;
            if count > 0 && below + count >= wanted {
                let at = from + (to - from) * (wanted - below).max(0) / count;
                return i64::try_from(at).ok().map(Micros::new);
            }
            below += count;
            from = to;
        }
        i64::try_from(from).ok().map(Micros::new)
    }
}

/// Summed usage of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Number of calls.
    pub calls: i64,
    /// Number of streamed calls.
    pub streams: i64,
    /// Number of calls whose usage the gateway estimated.
    pub estimated: i64,
    /// Prompt tokens, including cached ones.
    pub input: i64,
    /// Prompt tokens read from a cache.
    pub cache_read: i64,
    /// Prompt tokens written to a cache.
    pub cache_write: i64,
    /// Reply tokens, including thinking.
    pub output: i64,
    /// Thinking tokens.
    pub thinking: i64,
    /// Searches.
    pub searches: i64,
    /// Amount that keys paid.
    pub cost: Money,
    /// Amount that the operator absorbed.
    pub absorbed: Money,
    /// Sum of the times from admission to the end.
    pub took: Micros,
    /// Sum of the times from admission to the first byte.
    pub waited: Micros,
}

impl UsageTotals {
    /// Adds the usage of a call. Fails on overflow. The same as [`SummedColumns::plus`], without a step
    /// per column.
    pub(crate) fn add(&mut self, call: &Self) -> Result<(), StoreError> {
        let overflow = || StoreError::Other("a sum of usage overflows".to_owned());
        let sum = |sum: &mut i64, number: i64| -> Result<(), StoreError> {
            *sum = sum.checked_add(number).ok_or_else(overflow)?;
            Ok(())
        };
        sum(&mut self.calls, call.calls)?;
        sum(&mut self.streams, call.streams)?;
        sum(&mut self.estimated, call.estimated)?;
        sum(&mut self.input, call.input)?;
        sum(&mut self.cache_read, call.cache_read)?;
        sum(&mut self.cache_write, call.cache_write)?;
        sum(&mut self.output, call.output)?;
        sum(&mut self.thinking, call.thinking)?;
        sum(&mut self.searches, call.searches)?;
        self.cost = self.cost.checked_add(call.cost).ok_or_else(overflow)?;
        self.absorbed = self.absorbed.checked_add(call.absorbed).ok_or_else(overflow)?;
        // Durations are bounded, and so many calls cannot be.
        self.took = self.took.saturating_add(call.took);
        self.waited = self.waited.saturating_add(call.waited);
        Ok(())
    }
}

impl LatencyTotals {
    /// Adds other latencies. Fails on overflow. The same as [`SummedColumns::plus`], without a step per
    /// column.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), StoreError> {
        let of = |totals: &Self| [totals.took, totals.waited].map(|histogram| histogram.0);
        let both = [&mut self.took, &mut self.waited].map(|histogram| &mut histogram.0);
        let mut fits = true;
        for (sum, number) in both.into_iter().flatten().zip(of(other).into_iter().flatten()) {
            let (added, is_beyond) = sum.overflowing_add(number);
            *sum = added;
            fits &= !is_beyond;
        }
        if fits { Ok(()) } else { Err(StoreError::Other("a sum of usage overflows".to_owned())) }
    }
}

/// The part of the usage that pages and reports show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportTotals {
    /// Number of calls.
    pub calls: i64,
    /// Prompt tokens, including cached ones.
    pub input: i64,
    /// Prompt tokens read from a cache.
    pub cache_read: i64,
    /// Reply tokens, including thinking.
    pub output: i64,
    /// Thinking tokens.
    pub thinking: i64,
    /// Amount that keys paid.
    pub cost: Money,
    /// Amount that the operator absorbed.
    pub absorbed: Money,
}

/// Latencies of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyTotals {
    /// Durations from admission to the end.
    pub took: DurationHistogram,
    /// Durations from admission to the first byte.
    pub waited: DurationHistogram,
}

/// Numbers in adjacent columns of the table that can be summed.
pub(crate) trait SummedColumns: Sized {
    /// The columns, in the order of the numbers.
    const COLUMNS: &'static [&'static str];
    /// The numbers.
    fn numbers(&self) -> impl Iterator<Item = i64>;
    /// Creates a value from the numbers. Missing ones are zero.
    fn from_numbers(numbers: impl Iterator<Item = i64>) -> Self;

    /// Returns the sum. Fails on overflow.
    fn plus(&self, other: &Self) -> Result<Self, StoreError> {
        self.with(other, i64::checked_add)
    }

    /// Returns the difference. Fails on overflow.
    fn less(&self, other: &Self) -> Result<Self, StoreError> {
        self.with(other, i64::checked_sub)
    }

    fn with(&self, other: &Self, both: fn(i64, i64) -> Option<i64>) -> Result<Self, StoreError> {
        // An overflow is noted on the side, so that the numbers need no list.
        let mut fits = true;
        let numbers = self.numbers().zip(other.numbers()).map(|(a, b)| {
            let number = both(a, b);
            fits &= number.is_some();
            number.unwrap_or_default()
        });
        let sums = Self::from_numbers(numbers);
        if !fits {
            return Err(StoreError::Other("a sum of usage overflows".to_owned()));
        }
        Ok(sums)
    }
}

impl SummedColumns for UsageTotals {
    const COLUMNS: &'static [&'static str] = &[
        "calls",
        "streams",
        "estimated",
        "input",
        "cache_read",
        "cache_write",
        "output",
        "thinking",
        "searches",
        "cost",
        "borne",
        "took",
        "waited",
    ];

    fn numbers(&self) -> impl Iterator<Item = i64> {
        let Self {
            calls,
            streams,
            estimated,
            input,
            cache_read,
            cache_write,
            output,
            thinking,
            searches,
            cost,
            absorbed: borne,
            took,
            waited,
        } = *self;
        [
            calls,
            streams,
            estimated,
            input,
            cache_read,
            cache_write,
            output,
            thinking,
            searches,
            cost.as_nanos(),
            borne.as_nanos(),
            took.get(),
            waited.get(),
        ]
        .into_iter()
    }

    fn from_numbers(mut numbers: impl Iterator<Item = i64>) -> Self {
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            calls: next(),
            streams: next(),
            estimated: next(),
            input: next(),
            cache_read: next(),
            cache_write: next(),
            output: next(),
            thinking: next(),
            searches: next(),
            cost: Money::from_nanos(next()),
            absorbed: Money::from_nanos(next()),
            took: Micros::new(next()),
            waited: Micros::new(next()),
        }
    }
}

impl SummedColumns for ReportTotals {
    const COLUMNS: &'static [&'static str] =
        &["calls", "input", "cache_read", "output", "thinking", "cost", "borne"];

    fn numbers(&self) -> impl Iterator<Item = i64> {
        let Self { calls, input, cache_read, output, thinking, cost, absorbed: borne } = *self;
        let (cost, borne) = (cost.as_nanos(), borne.as_nanos());
        [calls, input, cache_read, output, thinking, cost, borne].into_iter()
    }

    fn from_numbers(mut numbers: impl Iterator<Item = i64>) -> Self {
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            calls: next(),
            input: next(),
            cache_read: next(),
            output: next(),
            thinking: next(),
            cost: Money::from_nanos(next()),
            absorbed: Money::from_nanos(next()),
        }
    }
}

impl SummedColumns for LatencyTotals {
    const COLUMNS: &'static [&'static str] = &[
        "took_0",
        "took_1",
        "took_2",
        "took_3",
        "took_4",
        "took_5",
        "took_6",
        "took_7",
        "took_8",
        "took_9",
        "took_10",
        "took_11",
        "waited_0",
        "waited_1",
        "waited_2",
        "waited_3",
        "waited_4",
        "waited_5",
        "waited_6",
        "waited_7",
        "waited_8",
        "waited_9",
        "waited_10",
        "waited_11",
    ];

    fn numbers(&self) -> impl Iterator<Item = i64> {
        self.took.0.into_iter().chain(self.waited.0)
    }

    fn from_numbers(mut numbers: impl Iterator<Item = i64>) -> Self {
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            took: DurationHistogram(std::array::from_fn(|_| next())),
            waited: DurationHistogram(std::array::from_fn(|_| next())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_columns_have_one_order() {
        let used = UsageTotals::from_numbers(1..);
        assert!(used.numbers().eq(1..=UsageTotals::COLUMNS.len() as i64));
        let at = |name: &str| UsageTotals::COLUMNS.iter().position(|column| *column == name);
        assert_eq!((used.calls, at("calls")), (1, Some(0)));
        assert_eq!((used.cost, at("cost")), (Money::from_nanos(10), Some(9)));
        assert_eq!((used.waited, at("waited")), (Micros::new(13), Some(12)));
        let shown = ReportTotals::from_numbers(1..);
        assert!(shown.numbers().eq(1..=ReportTotals::COLUMNS.len() as i64));
        let at = |name: &str| ReportTotals::COLUMNS.iter().position(|column| *column == name);
        assert_eq!((shown.input, at("input")), (2, Some(1)));
        assert_eq!((shown.cost, at("cost")), (Money::from_nanos(6), Some(5)));
        let pace = LatencyTotals::from_numbers(1..);
        assert!(pace.numbers().eq(1..=LatencyTotals::COLUMNS.len() as i64));
        assert_eq!(pace.waited.0.first(), Some(&13));
        assert_eq!(
            LatencyTotals::COLUMNS.iter().position(|column| *column == "waited_0"),
            Some(12)
        );
    }

    #[test]
    fn a_call_is_added_as_any_sum_is() {
        let (one, other) = (UsageTotals::from_numbers(1..), UsageTotals::from_numbers(100..));
        let mut sum = one;
        sum.add(&other).unwrap();
        assert_eq!(sum, one.plus(&other).unwrap());
        let full = UsageTotals { cost: Money::MAX, ..one };
        assert!(sum.add(&full).is_err());
        let (one, other) = (LatencyTotals::from_numbers(1..), LatencyTotals::from_numbers(100..));
        let mut sum = one;
        sum.add(&other).unwrap();
        assert_eq!(sum, one.plus(&other).unwrap());
        let full = LatencyTotals { waited: DurationHistogram([i64::MAX; 12]), ..one };
        assert!(sum.add(&full).is_err());
    }

    #[test]
    fn percentiles_are_interpolated_within_buckets() {
        let mut times = DurationHistogram::default();
        assert_eq!(times.percentile(50), None);
        for millis in 0..1_000 {
            times.add(Micros::from_millis(millis));
        }
        assert_eq!(times.count(), 1_000);
        for percent in [1, 25, 50, 95, 100] {
            let exact = Micros::from_millis(i64::from(percent) * 10);
            let told = times.percentile(percent).unwrap_or_default();
            assert!((told - exact).get().abs() <= 1_000, "{percent}: {told}");
        }
        times.add(Micros::MAX);
        assert_eq!(times.percentile(100), Some(Micros::from_secs(60)));
    }
}
