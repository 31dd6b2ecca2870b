//! The two databases behind one type, and the macros that compile a body for both.
//!
//! The drivers share no useful trait for queries, so the same lines are compiled twice, once per
//! driver. SQL that differs between the two occurs only in `migrations/`.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgPool, Postgres, Transaction};
use std::sync::Arc;

use crate::sqlite_database::SqliteDatabase;

/// The connection pools.
#[derive(Clone, Debug)]
pub(crate) enum Db {
    Sqlite(Arc<SqliteDatabase>),
    /// PostgreSQL needs no separation of readers and writers.
    Pg(PgPool),
}

/// A connection of PostgreSQL on which a transaction begins.
///
/// If a caller gives up while it waits for the answer to `BEGIN`, the driver counts no transaction and
/// rolls none back, but the server has begun one. Statements of others on this connection would then
/// never be committed, and would keep their locks. So the connection is closed.
pub(crate) struct PgSession {
    connection: PoolConnection<Postgres>,
    has_begun: bool,
}

impl PgSession {
    /// Takes a connection from the pool.
    pub(crate) async fn open(pool: &PgPool) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, has_begun: true })
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_, Postgres>, sqlx::Error> {
        self.begin_with("BEGIN").await
    }

    /// Begins a transaction with this statement.
    pub(crate) async fn begin_with(
        &mut self,
        statement: &'static str,
    ) -> Result<Transaction<'_, Postgres>, sqlx::Error> {
        self.has_begun = false;
        let begun = self.connection.begin_with(statement).await?;
        self.has_begun = true;
        Ok(begun)
    }
}

impl Drop for PgSession {
    fn drop(&mut self) {
        if !self.has_begun {
            self.connection.close_on_drop();
        }
    }
}

/// Runs a body with a connection pool for reading.
macro_rules! on_reader {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite(database) => {
                let _timer = $crate::store_times::StoreTimer::read();
                let $pool = &database.reader().await?;
                $body
            }
            $crate::db::Db::Pg($pool) => {
                let _timer = $crate::store_times::StoreTimer::read();
                $body
            }
        }
    };
    ($db:expr, $pool:ident: $kind:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite(database) => {
                type $kind = sqlx::Sqlite;
                let _timer = $crate::store_times::StoreTimer::read();
                let $pool = &database.reader().await?;
                $body
            }
            $crate::db::Db::Pg($pool) => {
                type $kind = sqlx::Postgres;
                let _timer = $crate::store_times::StoreTimer::read();
                $body
            }
        }
    };
}

/// Runs a body of one statement with a connection pool for writing.
macro_rules! on_writer {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite(database) => {
                let _timer = $crate::store_times::StoreTimer::write();
                let $pool = &database.writer().await?;
                $body
            }
            $crate::db::Db::Pg($pool) => {
                let _timer = $crate::store_times::StoreTimer::write();
                $body
            }
        }
    };
}

/// Runs a body in a transaction, which is rolled back when the body returns early.
///
/// SQLite takes the write lock at the start. A transaction that begins as a reader and then writes
/// can fail with `SQLITE_BUSY` (<https://www.sqlite.org/lang_transaction.html>).
macro_rules! in_transaction {
    ($db:expr, $tx:ident: $kind:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite(database) => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Sqlite;
                let _timer = $crate::store_times::StoreTimer::transaction();
                let pool = database.writer().await?;
                let mut $tx = pool.begin_with("BEGIN IMMEDIATE").await?;
                let out = $body;
                $tx.commit().await?;
                out
            }
            $crate::db::Db::Pg(pool) => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Postgres;
                let _timer = $crate::store_times::StoreTimer::transaction();
                let mut session = $crate::db::PgSession::open(pool).await?;
                let mut $tx = session.begin().await?;
                let out = $body;
                $tx.commit().await?;
                out
            }
        }
    };
}

/// Runs a body of several statements that all see the same state of the database.
macro_rules! in_snapshot {
    ($db:expr, $tx:ident: $kind:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite(database) => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Sqlite;
                let _timer = $crate::store_times::StoreTimer::read();
                let pool = database.reader().await?;
                let mut $tx = pool.begin().await?;
                $body
            }
            $crate::db::Db::Pg(pool) => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Postgres;
                let _timer = $crate::store_times::StoreTimer::read();
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let mut session = $crate::db::PgSession::open(pool).await?;
                let mut $tx = session.begin_with(begin).await?;
                $body
            }
        }
    };
}

pub(crate) use {in_snapshot, in_transaction, on_reader, on_writer};

/// Returns a text in a form that both databases can hold.
///
/// PostgreSQL does not allow NUL in texts
/// (<https://www.postgresql.org/docs/current/datatype-character.html>). A caller can put one into a
/// model id, for example, and the ledger row must be written all the same. So NUL is replaced, on
/// both databases alike.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Encodes a list as JSON text.
pub(crate) fn to_json<T: Serialize>(list: &[T]) -> String {
    // Encoding fails only for maps with keys that are not strings, and no stored list has one.
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// Decodes a list from JSON text.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Converts a number to the type the program uses. Fails for a row that another program wrote.
pub(crate) fn number<T: TryFrom<i64, Error: std::error::Error + Send + Sync + 'static>>(
    value: i64,
) -> Result<T, sqlx::Error> {
    T::try_from(value).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// The error for a word that no version of the program writes.
pub(crate) fn unknown_word(word: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("unknown word `{word}`").into())
}
