//! Usage reports: over time, in total, and by the largest users.
//!
//! All queries read the table `usage` and never the calls, so a year of a hundred million calls is
//! a few thousand rows. Times are those of admission, in UTC. Running and unposted calls are not
//! included.

use std::collections::BTreeMap;
use std::ops::Range;

use canon::Micros;
use sqlx::{Decode, QueryBuilder, Type};

use crate::db::{clean, in_snapshot, on_reader};
use crate::refusals::refused_query;
use crate::rollup::Scope;
use crate::sums::{ReportTotals, SummedColumns};
use crate::{LatencyTotals, Store, StoreError, UsageStep, UsageTotals};

/// The dimension that groups usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The account.
    Account,
    /// The key.
    Key,
    /// The model.
    Model,
    /// The lane that answered.
    Lane,
    /// The HTTP status the caller received.
    Status,
}

impl GroupBy {
    /// Every dimension.
    pub const ALL: [Self; 5] = [Self::Account, Self::Key, Self::Model, Self::Lane, Self::Status];

    /// The word in URLs and on pages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Key => "key",
            Self::Model => "model",
            Self::Lane => "lane",
            Self::Status => "status",
        }
    }

    /// Returns the dimension with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.word() == word)
    }
}

/// Conditions on usage; `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Of this account.
    pub account_id: Option<String>,
    /// Of this key.
    pub key_id: Option<String>,
    /// Of this model.
    pub model: Option<String>,
    /// Of this lane.
    pub lane: Option<String>,
    /// Of calls that ended with this status.
    pub status: Option<u16>,
}

/// Sums of one step of time and one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsagePoint<S = UsageTotals> {
    /// Begin of the step.
    pub begun: Micros,
    /// The group: an id, a model, a lane or a status; empty without grouping.
    pub group: String,
    /// The sums.
    pub used: S,
}

/// A usage report to make.
#[derive(Clone, Debug)]
pub struct UsageRequest {
    /// Range of time, extended to whole steps.
    pub range: Range<Micros>,
    /// Length of each step.
    pub step: UsageStep,
    /// The dimension that groups the report.
    pub by: GroupBy,
    /// The order of the groups.
    pub rank: GroupOrder,
    /// Conditions on the usage.
    pub filter: UsageFilter,
    /// Maximum number of listed groups.
    pub listed: usize,
    /// Number of groups with a series of their own; the others are summed up in one.
    pub with_series: usize,
}

/// A usage report. All its parts are read at one instant and agree with each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// The total.
    pub all: ReportTotals,
    /// Number of calls that were refused before any provider was asked.
    pub refused: i64,
    /// The same by group.
    pub refused_by: BTreeMap<String, i64>,
    /// Latencies of all calls.
    pub latencies: LatencyTotals,
    /// The first groups.
    pub top: Vec<(String, ReportTotals)>,
    /// Series of the very first groups, oldest first.
    pub series: Vec<UsagePoint<ReportTotals>>,
    /// Series of all other groups together, with the begin of each step.
    pub others: Vec<(Micros, ReportTotals)>,
}

/// The order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupOrder {
    /// By the amount paid.
    #[default]
    Cost,
    /// By the number of calls.
    Calls,
    /// By the number of prompt and reply tokens.
    Tokens,
}

/// A part of a range and the length of the rows that cover it.
type RangePiece = (UsageStep, Range<Micros>);

/// Divides a range, extended to whole hours, into as few rows as possible: months in the middle,
/// days around them, hours at both ends.
fn pieces(range: &Range<Micros>) -> Vec<RangePiece> {
    if range.is_empty() {
        return Vec::new();
    }
    let from = UsageStep::Hour.begin(range.start);
    let to = UsageStep::Hour.end(range.end - Micros::new(1));
    // The whole steps within a range.
    let within = |step: UsageStep, outer: Range<Micros>| {
        let begin = step.begin(outer.start);
        let begin = if begin == outer.start { begin } else { step.end(outer.start) };
        let end = step.begin(outer.end);
        if begin < end { begin..end } else { outer.end..outer.end }
    };
    let days = within(UsageStep::Day, from..to);
    let months = within(UsageStep::Month, days.clone());
    let cut = [
        (UsageStep::Hour, from..days.start),
        (UsageStep::Day, days.start..months.start),
        (UsageStep::Month, months.clone()),
        (UsageStep::Day, months.end..days.end),
        (UsageStep::Hour, days.end..to),
    ];
    cut.into_iter().filter(|(_, piece)| !piece.is_empty()).collect()
}

