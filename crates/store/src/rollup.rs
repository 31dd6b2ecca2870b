//! Sums of usage: the rows of the table `usage`, written in the transaction that posts the calls,
//! so that they always agree with the ledger.
//!
//! Each new call is added to fifteen rows: by hour, day and month of its admission, each for its
//! key, its account and the whole gateway, grouped by model, lane and status; for days and months
//! also without grouping. Most calls of a batch share most of these rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{BudgetPeriod, LeaseToken, LedgerEntry, day_of};
use sqlx::{Arguments as _, Database, Encode, Type};

use crate::StoreError;
use crate::corrections::CallCorrection;
use crate::db::clean;
use crate::row_statement::{RowStatement, SharedTexts, with_places};
use crate::sums::{LatencyTotals, SummedColumns, UsageTotals};
use crate::text_hash::TextMap;

pub(crate) const HOUR: Micros = Micros::from_hours(1);
pub(crate) const DAY: Micros = Micros::from_days(1);

/// Upper bound of a count or a duration of one call. A larger value cannot be true and is capped,
/// so that one absurd reply cannot overflow a sum and block the ledger.
const MAX_COUNT: i64 = 1_000_000_000_000;
/// Upper bound of the absorbed cost of one call: a million dollars.
const MAX_ABSORBED: Money = Money::from_nanos(1_000_000_000_000_000);
const MIN_ABSORBED: Money = Money::from_nanos(-1_000_000_000_000_000);

/// The length of time that one row sums up, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageStep {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A calendar month.
    Month,
}

impl UsageStep {
    /// Every step.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    /// The word in the table, in URLs and on pages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// Returns the step with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }

    /// Returns the begin of the step that contains that time.
    pub fn begin(self, at: Micros) -> Micros {
        match self {
            Self::Hour => HOUR * at.get().div_euclid(HOUR.get()),
            Self::Day => DAY * day_of(at),
            Self::Month => DAY * BudgetPeriod::Month.days(at).0,
        }
    }

    /// Returns a range that is not empty, extended to whole steps.
    pub fn cover(self, range: &Range<Micros>) -> Range<Micros> {
        self.begin(range.start)..self.end(range.end - Micros::new(1))
    }

    /// Returns the begins of the steps that have a part of a range.
    pub fn begins(self, range: &Range<Micros>) -> Vec<Micros> {
        let next = |begin: &Micros| Some(self.end(*begin)).filter(|next| *next < range.end);
        std::iter::successors(Some(self.begin(range.start)), next).collect()
    }

    /// Returns the begin of the next step.
    pub fn end(self, at: Micros) -> Micros {
        match self {
            Self::Hour => HOUR * at.get().div_euclid(HOUR.get()).saturating_add(1),
            Self::Day => BudgetPeriod::Day.end(at),
            Self::Month => BudgetPeriod::Month.end(at),
        }
    }
}

/// The calls that a row sums up: those of one owner, grouped by model, lane and status or not
/// grouped. Rows without grouping keep queries over many owners small. Rows that more callers share
/// come later, so that a transaction locks them for the shortest time.
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

    /// Returns true if there are rows of this scope for that step. An owner has few grouped rows in
    /// an hour, so rows without grouping would save nothing.
    pub(crate) const fn has(self, step: UsageStep) -> bool {
        match step {
            UsageStep::Hour => self.apart(),
            UsageStep::Day | UsageStep::Month => true,
        }
    }

    /// Returns true if its rows are grouped by model, lane and status.
    const fn apart(self) -> bool {
        match self {
            Self::Key | Self::Account | Self::All => true,
            Self::KeySum | Self::AccountSum | Self::AllSum => false,
        }
    }
}

fn bounded(time: Micros) -> Micros {
    time.clamp(Micros::ZERO, Micros::new(MAX_COUNT))
}

/// Returns one call as it is summed up.
pub(crate) fn counted(entry: &LedgerEntry) -> UsageTotals {
    let count = |count: u64| i64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT);
    let usage = &entry.usage;
    UsageTotals {
        calls: 1,
        streams: i64::from(entry.stream),
        estimated: i64::from(entry.estimated),
        input: count(usage.input),
        cache_read: count(usage.cache_read),
        cache_write: count(usage.cache_write) + count(usage.cache_write_long),
        output: count(usage.output),
        thinking: count(usage.thinking),
        searches: count(usage.searches),
        cost: entry.cost,
        absorbed: entry.absorbed.max(MIN_ABSORBED).min(MAX_ABSORBED),
        took: bounded(entry.ended - entry.started),
        waited: entry.first_byte_us.map(bounded).unwrap_or_default(),
    }
}

/// Adds one call.
fn add(
    used: &mut UsageTotals,
    pace: &mut LatencyTotals,
    entry: &LedgerEntry,
) -> Result<(), StoreError> {
    let one = counted(entry);
    pace.took.add(one.took);
    if entry.first_byte_us.is_some() {
        pace.waited.add(one.waited);
    }
    used.add(&one)
}

