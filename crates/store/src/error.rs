//! What can go wrong with the database, in one line each, with a remedy.

use sqlx::error::DatabaseError;

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer from the database: not running, wrong address, file locked or not to be opened.
    #[error("the database cannot be reached: {0}; check `store.url` and that it is running")]
    Unreachable(String),
    /// Something of that kind is there already.
    #[error("this {0} is already taken; choose another")]
    Conflict(&'static str),
    /// Something that was referred to is not there.
    #[error("there is no such {0}; create it first")]
    Missing(&'static str),
    /// The database was migrated by a newer binary.
    #[error(
        "the database was set up by a newer version (schema {found}, this one knows {known}); \
         start the newer version, or restore the backup made before the upgrade"
    )]
    Newer {
        /// The newest migration found in the database.
        found: i64,
        /// The newest migration this binary knows.
        known: i64,
    },
    /// Anything else.
    #[error("the database refused: {0}")]
    Other(String),
}

impl StoreError {
    /// Turns a violated uniqueness into [`StoreError::Conflict`] and a dangling reference into
    /// [`StoreError::Missing`], with the words the caller's user will understand.
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
        let away = match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(inner) => is_away(inner.as_ref()),
            _ => false,
        };
        let line = one_line(&error);
        if away { Self::Unreachable(line) } else { Self::Other(line) }
    }
}

/// Whether the database said that it cannot serve anyone just now, or not us.
fn is_away(error: &dyn DatabaseError) -> bool {
    let Some(code) = error.code() else { return false };
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return is_busy(&code) || primary(&code) == Some(14);
    }
    // Connection lost, wrong password or no such database, out of connections, shutting down.
    ["08", "28", "3D", "53", "57P"].iter().any(|class| code.starts_with(class))
}

/// Whether another connection holds the SQLite file's lock.
pub(crate) fn is_busy(code: &str) -> bool {
    matches!(primary(code), Some(5 | 6))
}

/// The primary part of SQLite's extended result code.
fn primary(code: &str) -> Option<i32> {
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// The message without line ends.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