/// Returns the scope with the fewest rows that can answer the query.
fn scope(step: UsageStep, by: Option<GroupBy>, filter: &UsageFilter) -> Scope {
    let UsageFilter { account_id, key_id, model, lane, status } = filter;
    let whole = model.is_none()
        && lane.is_none()
        && status.is_none()
        && match by {
            None | Some(GroupBy::Account | GroupBy::Key) => true,
            Some(GroupBy::Model | GroupBy::Lane | GroupBy::Status) => false,
        };
    let (sum, apart) = if by == Some(GroupBy::Key) || key_id.is_some() {
        (Scope::KeySum, Scope::Key)
    } else if by == Some(GroupBy::Account) || account_id.is_some() {
        (Scope::AccountSum, Scope::Account)
    } else {
        (Scope::AllSum, Scope::All)
    };
    if whole && sum.has(step) { sum } else { apart }
}

fn column(by: Option<GroupBy>, scope: Scope) -> &'static str {
    match (by, scope) {
        (None, _) => "''",
        (Some(GroupBy::Account), Scope::Key | Scope::KeySum) => "account_id",
        (Some(GroupBy::Key | GroupBy::Account), _) => "owner",
        (Some(GroupBy::Model), _) => "model",
        (Some(GroupBy::Lane), _) => "lane",
        (Some(GroupBy::Status), _) => "CAST(status AS TEXT)",
    }
}

/// One query on the table.
struct UsageQuery<'a> {
    piece: RangePiece,
    by: Option<GroupBy>,
    /// Restricts the query to these groups.
    among: Option<&'a [(String, ReportTotals)]>,
    filter: &'a UsageFilter,
    /// True if every step is returned separately.
    over_time: bool,
}

impl UsageQuery<'_> {
    fn build<D, S: SummedColumns>(&self) -> QueryBuilder<D>
    where
        D: sqlx::Database,
        String: Type<D> + for<'q> sqlx::Encode<'q, D>,
        i64: Type<D> + for<'q> sqlx::Encode<'q, D>,
    {
        let Self { piece: (step, range), by, among, filter, over_time } = self;
        let scope = scope(*step, *by, filter);
        let text = |text: &str| clean(text).into_owned();
        let begun = if *over_time { "begun" } else { "CAST(0 AS BIGINT)" };
        // In the order of the index, so that nothing has to be sorted. A correction can leave a group
        // without calls.
        let groups = match (over_time, by) {
            (true, Some(_)) => " GROUP BY 1, 2 HAVING SUM(calls) > 0 ORDER BY 1, 2",
            (true, None) => " GROUP BY 1 HAVING SUM(calls) > 0 ORDER BY 1",
            (false, Some(_)) => " GROUP BY 2 HAVING SUM(calls) > 0 ORDER BY 2",
            (false, None) => " HAVING SUM(calls) > 0",
        };
        let group = column(*by, scope);
        let mut query = QueryBuilder::new("SELECT ");
        query.push(begun).push(", ").push(group);
        for column in S::COLUMNS {
            // PostgreSQL returns NUMERIC for a sum of BIGINTs.
            query.push(format_args!(", CAST(SUM({column}) AS BIGINT)"));
        }
        // Constants are part of the text and not bound, so that the planner can use partial
        // indexes.
        query.push(format_args!(
            " FROM usage WHERE span = '{}' AND scope = '{}' AND begun >= ",
            step.word(),
            scope.word()
        ));
        query.push_bind(range.start.get()).push(" AND begun < ").push_bind(range.end.get());
        let UsageFilter { account_id, key_id, model, lane, status } = filter;
        match scope {
            Scope::Key | Scope::KeySum => {
                if let Some(key_id) = key_id {
                    query.push(" AND owner = ").push_bind(text(key_id));
                }
                if let Some(account_id) = account_id {
                    query.push(" AND account_id = ").push_bind(text(account_id));
                }
            }
            Scope::Account | Scope::AccountSum => {
                if let Some(account_id) = account_id {
                    query.push(" AND owner = ").push_bind(text(account_id));
                }
            }
            Scope::All | Scope::AllSum => {}
        }
        if let Some(model) = model {
            query.push(" AND model = ").push_bind(text(model));
        }
        if let Some(lane) = lane {
            query.push(" AND lane = ").push_bind(text(lane));
        }
        if let Some(status) = status {
            query.push(" AND status = ").push_bind(i64::from(*status));
        }
        if let Some(among) = among {
            query.push(format_args!(" AND {group} IN ("));
            let mut names = query.separated(", ");
            for (name, _) in *among {
                names.push_bind(text(name));
            }
            query.push(")");
        }
        query.push(groups);
        query
    }
}

