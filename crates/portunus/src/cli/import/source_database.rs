//! Databases of other gateways. They are read only, in one transaction, and only the columns that are
//! asked for.

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use std::path::Path;

use super::source_row::SourceRow;

/// Front of an address that stands in an environment variable, where other users of the machine do not
/// see its password.
const VARIABLE_PREFIX: &str = "env:";

/// Most rows of a table that are read. They are in memory all at once.
const MAX_ROWS: usize = 2_000_000;

/// An open database.
pub(super) enum SourceDatabase {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

/// Returns the address of a database, also if it stands in an environment variable.
pub(super) fn resolve_address(source: &str) -> anyhow::Result<String> {
    match source.strip_prefix(VARIABLE_PREFIX) {
        None => Ok(source.to_owned()),
        Some(name) => std::env::var(name)
            .map_err(|_| anyhow!("the environment variable {name} is not set; export {name}=…")),
    }
}

/// Returns true for the address of a PostgreSQL.
pub(super) fn is_postgres(address: &str) -> bool {
    let scheme = address.split("://").next().filter(|scheme| scheme.len() < address.len());
    scheme.is_some_and(|scheme| {
        ["postgres", "postgresql"].iter().any(|own| scheme.eq_ignore_ascii_case(own))
    })
}

/// Returns true for the address of a MySQL, as an address or as Go writes it.
fn is_mysql(address: &str) -> bool {
    let address = address.to_ascii_lowercase();
    ["mysql:", "mysql+", "mariadb:", "mariadb+"].iter().any(|front| address.starts_with(front))
        || ["@tcp(", "@unix(", "@/"].iter().any(|part| address.contains(part))
}

/// Requires a source that is no PostgreSQL to be a file. The error repeats only what is a path: an address
/// has a password.
pub(super) fn require_file(address: &str) -> anyhow::Result<()> {
    if is_mysql(address) {
        bail!(
            "MySQL is not read. Make a SQLite file of it with `mysql2sqlite` \
             (pip install mysql-to-sqlite3), and import that file"
        );
    }
    if Path::new(address).is_file() {
        return Ok(());
    }
    let is_path = !address.contains("://") && !address.contains(['@', '=']);
    let shown = if is_path { address } else { "the source" };
    bail!("{shown} is no file; write the path of one, or postgres://USER:PASSWORD@HOST/NAME")
}

impl SourceDatabase {
    /// Opens a PostgreSQL by its address, or a SQLite file by its path.
    pub(super) async fn open(address: &str) -> anyhow::Result<Self> {
        let mut opened = if is_postgres(address) {
            let options = postgres_options(address)?;
            Self::Postgres(options.connect().await.context("the database cannot be reached")?)
        } else {
            let path = address.strip_prefix("sqlite://").unwrap_or(address);
            let path = path.strip_prefix("sqlite:").unwrap_or(path);
            require_file(path)?;
            let path = Path::new(path);
            let options = SqliteConnectOptions::new().filename(path).read_only(true);
            let opened = options.connect().await;
            Self::Sqlite(opened.with_context(|| format!("{} cannot be read", path.display()))?)
        };
        opened.begin().await.context("the database cannot be read")?;
        Ok(opened)
    }

