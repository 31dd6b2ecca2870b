//! Deletion of old rows that no money depends on: lines of the audit log, refusals, hours of usage and sessions of
//! callers. Calls leave through [`crate::archive`].
//!
//! Every method deletes a small batch in one transaction and returns its size, so that other writers wait for a
//! few milliseconds only and a process can be killed at any time.

use canon::Micros;

use crate::db::{Db, in_transaction, on_reader, on_writer};
use crate::rollup::Scope;
use crate::{Store, StoreError, UsageStep};

/// Rows that one transaction deletes.
const BATCH_ROWS: i64 = 500;
/// Pages that one step gives back to the file system.
const VACUUM_PAGES: i64 = 200;

/// Name of the setting with the day from which hours of usage are complete.
pub(crate) const USAGE_HOURS_FROM: &str = "usage_hours_from";

const DROP_AUDITS: &str = "DELETE FROM audits WHERE id IN \
    (SELECT id FROM audits WHERE at < $1 AND id <= $2 ORDER BY at, id LIMIT $3)";
const DROP_REFUSALS: &str = "DELETE FROM refusals WHERE (begun, key_id, model, reason) IN \
    (SELECT begun, key_id, model, reason FROM refusals WHERE begun < $1 LIMIT $2)";
const DROP_HOURS: &str = "DELETE FROM usage WHERE span = 'hour' AND scope = $1 AND begun < $2 \
    AND (begun, owner, account_id, model, lane, status) IN \
    (SELECT begun, owner, account_id, model, lane, status FROM usage \
    WHERE span = 'hour' AND scope = $1 AND begun < $2 LIMIT $3)";
/// Sums of sessions all of whose calls are archived.
const OLD_SESSIONS: &str = "SELECT c.session, c.key_id, c.model, c.lane FROM archived_sessions a \
    JOIN call_sessions c ON c.session = a.session AND c.key_id = a.key_id AND c.model = a.model \
    AND c.lane = a.lane WHERE c.ended < $1 AND c.calls = a.calls AND c.cost = a.cost \
    AND c.input = a.input AND c.output = a.output AND c.absorbed = a.absorbed \
    AND c.cache_read = a.cache_read AND c.thinking = a.thinking LIMIT $2";
const DROP_SESSION: [&str; 2] = [
    "DELETE FROM call_sessions WHERE session = $1 AND key_id = $2 AND model = $3 AND lane = $4",
    "DELETE FROM archived_sessions WHERE session = $1 AND key_id = $2 AND model = $3 AND lane = $4",
];

impl Store {
    /// Deletes lines of the audit log from before that time whose number is at most `last_id`.
    pub async fn drop_audits(&self, before: Micros, last_id: i64) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let drop = sqlx::query(DROP_AUDITS).bind(before.get()).bind(last_id).bind(BATCH_ROWS);
            drop.execute(pool).await?.rows_affected()
        }))
    }

    /// Deletes counts of refused calls from before that time.
    pub async fn drop_refusals(&self, before: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let drop = sqlx::query(DROP_REFUSALS).bind(before.get()).bind(BATCH_ROWS);
            drop.execute(pool).await?.rows_affected()
        }))
    }

    /// Deletes hours of usage from before the day of that time. Days and months stay.
    pub async fn drop_usage_hours(&self, before: Micros) -> Result<u64, StoreError> {
        let before = UsageStep::Day.begin(before);
        let from = self.usage_hours_from().await?.unwrap_or(Micros::new(i64::MIN)).max(before);
        let mut dropped = 0;
        in_transaction!(&self.db, tx: Kind => {
            // In the same transaction, so that `verify` never misses an hour.
            sqlx::query(crate::settings::PUT)
                .bind(USAGE_HOURS_FROM)
                .bind(from.get().to_string())
                .execute(&mut *tx)
                .await?;
            for scope in Scope::ALL.into_iter().filter(|scope| scope.has(UsageStep::Hour)) {
                let drop = sqlx::query(DROP_HOURS).bind(scope.word()).bind(from.get());
                dropped += drop.bind(BATCH_ROWS).execute(&mut *tx).await?.rows_affected();
            }
        });
        Ok(dropped)
    }

    /// Returns the day from which hours of usage are complete; `None` if none was deleted.
    pub async fn usage_hours_from(&self) -> Result<Option<Micros>, StoreError> {
        let text = self.setting(USAGE_HOURS_FROM).await?;
        Ok(text.and_then(|text| text.parse().ok()).map(Micros::new))
    }

    /// Deletes the sums of sessions that ended before that time and whose calls are all archived.
    pub async fn drop_call_sessions(&self, before: Micros) -> Result<u64, StoreError> {
        let mut dropped = 0;
        in_transaction!(&self.db, tx: Kind => {
            let old: Vec<(String, String, String, String)> = sqlx::query_as(OLD_SESSIONS)
                .bind(before.get())
                .bind(BATCH_ROWS)
                .fetch_all(&mut *tx)
                .await?;
            for (session, key_id, model, lane) in &old {
                for statement in DROP_SESSION {
                    let drop = sqlx::query(statement).bind(session).bind(key_id);
                    drop.bind(model).bind(lane).execute(&mut *tx).await?;
                }
                dropped += 1;
            }
        });
        Ok(dropped)
    }

    /// Gives some unused pages of a SQLite file back to the file system. Returns the number of unused pages that
    /// are left to give back; zero for PostgreSQL, which reuses its space by itself, and for a file that was made
    /// without incremental vacuum (<https://www.sqlite.org/pragma.html#pragma_incremental_vacuum>).
    pub async fn return_space(&self) -> Result<i64, StoreError> {
        let Db::Sqlite(database) = &self.db else { return Ok(0) };
        let mut connection = database.writer().await?.acquire().await?;
        let mode: i64 =
            sqlx::query_scalar("PRAGMA auto_vacuum").fetch_one(&mut *connection).await?;
        if mode != INCREMENTAL {
            return Ok(0);
        }
        let text = format!("PRAGMA incremental_vacuum({VACUUM_PAGES})");
        sqlx::query(sqlx::AssertSqlSafe(text)).fetch_all(&mut *connection).await?;
        Ok(sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&mut *connection).await?)
    }

    /// Returns the number of the latest line of the audit log; zero without one.
    pub async fn last_audit_id(&self) -> Result<i64, StoreError> {
        let last: Option<i64> = on_reader!(&self.db, pool => {
            sqlx::query_scalar("SELECT MAX(id) FROM audits").fetch_one(pool).await?
        });
        Ok(last.unwrap_or_default())
    }
}

/// SQLite's number for a file whose unused pages are given back on request.
const INCREMENTAL: i64 = 2;
