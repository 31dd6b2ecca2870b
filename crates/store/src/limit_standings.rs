//! Spending against every limit that is in use: caps and budgets of keys and accounts.

use canon::{Micros, Money};
use ledger::{BudgetPeriod, BudgetTerms};

use crate::db::on_reader;
use crate::keys::budget;
use crate::row::row;
use crate::{Store, StoreError};

/// A limit of spending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// A cap over all time.
    Cap,
    /// A budget that begins again with every period.
    Budget(BudgetPeriod),
}

impl LimitKind {
    /// The word in the database: `cap`, or the period of a budget.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cap => "cap",
            Self::Budget(period) => period.word(),
        }
    }

    /// Returns the limit with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        if word == Self::Cap.word() {
            return Some(Self::Cap);
        }
        BudgetPeriod::by_word(word).map(Self::Budget)
    }

    /// Returns the begin of the spending that counts at that time; 0 for a cap.
    pub fn begun(self, now: Micros) -> Micros {
        match self {
            Self::Cap => Micros::ZERO,
            Self::Budget(period) => period.counted_since(now),
        }
    }
}

/// Spending against one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitStanding {
    /// The account.
    pub account_id: String,
    /// The key; `None` for a limit of the whole account.
    pub key_id: Option<String>,
    /// The limit.
    pub kind: LimitKind,
    /// Begin of the spending that counts; 0 for a cap.
    pub begun: Micros,
    /// Amount of the limit.
    pub amount: Money,
    /// Money spent since then.
    pub spent: Money,
    /// The highest level that was told of it, in percent.
    pub told: u8,
    /// True if it was told that spending will pass it.
    pub is_forecast_told: bool,
}

row! {
    struct StandingRow {
        account_id: String,
        key_id: String,
        cap: Option<Money>,
        spent: Money,
        budget: Option<Money>,
        budget_period: Option<String>,
        budget_spent: Money,
        cap_told: u8,
        budget_told: u8,
        forecasts_told: i64,
    }
}

/// Begin of the period of a budget. The first three parameters are the begins of the day, week and month.
macro_rules! period_begin {
    ($limits:literal) => {
        concat!(
            "CASE ",
            $limits,
            ".budget_period WHEN 'day' THEN CAST($1 AS BIGINT) \
             WHEN 'week' THEN CAST($2 AS BIGINT) ELSE CAST($3 AS BIGINT) END"
        )
    };
}

/// Columns of a limit, of the table with the limits, the key in alerts, and scope and owner of the sums.
macro_rules! limit_columns {
    ($limits:literal, $key:literal, $scope:literal, $owner:literal) => {
        concat!(
            $limits,
            ".cap, ",
            $limits,
            ".budget, ",
            $limits,
            ".budget_period, CASE WHEN ",
            $limits,
            ".budget IS NULL THEN 0 ELSE (SELECT CAST(COALESCE(SUM(u.cost), 0) AS BIGINT) \
             FROM usage u WHERE u.span = 'day' AND u.scope = '",
            $scope,
            "' AND u.owner = ",
            $owner,
            " AND u.begun <= $6 AND u.begun >= ",
            period_begin!($limits),
            ") END AS budget_spent, (SELECT CAST(COALESCE(MAX(t.level), 0) AS BIGINT) FROM alerts t \
             WHERE t.account_id = ",
            $limits,
            ".account_id AND t.key_id = ",
            $key,
            " AND t.bound = 'cap' AND t.begun = 0 AND t.amount = ",
            $limits,
            ".cap) AS cap_told, (SELECT CAST(COALESCE(MAX(t.level), 0) AS BIGINT) FROM alerts t \
             WHERE t.account_id = ",
            $limits,
            ".account_id AND t.key_id = ",
            $key,
            " AND t.bound = ",
            $limits,
            ".budget_period AND t.begun = ",
            period_begin!($limits),
            " AND t.amount = ",
            $limits,
            ".budget) AS budget_told, (SELECT COUNT(*) FROM alerts t WHERE t.account_id = ",
            $limits,
            ".account_id AND t.key_id = ",
            $key,
            " AND t.bound = 'forecast_' || ",
            $limits,
            ".budget_period AND t.begun = ",
            period_begin!($limits),
            " AND t.amount = ",
            $limits,
            ".budget) AS forecasts_told"
        )
    };
}

