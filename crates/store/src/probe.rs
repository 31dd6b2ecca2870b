//! A look at a database that changes nothing: no file is created and no schema is migrated.

use canon::Micros;
use sqlx::migrate::{Migrate, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use std::time::{Duration, Instant};

use crate::StoreError;
use crate::error::{is_busy, one_line, sqlite_reason};
use crate::migrations::{POSTGRES, SQLITE};
use crate::schema_check::{SchemaState, read_floor};

/// Time the database may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to wait for a writer of SQLite. A database that is being written is a good one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Clock of PostgreSQL, and the time the question takes at most.
const CLOCK: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

/// Schema of a database, compared with this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedSchema {
    /// There is no file or no schema yet; the first start creates it.
    Missing,
    /// An older one; the next start migrates it.
    Older,
    /// That of this program.
    Current,
    /// One of a newer program that this program can work with, with its number.
    NewerCompatible(i64),
    /// One of a newer program that this program cannot work with, with its number.
    Newer(i64),
}

/// State of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreProbe {
    /// Its schema.
    pub schema: ProbedSchema,
    /// Time of its clock and the time that the question took; `None` for SQLite, which has the clock of
    /// this machine.
    pub clock: Option<(Micros, Duration)>,
}

/// Looks at the database at a URL, without changing it. SQLite must also be writable.
pub async fn probe_store(url: &str) -> Result<StoreProbe, StoreError> {
    let probing = async {
        match url.strip_prefix("sqlite:") {
            Some(path) => probe_sqlite(path.strip_prefix("//").unwrap_or(path)).await,
            None => probe_postgres(url).await,
        }
    };
    tokio::time::timeout(PROBE_TIMEOUT, probing).await.unwrap_or_else(|_| {
        let waited = PROBE_TIMEOUT.as_secs();
        Err(StoreError::Unreachable(format!("it gave no answer in {waited} s")))
    })
}

async fn probe_sqlite(path: &str) -> Result<StoreProbe, StoreError> {
    let missing = StoreProbe { schema: ProbedSchema::Missing, clock: None };
    match tokio::fs::metadata(path).await {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(missing),
        Err(e) => return Err(StoreError::Unreachable(format!("`{path}` cannot be read: {e}"))),
    }
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY_TIMEOUT);
    let unreachable = |error: sqlx::Error| {
        StoreError::Unreachable(format!("`{path}` cannot be used, {}", sqlite_reason(&error)))
    };
    let mut connection = options.connect().await.map_err(unreachable)?;
    let floor = read_floor!(&mut connection);
    let schema = schema_of(&SQLITE, &mut connection, floor).await;
    let written = match connection.begin_with("BEGIN IMMEDIATE").await {
        Ok(tx) => tx.rollback().await,
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|c| is_busy(&c)) => Ok(()),
        Err(error) => Err(error),
    };
    let closed = connection.close().await;
    written.and(closed).map_err(unreachable)?;
    Ok(StoreProbe { schema: schema?, clock: None })
}

async fn probe_postgres(url: &str) -> Result<StoreProbe, StoreError> {
    // The driver's error may quote the address, which has the password.
    let options: PgConnectOptions = url.parse().map_err(|_| {
        StoreError::Other("`store.url` cannot be read as an address of PostgreSQL".to_owned())
    })?;
    let place = format!("{}:{}", options.get_host(), options.get_port());
    let mut connection = options
        .connect()
        .await
        .map_err(|error| StoreError::Unreachable(format!("{place}, {}", one_line(&error))))?;
    let floor = read_floor!(&mut connection);
    let schema = schema_of(&POSTGRES, &mut connection, floor).await;
    let asked = Instant::now();
    let now: i64 = sqlx::query_scalar(CLOCK).fetch_one(&mut connection).await?;
    let took = asked.elapsed();
    connection.close().await?;
    Ok(StoreProbe { schema: schema?, clock: Some((Micros::new(now), took)) })
}

/// Compares the schema as opening does.
async fn schema_of<C: Migrate>(
    migrator: &Migrator,
    connection: &mut C,
    floor: Option<i64>,
) -> Result<ProbedSchema, StoreError> {
    // Fails on a database without a schema.
    let applied = connection.list_applied_migrations(&migrator.table_name).await;
    match SchemaState::compare(migrator, &applied.unwrap_or_default(), floor, 0) {
        Ok(SchemaState { found: None, .. }) => Ok(ProbedSchema::Missing),
        Ok(SchemaState { found: Some(found), known, .. }) if found > known => {
            Ok(ProbedSchema::NewerCompatible(found))
        }
        Ok(SchemaState { pending, .. }) if pending.is_empty() => Ok(ProbedSchema::Current),
        Ok(SchemaState { .. }) => Ok(ProbedSchema::Older),
        Err(StoreError::Newer { found, .. }) => Ok(ProbedSchema::Newer(found)),
        Err(error) => Err(error),
    }
}
