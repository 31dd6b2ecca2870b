//! Usage added up as calls are posted: the rows of the table `usage`, written in the very
//! transaction that posts the calls, so that their sums are the ledger's at every instant.
//!
//! Each new call is added to nine rows: by hour, day and month of its admission, each for its key,
//! for its account and for everyone. What is not new adds nothing.

use std::collections::BTreeMap;

use ledger::{Entry, Micros, Period, day_of};

use crate::StoreError;
use crate::db::clean;

pub(crate) const HOUR: Micros = 3_600_000_000;
pub(crate) const DAY: Micros = 86_400_000_000;

/// A count or a time of one call above this cannot be true, and is added up as this: one absurd
/// answer must never make a sum overflow and the ledger stand still.
const MOST: i64 = 1_000_000_000_000;
/// The same for what the operator bears of one call: a million dollars.
const MOST_BORNE: i64 = 1_000_000_000_000_000;

/// How long a stretch of time is that is added up in one row; all of them in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A month of the calendar.
    Month,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    /// The word in the table, and for addresses and pages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The step with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }

    /// When the stretch begins that has this time in it.
    pub fn begin(self, at: Micros) -> Micros {
        match self {
            Self::Hour => at.div_euclid(HOUR).saturating_mul(HOUR),
            Self::Day => day_of(at).saturating_mul(DAY),
            Self::Month => Period::Month.days(at).0.saturating_mul(DAY),
        }
    }

    /// When the next one begins.
    pub fn end(self, at: Micros) -> Micros {
        match self {
            Self::Hour => at.div_euclid(HOUR).saturating_add(1).saturating_mul(HOUR),
            Self::Day => Period::Day.end(at),
            Self::Month => Period::Month.end(at),
        }
    }
}

/// Whose calls a row adds up. Rows that more callers share come later, so that a transaction holds
/// them for the shortest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Key,
    Account,
    All,
}

impl Scope {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Account => "account",
            Self::All => "all",
        }
    }
}

/// How many calls took how long, by fixed bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times(pub(crate) [i64; Times::COUNTS]);

impl Times {
    /// Where one count ends and the next begins, in milliseconds. The last count has no end.
    pub const BOUNDS: [i64; 11] =
        [50, 100, 200, 400, 700, 1_000, 2_000, 4_000, 10_000, 30_000, 60_000];
    pub(crate) const COUNTS: usize = Self::BOUNDS.len() + 1;

    fn add(&mut self, micros: Micros) {
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
    /// How many calls took how long.
    pub took_times: Times,
    /// How many had to wait how long for the first byte.
    pub waited_times: Times,
}

/// The columns of sums in the order of [`Used::numbers`], which is that of the table.
pub(crate) const COLUMNS: [&str; 13 + 2 * Times::COUNTS] = [
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

impl Used {
    /// Every number, in the order of [`COLUMNS`].
    pub(crate) fn numbers(&self) -> impl Iterator<Item = i64> {
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
            took_times,
            waited_times,
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
        .chain(took_times.0)
        .chain(waited_times.0)
    }

    /// Reads the numbers back; what is missing is nothing.
    pub(crate) fn from_numbers(mut numbers: impl Iterator<Item = i64>) -> Self {
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
            took_times: Times(std::array::from_fn(|_| next())),
            waited_times: Times(std::array::from_fn(|_| next())),
        }
    }

    /// Adds one call.
    fn add(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let count = |count: u64| i64::try_from(count).unwrap_or(MOST).min(MOST);
        let usage = &entry.usage;
        self.calls += 1;
        self.streams += i64::from(entry.stream);
        self.estimated += i64::from(entry.estimated);
        self.input += count(usage.input);
        self.cache_read += count(usage.cache_read);
        self.cache_write += count(usage.cache_write) + count(usage.cache_write_long);
        self.output += count(usage.output);
        self.thinking += count(usage.thinking);
        self.searches += count(usage.searches);
        let sum = self.cost.checked_add(entry.cost.as_nanos());
        self.cost =
            sum.ok_or_else(|| StoreError::Other("a batch costs more than can be held".to_owned()))?;
        self.borne += entry.borne.as_nanos().clamp(-MOST_BORNE, MOST_BORNE);
        let took = entry.ended.saturating_sub(entry.started).clamp(0, MOST);
        self.took += took;
        self.took_times.add(took);
        if let Some(waited) = entry.first_byte_us {
            let waited = waited.clamp(0, MOST);
            self.waited += waited;
            self.waited_times.add(waited);
        }
        Ok(())
    }
}

/// Which row of the table. The order in which all transactions take the rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) scope: Scope,
    pub(crate) step: Step,
    pub(crate) owner: String,
    pub(crate) begun: Micros,
    pub(crate) account_id: String,
    pub(crate) model: String,
    pub(crate) lane: String,
    pub(crate) status: i64,
}

