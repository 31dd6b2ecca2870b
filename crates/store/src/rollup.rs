//! Usage added up as calls are posted: the rows of the table `usage`, written in the very
//! transaction that posts the calls, so that their sums are the ledger's at every instant.
//!
//! Each new call is added to fifteen rows: by hour, day and month of its admission, each for its
//! key, for its account and for everyone, told apart by model, lane and status, and in days and
//! months not told apart as well. Most calls of a batch share most of them. What is not new adds
//! nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ledger::{Entry, Micros, Period, day_of};

use crate::StoreError;
use crate::db::clean;
use crate::sums::{Pace, Sums, Used};

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

/// Whose calls a row adds up: told apart by model, lane and status, or all that owner's in one row,
/// which is what keeps questions about many owners small. Rows that more callers share come later,
/// so that a transaction holds them for the shortest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Key,
    KeySum,
    Account,
    AccountSum,
    All,
    AllSum,
}

impl Scope {
    pub(crate) const ALL: [Self; 6] =
        [Self::Key, Self::KeySum, Self::Account, Self::AccountSum, Self::All, Self::AllSum];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::KeySum => "key_sum",
            Self::Account => "account",
            Self::AccountSum => "account_sum",
            Self::All => "all",
            Self::AllSum => "all_sum",
        }
    }

    /// Whether there are such rows for stretches of that length. In an hour an owner has few rows
    /// that are told apart, so that their sum would save nothing.
    pub(crate) const fn has(self, step: Step) -> bool {
        match step {
            Step::Hour => self.apart(),
            Step::Day | Step::Month => true,
        }
    }

    /// Whether its rows tell model, lane and status apart.
    const fn apart(self) -> bool {
        match self {
            Self::Key | Self::Account | Self::All => true,
            Self::KeySum | Self::AccountSum | Self::AllSum => false,
        }
    }
}

/// Adds one call.
fn add(used: &mut Used, pace: &mut Pace, entry: &Entry) -> Result<(), StoreError> {
    let count = |count: u64| i64::try_from(count).unwrap_or(MOST).min(MOST);
    let usage = &entry.usage;
    let took = entry.ended.saturating_sub(entry.started).clamp(0, MOST);
    let waited = entry.first_byte_us.map(|waited| waited.clamp(0, MOST));
    pace.took.add(took);
    if let Some(waited) = waited {
        pace.waited.add(waited);
    }
    *used = used.plus(&Used {
        calls: 1,
        streams: i64::from(entry.stream),
        estimated: i64::from(entry.estimated),
        input: count(usage.input),
        cache_read: count(usage.cache_read),
        cache_write: count(usage.cache_write) + count(usage.cache_write_long),
        output: count(usage.output),
        thinking: count(usage.thinking),
        searches: count(usage.searches),
        cost: entry.cost.as_nanos(),
        borne: entry.borne.as_nanos().clamp(-MOST_BORNE, MOST_BORNE),
        took,
        waited: waited.unwrap_or_default(),
    })?;
    Ok(())
}

/// Which row of the table. The order in which all transactions take the rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row<'a> {
    scope: Scope,
    step: Step,
    owner: Cow<'a, str>,
    begun: Micros,
    account_id: Cow<'a, str>,
    model: Cow<'a, str>,
    lane: Cow<'a, str>,
    status: i64,
}