    /// Begins a transaction in which all tables are seen at one instant.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(db) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                sqlx::query(begin).execute(db).await?;
            }
            Self::Sqlite(db) => {
                sqlx::query("BEGIN").execute(db).await?;
            }
        }
        Ok(())
    }

    /// Closes the connection.
    pub(super) async fn close(self) {
        // Nothing was written that could be lost.
        let _ = match self {
            Self::Postgres(db) => db.close().await,
            Self::Sqlite(db) => db.close().await,
        };
    }

    /// Returns the rows of a table with those of these columns that it has, in the order of the first one.
    /// A missing table is `None`.
    pub(super) async fn rows(
        &mut self,
        table: &str,
        columns: &[&str],
    ) -> anyhow::Result<Option<Vec<SourceRow>>> {
        let known = self.columns(table).await.with_context(|| format!("the table {table}"))?;
        let columns: Vec<&str> =
            columns.iter().copied().filter(|name| known.iter().any(|own| own == name)).collect();
        let Some(first) = columns.first() else { return Ok(None) };
        let limit = MAX_ROWS + 1;
        // Names are those of this program.
        let texts: Vec<String> = match self {
            Self::Postgres(db) => {
                let names: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
                let sql = format!(
                    "SELECT row_to_json(r)::text FROM (SELECT {} FROM \"{table}\" ORDER BY \"{first}\" LIMIT {limit}) r",
                    names.join(", ")
                );
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(db).await
            }
            Self::Sqlite(db) => {
                // As text, because JSON holds no bytes, in which some programs store texts.
                let fields = columns.iter().map(|name| format!("'{name}', CAST(\"{name}\" AS TEXT)"));
                let fields: Vec<String> = fields.collect();
                let sql = format!(
                    "SELECT json_object({}) FROM \"{table}\" ORDER BY \"{first}\" LIMIT {limit}",
                    fields.join(", ")
                );
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(db).await
            }
        }
        .with_context(|| format!("the table {table} cannot be read"))?;
        if texts.len() > MAX_ROWS {
            bail!("the table {table} has more than {MAX_ROWS} rows");
        }
        let rows = texts.iter().map(|text| {
            let fields: Map<String, Value> = serde_json::from_str(text)?;
            Ok(SourceRow(fields))
        });
        let rows: Result<Vec<SourceRow>, serde_json::Error> = rows.collect();
        // The error of the parser could repeat a secret.
        rows.map(Some).map_err(|_| anyhow!("a row of the table {table} cannot be read"))
    }

    /// Returns the columns of a table that are not among these, with the number of rows in which they say
    /// anything.
    pub(super) async fn other_columns(
        &mut self,
        table: &str,
        known: &[&str],
    ) -> anyhow::Result<Vec<(String, i64)>> {
        let failed = || format!("the table {table} cannot be read");
        let mut counts = Vec::new();
        let columns = self.columns(table).await.with_context(failed)?;
        for column in columns.into_iter().filter(|column| !known.contains(&column.as_str())) {
            let quoted = column.replace('"', "\"\"");
            let sql = AssertSqlSafe(format!(
                "SELECT COUNT(*) FROM \"{table}\" WHERE CAST(\"{quoted}\" AS TEXT) \
                 NOT IN ('', '{{}}', '[]', 'null', 'false', '0')"
            ));
            let count: i64 = match self {
                Self::Postgres(db) => sqlx::query_scalar(sql).fetch_one(db).await,
                Self::Sqlite(db) => sqlx::query_scalar(sql).fetch_one(db).await,
            }
            .with_context(failed)?;
            counts.push((column, count));
        }
        Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    async fn columns(&mut self, table: &str) -> anyhow::Result<Vec<String>> {
        if self.is_view(table).await? {
            bail!("it is a view, and views are not read: they may compute rows without end");
        }
        let names = match self {
            Self::Postgres(db) => {
                let names = "SELECT column_name::text FROM information_schema.columns \
                    WHERE table_schema = current_schema() AND table_name = $1";
                sqlx::query_scalar(names).bind(table).fetch_all(db).await
            }
            Self::Sqlite(db) => {
                let names = "SELECT name FROM pragma_table_info($1)";
                sqlx::query_scalar(names).bind(table).fetch_all(db).await
            }
        };
        Ok(names?)
    }

    async fn is_view(&mut self, table: &str) -> Result<bool, sqlx::Error> {
        let count: i64 = match self {
            Self::Postgres(db) => {
                let views = "SELECT COUNT(*) FROM information_schema.tables WHERE table_type <> 'BASE TABLE' \
                    AND table_schema = current_schema() AND table_name = $1";
                sqlx::query_scalar(views).bind(table).fetch_one(db).await?
            }
            Self::Sqlite(db) => {
                let views = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'view' \
                    AND lower(name) = lower($1)";
                sqlx::query_scalar(views).bind(table).fetch_one(db).await?
            }
        };
        Ok(count > 0)
    }
}

/// Reads the address of a PostgreSQL. The driver of LiteLLM has parameters of its own, of which `schema`
/// names the place of its tables. The address has a password, so that no error repeats it.
fn postgres_options(address: &str) -> anyhow::Result<PgConnectOptions> {
    let (front, query) = address.split_once('?').unwrap_or((address, ""));
    let parameters: Vec<(&str, &str)> =
        query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let kept = parameters.iter().filter(|(name, _)| name.starts_with("ssl") || *name == "host");
    let kept: Vec<String> = kept.map(|(name, value)| format!("{name}={value}")).collect();
    let options: PgConnectOptions = format!("{front}?{}", kept.join("&"))
        .parse()
        .map_err(|_| anyhow!("this is not the address of a PostgreSQL database"))?;
    let schema = parameters.iter().find(|(name, _)| *name == "schema").map(|(_, value)| *value);
    Ok(match schema {
        Some(schema) => options.options([("search_path", schema)]),
        None => options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_no_password() {
        for address in [
            "mysql://root:hush@h/db",
            "mysql+pymysql://root:hush@h/db",
            "MariaDB://root:hush@h/db",
            "root:hush@tcp(h:3306)/oneapi",
            "root:hush@/oneapi",
            "host=h user=u password=hush dbname=x",
            "postgres:u:hush@h",
            "postgresql+psycopg2://u:hush@h/x",
        ] {
            assert!(!is_postgres(address), "{address}");
            let said = require_file(address).unwrap_err().to_string();
            assert!(!said.contains("hush"), "{said}");
            assert_eq!(said.starts_with("MySQL is not read"), is_mysql(address), "{said}");
        }
        assert!(is_postgres("Postgres://u:hush@h/x") && is_postgres("postgresql://h/x"));
        assert!(!is_postgres("postgres") && !is_postgres("one-api.db"));
        let said = require_file("missing/one-api.db").unwrap_err().to_string();
        assert!(said.starts_with("missing/one-api.db is no file"), "{said}");
    }

    #[tokio::test]
    async fn a_view_without_end_is_refused() {
        let name = format!("portunus-import-view-{}.db", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
        let mut db = options.connect().await.unwrap();
        for sql in [
            "CREATE VIEW Tokens AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) \
             SELECT id FROM n",
            "CREATE TABLE users (id INTEGER)",
            "INSERT INTO users VALUES (7)",
        ] {
            sqlx::query(sql).execute(&mut db).await.unwrap();
        }
        db.close().await.unwrap();
        let mut source = SourceDatabase::open(path.to_str().unwrap()).await.unwrap();
        let read = source.rows("tokens", &["id"]).await.err().unwrap();
        assert!(format!("{read:#}").contains("it is a view"), "{read:#}");
        let counted = source.other_columns("tokens", &[]).await.unwrap_err();
        assert!(format!("{counted:#}").contains("it is a view"), "{counted:#}");
        assert_eq!(source.rows("users", &["id"]).await.unwrap().unwrap().len(), 1);
        assert!(source.rows("missing", &["id"]).await.unwrap().is_none());
        source.close().await;
        std::fs::remove_file(&path).unwrap();
    }
}
