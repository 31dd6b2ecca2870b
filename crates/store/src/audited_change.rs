//! Changes of administration: each is one transaction that also holds its lines of the audit log,
//! and they run one after the other, on all nodes.
//!
//! A change reads an object, checks it and writes it. Two of them at once would start from the same
//! state, and one would undo the other. A change whose line were written afterwards would stay
//! hidden if the process died in between. So the statements that change accounts, teams, keys,
//! settings and the stored configuration are methods of [`AuditedChange`], and nothing of them is
//! stored without [`AuditedChange::commit`].

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{PgConnection, Postgres, QueryBuilder, Sqlite, SqliteConnection, Transaction};
use tokio::sync::OwnedMutexGuard;

use crate::audit::{ADD_LINES, AuditLine, MAX_LINES};
use crate::db::{Db, clean};
use crate::sqlite_database::SqliteDatabase;
use crate::{Store, StoreError};

/// Number of the lock among the advisory locks of the database: "chan" in ASCII.
const LOCK_NUMBER: i64 = 0x6368_616e;

/// Time that a change waits for one of another process, and the pause between two looks.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// A change in progress. Dropped without a commit, it leaves no trace.
///
/// The store is read before the first write: from then on a database in memory, which has a single
/// connection, answers only after the commit.
#[derive(Debug)]
#[must_use = "nothing is stored without a commit"]
pub struct AuditedChange {
    tx: ChangeTransaction,
    _lock: Option<ChangeLock>,
}

/// Right to change accounts, teams, keys and settings. It ends when it is dropped.
#[derive(Debug)]
struct ChangeLock {
    /// Locked file beside the SQLite database; `None` for a database in memory, which belongs to
    /// one process. The command line uses the database of a running gateway. The system frees the
    /// lock if the process dies.
    _file: Option<File>,
    /// Excludes other tasks of this process, so that a node waits with one connection only.
    _local: OwnedMutexGuard<()>,
}

#[derive(Debug)]
enum ChangeTransaction {
    /// Begins with the first write, so that other writers do not wait for the checks of a change.
    Sqlite { database: Arc<SqliteDatabase>, tx: Option<Transaction<'static, Sqlite>> },
    /// Holds an advisory lock, if the change is locked
    /// (<https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>).
    Pg(Transaction<'static, Postgres>),
}

/// Connection inside the transaction of a change.
pub(crate) enum ChangeConnection<'a> {
    Sqlite(&'a mut SqliteConnection),
    Pg(&'a mut PgConnection),
}

/// Runs a body inside the transaction of a change. A body that builds its queries names the database.
macro_rules! in_change {
    ($change:expr, $tx:ident: $kind:ident => $body:expr) => {
        match $change.connection().await? {
            $crate::audited_change::ChangeConnection::Sqlite($tx) => {
                type $kind = sqlx::Sqlite;
                $body
            }
            $crate::audited_change::ChangeConnection::Pg($tx) => {
                type $kind = sqlx::Postgres;
                $body
            }
        }
    };
    ($change:expr, $tx:ident => $body:expr) => {
        match $change.connection().await? {
            $crate::audited_change::ChangeConnection::Sqlite($tx) => $body,
            $crate::audited_change::ChangeConnection::Pg($tx) => $body,
        }
    };
}
pub(crate) use in_change;

impl Store {
    /// Waits until no other change runs, and begins one.
    pub async fn begin_change(&self) -> Result<AuditedChange, StoreError> {
        let local = Arc::clone(&self.changes).lock_owned().await;
        let file = match &self.db {
            Db::Sqlite(database) => match lock_path(database.path()) {
                Some(path) => Some(lock_file(path).await?),
                None => None,
            },
            Db::Pg(_) => None,
        };
        let mut change = self.begin_unlocked().await?;
        match &mut change.tx {
            ChangeTransaction::Sqlite { .. } => {}
            ChangeTransaction::Pg(tx) => {
                let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK_NUMBER);
                lock.execute(&mut **tx).await?;
            }
        }
        change._lock = Some(ChangeLock { _file: file, _local: local });
        Ok(change)
    }

    /// Begins a change that runs beside others.
    pub(crate) async fn begin_unlocked(&self) -> Result<AuditedChange, StoreError> {
        let tx = match &self.db {
            Db::Sqlite(database) => {
                ChangeTransaction::Sqlite { database: Arc::clone(database), tx: None }
            }
            Db::Pg(pool) => ChangeTransaction::Pg(pool.begin().await?),
        };
        Ok(AuditedChange { tx, _lock: None })
    }
}

impl AuditedChange {
    /// Stores the change together with its lines of the audit log. A change without any line is
    /// refused.
    pub async fn commit(mut self, lines: &[AuditLine<'_>]) -> Result<(), StoreError> {
        if lines.is_empty() {
            let why = "a change needs a line in the audit log";
            return Err(StoreError::Other(why.to_owned()));
        }
        for lines in lines.chunks(MAX_LINES) {
            in_change!(self, tx: Kind => {
                let mut query = QueryBuilder::<Kind>::new(ADD_LINES);
                query.push_values(lines, |mut row, line| {
                    row.push_bind(line.at.get()).push_bind(clean(line.actor));
                    row.push_bind(line.key_id.map(clean)).push_bind(clean(line.action));
                    row.push_bind(clean(line.subject)).push_bind(clean(line.detail));
                    row.push_bind(line.address.map(clean)).push_bind(line.agent.map(clean));
                });
                query.build().execute(&mut *tx).await?;
            });
        }
        self.commit_unaudited().await
    }

    /// Stores the change without a line: the first start, which no person asked for, and steps of a
    /// sign-in.
    pub async fn commit_unaudited(self) -> Result<(), StoreError> {
        match self.tx {
            ChangeTransaction::Sqlite { tx: Some(tx), .. } => tx.commit().await?,
            ChangeTransaction::Sqlite { tx: None, .. } => {}
            ChangeTransaction::Pg(tx) => tx.commit().await?,
        }
        Ok(())
    }

    /// Returns the connection of the transaction, which begins now if it has not yet.
    pub(crate) async fn connection(&mut self) -> Result<ChangeConnection<'_>, StoreError> {
        Ok(match &mut self.tx {
            ChangeTransaction::Sqlite { database, tx } => {
                let open = match tx.take() {
                    Some(open) => open,
                    None => database.writer().await?.begin_with("BEGIN IMMEDIATE").await?,
                };
                ChangeConnection::Sqlite(tx.insert(open))
            }
            ChangeTransaction::Pg(tx) => ChangeConnection::Pg(tx),
        })
    }
}

/// Returns the path of the locked file beside a database; `None` for a database in memory.
fn lock_path(database: &Path) -> Option<PathBuf> {
    let name = database.file_name()?.to_str()?;
    (!name.starts_with(':')).then(|| database.with_file_name(format!("{name}-changes")))
}

/// Waits for the lock of a file on a thread that may block.
async fn lock_file(path: PathBuf) -> Result<File, StoreError> {
    let locking = tokio::task::spawn_blocking(move || -> io::Result<File> {
        let file =
            OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)?;
        // Others could lock a file they can read, and hold up every change.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let deadline = Instant::now() + MAX_LOCK_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
    });
    let locked = locking.await.map_err(io::Error::other).and_then(|locked| locked);
    locked.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            StoreError::Unreachable("another process has been changing it for too long".to_owned())
        }
        _ => StoreError::Other(format!("the changes cannot be locked: {error}")),
    })
}
