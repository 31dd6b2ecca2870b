//! What calls used and how fast they were, as numbers that stand side by side in the table `usage`
//! and add up.

use ledger::Micros;

use crate::StoreError;

/// How many calls took how long, by fixed bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times(pub(crate) [i64; Times::COUNTS]);

impl Times {
    /// Where one count ends and the next begins, in milliseconds. The last count has no end.
    pub const BOUNDS: [i64; 11] =
        [50, 100, 200, 400, 700, 1_000, 2_000, 4_000, 10_000, 30_000, 60_000];
    pub(crate) const COUNTS: usize = Self::BOUNDS.len() + 1;

    pub(crate) fn add(&mut self, micros: Micros) {
        let place = Self::BOUNDS.iter().take_while(|bound| micros >= **bound * 1_000).count();
        if let Some(count) = self.0.get_mut(place) {
            *count += 1;
        }
    }

    /// How many calls are counted.
    pub fn count(&self) -> i64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The time that so many of a hundred calls stayed within, in microseconds, as exactly as the
    /// bounds allow; `None` when there are no calls. Beyond the last bound it is that bound.
    pub fn within(&self, percent: u8) -> Option<Micros> {
        let all = i128::from(self.count());
        if all == 0 {
            return None;
        }
        // In hundredths of a call, so that the rest is whole numbers.
        let wanted = all * i128::from(percent.min(100));
        let mut below = 0;
        let mut from = 0;
        for (count, bound) in self.0.iter().zip(Self::BOUNDS) {
            let count = i128::from(*count) * 100;
            let to = i128::from(bound) * 1_000;
            if count > 0 && below + count >= wanted {
                let at = from + (to - from) * (wanted - below).max(0) / count;
                return i64::try_from(at).ok();
            }
            below += count;
            from = to;
        }
        i64::try_from(from).ok()
    }
}

/// What some calls used, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// How many calls.
    pub calls: i64,
    /// How many of them were streamed.
    pub streams: i64,
    /// Of how many the counts are ours and not the provider's.
    pub estimated: i64,
    /// Tokens of prompts, cached parts included.
    pub input: i64,
    /// Of these, read from a cache.
    pub cache_read: i64,
    /// Of these, written to a cache.
    pub cache_write: i64,
    /// Tokens of answers, thinking included.
    pub output: i64,
    /// Of these, thinking.
    pub thinking: i64,
    /// Searches.
    pub searches: i64,
    /// What keys paid, in nanodollars.
    pub cost: i64,
    /// What the operator bore, in nanodollars.
    pub borne: i64,
    /// Microseconds from admission to the end, added up.
    pub took: i64,
    /// Microseconds to the first byte, added up over the calls that had one.
    pub waited: i64,
}

/// Of what some calls used, what pages and programs are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// How many calls.
    pub calls: i64,
    /// Tokens of prompts, cached parts included.
    pub input: i64,
    /// Of these, read from a cache.
    pub cache_read: i64,
    /// Tokens of answers, thinking included.
    pub output: i64,
    /// Of these, thinking.
    pub thinking: i64,
    /// What keys paid, in nanodollars.
    pub cost: i64,
    /// What the operator bore, in nanodollars.
    pub borne: i64,
}

/// How fast some calls were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How many calls took how long from admission to the end.
    pub took: Times,
    /// How many had to wait how long for the first byte.
    pub waited: Times,
}

/// Numbers that stand side by side in the table and add up.
pub(crate) trait Sums: Sized {
    /// Their columns, in the order of the numbers.
    const COLUMNS: &'static [&'static str];
    /// The numbers.
    fn numbers(&self) -> impl Iterator<Item = i64>;
    /// Reads the numbers back; what is missing is nothing.
    fn from_numbers(numbers: impl Iterator<Item = i64>) -> Self;

    /// The sum, unless it is more than can be held.
    fn plus(&self, other: &Self) -> Result<Self, StoreError> {
        self.with(other, i64::checked_add)
    }

    /// What is left without the other.
    fn less(&self, other: &Self) -> Result<Self, StoreError> {
        self.with(other, i64::checked_sub)
    }

    fn with(&self, other: &Self, both: fn(i64, i64) -> Option<i64>) -> Result<Self, StoreError> {
        // What does not fit is noticed behind the numbers, so that no list has to be made of them.
        let mut fits = true;
        let numbers = self.numbers().zip(other.numbers()).map(|(a, b)| {
            let number = both(a, b);
            fits &= number.is_some();
            number.unwrap_or_default()
        });
        let sums = Self::from_numbers(numbers);
        if !fits {
            return Err(StoreError::Other("a batch costs more than can be held".to_owned()));
        }
        Ok(sums)
    }
}

impl Sums for Used {
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
            borne,
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
            cost,
            borne,
            took,
            waited,
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
            cost: next(),
            borne: next(),
            took: next(),
            waited: next(),
        }
    }
}

impl Sums for Shown {
    const COLUMNS: &'static [&'static str] =
        &["calls", "input", "cache_read", "output", "thinking", "cost", "borne"];

    fn numbers(&self) -> impl Iterator<Item = i64> {
        let Self { calls, input, cache_read, output, thinking, cost, borne } = *self;
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
            cost: next(),
            borne: next(),
        }
    }
}

impl Sums for Pace {
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
            took: Times(std::array::from_fn(|_| next())),
            waited: Times(std::array::from_fn(|_| next())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_columns_have_one_order() {
        let used = Used::from_numbers(1..);
        assert!(used.numbers().eq(1..=Used::COLUMNS.len() as i64));
        let at = |name: &str| Used::COLUMNS.iter().position(|column| *column == name);
        assert_eq!((used.calls, at("calls")), (1, Some(0)));
        assert_eq!((used.cost, at("cost")), (10, Some(9)));
        assert_eq!((used.waited, at("waited")), (13, Some(12)));
        let shown = Shown::from_numbers(1..);
        assert!(shown.numbers().eq(1..=Shown::COLUMNS.len() as i64));
        let at = |name: &str| Shown::COLUMNS.iter().position(|column| *column == name);
        assert_eq!((shown.input, at("input")), (2, Some(1)));
        assert_eq!((shown.cost, at("cost")), (6, Some(5)));
        let pace = Pace::from_numbers(1..);
        assert!(pace.numbers().eq(1..=Pace::COLUMNS.len() as i64));
        assert_eq!(pace.waited.0.first(), Some(&13));
        assert_eq!(Pace::COLUMNS.iter().position(|column| *column == "waited_0"), Some(12));
    }

    #[test]
    fn a_share_of_the_calls_stayed_within_a_time() {
        let mut times = Times::default();
        assert_eq!(times.within(50), None);
        for millis in 0..1_000 {
            times.add(millis * 1_000);
        }
        assert_eq!(times.count(), 1_000);
        for percent in [1, 25, 50, 95, 100] {
            let exact = i64::from(percent) * 10_000;
            let told = times.within(percent).unwrap_or_default();
            assert!((told - exact).abs() <= 1_000, "{percent}: {told}");
        }
        times.add(i64::MAX);
        assert_eq!(times.within(100), Some(60_000_000));
    }
}
