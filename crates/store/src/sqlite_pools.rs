//! The connections to a SQLite database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};

use crate::open_files::OpenFiles;
use crate::temp_folder::has_temp_folder;

/// Maximum time to wait for SQLite's lock and for a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Makes SQLite overwrite deleted and moved rows wherever that needs no further write
/// (<https://www.sqlite.org/pragma.html#pragma_secure_delete>). Every change of a row leaves a copy of it in its
/// page otherwise, and an erasure only reaches the rows that are there.
pub(crate) const OVERWRITE_IN_PLACE: &str = "FAST";
const READERS: u32 = 4;
/// Pages that a reader keeps, in KiB (a negative number, as SQLite has it). The kernel keeps the file
/// too, so that a larger cache only holds the same pages once per reader.
const READER_CACHE: &str = "-256";
/// Size to which SQLite cuts its log after a checkpoint, in bytes. Without it the log keeps the size that a long read
/// or a large transaction once gave it (<https://www.sqlite.org/pragma.html#pragma_journal_size_limit>).
const MAX_IDLE_LOG: &str = "16777216";

/// The pools of one opened file.
///
/// SQLite allows one writer at a time (<https://www.sqlite.org/wal.html>). A single connection writes, so that
/// writers queue here in order and not in SQLite's busy loop. Readers never wait for it.
#[derive(Clone, Debug)]
pub(crate) struct SqlitePools {
    pub(crate) reader: SqlitePool,
    pub(crate) writer: SqlitePool,
}

impl SqlitePools {
    /// Opens the file at the path, which is created if that is asked for. A database in memory has one connection
    /// for everything, and vanishes with it.
    pub(crate) async fn open(files: &Arc<OpenFiles>, creates: bool) -> Result<Self, sqlx::Error> {
        let base = options_of(files.path());
        let options = base.clone().pragma("secure_delete", OVERWRITE_IN_PLACE);
        // A new file can give the space of deleted rows back. An older one reuses it. These settings write, so that
        // a connection which may be one to a replaced file has none of them.
        let options = match creates {
            true => options
                .auto_vacuum(SqliteAutoVacuum::Incremental)
                .journal_mode(SqliteJournalMode::Wal),
            false => options,
        };
        let (before, after) = (Arc::clone(files), Arc::clone(files));
        let writer = idle_pool()
            .max_connections(1)
            .before_acquire(move |connection, _| {
                let usable = !connection.is_in_transaction() || !before.may_reconnect();
                Box::pin(std::future::ready(Ok(usable)))
            })
            .after_connect(move |connection, _| {
                let files = Arc::clone(&after);
                Box::pin(async move {
                    // The first read opens the side files.
                    let first = sqlx::query("SELECT 1 FROM sqlite_schema");
                    first.fetch_optional(&mut *connection).await?;
                    let mode: String =
                        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(connection).await?;
                    Ok(files.note_opened(&mode)?)
                })
            })
            .connect_with(options.clone().create_if_missing(creates))
            .await?;
        if files.is_in_memory() {
            return Ok(Self { reader: writer.clone(), writer });
        }
        // A later connection makes no empty database in place of a file that was deleted.
        writer.set_connect_options(options);
        let options = base.read_only(true).pragma("cache_size", READER_CACHE);
        let reader = idle_pool().max_connections(READERS).before_acquire(|connection, _| {
            let usable = !connection.is_in_transaction();
            Box::pin(std::future::ready(Ok(usable)))
        });
        Ok(Self { reader: reader.connect_lazy_with(options), writer })
    }

    /// Waits for running work and closes every connection. SQLite then checkpoints its log.
    pub(crate) async fn close(&self) {
        // The writer is closed last: only the last connection, and only one that may write,
        // checkpoints the log (<https://www.sqlite.org/wal.html>).
        self.reader.close().await;
        self.writer.close().await;
    }
}

fn options_of(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(CONNECT_TIMEOUT)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true)
        .pragma("journal_size_limit", MAX_IDLE_LOG);
    // SQLite puts large intermediate results into a file, and fails without a folder for it.
    if has_temp_folder() { options } else { options.pragma("temp_store", "memory") }
}

/// Returns a pool that never closes an idle connection: a file does not become stale, and a database in memory
/// vanishes with its only connection.
///
/// A connection that comes back inside a transaction is replaced by the callers' hooks: after a full disk and some
/// other errors SQLite has already rolled back (<https://www.sqlite.org/lang_transaction.html>), the driver's own
/// `ROLLBACK` then fails, and the driver refuses every further transaction on that connection.
fn idle_pool() -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .acquire_timeout(3 * CONNECT_TIMEOUT)
        .idle_timeout(None::<Duration>)
        .max_lifetime(None::<Duration>)
        .test_before_acquire(false)
}

/// Takes the files away from others.
pub(crate) async fn make_private(path: &str) {
    #[cfg(unix)]
    for suffix in ["", "-wal", "-shm"] {
        use std::os::unix::fs::PermissionsExt as _;
        let rights = std::fs::Permissions::from_mode(0o600);
        // A side file may be absent.
        drop(tokio::fs::set_permissions(format!("{path}{suffix}"), rights).await);
    }
}
