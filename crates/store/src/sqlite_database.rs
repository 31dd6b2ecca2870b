//! A SQLite database, whose files may be deleted or replaced while they are open.
//!
//! Every use of the database compares the files at its paths with the open ones. On a difference the database counts
//! as lost. What its log has is then written into the open file of the database, wherever that is, and all
//! connections are closed: a log that is not empty would damage another file beside it, and connections of the old
//! and the new file in one process would share their locks. Once they are closed, the file itself or a complete copy
//! of the same database is opened at the path.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio_util::task::TaskTracker;

use crate::StoreError;
use crate::error::{one_line, sqlite_reason};
use crate::migrations::SQLITE;
use crate::open_files::{FileLoss, OpenFiles, SeenFile};
use crate::schema_check::{is_usable, read_floor};
use crate::sqlite_pools::{SqlitePools, make_private};

/// Time for which another file has to stay the same before it is opened. Somebody may be copying it.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// Time to wait for a writer of the other file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between attempts to empty the log of a lost file, and to open a file that never left its path.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time that the end of the process waits for connections to a lost file to close.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(10);
const STORE_ID: &str = "SELECT id FROM store_identity";
const WAS_DELETED: &str = "was deleted";
const LOST_ITS_LOG: &str = "lost its log or the index of it";
const WAITS: &str = "waits for";
const REPLACED: &str = "was replaced by a file";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolPhase {
    Open,
    /// The files are lost, and their connections are being closed.
    Closing,
    Closed,
    /// A file at the path is being opened.
    Opening,
}

#[derive(Debug)]
struct State {
    pools: SqlitePools,
    phase: PoolPhase,
    /// A file at the path that is not open, or could not be opened.
    seen: Option<SeenFile>,
    /// Reason that the database cannot be used.
    loss: Option<String>,
}

/// Result of a look at the paths.
enum Look {
    Usable(SqlitePools),
    /// Another file, or the lost one, to be opened now.
    Found(SeenFile),
}

/// A SQLite database.
#[derive(Debug)]
pub(crate) struct SqliteDatabase {
    files: Arc<OpenFiles>,
    store_id: String,
    /// Tasks that close lost files and open others.
    tasks: TaskTracker,
    state: Mutex<State>,
}