fn point<'r, S, R>(row: &'r R) -> Result<UsagePoint<S>, sqlx::Error>
where
    S: SummedColumns,
    R: sqlx::Row,
    usize: sqlx::ColumnIndex<R>,
    i64: Type<R::Database> + Decode<'r, R::Database>,
    String: Type<R::Database> + Decode<'r, R::Database>,
{
    let numbers = (2..).take(S::COLUMNS.len()).map(|place| row.try_get(place));
    let numbers = numbers.collect::<Result<Vec<i64>, _>>()?;
    let used = S::from_numbers(numbers.into_iter());
    Ok(UsagePoint { begun: Micros::new(row.try_get(0)?), group: row.try_get(1)?, used })
}

impl Store {
    /// Returns the usage in each step of a range, grouped or not, oldest first.
    ///
    /// The range is extended to whole steps. A step without usage is left out.
    pub async fn usage_over(
        &self,
        range: Range<Micros>,
        step: UsageStep,
        by: Option<GroupBy>,
        filter: &UsageFilter,
    ) -> Result<Vec<UsagePoint>, StoreError> {
        let range = step.begin(range.start)..range.end;
        self.ask(&UsageQuery { piece: (step, range), by, among: None, filter, over_time: true })
            .await
    }

    /// Returns the latencies in each step of a range, grouped in the same way.
    pub async fn latencies_over(
        &self,
        range: Range<Micros>,
        step: UsageStep,
        by: Option<GroupBy>,
        filter: &UsageFilter,
    ) -> Result<Vec<UsagePoint<LatencyTotals>>, StoreError> {
        let range = step.begin(range.start)..range.end;
        self.ask(&UsageQuery { piece: (step, range), by, among: None, filter, over_time: true })
            .await
    }

