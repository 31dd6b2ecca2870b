//! The two databases behind one type, and the macros that write a body once for both.
//!
//! The drivers share no useful trait for queries, so the same lines are compiled twice, once per
//! driver. SQL that differs between the two does not occur outside `migrations/`.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{PgPool, SqlitePool};

/// The connections.
#[derive(Clone, Debug)]
pub(crate) enum Db {
    /// SQLite allows one writer at a time: one connection writes, so that writers queue here, in
    /// order, and not in SQLite's busy loop. Readers never wait for it.
    Sqlite { reader: SqlitePool, writer: SqlitePool },
    /// PostgreSQL sorts out readers and writers itself.
    Pg(PgPool),
}

/// Runs a body with a connection pool that may only be read from.
macro_rules! on_reader {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { reader: $pool, .. } => $body,
            $crate::db::Db::Pg($pool) => $body,
        }
    };
    ($db:expr, $pool:ident: $kind:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { reader: $pool, .. } => {
                type $kind = sqlx::Sqlite;
                $body
            }
            $crate::db::Db::Pg($pool) => {
                type $kind = sqlx::Postgres;
                $body
            }
        }
    };
}

/// Runs a body of one statement with a connection pool that may write.
macro_rules! on_writer {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { writer: $pool, .. } => $body,
            $crate::db::Db::Pg($pool) => $body,
        }
    };
}

/// Runs a body in a transaction: all of it happens or, when it leaves early, nothing.
///
/// SQLite takes the write lock at the start; a transaction that begins as a reader and turns writer
/// can be refused half-way.
macro_rules! in_transaction {
    ($db:expr, $tx:ident: $kind:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { writer, .. } => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Sqlite;
                let mut $tx = writer.begin_with("BEGIN IMMEDIATE").await?;
                let out = $body;
                $tx.commit().await?;
                out
            }
            $crate::db::Db::Pg(pool) => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Postgres;
                let mut $tx = pool.begin().await?;
                let out = $body;
                $tx.commit().await?;
                out
            }
        }
    };
}

/// Runs a body that reads one instant of the database, however many statements it has.
macro_rules! in_snapshot {
    ($db:expr, $tx:ident: $kind:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite { reader, .. } => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Sqlite;
                let mut $tx = reader.begin().await?;
                $body
            }
            $crate::db::Db::Pg(pool) => {
                #[allow(dead_code, reason = "only a body that builds its query needs the name")]
                type $kind = sqlx::Postgres;
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let mut $tx = pool.begin_with(begin).await?;
                $body
            }
        }
    };
}

pub(crate) use {in_snapshot, in_transaction, on_reader, on_writer};

/// A text as both databases can hold it.
///
/// PostgreSQL has no zero character in texts. What a caller made up (a model id, say) must never
/// stop a ledger row from being written, so it is replaced, on both alike.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A list as JSON text.
pub(crate) fn to_json<T: Serialize>(list: &[T]) -> String {
    // Only a map with odd keys could fail to be written, and no list kept here holds one.
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// A list from JSON text.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// A whole number of the size the program uses; a row that holds another was not written by us.
pub(crate) fn number<T: TryFrom<i64, Error: std::error::Error + Send + Sync + 'static>>(
    value: i64,
) -> Result<T, sqlx::Error> {
    T::try_from(value).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// What to say of a word no version of ours wrote.
pub(crate) fn unknown_word(word: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("unknown word `{word}`").into())
}