/// The key of a row. Its order is the order in which all transactions lock rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsageRow<'a> {
    scope: Scope,
    step: UsageStep,
    owner: Cow<'a, str>,
    begun: Micros,
    account_id: Cow<'a, str>,
    model: Cow<'a, str>,
    lane: Cow<'a, str>,
    status: i64,
}

/// Sums of the calls of a batch that belong to the same rows and are paid by the same lease.
pub(crate) struct CallGroup<'a> {
    pub(crate) key_id: Cow<'a, str>,
    account_id: Cow<'a, str>,
    model: Cow<'a, str>,
    lane: Cow<'a, str>,
    status: u16,
    hour: Micros,
    /// The lease that pays, and the amount.
    pub(crate) lease: Option<LeaseToken>,
    pub(crate) leased: Money,
    /// The earliest admission of a call.
    pub(crate) started: Micros,
    /// The latest end of a call.
    pub(crate) ended: Micros,
    pub(crate) used: UsageTotals,
    pace: LatencyTotals,
}

/// Sums up calls that are alike, each with the lease that pays for it. Most calls of a batch are. Their
/// order is that of their first calls.
pub(crate) fn group_calls<'a>(
    calls: impl Iterator<Item = (&'a LedgerEntry, Option<LeaseToken>)>,
) -> Result<Vec<CallGroup<'a>>, StoreError> {
    let mut groups: Vec<CallGroup<'a>> = Vec::new();
    let mut places: TextMap<_, usize> = TextMap::default();
    // The end of the hour of the last call, so that most calls need no division.
    let mut hour = Micros::ZERO..Micros::ZERO;
    let mut last = None;
    for (entry, lease) in calls {
        let LedgerEntry { key_id, account_id, model, lane, status, started, cost, ended, .. } =
            entry;
        if !hour.contains(started) {
            hour = UsageStep::Hour.begin(*started)..UsageStep::Hour.end(*started);
        }
        let texts = (key_id, account_id, model, lane, *status, hour.start, lease);
        let place = match last {
            Some((last, place)) if last == texts => place,
            Some(_) | None => *places.entry(texts).or_insert_with(|| {
                groups.push(CallGroup {
                    key_id: clean(key_id),
                    account_id: clean(account_id),
                    model: clean(model),
                    lane: clean(lane),
                    status: *status,
                    hour: hour.start,
                    lease,
                    leased: Money::ZERO,
                    started: *started,
                    ended: *ended,
                    used: UsageTotals::default(),
                    pace: LatencyTotals::default(),
                });
                groups.len() - 1
            }),
        };
        last = Some((texts, place));
        let Some(group) = groups.get_mut(place) else { continue };
        group.started = group.started.min(*started);
        group.ended = group.ended.max(*ended);
        if *cost > Money::ZERO {
            let leased = group.leased.checked_add(*cost);
            let overflow = || StoreError::Other("the cost of a batch overflows".to_owned());
            group.leased = leased.ok_or_else(overflow)?;
        }
        add(&mut group.used, &mut group.pace, entry)?;
    }
    Ok(groups)
}

/// Returns the additions of a batch to each row.
fn sum_batch<'a>(
    entries: impl Iterator<Item = &'a LedgerEntry>,
) -> Result<BTreeMap<UsageRow<'a>, (UsageTotals, LatencyTotals)>, StoreError> {
    sum_groups(&group_calls(entries.map(|entry| (entry, None)))?)
}

/// Returns the additions of groups of calls to each row.
pub(crate) fn sum_groups<'a>(
    groups: &[CallGroup<'a>],
) -> Result<BTreeMap<UsageRow<'a>, (UsageTotals, LatencyTotals)>, StoreError> {
    let mut rows: BTreeMap<UsageRow<'_>, (UsageTotals, LatencyTotals)> = BTreeMap::new();
    let none = Cow::Borrowed("");
    for CallGroup { key_id, account_id, model, lane, status, hour, used, pace, .. } in groups {
        for step in UsageStep::ALL {
            for scope in Scope::ALL.into_iter().filter(|scope| scope.has(step)) {
                let (owner, account_id) = match scope {
                    Scope::Key | Scope::KeySum => (key_id, account_id),
                    Scope::Account | Scope::AccountSum => (account_id, &none),
                    Scope::All | Scope::AllSum => (&none, &none),
                };
                let (model, lane, status) =
                    if scope.apart() { (model, lane, *status) } else { (&none, &none, 0) };
                let row = UsageRow {
                    scope,
                    step,
                    owner: owner.clone(),
                    begun: step.begin(*hour),
                    account_id: account_id.clone(),
                    model: model.clone(),
                    lane: lane.clone(),
                    status: i64::from(status),
                };
                match rows.entry(row) {
                    Entry::Vacant(row) => {
                        row.insert((*used, *pace));
                    }
                    Entry::Occupied(mut row) => {
                        let (all_used, all_pace) = row.get_mut();
                        all_used.add(used)?;
                        all_pace.add(pace)?;
                    }
                }
            }
        }
    }
    Ok(rows)
}

