//! From an address to an open, migrated database.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};

use crate::db::Db;
use crate::error::{is_busy, one_line};
use crate::migrations::{POSTGRES, SQLITE};
use crate::{Store, StoreError};

/// How long another process may hold SQLite's lock, and how long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// SQLite's own name for a database without a file.
const MEMORY: &str = ":memory:";
const READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;

impl Store {
    /// Opens `sqlite:path/to.db` (the file is created, its folder is not) or `postgres://…` and
    /// brings the tables up to date. Several processes may do so at once.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let db = if let Some(path) = url.strip_prefix("sqlite:") {
            sqlite(path.strip_prefix("//").unwrap_or(path)).await?
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            postgres(url).await?
        } else {
            return Err(StoreError::Other(
                "`store.url` must begin with `sqlite:` or `postgres://`".to_owned(),
            ));
        };
        Ok(Self { db })
    }
}

async fn sqlite(path: &str) -> Result<Db, StoreError> {
    if path.is_empty() || path.contains('?') {
        return Err(StoreError::Other(
            "`store.url` takes a plain path after `sqlite:`, without options".to_owned(),
        ));
    }
    let base = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(PATIENCE)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(true);
    // Connections are kept for good: a file does not go stale, and a database in memory would
    // vanish with its only connection.
    let pool = || {
        SqlitePoolOptions::new()
            .acquire_timeout(3 * PATIENCE)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
    };
    let options = base.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    if path != MEMORY {
        create_private(path).await;
    }
    let writer = patiently(|| pool().max_connections(1).connect_with(options.clone()))
        .await
        .map_err(|error| {
            let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
            match folder {
                Some(folder) if !folder.is_dir() => StoreError::Unreachable(format!(
                    "the folder `{}` does not exist",
                    folder.display()
                )),
                _ => StoreError::Unreachable(format!(
                    "`{path}` cannot be opened, {}",
                    one_line(&error)
                )),
            }
        })?;
    if let Err(error) = migrate_sqlite(&writer).await {
        writer.close().await;
        return Err(error);
    }
    let reader = if path == MEMORY {
        writer.clone()
    } else {
        pool().max_connections(READERS).connect_lazy_with(base.read_only(true))
    };
    Ok(Db::Sqlite { reader, writer })
}

/// Creates the file readable by its owner only: it holds password hashes and the key pepper. SQLite
/// gives its side files the same permissions. A failure is left for SQLite to report.
async fn create_private(path: &str) {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    drop(options.open(path).await);
}

/// Tries again while another process holds the file: the very first switch to write-ahead mode is
/// refused at once then, whatever the busy timeout says.
async fn patiently<T, F: Future<Output = Result<T, sqlx::Error>>>(
    attempt: impl Fn() -> F,
) -> Result<T, sqlx::Error> {
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        match attempt().await {
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|c| is_busy(&c)) => {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
    attempt().await
}

async fn migrate_sqlite(writer: &SqlitePool) -> Result<(), StoreError> {
    let mut connection = writer.acquire().await?;
    if is_current(&SQLITE, &mut *connection).await {
        return Ok(());
    }
    // sqlx takes no lock on SQLite: the write lock held from before the look to after the last
    // change keeps two processes from migrating at once.
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    SQLITE.run_direct(None, &mut *tx, false).await.map_err(|error| failed(&SQLITE, error))?;
    tx.commit().await?;
    Ok(())
}

async fn postgres(url: &str) -> Result<Db, StoreError> {
    // The driver's own words could quote parts of the address, and the password is one.
    let options: PgConnectOptions = url.parse().map_err(|_| {
        StoreError::Other(
            "`store.url` cannot be read; it should look like \
             `postgres://user:password@host:5432/database`"
                .to_owned(),
        )
    })?;
    let options = options.application_name("portunus");
    let place = format!("{}:{}", options.get_host(), options.get_port());
    // The pool would retry a refused connection until it times out and then not say why; the first
    // connection is made by hand.
    let mut connection = match tokio::time::timeout(PATIENCE, options.connect()).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            return Err(StoreError::Unreachable(format!("{place}, {}", one_line(&error))));
        }
        Err(_) => {
            let waited = PATIENCE.as_secs();
            return Err(StoreError::Unreachable(format!("{place} gave no answer in {waited} s")));
        }
    };
    let migrated = migrate_postgres(&mut connection).await;
    // Also gives back the migration lock when it failed.
    let closed = connection.close().await;
    migrated?;
    closed?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options);
    Ok(Db::Pg(pool))
}

async fn migrate_postgres(connection: &mut PgConnection) -> Result<(), StoreError> {
    if is_current(&POSTGRES, connection).await {
        return Ok(());
    }
    POSTGRES.run_direct(None, connection, false).await.map_err(|error| failed(&POSTGRES, error))
}

/// Whether there is nothing to migrate. A look costs no lock, so starting never waits for a writer.
async fn is_current<C: Migrate>(migrator: &Migrator, connection: &mut C) -> bool {
    // Fails on a new database, which has no such table.
    let Ok(applied) = connection.list_applied_migrations(&migrator.table_name).await else {
        return false;
    };
    applied
        .iter()
        .map(|done| (done.version, &done.checksum))
        .eq(migrator.iter().map(|known| (known.version, &known.checksum)))
}

fn failed(migrator: &Migrator, error: MigrateError) -> StoreError {
    let known = migrator.iter().map(|migration| migration.version).max().unwrap_or(0);
    match error {
        MigrateError::VersionMissing(found) if found > known => StoreError::Newer { found, known },
        MigrateError::VersionMissing(found) | MigrateError::VersionMismatch(found) => {
            StoreError::Other(format!(
                "its schema {found} was made by another build; start that build or restore a backup"
            ))
        }
        MigrateError::Execute(error) => error.into(),
        other => StoreError::Other(one_line(&other)),
    }
}