impl SqliteDatabase {
    /// Watches the files that these pools have open.
    pub(crate) async fn watch(
        files: Arc<OpenFiles>,
        pools: SqlitePools,
    ) -> Result<Self, sqlx::Error> {
        let store_id = sqlx::query_scalar(STORE_ID).fetch_one(&pools.writer).await?;
        let state = Mutex::new(State { pools, phase: PoolPhase::Open, seen: None, loss: None });
        Ok(Self { files, store_id, tasks: TaskTracker::new(), state })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    /// Returns the reason that the database cannot be used, if its files were deleted or replaced.
    pub(crate) fn loss(&self) -> Option<String> {
        self.state.lock().loss.clone()
    }

    /// Returns the connections that read. Fails while the file is lost.
    pub(crate) async fn reader(self: &Arc<Self>) -> Result<SqlitePool, StoreError> {
        Ok(self.pools().await?.reader)
    }

    /// Returns the connection that writes. Fails while the file is lost.
    pub(crate) async fn writer(self: &Arc<Self>) -> Result<SqlitePool, StoreError> {
        Ok(self.pools().await?.writer)
    }

    /// Waits for running work and closes every connection.
    pub(crate) async fn close(self: &Arc<Self>) {
        // Notices a loss since the last use.
        drop(self.look());
        self.tasks.close();
        drop(tokio::time::timeout(MAX_CLOSE_WAIT, self.tasks.wait()).await);
        let pools = self.state.lock().pools.clone();
        pools.close().await;
    }

    async fn pools(self: &Arc<Self>) -> Result<SqlitePools, sqlx::Error> {
        let found = match self.look()? {
            Look::Usable(pools) => return Ok(pools),
            Look::Found(found) => found,
        };
        let database = Arc::clone(self);
        // A task, because the caller may give up.
        let opening = self.tasks.spawn(async move { database.open_again(found).await });
        opening.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }

    /// Compares the files at the paths with the open ones, which takes a few microseconds.
    fn look(self: &Arc<Self>) -> Result<Look, sqlx::Error> {
        if self.files.is_in_memory() {
            return Ok(Look::Usable(self.state.lock().pools.clone()));
        }
        let found = self.files.look()?;
        let mut state = self.state.lock();
        match (state.phase, found) {
            (PoolPhase::Open, Some(id)) if self.files.is_database(id) => {
                match self.files.side_file_loss() {
                    None => return Ok(Look::Usable(state.pools.clone())),
                    Some(loss) => self.begin_close(&mut state, loss),
                }
                Err(self.lose(&mut state, LOST_ITS_LOG.to_owned()))
            }
            (PoolPhase::Open, found) => {
                self.begin_close(&mut state, FileLoss::Database);
                let why = if found.is_some() { "was replaced" } else { WAS_DELETED };
                state.seen = found.map(|id| self.files.look_closely(id));
                Err(self.lose(&mut state, why.to_owned()))
            }
            (PoolPhase::Closed, None) => {
                state.seen = None;
                Err(self.lose(&mut state, WAS_DELETED.to_owned()))
            }
            (PoolPhase::Closed, Some(id)) => {
                let file = self.files.look_closely(id);
                let is_own = self.files.is_database(id);
                let is_same = |before: &SeenFile| {
                    before.is_unchanged(&file) || before.id == id && self.files.is_in_use()
                };
                let before = state.seen.filter(|before| is_own || is_same(before));
                let is_due = match before {
                    Some(before) if is_own => before.since.elapsed() >= RETRY_PAUSE,
                    Some(before) => before.since.elapsed() >= SETTLE_TIME,
                    None => is_own,
                };
                if is_due {
                    state.phase = PoolPhase::Opening;
                    return Ok(Look::Found(file));
                }
                state.seen = Some(before.unwrap_or(file));
                let why = match &state.loss {
                    Some(loss) if loss != WAS_DELETED => loss.clone(),
                    Some(_) | None => "was replaced".to_owned(),
                };
                Err(self.lose(&mut state, why))
            }
            (PoolPhase::Closing | PoolPhase::Opening, found) => {
                let is_own = found.is_some_and(|id| self.files.is_database(id));
                if state.phase == PoolPhase::Closing && is_own {
                    // Others can open it before this process has closed it.
                    self.files.bring_back();
                }
                Err(self.unusable(state.loss.as_deref().unwrap_or_default()))
            }
        }
    }

    fn begin_close(self: &Arc<Self>, state: &mut State, loss: FileLoss) {
        state.phase = PoolPhase::Closing;
        if let Err(error) = self.files.lose(loss) {
            let path = self.path().display();
            tracing::error!("the log of the lost database {path} stays at its path: {error}");
        }
        let (database, pools) = (Arc::clone(self), state.pools.clone());
        // A task, because the caller may hold a connection.
        self.tasks.spawn(async move { database.close_lost(pools, loss).await });
    }

    /// Closes the connections to lost files.
    async fn close_lost(&self, pools: SqlitePools, loss: FileLoss) {
        let mut told = String::new();
        let mut is_empty = false;
        // A new connection would be one to another file.
        while !is_empty && self.files.must_empty_log(loss) && pools.writer.size() > 0 {
            match empty_log(&pools.writer).await {
                Ok(()) => is_empty = true,
                Err(why) => {
                    if why != told {
                        tracing::error!(
                            "the log of the lost database {} cannot be written into its file: {why}; it is tried \
                             again, and no other file is opened before",
                            self.path().display()
                        );
                        told = why;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
        pools.close().await;
        if is_empty {
            self.files.remove_lost();
        }
        if loss == FileLoss::Index {
            self.files.bring_log_back();
        }
        self.state.lock().phase = PoolPhase::Closed;
    }

    /// Opens the file at the path, if it is the lost one or a complete copy of the same database.
    async fn open_again(&self, found: SeenFile) -> Result<SqlitePools, sqlx::Error> {
        let was_open = self.files.is_database(found.id);
        let opened = self.open_found(&found, was_open).await;
        let mut state = self.state.lock();
        let pools = match opened {
            Ok(pools) => pools,
            Err(why) => {
                state.phase = PoolPhase::Closed;
                state.seen = Some(found.again());
                return Err(self.lose(&mut state, why));
            }
        };
        state.pools = pools.clone();
        (state.seen, state.loss) = (None, None);
        state.phase = PoolPhase::Open;
        let path = self.path().display();
        if was_open {
            tracing::info!("the file of the database, {path}, is used again");
        } else {
            tracing::warn!(
                "the file of the database, {path}, was replaced by a copy of the same database, which is used now"
            );
        }
        Ok(pools)
    }

    /// Opens a file, or returns the reason against it.
    async fn open_found(&self, found: &SeenFile, was_open: bool) -> Result<SqlitePools, String> {
        let unusable =
            |error: sqlx::Error| format!("{REPLACED} that cannot be opened: {}", one_line(&error));
        if was_open && let Some(user) = self.files.other_user().map_err(|e| unusable(e.into()))? {
            return Err(format!("{WAITS} {user}, which still uses the lost log; end it"));
        }
        self.files.bring_back();
        self.look_into().await.map_err(|why| format!("{REPLACED} {why}"))?;
        // A copy has the permissions that its maker gave it.
        make_private(&self.path().to_string_lossy()).await;
        self.files.begin_again(found.id);
        let pools = SqlitePools::open(&self.files, false).await.map_err(unusable)?;
        let why = match self.begin_log(&pools.writer).await {
            Ok(true) => return Ok(pools),
            Ok(false) => format!("{REPLACED} of another database"),
            Err(error) => unusable(error),
        };
        // The next look at the files needs that none is open.
        pools.close().await;
        Err(why)
    }

    /// Begins the log of an opened file, because a copy may have been made without one. Returns false if the file was
    /// replaced by another database meanwhile.
    async fn begin_log(&self, writer: &SqlitePool) -> Result<bool, sqlx::Error> {
        let id: String = sqlx::query_scalar(STORE_ID).fetch_one(writer).await?;
        if id != self.store_id {
            return Ok(false);
        }
        let mode: String =
            sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_one(writer).await?;
        // The first read opens the side files.
        sqlx::query("SELECT 1 FROM sqlite_schema").fetch_optional(writer).await?;
        self.files.note_opened(&mode)?;
        Ok(true)
    }

    fn unusable(&self, why: &str) -> sqlx::Error {
        let message = format!("the file of the database, {}, {why}", self.path().display());
        sqlx::Error::Io(io::Error::other(message))
    }

    /// Notes that the database cannot be used, and logs it once.
    fn lose(&self, state: &mut State, why: String) -> sqlx::Error {
        let error = self.unusable(&why);
        if state.loss.as_ref() != Some(&why) {
            let path = self.path().display();
            if why == LOST_ITS_LOG {
                tracing::error!(
                    "the database {path} {why} while it was open; it is opened again as soon as no process uses the \
                     deleted files, and nothing is lost"
                );
            } else if why.starts_with(WAITS) {
                tracing::error!("the database {path} {why}");
            } else {
                tracing::error!(
                    "the file of the database, {path}, {why} while it was open: nothing is written to it any more; \
                     put the file or a copy of it back (move it, because a file that is copied over an open one is \
                     damaged), which is then used without a restart, or stop the gateway and restore a backup"
                );
            }
            state.loss = Some(why);
        }
        error
    }

    /// Checks that a file is a complete copy of this database. Returns the reason if not.
    async fn look_into(&self) -> Result<(), String> {
        // Somebody may still be copying the log, which a connection that may write deletes at its end.
        let options = SqliteConnectOptions::new().filename(self.path()).read_only(true);
        let options = options.busy_timeout(BUSY_TIMEOUT);
        let unreadable = |error: sqlx::Error| format!("that cannot be read: {}", one_line(&error));
        let mut connection = options.connect().await.map_err(unreadable)?;
        let looked = self.look_through(&mut connection).await;
        // It was only read.
        drop(connection.close().await);
        looked.map_err(unreadable)?
    }

    async fn look_through(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Result<(), String>, sqlx::Error> {
        // Fails on a file that is shorter than its first page says.
        let store_id: String = sqlx::query_scalar(STORE_ID).fetch_one(&mut *connection).await?;
        if store_id != self.store_id {
            return Ok(Err("of another database".to_owned()));
        }
        let floor = read_floor!(&mut *connection);
        if !is_usable(&SQLITE, connection, floor).await {
            return Ok(Err("that this version cannot use without a restart".to_owned()));
        }
        Ok(Ok(()))
    }
}

/// Writes everything in the log into the open file of the database and cuts the log to nothing
/// (<https://www.sqlite.org/pragma.html#pragma_wal_checkpoint>).
async fn empty_log(writer: &SqlitePool) -> Result<(), String> {
    let emptied: Result<(i64, i64, i64), sqlx::Error> =
        sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(writer).await;
    match emptied {
        Ok((0, ..)) => Ok(()),
        Ok(_) => Err("another connection uses it".to_owned()),
        Err(error) => Err(sqlite_reason(&error)),
    }
}
