//! Rate limits of keys and accounts, and budgets of keys.
//!
//! The limits of an account are a setting under its id, because few accounts have any.

use canon::{Micros, Money};
use ledger::BudgetPeriod;
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::db::{clean, on_reader};
use crate::rollup::DAY;
use crate::{AuditedChange, Store, StoreError};

/// Rate limits of a key or an account; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests per minute.
    pub rpm: Option<u32>,
    /// Tokens per minute.
    pub tpm: Option<u32>,
    /// Concurrent calls.
    pub concurrency: Option<u32>,
}

impl RateLimits {
    /// Returns true if there is no limit.
    pub const fn is_none(&self) -> bool {
        self.rpm.is_none() && self.tpm.is_none() && self.concurrency.is_none()
    }
}

/// Prefix of the settings that hold limits of accounts.
const PREFIX: &str = "limits/";

const ACCOUNTS: &str = "SELECT name, value FROM settings WHERE name >= $1 AND name < $2";
const SPENT: &str = "SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM usage \
    WHERE span = 'day' AND scope = 'key_sum' AND owner = $1 AND begun >= $2";

impl Store {
    /// Returns the limits of every account that ever had any, with its id.
    pub async fn account_limits(&self) -> Result<Vec<(String, RateLimits)>, StoreError> {
        let rows: Vec<(String, String)> = on_reader!(&self.db, pool => {
            let rows = sqlx::query(ACCOUNTS).bind(PREFIX).bind("limits0").fetch_all(pool).await?;
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect::<Result<_, sqlx::Error>>()?
        });
        rows.into_iter()
            .map(|(name, value)| {
                let value: Value =
                    serde_json::from_str(&value).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
                let limit = |name: &str| {
                    let number = value.get(name).and_then(Value::as_u64);
                    number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
                };
                let limits = RateLimits {
                    rpm: limit("rpm"),
                    tpm: limit("tpm"),
                    concurrency: limit("concurrency"),
                };
                let id = name.strip_prefix(PREFIX).unwrap_or_default().to_owned();
                Ok((id, limits))
            })
            .collect()
    }

    /// Returns the cost of a key's calls admitted in the period that contains that time, after the
    /// first day of the period in days since 1970.
    pub async fn spent_in(
        &self,
        key_id: &str,
        period: BudgetPeriod,
        at: Micros,
    ) -> Result<(i64, Money), StoreError> {
        let (first, _) = period.days(at);
        let sum: i64 = on_reader!(&self.db, pool => {
            sqlx::query_scalar(SPENT)
                .bind(clean(key_id))
                .bind((first * DAY).get())
                .fetch_one(pool)
                .await?
        });
        Ok((first, Money::from_nanos(sum)))
    }
}

impl AuditedChange {
    /// Sets the rate limits of all keys of an account together.
    pub async fn set_account_limits(
        &mut self,
        account_id: &str,
        limits: RateLimits,
    ) -> Result<(), StoreError> {
        let RateLimits { rpm, tpm, concurrency } = limits;
        let value = json!({ "rpm": rpm, "tpm": tpm, "concurrency": concurrency });
        self.put_setting(&format!("{PREFIX}{account_id}"), &value.to_string()).await
    }
}
