//! A SQLite database, whose files may be deleted or replaced while they are open.
//!
//! Every use of the database compares the files at its paths with the open ones. On a difference the database counts
//! as lost. What its log has is then written into the open file of the database, wherever that is, and all
//! connections are closed: a log that is not empty would damage another file beside it, and connections of the old
//! and the new file in one process would share their locks. Once they are closed, the file itself or a complete copy
//! of the same database is opened at the path.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;

use crate::StoreError;
use crate::error::{one_line, sqlite_reason};
use crate::migrations::SQLITE;
use crate::open::make_private;
use crate::open_files::{FileId, OpenFiles};
use crate::schema_check::{is_usable, read_floor};
use crate::sqlite_pools::SqlitePools;

/// Time for which another file has to stay the same before it is opened. Somebody may be copying it.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Time to wait for a writer of the other file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between attempts to empty the log of a lost file.
const EMPTY_PAUSE: Duration = Duration::from_secs(1);
/// Time that the end of the process waits for connections to a lost file to close.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(10);
const STORE_ID: &str = "SELECT id FROM store_identity";

/// A file at the path that is not open, as it was seen last.
#[derive(Clone, Copy, Debug)]
struct SeenFile {
    id: FileId,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Time of the first look, or of the last attempt to open it.
    since: Instant,
}

impl SeenFile {
    fn of(metadata: &Metadata) -> Self {
        let (id, modified) = (FileId::of(metadata), metadata.modified().ok());
        Self { id, bytes: metadata.len(), modified, since: Instant::now() }
    }

    fn is_unchanged(&self, now: &Self) -> bool {
        (self.id, self.bytes, self.modified) == (now.id, now.bytes, now.modified)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connections {
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
    connections: watch::Sender<Connections>,
    /// A file at the path that is not open, or could not be opened.
    seen: Option<SeenFile>,
    /// Reason that the database cannot be used.
    loss: Option<String>,
}

/// What a look at the paths finds.
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
    state: Mutex<State>,
}

impl SqliteDatabase {
    /// Watches the files that these pools have open.
    pub(crate) async fn watch(
        files: Arc<OpenFiles>,
        pools: SqlitePools,
    ) -> Result<Self, sqlx::Error> {
        let store_id = sqlx::query_scalar(STORE_ID).fetch_one(&pools.writer).await?;
        let connections = watch::Sender::new(Connections::Open);
        let state = Mutex::new(State { pools, connections, seen: None, loss: None });
        Ok(Self { files, store_id, state })
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
        let (pools, mut connections) = {
            let state = self.state.lock();
            (state.pools.clone(), state.connections.subscribe())
        };
        let closed = connections.wait_for(|connections| *connections != Connections::Closing);
        drop(tokio::time::timeout(MAX_CLOSE_WAIT, closed).await);
        pools.close().await;
    }

    async fn pools(self: &Arc<Self>) -> Result<SqlitePools, sqlx::Error> {
        let found = match self.look()? {
            Look::Usable(pools) => return Ok(pools),
            Look::Found(found) => found,
        };
        let database = Arc::clone(self);
        // A task, because the caller may give up.
        let opening = tokio::spawn(async move { database.open_again(found).await });
        opening.await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }

