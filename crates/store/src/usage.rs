//! Reading what was used: over time, in all, and who used the most.
//!
//! Everything is read from the table `usage`, never from the calls themselves, so a year of a
//! hundred million calls is a few thousand rows. Times are those of admission, in UTC. What has
//! been posted is in; calls that run or wait to be posted are not.

use std::collections::BTreeMap;
use std::ops::Range;

use sqlx::{Decode, QueryBuilder, Type};

use crate::db::{clean, on_reader};
use crate::rollup::{Scope, Sums};
use crate::{Micros, Pace, Step, Store, StoreError, Used};

/// What usage is told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The account.
    Account,
    /// The key.
    Key,
    /// The model.
    Model,
    /// The lane that answered.
    Lane,
    /// The HTTP status the caller saw.
    Status,
}

impl By {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Account, Self::Key, Self::Model, Self::Lane, Self::Status];

    /// The word for addresses and pages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Key => "key",
            Self::Model => "model",
            Self::Lane => "lane",
            Self::Status => "status",
        }
    }

    /// The one with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.word() == word)
    }
}

/// Whose usage; `None` is no condition.
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

/// The sums of one stretch of time, of one of those they are told apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsagePoint<S = Used> {
    /// When the stretch begins.
    pub begun: Micros,
    /// Whose, or which: an id, a model, a lane or a status; empty when nothing is told apart.
    pub group: String,
    /// What was used, or how fast.
    pub used: S,
}

/// What makes one the first among others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rank {
    /// What was paid.
    #[default]
    Cost,
    /// How many calls there were.
    Calls,
    /// How many tokens went in and came out.
    Tokens,
}

/// A part of a range, and the steps that make it up.
type Piece = (Step, Range<Micros>);

/// Cuts a range, widened to whole hours, into as few stretches as there are: months in the middle,
/// days around them, hours at both ends.
fn pieces(range: &Range<Micros>) -> Vec<Piece> {
    if range.is_empty() {
        return Vec::new();
    }
    let from = Step::Hour.begin(range.start);
    let to = Step::Hour.end(range.end.saturating_sub(1));
    // The whole stretches of a step within others.
    let within = |step: Step, outer: Range<Micros>| {
        let begin = step.begin(outer.start);
        let begin = if begin == outer.start { begin } else { step.end(outer.start) };
        let end = step.begin(outer.end);
        if begin < end { begin..end } else { outer.end..outer.end }
    };
    let days = within(Step::Day, from..to);
    let months = within(Step::Month, days.clone());
    let cut = [
        (Step::Hour, from..days.start),
        (Step::Day, days.start..months.start),
        (Step::Month, months.clone()),
        (Step::Day, months.end..days.end),
        (Step::Hour, days.end..to),
    ];
    cut.into_iter().filter(|(_, piece)| !piece.is_empty()).collect()
}

/// The rows that hold the answer: those that add up as much as the question allows.
fn scope(by: Option<By>, filter: &UsageFilter) -> Scope {
    if by == Some(By::Key) || filter.key_id.is_some() {
        Scope::Key
    } else if by == Some(By::Account) || filter.account_id.is_some() {
        Scope::Account
    } else {
        Scope::All
    }
}

fn column(by: Option<By>, scope: Scope) -> &'static str {
    match (by, scope) {
        (None, _) => "''",
        (Some(By::Account), Scope::Key) => "account_id",
        (Some(By::Key | By::Account), _) => "owner",
        (Some(By::Model), _) => "model",
        (Some(By::Lane), _) => "lane",
        (Some(By::Status), _) => "CAST(status AS TEXT)",
    }
}

/// One question to the table.
struct Question<'a> {
    piece: Piece,
    by: Option<By>,
    filter: &'a UsageFilter,
    /// Whether stretches are told apart.
    over_time: bool,
}

impl Question<'_> {
    fn build<D, S: Sums>(&self) -> QueryBuilder<D>
    where
        D: sqlx::Database,
        String: Type<D> + for<'q> sqlx::Encode<'q, D>,
        i64: Type<D> + for<'q> sqlx::Encode<'q, D>,
    {
        let Self { piece: (step, range), by, filter, over_time } = self;
        let scope = scope(*by, filter);
        let text = |text: &str| clean(text).into_owned();
        let begun = if *over_time { "begun" } else { "CAST(0 AS BIGINT)" };
        // In the order of the table's rows, so that nothing has to be sorted.
        let groups = match (over_time, by) {
            (true, Some(_)) => " GROUP BY 1, 2 ORDER BY 1, 2",
            (true, None) => " GROUP BY 1 ORDER BY 1",
            (false, Some(_)) => " GROUP BY 2 ORDER BY 2",
            (false, None) => " HAVING COUNT(*) > 0",
        };
        let group = column(*by, scope);
        let mut query = QueryBuilder::new("SELECT ");
        query.push(begun).push(", ").push(group);
        for column in S::COLUMNS {
            // A sum of BIGINTs is no BIGINT in PostgreSQL.
            query.push(format_args!(", CAST(SUM({column}) AS BIGINT)"));
        }
        // Fixed words stand in the text, so that the planner knows which index serves them.
        query.push(format_args!(
            " FROM usage WHERE span = '{}' AND scope = '{}' AND begun >= ",
            step.word(),
            scope.word()
        ));
        query.push_bind(range.start).push(" AND begun < ").push_bind(range.end);
        let UsageFilter { account_id, key_id, model, lane, status } = filter;
        match scope {
            Scope::Key => {
                if let Some(key_id) = key_id {
                    query.push(" AND owner = ").push_bind(text(key_id));
                }
                if let Some(account_id) = account_id {
                    query.push(" AND account_id = ").push_bind(text(account_id));
                }
            }
            Scope::Account => {
                query.push(" AND account_id = ''");
                if let Some(account_id) = account_id {
                    query.push(" AND owner = ").push_bind(text(account_id));
                }
            }
            Scope::All => {
                query.push(" AND owner = '' AND account_id = ''");
            }
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
        query.push(groups);
        query
    }
}

