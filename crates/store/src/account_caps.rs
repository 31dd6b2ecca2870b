//! Terms of all keys of an account together: limits on their spending, and sharing of objects.
//!
//! A lease of a key's money is a lease of its account's money as well: it is granted only while `Σ
//! (spent + leased) ≤ cap` over the account's keys, and likewise for its budget. So a node needs no
//! second balance. The row of
//! the account's cap is locked after the rows of keys and before leases. Only grants and late calls
//! need it.

use canon::{Micros, Money};
use ledger::BudgetPeriod;

use crate::audited_change::in_change;
use crate::db::{clean, from_json, on_reader, unknown_word};
use crate::keys::budget;
use crate::rollup::DAY;
use crate::row::row;
use crate::{AuditedChange, BudgetTerms, ObjectSharing, Store, StoreError};

/// Locks the cap of a key's account. Returns no row if the account has none.
pub(crate) const LOCK_ACCOUNT: &str = "UPDATE account_caps SET wanted = wanted \
    WHERE account_id = (SELECT account_id FROM keys WHERE id = $1) \
    RETURNING account_id, cap, wanted, budget, budget_period";
// PostgreSQL returns NUMERIC for a sum of BIGINTs.
pub(crate) const SUM: &str = "SELECT CAST(COALESCE(SUM(spent), 0) AS BIGINT) AS spent, \
    CAST(COALESCE(SUM(leased), 0) AS BIGINT) AS leased, COUNT(*) AS keys, \
    (SELECT CAST(COALESCE(SUM(u.cost), 0) AS BIGINT) FROM usage u WHERE u.span = 'day' \
    AND u.scope = 'account_sum' AND u.owner = $1 AND u.begun >= $2) AS budget_spent \
    FROM keys WHERE account_id = $1";
pub(crate) const WANT_ACCOUNT: &str = "UPDATE account_caps \
    SET wanted = (SELECT now FROM store_clock) + $2 WHERE account_id = $1";
pub(crate) const SET: &str = "INSERT INTO account_caps (account_id, cap, budget, budget_period, share, models, \
    changed) VALUES ($1, $2, $3, $4, $5, $6, (SELECT now FROM store_clock)) ON CONFLICT (account_id) DO UPDATE SET \
    cap = excluded.cap, budget = excluded.budget, budget_period = excluded.budget_period, \
    share = excluded.share, models = excluded.models, changed = excluded.changed";
const ALL: &str = "SELECT account_id, cap, budget, budget_period, share, models \
    FROM account_caps WHERE cap IS NOT NULL OR budget IS NOT NULL OR share <> 'key' \
    OR models <> '[]'";
const TOTALS: &str = "SELECT a.account_id, a.cap, \
    CAST(COALESCE(SUM(k.spent), 0) AS BIGINT) AS spent, \
    CAST(COALESCE(SUM(k.leased), 0) AS BIGINT) AS leased FROM account_caps a \
    LEFT JOIN keys k ON k.account_id = a.account_id WHERE a.cap IS NOT NULL \
    GROUP BY a.account_id, a.cap ORDER BY 1";
const SPENT: &str = "SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM usage \
    WHERE span = 'day' AND scope = 'account_sum' AND owner = $1 AND begun >= $2";

row! {
    /// The cap of an account, locked until the transaction ends.
    pub(crate) struct LockedAccount {
        pub(crate) account_id: String,
        pub(crate) cap: Option<Money>,
        /// Until when nodes are asked to return its money.
        pub(crate) wanted: Micros,
        budget: Option<Money>,
        budget_period: Option<String>,
    }
}

impl LockedAccount {
    /// Returns true if the account has a cap or a budget.
    pub(crate) fn is_limited(&self) -> bool {
        self.cap.is_some() || self.budget.is_some()
    }

    /// The budget of all keys together.
    pub(crate) fn budget(&self) -> Result<Option<BudgetTerms>, sqlx::Error> {
        budget(self.budget, self.budget_period.clone())
    }
}

row! {
    /// The sums over all keys of one account.
    pub(crate) struct AccountSums {
        pub(crate) spent: Money,
        pub(crate) leased: Money,
        /// Number of keys.
        pub(crate) keys: i64,
        /// Money spent since the time that the query names.
        pub(crate) budget_spent: Money,
    }
}

impl AccountSums {
    /// Money below the cap that is neither spent nor leased; negative when a cap was lowered.
    pub(crate) fn room(&self, cap: Money) -> Money {
        cap.saturating_sub(self.spent).saturating_sub(self.leased)
    }
}

