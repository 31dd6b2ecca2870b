//! The audit log of administrative changes. It is append-only.
use canon::Micros;
use sqlx::QueryBuilder;

use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::{Store, StoreError};

row! {
    /// One change.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AuditRecord {
        /// Number of the change, in increasing order.
        pub id: i64,
        /// Time of the change.
        pub at: Micros,
        /// The account id or command that made it.
        pub actor: String,
        /// The key that the account used; `None` for people and commands.
        pub key_id: Option<String>,
        /// The action, for example `key.revoke`.
        pub action: String,
        /// Id of the changed object.
        pub subject: String,
        /// Further details, never a secret.
        pub detail: String,
        /// Address the request came from; `None` for commands.
        pub address: Option<String>,
        /// User agent of the request; `None` for commands.
        pub agent: Option<String>,
    }
}

/// A line to be written.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of `AuditRecord`")]
pub struct AuditLine<'a> {
    pub at: Micros,
    pub actor: &'a str,
    pub key_id: Option<&'a str>,
    pub action: &'a str,
    pub subject: &'a str,
    pub detail: &'a str,
    pub address: Option<&'a str>,
    pub agent: Option<&'a str>,
}

pub(crate) const ADD: &str = "INSERT INTO audits \
    (at, actor, key_id, action, subject, detail, address, agent) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const LIST: &str =
    "SELECT id, at, actor, key_id, action, subject, detail, address, agent FROM audits";

/// Conditions on changes; `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Made by one of these accounts or commands; empty is no condition.
    pub actors: Vec<String>,
    /// Of this action (`key.revoke`), or of all actions on this kind of object (`key`).
    pub action: Option<String>,
    /// At this time or later.
    pub since: Option<Micros>,
    /// Before this time.
    pub until: Option<Micros>,
    /// Older than the change with this time and number, which is the last one of the page before.
    pub before: Option<(Micros, i64)>,
    /// With a higher number than this. The answer then begins with the oldest change.
    ///
    /// PostgreSQL can make a change visible after one with a higher number, so a reader that comes
    /// back for later changes also sets `until` to some seconds ago.
    pub after: Option<i64>,
}

/// Name of the setting with the position of the stream to the collector.
const STREAM_POSITION: &str = "audit_stream";
const MOVE_STREAM: &str = "UPDATE settings SET value = $3 WHERE name = $1 AND value = $2";

/// Lines of one statement.
pub(crate) const MAX_LINES: usize = 100;
pub(crate) const ADD_LINES: &str =
    "INSERT INTO audits (at, actor, key_id, action, subject, detail, address, agent) ";

/// Writes a line, for either driver.
macro_rules! insert_line {
    ($line:expr, $tx:ident) => {{
        let line: &$crate::AuditLine<'_> = $line;
        sqlx::query($crate::audit::ADD)
            .bind(line.at.get())
            .bind($crate::db::clean(line.actor))
            .bind(line.key_id.map($crate::db::clean))
            .bind($crate::db::clean(line.action))
            .bind($crate::db::clean(line.subject))
            .bind($crate::db::clean(line.detail))
            .bind(line.address.map($crate::db::clean))
            .bind(line.agent.map($crate::db::clean))
            .execute($tx)
            .await?;
    }};
}

impl Store {
    /// Records an event that changes nothing in the store, such as a check. A change commits its
    /// own lines.
    pub async fn add_audit(&self, line: &AuditLine<'_>) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => insert_line!(line, pool));
        Ok(())
    }

    /// Returns the latest changes, newest first.
    pub async fn audits(&self, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        self.audits_of(&AuditFilter::default(), limit).await
    }

    /// Returns the position of the stream to the collector, a text of its reader.
    pub async fn audit_stream(&self) -> Result<String, StoreError> {
        self.setting_or(STREAM_POSITION, "").await
    }

    /// Moves the stream to another position. Of several nodes that start from the same one, the
    /// first succeeds.
    pub async fn move_audit_stream(&self, from: &str, to: &str) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let moved = sqlx::query(MOVE_STREAM).bind(STREAM_POSITION).bind(clean(from));
            moved.bind(clean(to)).execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Returns the latest changes that match the filter, newest first.
    pub async fn audits_of(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let AuditFilter { actors, action, since, until, before, after } = filter;
        Ok(on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(LIST);
            query.push(" WHERE 1 = 1");
            if !actors.is_empty() {
                let mut list = query.push(" AND actor IN (").separated(", ");
                for actor in actors {
                    list.push_bind(clean(actor));
                }
                query.push(")");
            }
            if let Some(action) = action {
                let kind = format!("{}.", clean(action));
                let long = i32::try_from(kind.chars().count()).unwrap_or(i32::MAX);
                query.push(" AND (action = ").push_bind(clean(action));
                query.push(" OR substr(action, 1, ").push_bind(long);
                query.push(") = ").push_bind(kind).push(")");
            }
            if let Some(since) = since {
                query.push(" AND at >= ").push_bind(since.get());
            }
            if let Some(until) = until {
                query.push(" AND at < ").push_bind(until.get());
            }
            if let Some((at, id)) = before {
                query.push(" AND (at, id) < (").push_bind(at.get());
                query.push(", ").push_bind(*id).push(")");
            }
            match after {
                Some(id) => query.push(" AND id > ").push_bind(*id).push(" ORDER BY id"),
                None => query.push(" ORDER BY at DESC, id DESC"),
            };
            query.push(" LIMIT ").push_bind(i64::from(limit));
            query.build_query_as().fetch_all(pool).await?
        }))
    }
}
