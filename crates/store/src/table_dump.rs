//! Copies of a PostgreSQL database as the rows of its tables, in the text format of `COPY`
//! (<https://www.postgresql.org/docs/current/sql-copy.html>).
//!
//! All tables are read in one transaction that sees one state of the database, while gateways use it. A
//! copy has no schema: the migrations make it, up to the one that the copy was made at. Tables come in
//! an order in which each follows those that it refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::db::{Db, PgSession};
use crate::migrations::POSTGRES;
use crate::open::connect_postgres;
use crate::schema_check::migration_error;
use crate::{Store, StoreError};

const TABLES: &str = "SELECT CAST(relname AS TEXT) FROM pg_class \
    WHERE relnamespace = CAST(current_schema() AS regnamespace) AND relkind = 'r' \
    AND relname <> '_sqlx_migrations' ORDER BY oid";
const REFERENCES: &str = "SELECT CAST(a.relname AS TEXT), CAST(b.relname AS TEXT) FROM pg_constraint c \
    JOIN pg_class a ON a.oid = c.conrelid JOIN pg_class b ON b.oid = c.confrelid \
    WHERE c.contype = 'f' AND c.connamespace = CAST(current_schema() AS regnamespace)";
const COLUMNS: &str = "SELECT CAST(a.attname AS TEXT) FROM pg_attribute a \
    JOIN pg_class c ON c.oid = a.attrelid \
    WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relname = $1 \
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum";
const COUNTERS: &str = "SELECT CAST(c.relname AS TEXT), CAST(a.attname AS TEXT) FROM pg_attribute a \
    JOIN pg_class c ON c.oid = a.attrelid \
    WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND a.attidentity <> ''";
const SCHEMA: &str = "SELECT MAX(version) FROM _sqlx_migrations";
const COUNT: &str = "SELECT COUNT(*) FROM pg_class \
    WHERE relnamespace = CAST(current_schema() AS regnamespace) AND relkind IN ('r', 'v')";

/// A table of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedTable {
    /// Its name.
    pub name: String,
    /// Its columns, in the order of their values.
    pub columns: Vec<String>,
}

/// Receives a copy.
pub trait DumpSink: Send {
    /// A table begins.
    fn begin_table(&mut self, table: &DumpedTable) -> io::Result<()>;
    /// Rows of the table; a row may be in several pieces.
    fn add_rows(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Returns a copy in the order in which it was received.
pub trait DumpSource: Send {
    /// Returns the next table; `None` after the last one.
    fn next_table(&mut self) -> io::Result<Option<DumpedTable>>;
    /// Returns the next bytes of the table; `None` after the last ones.
    fn next_rows(&mut self) -> io::Result<Option<Vec<u8>>>;
}

fn write_error(error: io::Error) -> StoreError {
    StoreError::Other(format!("the copy cannot be written: {error}"))
}

fn read_error(error: io::Error) -> StoreError {
    StoreError::Other(format!("the copy cannot be read: {error}"))
}

/// Returns a name as SQL takes it literally.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn target(table: &DumpedTable) -> String {
    let columns: Vec<String> = table.columns.iter().map(|name| quoted(name)).collect();
    format!("{} ({})", quoted(&table.name), columns.join(", "))
}

/// Orders tables so that each follows those that it refers to. Those of a circle keep their order.
fn in_order(tables: Vec<String>, references: &[(String, String)]) -> Vec<String> {
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in references.iter().filter(|(from, to)| from != to) {
        needs.entry(from).or_default().insert(to);
    }
    let (mut left, mut done) = (tables, Vec::new());
    while !left.is_empty() {
        let is_free = |name: &String| {
            let needed = needs.get(name.as_str());
            needed.is_none_or(|needed| needed.iter().all(|one| done.iter().any(|name| name == one)))
        };
        let place = left.iter().position(is_free).unwrap_or(0);
        let next = left.remove(place);
        done.push(next);
    }
    done
}

const NO_IDLE_LIMIT: &str = "SET LOCAL idle_in_transaction_session_timeout = 0";

impl Store {
    /// Hands out a copy of the database, and returns the number of its schema. PostgreSQL only.
    pub async fn dump_tables(&self, sink: &mut dyn DumpSink) -> Result<i64, StoreError> {
        let Db::Pg(pool) = &self.db else {
            return Err(StoreError::Other("SQLite is copied as a file".to_owned()));
        };
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let mut session = PgSession::open(pool).await?;
        let mut tx = session.begin_with(begin).await?;
        // The reader of the copy may be slow.
        sqlx::query(NO_IDLE_LIMIT).execute(&mut *tx).await?;
        let schema: i64 = sqlx::query_scalar(SCHEMA).fetch_one(&mut *tx).await?;
        let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *tx).await?;
        let references: Vec<(String, String)> =
            sqlx::query_as(REFERENCES).fetch_all(&mut *tx).await?;
        for name in in_order(tables, &references) {
            let columns = sqlx::query_scalar(COLUMNS).bind(&name).fetch_all(&mut *tx).await?;
            let table = DumpedTable { name, columns };
            sink.begin_table(&table).map_err(write_error)?;
            let statement = format!("COPY {} TO STDOUT", target(&table));
            let mut rows = tx.copy_out_raw(&statement).await?;
            while let Some(bytes) = rows.try_next().await? {
                sink.add_rows(&bytes).map_err(write_error)?;
            }
        }
        tx.rollback().await?;
        Ok(schema)
    }

