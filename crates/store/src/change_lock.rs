//! Lock that makes changes of administration run one after the other, on all nodes.
//!
//! Such a change reads an object, checks it and writes it. Two of them at once would start from the
//! same state, and one would undo the other.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::{Postgres, Transaction};
use tokio::sync::OwnedMutexGuard;

use crate::db::Db;
use crate::{Store, StoreError};

/// Number of the lock among the advisory locks of the database: "chan" in ASCII.
const LOCK_NUMBER: i64 = 0x6368_616e;

/// Right to change accounts, teams, keys and settings. It ends when it is dropped.
#[derive(Debug)]
pub struct ChangeLock {
    /// Excludes other tasks of this process, so that a node waits with one connection only.
    _local: OwnedMutexGuard<()>,
    _shared: SharedLock,
}

/// Part of the lock that excludes other processes. The system frees it if the process dies.
#[derive(Debug)]
enum SharedLock {
    /// A database in memory belongs to one process.
    None,
    /// Locked file beside the SQLite database. The command line uses the database of a running
    /// gateway.
    File { _file: File },
    /// Transaction with an advisory lock
    /// (<https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>).
    Transaction { _tx: Transaction<'static, Postgres> },
}

impl Store {
    /// Waits until no other change runs.
    pub async fn lock_changes(&self) -> Result<ChangeLock, StoreError> {
        let local = Arc::clone(&self.changes).lock_owned().await;
        let shared = match &self.db {
            Db::Sqlite { writer, .. } => match lock_path(writer.connect_options().get_filename()) {
                Some(path) => SharedLock::File { _file: lock_file(path).await? },
                None => SharedLock::None,
            },
            Db::Pg(pool) => {
                let mut tx = pool.begin().await?;
                let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK_NUMBER);
                lock.execute(&mut *tx).await?;
                SharedLock::Transaction { _tx: tx }
            }
        };
        Ok(ChangeLock { _local: local, _shared: shared })
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
        let file = File::create(path)?;
        file.lock()?;
        Ok(file)
    });
    let locked = locking.await.map_err(io::Error::other).and_then(|locked| locked);
    locked.map_err(|error| StoreError::Other(format!("the changes cannot be locked: {error}")))
}
