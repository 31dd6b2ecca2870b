//! Queries on the table of sums.

use std::collections::BTreeSet;
use std::ops::Range;

use canon::Micros;
use sqlx::{Decode, QueryBuilder, Type};

use crate::UsageStep;
use crate::db::clean;
use crate::rollup::Scope;
use crate::sums::{ReportTotals, SummedColumns};
use crate::usage::{SumGroup, UsagePoint};

/// A part of a range and the length of the rows that cover it.
pub(crate) type RangePiece = (UsageStep, Range<Micros>);

/// Conditions on usage; `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Of this account.
    pub account_id: Option<String>,
    /// Of this key.
    pub key_id: Option<String>,
    /// Of this model.
    pub model: Option<String>,
    /// Of this lane, or of all lanes of this provider if the text has no slash.
    pub lane: Option<String>,
    /// Of calls that ended with one of these statuses.
    pub statuses: Option<Range<u16>>,
}

/// Divides a range, extended to whole hours, into as few rows as possible: months in the middle,
/// days around them, hours at both ends.
pub(crate) fn pieces(range: &Range<Micros>) -> Vec<RangePiece> {
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

/// Divides a range for the steps of a series, of which each is a whole number of rows.
pub(crate) fn series_pieces(range: &Range<Micros>, steps: &[Micros]) -> Vec<RangePiece> {
    let mut cut: Vec<RangePiece> = Vec::new();
    for (number, begin) in steps.iter().enumerate() {
        let end = steps.get(number.saturating_add(1)).copied().unwrap_or(range.end);
        let part = (*begin).max(range.start)..end.min(range.end);
        for (step, piece) in pieces(&part) {
            match cut.last_mut() {
                Some((last, before)) if *last == step && before.end == piece.start => {
                    before.end = piece.end;
                }
                Some(_) | None => cut.push((step, piece)),
            }
        }
    }
    cut
}

/// Returns the scope with the fewest rows that can answer the query.
fn scope(step: UsageStep, by: Option<SumGroup>, filter: &UsageFilter) -> Scope {
    let UsageFilter { account_id, key_id, model, lane, statuses } = filter;
    let whole = model.is_none()
        && lane.is_none()
        && statuses.is_none()
        && match by {
            None | Some(SumGroup::Account | SumGroup::Key) => true,
            Some(SumGroup::Model | SumGroup::Lane | SumGroup::Status) => false,
        };
    let (sum, apart) = if by == Some(SumGroup::Key) || key_id.is_some() {
        (Scope::KeySum, Scope::Key)
    } else if by == Some(SumGroup::Account) || account_id.is_some() {
        (Scope::AccountSum, Scope::Account)
    } else {
        (Scope::AllSum, Scope::All)
    };
    if whole && sum.has(step) { sum } else { apart }
}

fn column(by: Option<SumGroup>, scope: Scope) -> &'static str {
    match (by, scope) {
        (None, _) => "''",
        (Some(SumGroup::Account), Scope::Key | Scope::KeySum) => "account_id",
        (Some(SumGroup::Key | SumGroup::Account), _) => "owner",
        (Some(SumGroup::Model), _) => "model",
        (Some(SumGroup::Lane), _) => "lane",
        (Some(SumGroup::Status), _) => "CAST(status AS TEXT)",
    }
}

/// The hours that a query reads. Days and months are read whole.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChosenHours<'a> {
    All,
    Only(&'a BTreeSet<Micros>),
    Except(&'a BTreeSet<Micros>),
}

impl ChosenHours<'_> {
    /// Adds the condition on the hours of a piece.
    fn push_to<D: sqlx::Database>(self, query: &mut QueryBuilder<D>, (step, range): &RangePiece) {
        let (word, hours) = match (self, step) {
            (Self::Only(hours), UsageStep::Hour) => ("IN", hours),
            (Self::Except(hours), UsageStep::Hour) => ("NOT IN", hours),
            (Self::Only(_) | Self::Except(_), UsageStep::Day | UsageStep::Month)
            | (Self::All, _) => return,
        };
        let hours: Vec<String> =
            hours.range(range.clone()).map(|hour| hour.get().to_string()).collect();
        match (self, hours.is_empty()) {
            (Self::Only(_), true) => query.push(" AND 1 = 0"),
            (Self::All | Self::Except(_), true) => query,
            (_, false) => query.push(format_args!(" AND begun {word} ({})", hours.join(", "))),
        };
    }
}