    /// Fills an empty PostgreSQL database with a copy, all or nothing.
    pub async fn load_tables(
        url: &str,
        schema: i64,
        source: &mut dyn DumpSource,
    ) -> Result<(), StoreError> {
        let known = POSTGRES.iter().map(|one| one.version).max().unwrap_or(0);
        if !POSTGRES.version_exists(schema) {
            return Err(StoreError::Newer { found: schema, least: schema, known });
        }
        let (_, mut connection) = connect_postgres(url).await?;
        let loaded = load(&mut connection, schema, source).await;
        // This also ends the transaction after a failure.
        let closed = connection.close().await;
        loaded?;
        closed?;
        Ok(())
    }

    /// Fails if a PostgreSQL database has tables.
    pub async fn require_empty(url: &str) -> Result<(), StoreError> {
        let (_, mut connection) = connect_postgres(url).await?;
        let count = count_tables(&mut connection).await;
        connection.close().await?;
        count
    }
}

async fn count_tables(connection: &mut PgConnection) -> Result<(), StoreError> {
    let count: i64 = sqlx::query_scalar(COUNT).fetch_one(connection).await?;
    if count == 0 {
        return Ok(());
    }
    Err(StoreError::Other(format!(
        "the database of `store.url` has {count} tables; make an empty one with `createdb` and name it \
         there, so that nothing is overwritten"
    )))
}

async fn load(
    connection: &mut PgConnection,
    schema: i64,
    source: &mut dyn DumpSource,
) -> Result<(), StoreError> {
    let mut tx = connection.begin().await?;
    count_tables(&mut tx).await?;
    let migrated = POSTGRES.run_direct(Some(schema), &mut *tx, false).await;
    migrated.map_err(|error| migration_error(&POSTGRES, error, None))?;
    // Triggers would note changes and refuse to empty tables. Rows of migrations are in the copy too.
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *tx).await?;
    let references: Vec<(String, String)> = sqlx::query_as(REFERENCES).fetch_all(&mut *tx).await?;
    let tables = in_order(tables, &references);
    for name in &tables {
        run(&mut tx, format!("ALTER TABLE {} DISABLE TRIGGER USER", quoted(name))).await?;
    }
    for name in tables.iter().rev() {
        run(&mut tx, format!("DELETE FROM {}", quoted(name))).await?;
    }
    while let Some(table) = source.next_table().map_err(read_error)? {
        let statement = format!("COPY {} FROM STDIN", target(&table));
        let mut rows = tx.copy_in_raw(&statement).await?;
        while let Some(bytes) = source.next_rows().map_err(read_error)? {
            rows.send(bytes).await?;
        }
        rows.finish().await?;
    }
    for name in &tables {
        run(&mut tx, format!("ALTER TABLE {} ENABLE TRIGGER USER", quoted(name))).await?;
    }
    let counters: Vec<(String, String)> = sqlx::query_as(COUNTERS).fetch_all(&mut *tx).await?;
    for (table, column) in counters {
        let (name, column_name) = (quoted(&table), quoted(&column));
        let next = format!(
            "SELECT setval(pg_get_serial_sequence($1, $2), \
             (SELECT COALESCE(MAX({column_name}), 0) + 1 FROM {name}), false)"
        );
        let next = sqlx::query(AssertSqlSafe(next)).bind(&name).bind(&column);
        next.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

async fn run(connection: &mut PgConnection, statement: String) -> Result<(), StoreError> {
    sqlx::query(AssertSqlSafe(statement)).persistent(false).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_follow_those_that_they_refer_to() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let pair = |(from, to): (&str, &str)| (from.to_owned(), to.to_owned());
        let references = [("a", "c"), ("c", "b"), ("b", "b"), ("x", "y"), ("y", "x")].map(pair);
        let ordered = in_order(names(&["a", "b", "c", "x", "y"]), &references);
        assert_eq!(ordered, names(&["b", "c", "a", "x", "y"]));
    }

    #[test]
    fn a_name_cannot_end_its_quotes() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