/// What a batch adds to each row.
pub(crate) fn add_up<'a>(
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<BTreeMap<Row, Used>, StoreError> {
    let mut rows: BTreeMap<Row, Used> = BTreeMap::new();
    for entry in entries {
        let text = |text: &str| clean(text).into_owned();
        for step in Step::ALL {
            for scope in [Scope::Key, Scope::Account, Scope::All] {
                let (owner, account_id) = match scope {
                    Scope::Key => (text(&entry.key_id), text(&entry.account_id)),
                    Scope::Account => (text(&entry.account_id), String::new()),
                    Scope::All => (String::new(), String::new()),
                };
                let row = Row {
                    scope,
                    step,
                    owner,
                    begun: step.begin(entry.started),
                    account_id,
                    model: text(&entry.model),
                    lane: text(&entry.lane),
                    status: i64::from(entry.status),
                };
                rows.entry(row).or_default().add(entry)?;
            }
        }
    }
    Ok(rows)
}

/// Adds what calls used to the table. For a body that is compiled for both drivers.
macro_rules! add_usage {
    ($kind:ident, $tx:ident, $entries:expr) => {
        let rows: Vec<_> = $crate::rollup::add_up($entries)?.into_iter().collect();
        for chunk in rows.chunks($crate::rollup::ROWS) {
            let mut query = $crate::rollup::addition::<$kind>(chunk);
            let query = query.build().persistent(chunk.len() == $crate::rollup::ROWS);
            query.execute(&mut *$tx).await?;
        }
    };
}
pub(crate) use add_usage;

/// Rows per statement.
pub(crate) const ROWS: usize = 40;

/// A statement that adds to some rows.
pub(crate) fn addition<D>(rows: &[(Row, Used)]) -> sqlx::QueryBuilder<D>
where
    D: sqlx::Database,
    String: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
    &'static str: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
    i64: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
{
    let mut query = sqlx::QueryBuilder::new(
        "INSERT INTO usage (span, scope, owner, begun, account_id, model, lane, status",
    );
    for column in COLUMNS {
        query.push(", ").push(column);
    }
    query.push(") ");
    query.push_values(rows, |mut values, (row, used)| {
        values
            .push_bind(row.step.word())
            .push_bind(row.scope.word())
            .push_bind(row.owner.clone())
            .push_bind(row.begun)
            .push_bind(row.account_id.clone())
            .push_bind(row.model.clone())
            .push_bind(row.lane.clone())
            .push_bind(row.status);
        for number in used.numbers() {
            values.push_bind(number);
        }
    });
    query.push(
        " ON CONFLICT (span, scope, owner, begun, account_id, model, lane, status) DO UPDATE SET ",
    );
    let mut sets = query.separated(", ");
    for column in COLUMNS {
        sets.push(format_args!("{column} = usage.{column} + excluded.{column}"));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_columns_have_one_order() {
        let used = Used::from_numbers(1..);
        assert!(used.numbers().eq(1..=COLUMNS.len() as i64));
        assert_eq!((used.calls, used.cost, used.waited), (1, 10, 13));
        assert_eq!(COLUMNS.iter().position(|name| *name == "cost"), Some(9));
        assert_eq!(COLUMNS.iter().position(|name| *name == "waited"), Some(12));
        assert_eq!(used.waited_times.0.first(), Some(&26));
        assert_eq!(COLUMNS.iter().position(|name| *name == "waited_0"), Some(25));
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

    #[test]
    fn every_time_lies_between_the_begin_and_the_end_of_its_steps() {
        for at in [i64::MIN / 2, -1, 0, 1, HOUR, DAY - 1, DAY, 1_782_864_000_000_000, i64::MAX / 2]
        {
            for step in Step::ALL {
                let (begin, end) = (step.begin(at), step.end(at));
                assert!(begin <= at && at < end, "{step:?} {at}");
                assert_eq!((step.begin(begin), step.begin(end - 1)), (begin, begin));
                assert_eq!(Step::by_word(step.word()), Some(step));
            }
        }
        // Extremes are told as they can be.
        for step in Step::ALL {
            let _ = (step.begin(i64::MIN), step.end(i64::MAX));
        }
    }
}