fn point<'r, S, R>(row: &'r R) -> Result<UsagePoint<S>, sqlx::Error>
where
    S: Sums,
    R: sqlx::Row,
    usize: sqlx::ColumnIndex<R>,
    i64: Type<R::Database> + Decode<'r, R::Database>,
    String: Type<R::Database> + Decode<'r, R::Database>,
{
    let numbers = (2..).take(S::COLUMNS.len()).map(|place| row.try_get(place));
    let numbers = numbers.collect::<Result<Vec<i64>, _>>()?;
    let used = S::from_numbers(numbers.into_iter());
    Ok(UsagePoint { begun: row.try_get(0)?, group: row.try_get(1)?, used })
}

impl Store {
    /// What was used in each step of a range, told apart by something or not, oldest first.
    ///
    /// The range is widened to whole steps; a step in which nothing was used is left out.
    pub async fn usage_over(
        &self,
        range: Range<Micros>,
        step: Step,
        by: Option<By>,
        filter: &UsageFilter,
    ) -> Result<Vec<UsagePoint>, StoreError> {
        let range = step.begin(range.start)..range.end;
        self.ask(&Question { piece: (step, range), by, filter, over_time: true }).await
    }

    /// How fast the calls of each step of a range were, told apart in the same way.
    pub async fn pace_over(
        &self,
        range: Range<Micros>,
        step: Step,
        by: Option<By>,
        filter: &UsageFilter,
    ) -> Result<Vec<UsagePoint<Pace>>, StoreError> {
        let range = step.begin(range.start)..range.end;
        self.ask(&Question { piece: (step, range), by, filter, over_time: true }).await
    }

    /// What was used in a range, widened to whole hours.
    pub async fn usage_in(
        &self,
        range: Range<Micros>,
        filter: &UsageFilter,
    ) -> Result<Used, StoreError> {
        let groups = self.usage_by(range, None, filter).await?;
        Ok(groups.into_values().next().unwrap_or_default())
    }

    /// How fast the calls of a range were, widened to whole hours.
    pub async fn pace_in(
        &self,
        range: Range<Micros>,
        filter: &UsageFilter,
    ) -> Result<Pace, StoreError> {
        let groups = self.usage_by(range, None, filter).await?;
        Ok(groups.into_values().next().unwrap_or_default())
    }

    /// Who or what used the most in a range, widened to whole hours: the first so many of them.
    pub async fn top(
        &self,
        range: Range<Micros>,
        by: By,
        rank: Rank,
        filter: &UsageFilter,
        limit: usize,
    ) -> Result<Vec<(String, Used)>, StoreError> {
        let groups: BTreeMap<String, Used> = self.usage_by(range, Some(by), filter).await?;
        let mut groups: Vec<(String, Used)> = groups.into_iter().collect();
        // The sort keeps the order of names among equals.
        groups.sort_by_key(|(_, used)| {
            std::cmp::Reverse(match rank {
                Rank::Cost => used.cost,
                Rank::Calls => used.calls,
                Rank::Tokens => used.input.saturating_add(used.output),
            })
        });
        groups.truncate(limit);
        Ok(groups)
    }

    async fn usage_by<S: Sums + Default>(
        &self,
        range: Range<Micros>,
        by: Option<By>,
        filter: &UsageFilter,
    ) -> Result<BTreeMap<String, S>, StoreError> {
        let mut groups: BTreeMap<String, S> = BTreeMap::new();
        for piece in pieces(&range) {
            let question = Question { piece, by, filter, over_time: false };
            for UsagePoint { group, used, .. } in self.ask::<S>(&question).await? {
                let sum = groups.entry(group).or_default();
                *sum = sum.plus(&used)?;
            }
        }
        Ok(groups)
    }

    async fn ask<S: Sums>(
        &self,
        question: &Question<'_>,
    ) -> Result<Vec<UsagePoint<S>>, StoreError> {
        let points: Result<_, sqlx::Error> = on_reader!(&self.db, pool: Kind => {
            let mut query = question.build::<Kind, S>();
            query.build().fetch_all(pool).await?.iter().map(point).collect()
        });
        Ok(points?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollup::{DAY, HOUR};

    #[test]
    fn a_range_is_cut_into_stretches_that_follow_each_other() {
        // The 1st of November 2026.
        let november = 20_758 * DAY;
        let year = november - 300 * DAY + 5 * HOUR + 1..november + 3 * DAY + 2 * HOUR + 7;
        let cut = pieces(&year);
        let steps: Vec<Step> = cut.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [Step::Hour, Step::Day, Step::Month, Step::Day, Step::Hour]);
        assert_eq!(
            cut.first().map(|(_, piece)| piece.start),
            Some(november - 300 * DAY + 5 * HOUR)
        );
        assert_eq!(cut.last().map(|(_, piece)| piece.end), Some(november + 3 * DAY + 3 * HOUR));
        assert!(cut.windows(2).all(|pair| matches!(pair, [(_, a), (_, b)] if a.end == b.start)));
        assert_eq!(pieces(&(5..6)), [(Step::Hour, 0..HOUR)]);
        assert_eq!(pieces(&(5..5)), []);
        assert!(pieces(&(0..i64::MAX)).len() < 6);
    }
}
