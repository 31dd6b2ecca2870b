//! The limits of a key's money as rows of the database: caps and budgets of the key and its account.
//!
//! A lease of a key's money counts against all of them. The row of the key is locked while its sums
//! are read. Other keys of its account may post meanwhile, which moves money from leases to spending;
//! the sums of an account are therefore read by one statement.

use canon::{Micros, Money};
use ledger::{BoundState, BudgetTerms, LeaseState, LeaseToken, MoneyBounds};

use crate::account_caps::{AccountSums, LockedAccount};
use crate::keys::budget;
use crate::row::row;

pub(crate) const LOCK_KEY: &str = "UPDATE keys SET leased = leased WHERE id = $1 \
    RETURNING cap, spent, leased, wanted, budget, budget_period, archived_until, \
    (SELECT now FROM store_clock) AS now";
/// Cost of the calls of a key or an account that were admitted in some days.
pub(crate) const SPENT_BETWEEN: &str = "SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM usage \
    WHERE span = 'day' AND scope = $1 AND owner = $2 AND begun >= $3 AND begun < $4";
/// The leases of a node with the limits of their keys. The last three parameters are the begins of
/// the spending that counts against budgets per day, week and month. The keys of an account are summed up
/// once, and not for each of its leases: a team may have thousands of both.
pub(crate) const LEASES: &str = "WITH limited AS MATERIALIZED (SELECT DISTINCT k.account_id \
    FROM leases l JOIN keys k ON k.id = l.key_id \
    JOIN account_caps a ON a.account_id = k.account_id \
    WHERE l.node_id = $1 AND (a.cap IS NOT NULL OR a.budget IS NOT NULL)), \
    sums AS MATERIALIZED (SELECT o.account_id, CAST(SUM(o.spent) AS BIGINT) AS spent, \
    CAST(SUM(o.leased) AS BIGINT) AS leased \
    FROM limited JOIN keys o ON o.account_id = limited.account_id GROUP BY o.account_id) \
    SELECT l.token, l.version, l.key_id, l.amount, l.closed, \
    k.cap, k.spent, k.leased, k.wanted, k.budget, \
    CASE WHEN k.budget IS NULL THEN 0 ELSE (SELECT CAST(COALESCE(SUM(u.cost), 0) AS BIGINT) \
    FROM usage u WHERE u.span = 'day' AND u.scope = 'key_sum' AND u.owner = k.id \
    AND u.begun >= CASE k.budget_period WHEN 'day' THEN CAST($2 AS BIGINT) \
    WHEN 'week' THEN CAST($3 AS BIGINT) ELSE CAST($4 AS BIGINT) END) END AS budget_spent, \
    (SELECT now FROM store_clock) AS now, a.cap AS account_cap, a.budget AS account_budget, \
    COALESCE(a.wanted, 0) AS account_wanted, COALESCE(s.spent, 0) AS account_spent, \
    COALESCE(s.leased, 0) AS account_leased, \
    CASE WHEN a.budget IS NULL THEN 0 ELSE (SELECT CAST(COALESCE(SUM(u.cost), 0) AS BIGINT) \
    FROM usage u WHERE u.span = 'day' AND u.scope = 'account_sum' AND u.owner = k.account_id \
    AND u.begun >= CASE a.budget_period WHEN 'day' THEN CAST($2 AS BIGINT) \
    WHEN 'week' THEN CAST($3 AS BIGINT) ELSE CAST($4 AS BIGINT) END) END AS account_budget_spent \
    FROM leases l JOIN keys k ON k.id = l.key_id \
    LEFT JOIN account_caps a ON a.account_id = k.account_id \
    LEFT JOIN sums s ON s.account_id = k.account_id \
    WHERE l.node_id = $1 ORDER BY l.key_id";

row! {
    /// A key's row, locked until the transaction ends.
    pub(crate) struct LockedKey {
        cap: Option<Money>,
        spent: Money,
        pub(crate) leased: Money,
        /// Until when nodes are asked to return its money.
        pub(crate) wanted: Micros,
        budget: Option<Money>,
        budget_period: Option<String>,
        /// Latest admission of an archived call.
        pub(crate) archived_until: Option<Micros>,
        pub(crate) now: Micros,
    }
}

impl LockedKey {
    /// The state of the key's own cap; `None` without one.
    pub(crate) fn cap_state(&self) -> Option<BoundState> {
        let Self { spent, leased, .. } = *self;
        self.cap.map(|limit| BoundState { limit, spent, leased, resets: None })
    }

