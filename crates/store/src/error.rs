//! Errors of the database, one line each, with a remedy.

use sqlx::error::DatabaseError;

use crate::StoreTimes;

/// Reason an operation of the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The database does not answer: it is not running, the address is wrong, or the file is
    /// locked.
    #[error("the database cannot be reached: {0}; check `store.url` and that it is running")]
    Unreachable(String),
    /// An object with that name exists already.
    #[error("this {0} is already taken; choose another")]
    Conflict(&'static str),
    /// A referenced object does not exist.
    #[error("there is no such {0}; create it first")]
    Missing(&'static str),
    /// The database was migrated by a newer binary, in a way that this one cannot work with.
    #[error(
        "the database was set up by a newer version (schema {found}, for programs that know schema \
         {least} or later; this one knows {known}); start the newer version, or restore the backup \
         made before the upgrade"
    )]
    Newer {
        /// The newest migration found in the database.
        found: i64,
        /// The oldest schema that a program has to know.
        least: i64,
        /// The newest migration this binary knows.
        known: i64,
    },
    /// A body cannot be sealed or opened.
    #[error("a stored body cannot be sealed or opened: {0}")]
    Sealing(String),
    /// Anything else.
    #[error("the database refused: {0}")]
    Other(String),
}

impl StoreError {
    /// Maps a uniqueness violation to [`StoreError::Conflict`] and a foreign key violation to
    /// [`StoreError::Missing`], with nouns that the user understands.
    pub(crate) fn naming(
        taken: &'static str,
        missing: &'static str,
    ) -> impl FnOnce(sqlx::Error) -> Self {
        move |error| match &error {
            sqlx::Error::Database(inner) if inner.is_unique_violation() => Self::Conflict(taken),
            sqlx::Error::Database(inner) if inner.is_foreign_key_violation() => {
                Self::Missing(missing)
            }
            _ => error.into(),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let unreachable = match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(inner) => is_unreachable(inner.as_ref()),
            _ => false,
        };
        StoreTimes::of_process().note_failure(unreachable);
        let line = one_line(&error);
        if unreachable { Self::Unreachable(line) } else { Self::Other(line) }
    }
}

/// Returns true if the database cannot serve this client at the moment.
fn is_unreachable(error: &dyn DatabaseError) -> bool {
    let Some(code) = error.code() else { return false };
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return is_busy(&code) || primary_code(&code) == Some(14);
    }
    // Error classes of <https://www.postgresql.org/docs/current/errcodes-appendix.html>: connection
    // lost, wrong password, no such database, out of connections, a lock that is not free, shutting down.
    ["08", "28", "3D", "53", "55P03", "57P"].iter().any(|class| code.starts_with(class))
}

/// Returns true if another connection holds the lock of the SQLite file.
pub(crate) fn is_busy(code: &str) -> bool {
    matches!(primary_code(code), Some(5 | 6))
}

/// Returns the primary part of an extended result code (<https://www.sqlite.org/rescode.html>).
fn primary_code(code: &str) -> Option<i32> {
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Returns true if SQLite says that the file is damaged or no database.
pub(crate) fn is_damaged(error: &sqlx::Error) -> bool {
    const CORRUPT: i32 = 11;
    const NOT_A_DATABASE: i32 = 26;
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.and_then(|code| primary_code(&code)), Some(CORRUPT | NOT_A_DATABASE))
}

/// Returns the message of an error of SQLite without line ends, and the remedy for a full disk. A side
/// file that cannot grow has a code of its own (`SQLITE_IOERR_SHMSIZE`).
pub(crate) fn sqlite_reason(error: &sqlx::Error) -> String {
    const FULL: i32 = 13;
    const SIDE_FILE_CANNOT_GROW: &str = "4874";
    let code = error.as_database_error().and_then(|error| error.code());
    let is_full =
        code.is_some_and(|code| code == SIDE_FILE_CANNOT_GROW || primary_code(&code) == Some(FULL));
    let remedy = if is_full { "; make room on its disk" } else { "" };
    format!("{}{remedy}", one_line(error))
}

/// Returns the message without line ends.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
