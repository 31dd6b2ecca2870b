//! The file of a SQLite database, which may be deleted or replaced while it is open.
//!
//! The system keeps a deleted file until it is closed. SQLite reads and writes it without an error, and all of
//! that is lost with the last process that has it open (<https://www.sqlite.org/howtocorrupt.html>, section 4.2).
//! So every use of the database compares the file at its path with the open one. On a difference the database
//! counts as unreachable. When a complete copy of the same database is at the path, it is opened.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::error::one_line;
use crate::migrations::SQLITE;
use crate::schema_check::{is_usable, read_floor};

/// Time for which another file has to stay the same before it is opened. Somebody may be copying it.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Time to wait for a writer of the other file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const STORE_ID: &str = "SELECT id FROM store_identity";

/// A file of the system, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Another file at the path, as it was seen last.
#[derive(Clone, Copy, Debug)]
struct OtherFile {
    id: FileId,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Time of the first look, or of the last attempt to open it.
    since: Instant,
}

impl OtherFile {
    fn of(metadata: &Metadata) -> Self {
        let (id, modified) = (FileId::of(metadata), metadata.modified().ok());
        Self { id, bytes: metadata.len(), modified, since: Instant::now() }
    }

    fn is_unchanged(&self, now: &Self) -> bool {
        (self.id, self.bytes, self.modified) == (now.id, now.bytes, now.modified)
    }
}

#[derive(Debug)]
struct OpenedFile {
    /// The file that the connections have open.
    open: FileId,
    other: Option<OtherFile>,
    /// Reason that the database cannot be used.
    loss: Option<String>,
}

/// Time from which connections have the file that is open now; `None` if it was never replaced.
pub(crate) type FileAge = Arc<Mutex<Option<Instant>>>;

/// Returns true if a connection of this age has the file that is open now.
pub(crate) fn is_current(file: &FileAge, age: Duration) -> bool {
    file.lock().is_none_or(|opened| age <= opened.elapsed())
}

/// The open file of a database.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    store_id: String,
    state: Mutex<OpenedFile>,
    opened: FileAge,
}

impl DatabaseFile {
    /// Notes the file that a connection has just opened.
    pub(crate) async fn open(
        path: &str,
        connection: &mut SqliteConnection,
        opened: FileAge,
    ) -> Result<Self, sqlx::Error> {
        let store_id = sqlx::query_scalar(STORE_ID).fetch_one(connection).await?;
        let open = FileId::of(&std::fs::metadata(path)?);
        let state = Mutex::new(OpenedFile { open, other: None, loss: None });
        Ok(Self { path: path.into(), store_id, state, opened })
    }

    /// Returns the reason that the database cannot be used, if its file was deleted or replaced.
    pub(crate) fn loss(&self) -> Option<String> {
        self.state.lock().loss.clone()
    }

    /// Fails if the file was deleted, or replaced by one that cannot be opened. Looks at the directory only, which
    /// takes a microsecond.
    pub(crate) async fn check(&self) -> Result<(), sqlx::Error> {
        let found = match std::fs::metadata(&self.path) {
            Ok(metadata) => Some(OtherFile::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // SQLite reports it.
            Err(_) => return Ok(()),
        };
        let Some(settled) = self.compare(found)? else { return Ok(()) };
        let opened = self.look_into().await;
        self.conclude(settled, opened)
    }

    /// Compares the file at the path with the open one. Returns another file that has not changed for a while.
    fn compare(&self, found: Option<OtherFile>) -> Result<Option<OtherFile>, sqlx::Error> {
        let mut state = self.state.lock();
        let Some(found) = found else {
            state.other = None;
            return Err(self.lose(&mut state, "was deleted".to_owned()));
        };
        if found.id == state.open {
            state.other = None;
            if state.loss.take().is_some() {
                tracing::info!("the file of the database, {}, is back", self.path.display());
            }
            return Ok(None);
        }
        match state.other {
            Some(before) if before.is_unchanged(&found) => {
                if before.since.elapsed() >= SETTLE_TIME {
                    // Other tasks do not look into it meanwhile.
                    state.other = Some(found);
                    return Ok(Some(found));
                }
            }
            Some(_) | None => state.other = Some(found),
        }
        let why = state.loss.clone().unwrap_or_else(|| "was replaced".to_owned());
        Err(self.lose(&mut state, why))
    }

    /// Takes another file for the open one, or notes why not.
    fn conclude(&self, found: OtherFile, opened: Result<(), String>) -> Result<(), sqlx::Error> {
        let mut state = self.state.lock();
        if let Err(why) = opened {
            return Err(self.lose(&mut state, format!("was replaced by a file {why}")));
        }
        state.open = found.id;
        state.other = None;
        state.loss = None;
        // Connections are replaced when they are used next.
        *self.opened.lock() = Some(Instant::now());
        tracing::warn!(
            "the file of the database, {}, was replaced by a copy of the same database, which is used now",
            self.path.display()
        );
        Ok(())
    }

    /// Notes that the database cannot be used, and logs it once.
    fn lose(&self, state: &mut OpenedFile, why: String) -> sqlx::Error {
        let message = format!("the file of the database, {}, {why}", self.path.display());
        if state.loss.as_ref() != Some(&why) {
            tracing::error!(
                "{message} while it was open: nothing is written to it any more; put the file or a copy of it \
                 back, which is then used without a restart, or stop the gateway and restore a backup"
            );
            state.loss = Some(why);
        }
        sqlx::Error::Io(io::Error::other(message))
    }

    /// Checks that another file is a complete copy of this database. Returns the reason if not.
    async fn look_into(&self) -> Result<(), String> {
        let options = SqliteConnectOptions::new().filename(&self.path).busy_timeout(BUSY_TIMEOUT);
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
