//! Calls that were refused before any provider was asked. They are counted by hour and have no rows
//! of their own, so that a caller without money cannot fill the ledger.

use canon::Micros;

use crate::db::{clean, in_transaction};
use crate::{Store, StoreError, SumGroup, UsageStep};

/// Refused calls of one key and model for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCalls {
    /// A time in the hour they came in.
    pub at: Micros,
    /// The key.
    pub key_id: String,
    /// Its account.
    pub account_id: String,
    /// The model.
    pub model: String,
    /// The reason, one word.
    pub reason: &'static str,
    /// The HTTP status they got.
    pub status: u16,
    /// Their number.
    pub calls: i64,
}

const ADD: &str = "INSERT INTO refusals (begun, key_id, account_id, model, reason, status, calls) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (begun, key_id, model, reason) \
    DO UPDATE SET calls = refusals.calls + excluded.calls";

/// Builds the query for the numbers of refused calls by group, for either driver.
macro_rules! refused_query {
    ($kind:ident, $range:expr, $by:expr, $filter:expr) => {{
        let (range, filter): (&std::ops::Range<canon::Micros>, &$crate::UsageFilter) =
            ($range, $filter);
        let mut query = sqlx::QueryBuilder::<$kind>::new("SELECT ");
        let by: Option<$crate::SumGroup> = $by;
        query.push(by.map_or("''", $crate::refusals::column));
        // PostgreSQL returns NUMERIC for a sum of BIGINTs.
        query.push(", CAST(SUM(calls) AS BIGINT) FROM refusals WHERE begun >= ");
        query.push_bind(range.start.get()).push(" AND begun < ").push_bind(range.end.get());
        let conditions = [
            ("key_id", &filter.key_id),
            ("account_id", &filter.account_id),
            ("model", &filter.model),
        ];
        for (column, value) in conditions {
            if let Some(value) = value {
                query.push(format_args!(" AND {column} = "));
                query.push_bind($crate::db::clean(value).into_owned());
            }
        }
        if let Some(statuses) = &filter.statuses {
            query.push(" AND status >= ").push_bind(i64::from(statuses.start));
            query.push(" AND status < ").push_bind(i64::from(statuses.end));
        }
        if filter.lane.is_some() {
            // No lane was asked.
            query.push(" AND 1 = 0");
        }
        query.push(" GROUP BY 1");
        query
    }};
}
pub(crate) use refused_query;

/// The column of a dimension. A refused call has no lane.
pub(crate) const fn column(by: SumGroup) -> &'static str {
    match by {
        SumGroup::Account => "account_id",
        SumGroup::Key => "key_id",
        SumGroup::Model => "model",
        SumGroup::Lane => "''",
        SumGroup::Status => "CAST(status AS TEXT)",
    }
}

impl Store {
    /// Adds refused calls to the counts of their hours.
    pub async fn add_refusals(&self, refused: &[RefusedCalls]) -> Result<(), StoreError> {
        let mut sorted: Vec<&RefusedCalls> = refused.iter().collect();
        // All transactions lock rows in the same order.
        sorted.sort_by_key(|one| (one.at, &one.key_id, &one.model, one.reason));
        in_transaction!(&self.db, tx: Kind => {
            for RefusedCalls { at, key_id, account_id, model, reason, status, calls } in sorted {
                sqlx::query(ADD)
                    .bind(UsageStep::Hour.begin(*at).get())
                    .bind(clean(key_id))
                    .bind(clean(account_id))
                    .bind(clean(model))
                    .bind(*reason)
                    .bind(i64::from(*status))
                    .bind(*calls)
                    .execute(&mut *tx)
                    .await?;
            }
        });
        Ok(())
    }
}
