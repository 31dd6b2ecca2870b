//! Lock that makes changes of administration run one after the other, on all nodes.
//!
//! Such a change reads an object, checks it and writes it. Two of them at once would start from the
//! same state, and one would undo the other.

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
    /// Excludes other nodes: the lock ends with its transaction
    /// (<https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>).
    _shared: Option<Transaction<'static, Postgres>>,
}

impl Store {
    /// Waits until no other change runs.
    pub async fn lock_changes(&self) -> Result<ChangeLock, StoreError> {
        let local = Arc::clone(&self.changes).lock_owned().await;
        let shared = match &self.db {
            // One process alone uses a SQLite file.
            Db::Sqlite { .. } => None,
            Db::Pg(pool) => {
                let mut tx = pool.begin().await?;
                let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK_NUMBER);
                lock.execute(&mut *tx).await?;
                Some(tx)
            }
        };
        Ok(ChangeLock { _local: local, _shared: shared })
    }
}
