//! Copies of the database, and databases that were restored from one.
//!
//! A restored database has the leases and the running calls of its nodes at the moment of the copy. No
//! process uses these leases any more, and nothing of them was spent without the knowledge of this
//! database that a journal would not report. So all of them are closed, without the reserve that is
//! kept for a node that may come back.

use std::path::Path;
use std::time::Duration;

use ledger::{ALIVE_WINDOW, LeaseToken};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::db::{Db, on_reader, on_writer};
use crate::error::{is_damaged, sqlite_reason};
use crate::node_marks::ADOPT_MARKS;
use crate::nodes::{ReportedCall, settled};
use crate::{Store, StoreError};

const ALL_CALLS: &str =
    "SELECT body, (SELECT seen FROM nodes WHERE id = node_id) AS seen FROM holds";
const ALL_LEASES: &str = "SELECT token, key_id FROM leases ORDER BY key_id";
const FORGET_NODES: &str = "DELETE FROM nodes";
const FORGET_NODE: &str = "DELETE FROM nodes WHERE id = $1";
/// Time to wait for other processes that use a database whose log is merged.
const MERGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Leases and calls of nodes that do not exist any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdoptedCounts {
    /// Number of closed leases.
    pub leases: usize,
    /// Number of calls settled from their last report.
    pub calls: usize,
}

impl Store {
    /// Writes a copy of the database as it is at this moment into a new file, while gateways use it.
    /// SQLite only (<https://www.sqlite.org/lang_vacuum.html#vacuuminto>).
    pub async fn write_copy(&self, file: &Path) -> Result<(), StoreError> {
        let path = file.to_str().ok_or_else(|| {
            StoreError::Other(format!("`{}` is no name for a database", file.display()))
        })?;
        match &self.db {
            Db::Sqlite(database) => {
                let writer = database.writer().await?;
                sqlx::query("VACUUM INTO $1").bind(path).execute(&writer).await?;
                Ok(())
            }
            Db::Pg(_) => Err(StoreError::Other("PostgreSQL is copied with `pg_dump`".to_owned())),
        }
    }

    /// Fails if the file of a SQLite database is damaged.
    pub async fn check_file(&self) -> Result<(), StoreError> {
        let Db::Sqlite(database) = &self.db else { return Ok(()) };
        let writer = database.writer().await?;
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&writer).await?;
        if found == "ok" { Ok(()) } else { Err(StoreError::Other(found)) }
    }

    /// Writes the log of a SQLite database that no process uses into its file, so that the file alone has
    /// everything (<https://www.sqlite.org/pragma.html#pragma_wal_checkpoint>). Returns false if the database is
    /// damaged: nothing can be merged then.
    pub async fn merge_log(file: &Path) -> Result<bool, StoreError> {
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(MERGE_TIMEOUT);
        let merging = async {
            let mut connection = options.connect().await?;
            let merged: Result<(i64, i64, i64), sqlx::Error> =
                sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await;
            let closed = connection.close().await;
            let (busy, ..) = merged?;
            closed.map(|()| busy == 0)
        };
        match merging.await {
            Ok(true) => Ok(true),
            Ok(false) => Err(StoreError::Other("another process uses the database".to_owned())),
            Err(error) if is_damaged(&error) => Ok(false),
            Err(error) => Err(StoreError::Other(sqlite_reason(&error))),
        }
    }

    /// Takes over a restored database: settles the calls that were running when it was copied and
    /// closes all leases, so that their money can be spent at once. Nodes that post calls again which this
    /// database lacks are expected to. No node may use it.
    pub async fn adopt(&self) -> Result<AdoptedCounts, StoreError> {
        let now = self.now().await?;
        let running: Vec<ReportedCall> = on_reader!(&self.db, pool => {
            sqlx::query_as(ALL_CALLS).fetch_all(pool).await?
        });
        // Before the leases are closed, so that these pay.
        let calls = self.post(&settled(&running, now)?).await?;
        let leases: Vec<(LeaseToken, String)> = on_reader!(&self.db, pool => {
            sqlx::query_as(ALL_LEASES).fetch_all(pool).await?
        });
        self.close_leases(&leases).await?;
        on_writer!(&self.db, pool => {
            sqlx::query(FORGET_NODES).execute(pool).await?;
            sqlx::query(ADOPT_MARKS).execute(pool).await?;
        });
        Ok(AdoptedCounts { leases: leases.len(), calls })
    }

    /// Fails if a node is alive. The nodes of a copy that nobody uses may look so.
    pub async fn require_no_nodes(&self) -> Result<(), StoreError> {
        self.require_dead(|_| true).await
    }

    /// Gives up a node that will not come back, for example because its disk is lost: its calls are
    /// settled from their last report, and its leases are closed without a reserve. Refused while it is
    /// alive.
    pub async fn forget_node(&self, id: &str) -> Result<(), StoreError> {
        self.require_dead(|node| node == id).await?;
        self.close_node(id).await?;
        on_writer!(&self.db, pool => {
            sqlx::query(FORGET_NODE).bind(id).execute(pool).await?;
        });
        Ok(())
    }

    /// Fails if one of these nodes is alive.
    async fn require_dead(&self, is_meant: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let nodes = self.nodes().await?;
        let alive = nodes.iter().find(|(id, silence)| is_meant(id) && *silence < ALIVE_WINDOW);
        match alive {
            Some((id, _)) => Err(StoreError::Other(format!(
                "the node {id} used this database a moment ago; stop it first"
            ))),
            None => Ok(()),
        }
    }
}