    /// The key's own budget.
    pub(crate) fn budget(&self) -> Result<Option<BudgetTerms>, sqlx::Error> {
        budget(self.budget, self.budget_period.clone())
    }

    /// The state of a budget of which so much is spent in the current period.
    pub(crate) fn budget_state(
        &self,
        terms: BudgetTerms,
        spent: Money,
        leased: Money,
    ) -> BoundState {
        let BudgetTerms { limit, period } = terms;
        BoundState { limit, spent, leased, resets: Some(period.end(self.now)) }
    }
}

/// An account with a cap or a budget, seen from one of its keys.
pub(crate) struct LimitedAccount {
    pub(crate) account: LockedAccount,
    pub(crate) sums: AccountSums,
}

impl LimitedAccount {
    /// The state of the account's cap; `None` without one.
    pub(crate) fn cap_state(&self) -> Option<BoundState> {
        let AccountSums { spent, leased, .. } = self.sums;
        self.account.cap.map(|limit| BoundState { limit, spent, leased, resets: None })
    }
}

row! {
    pub(crate) struct LeaseRow {
        token: LeaseToken,
        version: i64,
        key_id: String,
        amount: Money,
        closed: i64,
        cap: Option<Money>,
        spent: Money,
        leased: Money,
        wanted: Micros,
        budget: Option<Money>,
        /// Money that the key spent in the period of its budget.
        budget_spent: Money,
        now: Micros,
        account_cap: Option<Money>,
        account_budget: Option<Money>,
        account_wanted: Micros,
        /// Money spent by all keys of the account.
        account_spent: Money,
        /// Money leased to all keys of the account.
        account_leased: Money,
        /// Money that they spent in the period of the account's budget.
        account_budget_spent: Money,
    }
}

impl LeaseRow {
    fn bounds(&self) -> MoneyBounds {
        let state = |limit: Option<Money>, spent, leased| {
            limit.map(|limit| BoundState { limit, spent, leased, resets: None })
        };
        let (leased, all) = (self.leased, self.account_leased);
        MoneyBounds {
            key_cap: state(self.cap, self.spent, leased),
            account_cap: state(self.account_cap, self.account_spent, all),
            key_budget: state(self.budget, self.budget_spent, leased),
            account_budget: state(self.account_budget, self.account_budget_spent, all),
        }
    }
}

impl From<LeaseRow> for LeaseState {
    fn from(row: LeaseRow) -> Self {
        // All leased money is wanted back if all limits were removed, or one was lowered below what
        // is spent and leased.
        let bounds = row.bounds();
        let above = bounds.is_exceeded();
        let wanted = row.wanted.max(row.account_wanted) > row.now;
        Self {
            token: row.token,
            version: row.version,
            key_id: row.key_id,
            amount: row.amount,
            wanted: wanted || above || bounds.left().is_none(),
            above,
            closed: row.closed != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;
    use sqlx::AssertSqlSafe;
    use std::collections::HashMap;

    /// A heartbeat reads all leases of a node. If it read all keys of an account for each of them, a team
    /// with a limit and a thousand keys would make every heartbeat last seconds.
    #[tokio::test]
    async fn keys_of_an_account_are_not_read_for_each_lease() {
        let store = crate::Store::open("sqlite::memory:").await.unwrap();
        let plan = format!("EXPLAIN QUERY PLAN {LEASES}");
        let explain = async || -> Result<Vec<(i64, i64, i64, String)>, StoreError> {
            Ok(crate::on_reader!(&store.db, pool => {
                let mut plan = sqlx::query_as(AssertSqlSafe(plan.as_str())).bind("node");
                for _ in 0..3 {
                    plan = plan.bind(0_i64);
                }
                plan.fetch_all(pool).await?
            }))
        };
        let steps = explain().await.unwrap();
        let by_id: HashMap<i64, (i64, &str)> =
            steps.iter().map(|(id, above, _, text)| (*id, (*above, text.as_str()))).collect();
        let reads_of_all: Vec<_> =
            steps.iter().filter(|(.., text)| text.starts_with("SEARCH o ")).collect();
        assert!(!reads_of_all.is_empty(), "{steps:#?}");
        for (_, above, ..) in reads_of_all {
            let mut above = *above;
            while let Some((next, text)) = by_id.get(&above) {
                assert!(!text.contains("CORRELATED"), "{steps:#?}");
                above = *next;
            }
        }
    }
}