/// One query on the table.
pub(crate) struct UsageQuery<'a> {
    pub(crate) piece: RangePiece,
    pub(crate) by: Option<SumGroup>,
    /// Restricts the query to these groups.
    pub(crate) among: Option<&'a [(String, ReportTotals)]>,
    pub(crate) filter: &'a UsageFilter,
    /// True if every step is returned separately.
    pub(crate) over_time: bool,
    pub(crate) hours: ChosenHours<'a>,
}

impl UsageQuery<'_> {
    pub(crate) fn build<D, S: SummedColumns>(&self) -> QueryBuilder<D>
    where
        D: sqlx::Database,
        String: Type<D> + for<'q> sqlx::Encode<'q, D>,
        i64: Type<D> + for<'q> sqlx::Encode<'q, D>,
    {
        let Self { piece: (step, range), by, among, filter, over_time, hours } = self;
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
        hours.push_to(&mut query, &self.piece);
        let UsageFilter { account_id, key_id, model, lane, statuses } = filter;
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
        match lane {
            Some(lane) if lane.contains('/') => {
                query.push(" AND lane = ").push_bind(text(lane));
            }
            Some(provider) => {
                let start = format!("{}/", text(provider));
                let length = i32::try_from(start.chars().count()).unwrap_or(i32::MAX);
                query.push(format_args!(" AND substr(lane, 1, {length}) = ")).push_bind(start);
            }
            None => {}
        }
        if let Some(statuses) = statuses {
            query.push(" AND status >= ").push_bind(i64::from(statuses.start));
            query.push(" AND status < ").push_bind(i64::from(statuses.end));
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

/// Reads a row of a query.
pub(crate) fn point<'r, S, R>(row: &'r R) -> Result<UsagePoint<S>, sqlx::Error>
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

    #[test]
    fn a_series_has_few_pieces_and_none_of_them_is_of_two_steps() {
        let november = 20_758 * DAY;
        let range = november - 61 * DAY + 5 * HOUR..november + 3 * DAY + 2 * HOUR;
        let spans = |steps: &[Micros]| -> Vec<UsageStep> {
            series_pieces(&range, steps).into_iter().map(|(step, _)| step).collect()
        };
        let (hour, day, month) = (UsageStep::Hour, UsageStep::Day, UsageStep::Month);
        assert_eq!(spans(&hour.begins(&range)), [hour]);
        assert_eq!(spans(&day.begins(&range)), [hour, day, hour]);
        assert_eq!(spans(&month.begins(&range)), [hour, day, month, day, hour]);
        // Days that begin an hour earlier than those of UTC.
        let days: Vec<Micros> = (0..70).map(|n| november - 62 * DAY - HOUR + n * DAY).collect();
        assert_eq!(spans(&days), [hour]);
        let months = [november - 92 * DAY - HOUR, november - 31 * DAY - HOUR, november - HOUR];
        assert_eq!(spans(&months), [hour, day, hour, day, hour, day, hour]);
        for steps in [&days[..], &months] {
            let cut = series_pieces(&range, steps);
            assert!(
                cut.windows(2).all(|pair| matches!(pair, [(_, a), (_, b)] if a.end == b.start))
            );
            let ends = [cut.first().map(|(_, one)| one.start), cut.last().map(|(_, one)| one.end)];
            assert_eq!(ends, [Some(range.start), Some(range.end)]);
        }
    }
}