/// Keys that were used since `$5` and work at `$4`. Days count that began until `$6`.
const KEYS: &str = concat!(
    "SELECT k.account_id, k.id AS key_id, k.spent, ",
    limit_columns!("k", "k.id", "key_sum", "k.id"),
    " FROM keys k JOIN accounts a ON a.id = k.account_id AND NOT a.disabled \
     WHERE k.scope = 'call' AND k.revoked IS NULL AND (k.expires IS NULL OR k.expires > $4) \
     AND k.last_used >= $5 AND (k.cap IS NOT NULL OR k.budget IS NOT NULL) ORDER BY k.id"
);
/// Accounts with such keys.
const ACCOUNTS: &str = concat!(
    "SELECT c.account_id, '' AS key_id, s.spent, ",
    limit_columns!("c", "''", "account_sum", "c.account_id"),
    " FROM account_caps c JOIN accounts a ON a.id = c.account_id AND NOT a.disabled \
     JOIN (SELECT account_id, CAST(SUM(spent) AS BIGINT) AS spent, \
     MAX(CASE WHEN revoked IS NULL AND (expires IS NULL OR expires > $4) THEN last_used END) AS last_used \
     FROM keys WHERE account_id IN \
     (SELECT account_id FROM account_caps WHERE cap IS NOT NULL OR budget IS NOT NULL) \
     GROUP BY account_id) s ON s.account_id = c.account_id \
     WHERE s.last_used >= $5 AND (c.cap IS NOT NULL OR c.budget IS NOT NULL) ORDER BY c.account_id"
);

impl Store {
    /// Returns the spending against every cap and budget whose keys work and were used since that time.
    pub async fn limit_standings(
        &self,
        now: Micros,
        used_since: Micros,
    ) -> Result<Vec<LimitStanding>, StoreError> {
        self.standings_at(now, now, used_since).await
    }

    /// Returns the spending against budgets whose period ended when the day of `now` began.
    pub async fn ended_standings(
        &self,
        now: Micros,
        used_since: Micros,
    ) -> Result<Vec<LimitStanding>, StoreError> {
        let last = BudgetPeriod::Day.bounds(now).0 - Micros::new(1);
        let mut standings = self.standings_at(last, now, used_since).await?;
        standings.retain(|standing| standing.kind.begun(now) > standing.begun);
        Ok(standings)
    }

    /// Returns the spending in the periods of that time, up to its day.
    async fn standings_at(
        &self,
        at: Micros,
        now: Micros,
        used_since: Micros,
    ) -> Result<Vec<LimitStanding>, StoreError> {
        let mut standings = Vec::new();
        for statement in [KEYS, ACCOUNTS] {
            let rows: Vec<StandingRow> = on_reader!(&self.db, pool => {
                let mut query = sqlx::query_as(statement);
                for period in BudgetPeriod::ALL {
                    query = query.bind(period.counted_since(at).get());
                }
                let query = query.bind(now.get()).bind(used_since.get());
                query.bind(at.get()).fetch_all(pool).await?
            });
            for row in rows {
                row.add_standings(at, &mut standings)?;
            }
        }
        Ok(standings)
    }
}

impl StandingRow {
    fn add_standings(
        self,
        at: Micros,
        standings: &mut Vec<LimitStanding>,
    ) -> Result<(), sqlx::Error> {
        let (account_id, key_id) = (self.account_id, self.key_id);
        let mut add = |kind: LimitKind, amount, spent, told, is_forecast_told| {
            standings.push(LimitStanding {
                account_id: account_id.clone(),
                key_id: Some(key_id.clone()).filter(|id| !id.is_empty()),
                kind,
                begun: kind.begun(at),
                amount,
                spent,
                told,
                is_forecast_told,
            });
        };
        if let Some(cap) = self.cap {
            add(LimitKind::Cap, cap, self.spent, self.cap_told, false);
        }
        if let Some(BudgetTerms { limit, period }) = budget(self.budget, self.budget_period)? {
            let is_forecast_told = self.forecasts_told > 0;
            let kind = LimitKind::Budget(period);
            add(kind, limit, self.budget_spent, self.budget_told, is_forecast_told);
        }
        Ok(())
    }
}