    /// Makes a usage report.
    ///
    /// It reads no more detail than it shows: totals over many owners come from rows without
    /// grouping, whole months come from rows of months, and only the first groups have a series.
    pub async fn usage_view(&self, wish: &UsageRequest) -> Result<UsageReport, StoreError> {
        let UsageRequest { range, step, by, rank, filter, listed, with_series: apart } = wish;
        if range.is_empty() {
            return Ok(UsageReport::default());
        }
        let range = step.begin(range.start)..step.end(range.end - Micros::new(1));
        let cut = pieces(&range);
        let mut view = UsageReport::default();
        let mut groups: BTreeMap<String, ReportTotals> = BTreeMap::new();
        let mut others: BTreeMap<Micros, ReportTotals> = BTreeMap::new();
        in_snapshot!(&self.db, tx: Kind => {
            for piece in cut {
                let piece = || piece.clone();
                let usage_query =
                    UsageQuery { piece: piece(), by: Some(*by), among: None, filter, over_time: false };
                for row in usage_query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                    let UsagePoint { group, used, .. } = point::<ReportTotals, _>(&row)?;
                    let sum = groups.entry(group).or_default();
                    *sum = sum.plus(&used)?;
                    view.all = view.all.plus(&used)?;
                }
                let usage_query =
                    UsageQuery { piece: piece(), by: None, among: None, filter, over_time: false };
                for row in usage_query.build::<Kind, LatencyTotals>().build().fetch_all(&mut *tx).await? {
                    view.latencies = view.latencies.plus(&point::<LatencyTotals, _>(&row)?.used)?;
                }
            }
            let mut refused = refused_query!(Kind, &range, *by, filter);
            for (group, calls) in refused.build_query_as::<(String, i64)>().fetch_all(&mut *tx).await? {
                view.refused = view.refused.saturating_add(calls);
                // A group of refused calls alone is listed too.
                groups.entry(group.clone()).or_default();
                view.refused_by.insert(group, calls);
            }
            view.top = first(groups, *rank, *listed);
            let piece = || (*step, range.clone());
            let usage_query = UsageQuery { piece: piece(), by: None, among: None, filter, over_time: true };
            for row in usage_query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                let UsagePoint { begun, used, .. } = point::<ReportTotals, _>(&row)?;
                others.insert(begun, used);
            }
            let among = Some(view.top.get(..*apart).unwrap_or(&view.top)).filter(|among| !among.is_empty());
            if among.is_some() {
                let usage_query =
                    UsageQuery { piece: piece(), by: Some(*by), among, filter, over_time: true };
                for row in usage_query.build::<Kind, ReportTotals>().build().fetch_all(&mut *tx).await? {
                    let point = point::<ReportTotals, _>(&row)?;
                    if let Some(rest) = others.get_mut(&point.begun) {
                        *rest = rest.less(&point.used)?;
                    }
                    view.series.push(point);
                }
            }
        });
        others.retain(|_, rest| rest.calls > 0);
        view.others = others.into_iter().collect();
        Ok(view)
    }

    async fn ask<S: SummedColumns>(
        &self,
        usage_query: &UsageQuery<'_>,
    ) -> Result<Vec<UsagePoint<S>>, StoreError> {
        let points: Result<_, sqlx::Error> = on_reader!(&self.db, pool: Kind => {
            let mut query = usage_query.build::<Kind, S>();
            query.build().fetch_all(pool).await?.iter().map(point).collect()
        });
        Ok(points?)
    }
}

/// Returns the first groups in descending order, equal ones by name.
fn first(
    groups: BTreeMap<String, ReportTotals>,
    rank: GroupOrder,
    listed: usize,
) -> Vec<(String, ReportTotals)> {
    let mut groups: Vec<(String, ReportTotals)> = groups.into_iter().collect();
    // The sort is stable, so equal groups stay ordered by name.
    groups.sort_by_key(|(_, used)| {
        std::cmp::Reverse(match rank {
            GroupOrder::Cost => used.cost.as_nanos(),
            GroupOrder::Calls => used.calls,
            GroupOrder::Tokens => used.input.saturating_add(used.output),
        })
    });
    groups.truncate(listed);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollup::{DAY, HOUR};

    #[test]
    fn a_range_is_divided_into_adjacent_pieces() {
        // 2026-11-01.
        let november = 20_758 * DAY;
        let year = november - 300 * DAY + 5 * HOUR + Micros::new(1)
            ..november + 3 * DAY + 2 * HOUR + Micros::new(7);
        let cut = pieces(&year);
        let steps: Vec<UsageStep> = cut.iter().map(|(step, _)| *step).collect();
        assert_eq!(
            steps,
            [UsageStep::Hour, UsageStep::Day, UsageStep::Month, UsageStep::Day, UsageStep::Hour]
        );
        assert_eq!(
            cut.first().map(|(_, piece)| piece.start),
            Some(november - 300 * DAY + 5 * HOUR)
        );
        assert_eq!(cut.last().map(|(_, piece)| piece.end), Some(november + 3 * DAY + 3 * HOUR));
        assert!(cut.windows(2).all(|pair| matches!(pair, [(_, a), (_, b)] if a.end == b.start)));
        assert_eq!(
            pieces(&(Micros::new(5)..Micros::new(6))),
            [(UsageStep::Hour, Micros::ZERO..HOUR)]
        );
        assert_eq!(pieces(&(Micros::new(5)..Micros::new(5))), []);
        assert!(pieces(&(Micros::ZERO..Micros::MAX)).len() < 6);
    }
}