/// What a batch adds to each row.
pub(crate) fn add_up<'a>(
    entries: impl Iterator<Item = &'a Entry>,
) -> Result<BTreeMap<Row<'a>, (Used, Pace)>, StoreError> {
    // First by hour, with the texts where they are: most calls of a batch are much alike.
    let mut hours: BTreeMap<_, (Used, Pace)> = BTreeMap::new();
    for entry in entries {
        let Entry { key_id, account_id, model, lane, status, started, .. } = entry;
        let texts = (clean(key_id), clean(account_id), clean(model), clean(lane));
        let (used, pace) = hours.entry((texts, *status, Step::Hour.begin(*started))).or_default();
        add(used, pace, entry)?;
    }
    let mut rows: BTreeMap<Row<'_>, (Used, Pace)> = BTreeMap::new();
    let none = Cow::Borrowed("");
    for (((key_id, account_id, model, lane), status, hour), (used, pace)) in &hours {
        for step in Step::ALL {
            for scope in Scope::ALL.into_iter().filter(|scope| scope.has(step)) {
                let (owner, account_id) = match scope {
                    Scope::Key | Scope::KeySum => (key_id, account_id),
                    Scope::Account | Scope::AccountSum => (account_id, &none),
                    Scope::All | Scope::AllSum => (&none, &none),
                };
                let (model, lane, status) =
                    if scope.apart() { (model, lane, *status) } else { (&none, &none, 0) };
                let row = Row {
                    scope,
                    step,
                    owner: owner.clone(),
                    begun: step.begin(*hour),
                    account_id: account_id.clone(),
                    model: model.clone(),
                    lane: lane.clone(),
                    status: i64::from(status),
                };
                let sums = rows.entry(row).or_default();
                *sums = (sums.0.plus(used)?, sums.1.plus(pace)?);
            }
        }
    }
    Ok(rows)
}

/// Adds what calls used to the table. For a body that is compiled for both drivers.
macro_rules! add_usage {
    ($kind:ident, $tx:ident, $entries:expr) => {
        let rows: Vec<_> = $crate::rollup::add_up($entries)?.into_iter().collect();
        for chunk in $crate::rollup::chunks(&rows) {
            let mut query = $crate::rollup::addition::<$kind>(chunk);
            query.build().execute(&mut *$tx).await?;
        }
    };
}
pub(crate) use add_usage;

/// Cuts rows into pieces of a few lengths, so that every statement's text comes back and stays
/// prepared: making one ready costs more than running it.
pub(crate) fn chunks<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    const LENGTHS: [usize; 3] = [40, 6, 1];
    std::iter::from_fn(move || {
        let cut = LENGTHS.iter().find_map(|length| rows.split_at_checked(*length));
        let (chunk, rest) = cut.filter(|(chunk, _)| !chunk.is_empty())?;
        rows = rest;
        Some(chunk)
    })
}

/// A statement that adds to some rows.
pub(crate) fn addition<D>(rows: &[(Row<'_>, (Used, Pace))]) -> sqlx::QueryBuilder<D>
where
    D: sqlx::Database,
    String: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
    &'static str: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
    i64: sqlx::Type<D> + for<'q> sqlx::Encode<'q, D>,
{
    let mut query = sqlx::QueryBuilder::new(
        "INSERT INTO usage (span, scope, owner, begun, account_id, model, lane, status",
    );
    let columns = || Used::COLUMNS.iter().chain(Pace::COLUMNS);
    for column in columns() {
        query.push(", ").push(column);
    }
    query.push(") ");
    query.push_values(rows, |mut values, (row, (used, pace))| {
        values
            .push_bind(row.step.word())
            .push_bind(row.scope.word())
            .push_bind(row.owner.to_string())
            .push_bind(row.begun)
            .push_bind(row.account_id.to_string())
            .push_bind(row.model.to_string())
            .push_bind(row.lane.to_string())
            .push_bind(row.status);
        for number in used.numbers().chain(pace.numbers()) {
            values.push_bind(number);
        }
    });
    query.push(
        " ON CONFLICT (span, scope, owner, begun, account_id, model, lane, status) DO UPDATE SET ",
    );
    let mut sets = query.separated(", ");
    for column in columns() {
        sets.push(format_args!("{column} = usage.{column} + excluded.{column}"));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_few_lengths_and_none_is_lost() {
        for count in 0..200_usize {
            let rows: Vec<usize> = (0..count).collect();
            let lengths: Vec<usize> = chunks(&rows).map(<[usize]>::len).collect();
            assert!(lengths.iter().all(|length| [40, 6, 1].contains(length)), "{lengths:?}");
            assert_eq!(chunks(&rows).flatten().copied().collect::<Vec<_>>(), rows);
        }
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
