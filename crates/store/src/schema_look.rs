//! Looks at a database before it is opened: its address and its schema.

use std::path::Path;

use ledger::ALIVE_WINDOW;
use sqlx::migrate::Migrate as _;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::migrations::{POSTGRES, SQLITE};
use crate::open::{StoreAddress, connect_postgres};
use crate::schema_check::{SchemaState, read_floor};
use crate::{Store, StoreError};

const LIVE_NODES: &str =
    "SELECT COUNT(*) FROM nodes WHERE seen > (SELECT now FROM store_clock) - $1";

impl Store {
    /// Checks that a URL is one that [`Store::open`] can read. The error is a part of a sentence about the URL, without
    /// its password.
    pub fn check_url(url: &str) -> Result<(), &'static str> {
        match StoreAddress::read(url) {
            Ok(StoreAddress::Sqlite(_)) => Ok(()),
            Ok(StoreAddress::Postgres(url)) => {
                let read = url.parse::<PgConnectOptions>().map(drop);
                read.map_err(|_| "cannot be read as an address of PostgreSQL")
            }
            Err(_) if url.starts_with("sqlite:") => {
                Err("takes a plain path after `sqlite:`, without options")
            }
            Err(_) => Err("is not an address of a known database"),
        }
    }

    /// Compares the schema of a database with the one that this program knows, without changing it. A
    /// database that this program cannot work with is an error.
    pub async fn schema_state(url: &str) -> Result<SchemaState, StoreError> {
        match StoreAddress::read(url)? {
            StoreAddress::Sqlite(path) => {
                if !Path::new(path).exists() {
                    return SchemaState::compare(&SQLITE, &[], None, 0);
                }
                let options = SqliteConnectOptions::new().filename(path).read_only(true);
                let mut connection = options.connect().await?;
                let migrator = &*SQLITE;
                let applied = connection.list_applied_migrations(&migrator.table_name).await;
                let floor = read_floor!(&mut connection);
                let nodes = sqlx::query_scalar(LIVE_NODES).bind(ALIVE_WINDOW.get());
                let nodes = nodes.fetch_one(&mut connection).await.unwrap_or(0);
                connection.close().await?;
                SchemaState::compare(migrator, &applied.unwrap_or_default(), floor, nodes)
            }
            StoreAddress::Postgres(url) => {
                let (_, mut connection) = connect_postgres(url).await?;
                let migrator = &*POSTGRES;
                let applied = connection.list_applied_migrations(&migrator.table_name).await;
                let floor = read_floor!(&mut connection);
                let nodes = sqlx::query_scalar(LIVE_NODES).bind(ALIVE_WINDOW.get());
                let nodes = nodes.fetch_one(&mut connection).await.unwrap_or(0);
                connection.close().await?;
                SchemaState::compare(migrator, &applied.unwrap_or_default(), floor, nodes)
            }
        }
    }
}
