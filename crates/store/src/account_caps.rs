//! What all keys of an account together may spend.
//!
//! A lease of a key's money is a lease of its account's money as well: it is given only while
//! `Σ (spent + leased) ≤ cap` over the account's keys. So a node needs no second purse, and what it
//! may spend of both was subtracted before it may. The row of the account's cap is locked after the
//! rows of keys and before leases; nothing but grants and late calls needs it.

use canon::Money;
use ledger::{Micros, Period};

use crate::db::{clean, on_reader, on_writer, unknown_word};
use crate::rollup::DAY;
use crate::{BudgetTerms, Store, StoreError};

/// Locks the cap of a key's account; no row when nothing limits it.
pub(crate) const LOCK_ACCOUNT: &str = "UPDATE account_caps SET wanted = wanted \
    WHERE account_id = (SELECT account_id FROM keys WHERE id = $1) \
    RETURNING account_id, cap, wanted";
// A sum of BIGINTs is no BIGINT in PostgreSQL.
pub(crate) const SUM: &str = "SELECT CAST(COALESCE(SUM(spent), 0) AS BIGINT), \
    CAST(COALESCE(SUM(leased), 0) AS BIGINT), COUNT(*) FROM keys WHERE account_id = $1";
pub(crate) const WANT_ACCOUNT: &str = "UPDATE account_caps \
    SET wanted = (SELECT now FROM store_clock) + $2 WHERE account_id = $1";
pub(crate) const SET: &str = "INSERT INTO account_caps (account_id, cap, budget, budget_period, changed) \
    VALUES ($1, $2, $3, $4, (SELECT now FROM store_clock)) ON CONFLICT (account_id) DO UPDATE SET \
    cap = excluded.cap, budget = excluded.budget, budget_period = excluded.budget_period, \
    changed = excluded.changed";
const ALL: &str = "SELECT account_id, cap, budget, budget_period FROM account_caps \
    WHERE cap IS NOT NULL OR budget IS NOT NULL";
const TOTALS: &str = "SELECT a.account_id, a.cap, CAST(COALESCE(SUM(k.spent), 0) AS BIGINT), \
    CAST(COALESCE(SUM(k.leased), 0) AS BIGINT) FROM account_caps a \
    LEFT JOIN keys k ON k.account_id = a.account_id WHERE a.cap IS NOT NULL \
    GROUP BY a.account_id, a.cap ORDER BY 1";
const SPENT: &str = "SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM usage \
    WHERE span = 'day' AND scope = 'account_sum' AND owner = $1 AND begun >= $2";

/// The lock of an account's cap: whose it is, the cap, until when its money is wanted back.
pub(crate) type LockedAccount = (String, Option<i64>, i64);

/// What all keys of an account together may spend; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountTerms {
    /// In all.
    pub cap: Option<Money>,
    /// In every period.
    pub budget: Option<BudgetTerms>,
}

/// In words, for the audit log.
impl std::fmt::Display for AccountTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.cap {
            Some(cap) => write!(f, "cap {cap} USD")?,
            None => f.write_str("no cap")?,
        }
        match self.budget {
            Some(BudgetTerms { most, period }) => {
                write!(f, ", budget {most} USD per {}", period.word())
            }
            None => f.write_str(", no budget"),
        }
    }
}

/// How the keys of an account stand together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountTotal {
    /// The account.
    pub account_id: String,
    /// What they may spend.
    pub cap: Option<Money>,
    /// What they have spent.
    pub spent: Money,
    /// What is leased to nodes.
    pub leased: Money,
}

/// The statement that sets the terms of an account, for either driver.
macro_rules! set_terms {
    ($account_id:expr, $terms:expr) => {{
        let $crate::AccountTerms { cap, budget } = $terms;
        sqlx::query($crate::account_caps::SET)
            .bind($crate::db::clean($account_id))
            .bind(cap.map(canon::Money::as_nanos))
            .bind(budget.map(|budget| budget.most.as_nanos()))
            .bind(budget.map(|budget| budget.period.word()))
    }};
}
pub(crate) use set_terms;

impl Store {
    /// Sets what all keys of an account together may spend.
    pub async fn set_account_terms(
        &self,
        account_id: &str,
        terms: AccountTerms,
    ) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            set_terms!(account_id, terms).execute(pool).await?;
        });
        Ok(())
    }

    /// The terms of every account that has any, by its id.
    pub async fn account_terms(&self) -> Result<Vec<(String, AccountTerms)>, StoreError> {
        type Row = (String, Option<i64>, Option<i64>, Option<String>);
        let rows: Vec<Row> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        let terms = rows.into_iter().map(|(id, cap, most, period)| {
            let budget = match (most, period) {
                (Some(most), Some(word)) => {
                    let period = Period::by_word(&word).ok_or_else(|| unknown_word(&word))?;
                    Some(BudgetTerms { most: Money::nanos(most), period })
                }
                _ => None,
            };
            Ok((id, AccountTerms { cap: cap.map(Money::nanos), budget }))
        });
        Ok(terms.collect::<Result<_, sqlx::Error>>()?)
    }

    /// How the keys of every capped account stand together, all of one instant.
    pub async fn account_totals(&self) -> Result<Vec<AccountTotal>, StoreError> {
        let rows: Vec<(String, Option<i64>, i64, i64)> =
            on_reader!(&self.db, pool => sqlx::query_as(TOTALS).fetch_all(pool).await?);
        let totals = rows.into_iter().map(|(account_id, cap, spent, leased)| AccountTotal {
            account_id,
            cap: cap.map(Money::nanos),
            spent: Money::nanos(spent),
            leased: Money::nanos(leased),
        });
        Ok(totals.collect())
    }

    /// How the keys of one account stand together; its cap is not told.
    pub async fn account_spending(&self, account_id: &str) -> Result<(Money, Money), StoreError> {
        let (spent, leased, _): (i64, i64, i64) = on_reader!(&self.db, pool => {
            sqlx::query_as(SUM).bind(clean(account_id)).fetch_one(pool).await?
        });
        Ok((Money::nanos(spent), Money::nanos(leased)))
    }

    /// What an account's calls cost that were admitted in the period with that time in it: the
    /// first day of the period, in days since 1970, and the sum.
    pub async fn account_spent_in(
        &self,
        account_id: &str,
        period: Period,
        at: Micros,
    ) -> Result<(i64, Money), StoreError> {
        let (first, _) = period.days(at);
        let sum: i64 = on_reader!(&self.db, pool => {
            sqlx::query_scalar(SPENT).bind(clean(account_id)).bind(first.saturating_mul(DAY)).fetch_one(pool).await?
        });
        Ok((first, Money::nanos(sum)))
    }
}