row! {
    struct TermsRow {
        account_id: String,
        cap: Option<Money>,
        budget: Option<Money>,
        budget_period: Option<String>,
        share: String,
        models: String,
    }
}

/// Terms of all keys of an account together; `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountTerms {
    /// Limit over all time.
    pub cap: Option<Money>,
    /// Limit in every period.
    pub budget: Option<BudgetTerms>,
    /// Sharing of stored answers, tasks, replays and receipts between the keys.
    pub share: ObjectSharing,
    /// Models that the keys may use; empty permits all.
    pub models: Vec<String>,
}

/// Text for the audit log.
impl std::fmt::Display for AccountTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.cap {
            Some(cap) => write!(f, "cap {cap} USD")?,
            None => f.write_str("no cap")?,
        }
        match self.budget {
            Some(BudgetTerms { limit: most, period }) => {
                write!(f, ", budget {most} USD per {}", period.word())?;
            }
            None => f.write_str(", no budget")?,
        }
        match self.share {
            ObjectSharing::Key => {}
            ObjectSharing::Account => f.write_str(", shared objects")?,
        }
        match self.models.is_empty() {
            true => Ok(()),
            false => write!(f, ", models {}", self.models.join(" ")),
        }
    }
}

row! {
    /// Spending of all keys of an account together.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct AccountTotal {
        /// The account.
        pub account_id: String,
        /// Limit of the spending.
        pub cap: Option<Money>,
        /// Money spent.
        pub spent: Money,
        /// Money leased to nodes.
        pub leased: Money,
    }
}

/// Builds the statement that sets the terms of an account, for either driver.
macro_rules! set_terms {
    ($account_id:expr, $terms:expr) => {{
        let $crate::AccountTerms { cap, budget, share, models } = $terms;
        sqlx::query($crate::account_caps::SET)
            .bind($crate::db::clean($account_id))
            .bind(cap.map(canon::Money::as_nanos))
            .bind(budget.map(|budget| budget.limit.as_nanos()))
            .bind(budget.map(|budget| budget.period.word()))
            .bind(share.word())
            .bind($crate::db::to_json(models))
    }};
}
pub(crate) use set_terms;

impl Store {
    /// Returns the terms of every account that has any, with its id.
    pub async fn account_terms(&self) -> Result<Vec<(String, AccountTerms)>, StoreError> {
        let rows: Vec<TermsRow> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        let terms = rows.into_iter().map(|row| {
            let budget = budget(row.budget, row.budget_period)?;
            let share =
                ObjectSharing::by_word(&row.share).ok_or_else(|| unknown_word(&row.share))?;
            let models = from_json(&row.models)?;
            Ok((row.account_id, AccountTerms { cap: row.cap, budget, share, models }))
        });
        Ok(terms.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Returns the spending of every capped account, read in one statement.
    pub async fn account_totals(&self) -> Result<Vec<AccountTotal>, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_as(TOTALS).fetch_all(pool).await?))
    }

    /// Returns the money spent by and leased to the keys of an account.
    pub async fn account_spending(&self, account_id: &str) -> Result<(Money, Money), StoreError> {
        let sums: AccountSums = on_reader!(&self.db, pool => {
            let sums = sqlx::query_as(SUM).bind(clean(account_id)).bind(i64::MAX);
            sums.fetch_one(pool).await?
        });
        Ok((sums.spent, sums.leased))
    }

    /// Returns the cost of an account's calls admitted in the period that contains that time, after
    /// the first day of the period in days since 1970.
    pub async fn account_spent_in(
        &self,
        account_id: &str,
        period: BudgetPeriod,
        at: Micros,
    ) -> Result<(i64, Money), StoreError> {
        let (first, _) = period.days(at);
        let sum: i64 = on_reader!(&self.db, pool => {
            sqlx::query_scalar(SPENT).bind(clean(account_id)).bind((first * DAY).get()).fetch_one(pool).await?
        });
        Ok((first, Money::from_nanos(sum)))
    }
}

impl AuditedChange {
    /// Sets the terms of all keys of an account together.
    pub async fn set_account_terms(
        &mut self,
        account_id: &str,
        terms: &AccountTerms,
    ) -> Result<(), StoreError> {
        in_change!(self, tx => {
            set_terms!(account_id, terms).execute(&mut *tx).await?;
        });
        Ok(())
    }
}