/// Returns the additions of new and corrected calls to each row. A correction can move a call to
/// another row, because its lane or its status is known better.
pub(crate) fn sum_changes<'a>(
    new: impl Iterator<Item = &'a LedgerEntry>,
    corrected: &'a [CallCorrection],
) -> Result<BTreeMap<UsageRow<'a>, (UsageTotals, LatencyTotals)>, StoreError> {
    let mut rows = sum_batch(new.chain(corrected.iter().map(|call| &call.after)))?;
    for (row, (used, pace)) in sum_batch(corrected.iter().map(|call| &call.before))? {
        let sums = rows.entry(row).or_default();
        *sums = (sums.0.less(&used)?, sums.1.less(&pace)?);
    }
    Ok(rows)
}

/// The addition to rows of usage, for one driver.
pub(crate) type AddStatement = RowStatement<3>;
pub(crate) const ADDED_ROWS: [usize; 3] = [40, 6, 1];

/// Adds sums of usage to the table, for either driver.
macro_rules! add_usage {
    ($kind:ident, $tx:ident, $sums:expr) => {
        // One for each driver.
        static ADDITION: $crate::rollup::AddStatement =
            $crate::rollup::AddStatement::new($crate::rollup::ADDED_ROWS);
        let rows: Vec<_> = $sums.into_iter().collect();
        for chunk in ADDITION.chunks(&rows) {
            let text =
                ADDITION.text(chunk.len(), || $crate::rollup::addition::<$kind>(chunk.len()));
            let values = $crate::rollup::bind_rows::<$kind>(chunk)?;
            sqlx::query_with(text, values).execute(&mut *$tx).await?;
        }
    };
}
pub(crate) use add_usage;

const KEY_COLUMNS: [&str; 8] =
    ["span", "scope", "owner", "begun", "account_id", "model", "lane", "status"];

/// Writes the statement that adds to so many rows.
pub(crate) fn addition<D: Database>(rows: usize) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    let (keys, sums) = (KEY_COLUMNS.join(", "), [UsageTotals::COLUMNS, LatencyTotals::COLUMNS]);
    let sums = sums.concat();
    let added = sums.iter().map(|name| format!("{name} = usage.{name} + excluded.{name}"));
    let added: Vec<String> = added.collect();
    let start = format!("INSERT INTO usage ({keys}, {}) ", sums.join(", "));
    let end = format!(" ON CONFLICT ({keys}) DO UPDATE SET {}", added.join(", "));
    with_places::<D>(&start, rows, KEY_COLUMNS.len() + sums.len(), &end)
}

/// Binds the values of rows, in the order of the columns.
pub(crate) fn bind_rows<D: Database>(
    rows: &[(UsageRow<'_>, (UsageTotals, LatencyTotals))],
) -> Result<D::Arguments, sqlx::Error>
where
    i64: Type<D> + for<'q> Encode<'q, D>,
    Arc<str>: Type<D> + for<'q> Encode<'q, D>,
{
    let (mut values, mut texts) = (D::Arguments::default(), SharedTexts::default());
    let mut bind = |(row, (used, pace)): &(UsageRow<'_>, (UsageTotals, LatencyTotals))| {
        texts.begin_row();
        values.add(texts.next(row.step.word()))?;
        values.add(texts.next(row.scope.word()))?;
        values.add(texts.next(&row.owner))?;
        values.add(row.begun.get())?;
        values.add(texts.next(&row.account_id))?;
        values.add(texts.next(&row.model))?;
        values.add(texts.next(&row.lane))?;
        values.add(row.status)?;
        used.numbers().chain(pace.numbers()).try_for_each(|number| values.add(number))
    };
    rows.iter().try_for_each(&mut bind).map_err(sqlx::Error::Encode)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_between_the_begin_and_the_end_of_its_steps() {
        let (hour, day) = (HOUR.get(), DAY.get());
        let times = [i64::MIN / 2, -1, 0, 1, hour, day - 1, day, 1_782_864_000_000_000];
        for at in times.into_iter().chain([i64::MAX / 2]).map(Micros::new) {
            for step in UsageStep::ALL {
                let (begin, end) = (step.begin(at), step.end(at));
                assert!(begin <= at && at < end, "{step:?} {at}");
                assert_eq!((step.begin(begin), step.begin(end - Micros::new(1))), (begin, begin));
                assert_eq!(UsageStep::by_word(step.word()), Some(step));
            }
        }
        // Extreme times must not overflow.
        for step in UsageStep::ALL {
            let _ = (step.begin(Micros::new(i64::MIN)), step.end(Micros::MAX));
        }
    }
}
