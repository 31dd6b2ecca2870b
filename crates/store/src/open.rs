//! Opening and migration of a database.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::sqlite::SqlitePool;
use sqlx::{ConnectOptions, Connection, Executor as _};

use crate::db::Db;
use crate::error::{is_busy, one_line, sqlite_reason};
use crate::migrations::{POSTGRES, SQLITE};
use crate::old_entries::move_old_entries;
use crate::open_files::OpenFiles;
use crate::schema_check::{is_usable, migration_error, read_floor};
use crate::sqlite_database::SqliteDatabase;
use crate::sqlite_pools::{CONNECT_TIMEOUT, SqlitePools, make_private};
use crate::{Store, StoreError};

const POSTGRES_CONNECTIONS: u32 = 16;
/// Limits of a connection. A process that is frozen within a transaction keeps its locks, and statements that
/// wait for them keep their connections, longer than anybody waits for an answer.
const SESSION_LIMITS: &str =
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s'";

impl Store {
    /// Opens `sqlite:path/to.db` (creates the file, but not its folder) or `postgres://…` and
    /// migrates the schema. Several processes may do so at once.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let db = match StoreAddress::read(url)? {
            StoreAddress::Sqlite(path) => sqlite(path).await?,
            StoreAddress::Postgres(url) => postgres(url).await?,
        };
        move_old_entries(&db).await?;
        Ok(Self { db, changes: Arc::default(), data_keys: None })
    }
}

/// The place of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreAddress<'a> {
    /// The path of a file.
    Sqlite(&'a str),
    /// The URL of a server.
    Postgres(&'a str),
}

impl<'a> StoreAddress<'a> {
    /// Reads `store.url`.
    pub(crate) fn read(url: &'a str) -> Result<Self, StoreError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path.contains('?') {
                return Err(StoreError::Other(
                    "`store.url` takes a plain path after `sqlite:`, without options".to_owned(),
                ));
            }
            return Ok(Self::Sqlite(path));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url));
        }
        Err(StoreError::Other("`store.url` must begin with `sqlite:` or `postgres://`".to_owned()))
    }
}

async fn sqlite(path: &str) -> Result<Db, StoreError> {
    let files = Arc::new(OpenFiles::new(path));
    if !files.is_in_memory() {
        create_private(path).await;
        files.bring_back();
        files.bring_log_back();
        for log in files.lost_logs() {
            tracing::warn!(
                "{} is the log of a database that was at {path} before; keep it until that database is back",
                log.display()
            );
        }
    }
    let pools = retry_while_busy(|| SqlitePools::open(&files, true)).await.map_err(|error| {
        let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder {
            Some(folder) if !folder.is_dir() => {
                StoreError::Unreachable(format!("the folder `{}` does not exist", folder.display()))
            }
            _ => StoreError::Unreachable(format!(
                "`{path}` cannot be opened, {}",
                sqlite_reason(&error)
            )),
        }
    })?;
    if let Err(error) = migrate_sqlite(&pools.writer).await {
        pools.close().await;
        return Err(error);
    }
    Ok(Db::Sqlite(Arc::new(SqliteDatabase::watch(files, pools).await?)))
}

/// Creates the file with access for its owner only, because it holds password hashes and the key
/// pepper, and takes one of an earlier version away from others. SQLite gives its side files the
/// same permissions. SQLite reports a failure when it opens the file.
async fn create_private(path: &str) {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    drop(options.open(path).await);
    make_private(path).await;
}

/// Retries while another process holds the file. The first switch to write-ahead mode fails at once
/// then, without regard to the busy timeout.
async fn retry_while_busy<T, F: Future<Output = Result<T, sqlx::Error>>>(
    attempt: impl Fn() -> F,
) -> Result<T, sqlx::Error> {
    const RETRY_PAUSE: Duration = Duration::from_millis(20);
    for _ in 0..CONNECT_TIMEOUT.as_millis() / RETRY_PAUSE.as_millis() {
        match attempt().await {
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|c| is_busy(&c)) => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            other => return other,
        }
    }
    attempt().await
}

async fn migrate_sqlite(writer: &SqlitePool) -> Result<(), StoreError> {
    let mut connection = writer.acquire().await?;
    let floor = read_floor!(&mut *connection);
    if is_usable(&SQLITE, &mut *connection, floor).await {
        return Ok(());
    }
    // sqlx takes no lock on SQLite. The write lock, held from before the check to after the last
    // change, keeps two processes from migrating at once.
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    SQLITE
        .run_direct(None, &mut *tx, false)
        .await
        .map_err(|error| migration_error(&SQLITE, error, floor))?;
    tx.commit().await?;
    Ok(())
}

/// Opens one connection to PostgreSQL.
pub(crate) async fn connect_postgres(
    url: &str,
) -> Result<(PgConnectOptions, PgConnection), StoreError> {
    // The driver's error message may quote parts of the address, which contains the password.
    let options: PgConnectOptions = url.parse().map_err(|_| {
        StoreError::Other(
            "`store.url` cannot be read; it should look like \
             `postgres://user:password@host:5432/database`"
                .to_owned(),
        )
    })?;
    let options = options.application_name("portunus");
    let place = format!("{}:{}", options.get_host(), options.get_port());
    // The pool would retry a refused connection until it times out, and then not report the reason.
    // So the first connection is made directly.
    match tokio::time::timeout(CONNECT_TIMEOUT, options.connect()).await {
        Ok(Ok(connection)) => Ok((options, connection)),
        Ok(Err(error)) => Err(StoreError::Unreachable(format!("{place}, {}", one_line(&error)))),
        Err(_) => {
            let waited = CONNECT_TIMEOUT.as_secs();
            Err(StoreError::Unreachable(format!("{place} gave no answer in {waited} s")))
        }
    }
}

async fn postgres(url: &str) -> Result<Db, StoreError> {
    let (options, mut connection) = connect_postgres(url).await?;
    let migrated = migrate_postgres(&mut connection).await;
    // This also releases the migration lock after a failure.
    let closed = connection.close().await;
    migrated?;
    closed?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(CONNECT_TIMEOUT)
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(SESSION_LIMITS).await.map(drop) })
        })
        .connect_lazy_with(options);
    Ok(Db::Pg(pool))
}

async fn migrate_postgres(connection: &mut PgConnection) -> Result<(), StoreError> {
    let floor = read_floor!(&mut *connection);
    if is_usable(&POSTGRES, connection, floor).await {
        return Ok(());
    }
    POSTGRES
        .run_direct(None, connection, false)
        .await
        .map_err(|error| migration_error(&POSTGRES, error, floor))
}