    /// Compares the files at the paths with the open ones, which takes a few microseconds.
    fn look(self: &Arc<Self>) -> Result<Look, sqlx::Error> {
        let found = match self.files.at_path() {
            _ if self.files.is_in_memory() => {
                return Ok(Look::Usable(self.state.lock().pools.clone()));
            }
            Ok(metadata) => Some(SeenFile::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let mut state = self.state.lock();
        let connections = *state.connections.borrow();
        match (connections, found) {
            (Connections::Open, Some(file)) if self.files.is_database(file.id) => {
                if self.files.has_side_files() {
                    return Ok(Look::Usable(state.pools.clone()));
                }
                self.begin_close(&mut state);
                Err(self.lose(&mut state, "lost its log or the index of it".to_owned()))
            }
            (Connections::Open, found) => {
                self.begin_close(&mut state);
                let why = if found.is_some() { "was replaced" } else { "was deleted" };
                state.seen = found;
                Err(self.lose(&mut state, why.to_owned()))
            }
            (Connections::Closed, None) => {
                state.seen = None;
                Err(self.lose(&mut state, "was deleted".to_owned()))
            }
            (Connections::Closed, Some(file)) => {
                let is_own = state.seen.is_none() && self.files.is_database(file.id);
                let before = state.seen.filter(|before| before.is_unchanged(&file));
                if is_own || before.is_some_and(|before| before.since.elapsed() >= SETTLE_TIME) {
                    state.connections.send_replace(Connections::Opening);
                    return Ok(Look::Found(file));
                }
                state.seen = Some(before.unwrap_or(file));
                let why = match &state.loss {
                    Some(loss) if loss != "was deleted" => loss.clone(),
                    Some(_) | None => "was replaced".to_owned(),
                };
                Err(self.lose(&mut state, why))
            }
            (Connections::Closing | Connections::Opening, _) => {
                Err(self.unusable(state.loss.as_deref().unwrap_or_default()))
            }
        }
    }

    fn begin_close(self: &Arc<Self>, state: &mut State) {
        state.connections.send_replace(Connections::Closing);
        self.files.lose();
        let (database, pools) = (Arc::clone(self), state.pools.clone());
        // A task, because the caller may hold a connection.
        tokio::spawn(async move { database.close_lost(pools).await });
    }

    /// Closes the connections to a lost file, whose log is empty then.
    async fn close_lost(&self, pools: SqlitePools) {
        while let Err(why) = empty_log(&pools.writer).await {
            tracing::error!(
                "the log of the lost database {} cannot be written into its file: {why}; the next attempt is in a \
                 second, and no other file is opened before",
                self.path().display()
            );
            tokio::time::sleep(EMPTY_PAUSE).await;
        }
        pools.close().await;
        self.state.lock().connections.send_replace(Connections::Closed);
    }

    /// Opens the file at the path, if it is the lost one or a complete copy of the same database.
    async fn open_again(&self, found: SeenFile) -> Result<SqlitePools, sqlx::Error> {
        let was_open = self.files.is_database(found.id);
        let opened = match self.look_into().await {
            Ok(()) => {
                // A copy has the permissions that its maker gave it.
                make_private(&self.path().to_string_lossy()).await;
                self.files.begin_again();
                let opened = SqlitePools::open(&self.files, false).await;
                opened.map_err(|error| format!("that cannot be opened: {}", one_line(&error)))
            }
            Err(why) => Err(why),
        };
        let mut state = self.state.lock();
        let pools = match opened {
            Ok(pools) => pools,
            Err(why) => {
                state.connections.send_replace(Connections::Closed);
                state.seen = Some(SeenFile { since: Instant::now(), ..found });
                return Err(self.lose(&mut state, format!("was replaced by a file {why}")));
            }
        };
        state.pools = pools.clone();
        (state.seen, state.loss) = (None, None);
        state.connections.send_replace(Connections::Open);
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

    fn unusable(&self, why: &str) -> sqlx::Error {
        let message = format!("the file of the database, {}, {why}", self.path().display());
        sqlx::Error::Io(io::Error::other(message))
    }

    /// Notes that the database cannot be used, and logs it once.
    fn lose(&self, state: &mut State, why: String) -> sqlx::Error {
        let error = self.unusable(&why);
        if state.loss.as_ref() != Some(&why) {
            tracing::error!(
                "{error} while it was open: nothing is written to it any more; put the file or a copy of it back, \
                 which is then used without a restart, or stop the gateway and restore a backup"
            );
            state.loss = Some(why);
        }
        error
    }

    /// Checks that a file is a complete copy of this database. Returns the reason if not.
    async fn look_into(&self) -> Result<(), String> {
        let options = SqliteConnectOptions::new().filename(self.path()).busy_timeout(BUSY_TIMEOUT);
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
