//! A fresh database for one test, deleted when the test has passed.

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use store::Store;
use uuid::Uuid;

/// The location of a test's database.
pub(crate) enum TestDatabase {
    /// A folder of its own.
    Sqlite { folder: PathBuf },
    /// A database of its own on the server of `PORTUNUS_TEST_POSTGRES`.
    #[cfg_attr(not(feature = "postgres-tests"), expect(dead_code, reason = "SQLite only"))]
    Postgres { server: sqlx::postgres::PgConnectOptions, name: String },
}

impl TestDatabase {
    pub(crate) fn sqlite() -> Self {
        let folder = std::env::temp_dir().join(format!("portunus-store-{}", Uuid::now_v7()));
        std::fs::create_dir(&folder).unwrap();
        Self::Sqlite { folder }
    }

    #[cfg(feature = "postgres-tests")]
    pub(crate) fn postgres() -> Self {
        let url = std::env::var("PORTUNUS_TEST_POSTGRES")
            .expect("PORTUNUS_TEST_POSTGRES must name a PostgreSQL server to make databases on");
        let name = format!("portunus_store_{}", Uuid::now_v7().simple());
        Self::Postgres { server: url.parse().unwrap(), name }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { folder } => format!("sqlite:{}/test.db", folder.display()),
            Self::Postgres { server, name } => {
                server.clone().database(name).to_url_lossy().to_string()
            }
        }
    }

    /// Returns the address of the server, and the address of this database through a proxy.
    #[cfg(feature = "postgres-tests")]
    pub(crate) fn server(&self) -> String {
        match self {
            Self::Sqlite { .. } => panic!("SQLite has no server"),
            Self::Postgres { server, .. } => {
                format!("{}:{}", server.get_host(), server.get_port())
            }
        }
    }

    #[cfg(feature = "postgres-tests")]
    pub(crate) fn url_by(&self, way: std::net::SocketAddr) -> String {
        match self {
            Self::Sqlite { .. } => panic!("SQLite has no server"),
            Self::Postgres { server, name } => {
                let server = server.clone().host(&way.ip().to_string()).port(way.port());
                server.database(name).to_url_lossy().to_string()
            }
        }
    }

    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url()).await.unwrap()
    }

    /// Runs a statement without the store.
    pub(crate) async fn execute_raw(&self, sql: &'static str) {
        self.try_execute_raw(sql).await.unwrap();
    }

    /// The same for a statement that may fail.
    pub(crate) async fn try_execute_raw(&self, sql: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite { .. } => {
                let mut db = sqlx::SqliteConnection::connect(&self.url()).await?;
                sqlx::query(sql).execute(&mut db).await?;
                db.close().await
            }
            Self::Postgres { server, name } => {
                let mut db = server.clone().database(name).connect().await?;
                sqlx::query(sql).execute(&mut db).await?;
                db.close().await
            }
        }
    }

    /// Returns the number of transactions that nobody works on. SQLite cannot tell.
    pub(crate) async fn open_transactions(&self) -> i64 {
        match self {
            Self::Sqlite { .. } => 0,
            Self::Postgres { server, name } => {
                let mut db = server.clone().database(name).connect().await.unwrap();
                let idle = "SELECT COUNT(*) FROM pg_stat_activity \
                    WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
                let idle = sqlx::query_scalar(idle).fetch_one(&mut db).await.unwrap();
                db.close().await.unwrap();
                idle
            }
        }
    }

    /// Returns true if a word is found in the database, in a byte of its files or in a row.
    pub(crate) async fn holds(&self, word: &str) -> bool {
        match self {
            Self::Sqlite { folder } => std::fs::read_dir(folder).unwrap().any(|file| {
                let bytes = std::fs::read(file.unwrap().path()).unwrap();
                bytes.windows(word.len()).any(|window| window == word.as_bytes())
            }),
            Self::Postgres { server, name } => {
                let mut db = server.clone().database(name).connect().await.unwrap();
                let tables: Vec<String> = sqlx::query_scalar(
                    "SELECT table_name::text FROM information_schema.tables \
                     WHERE table_schema = 'public' AND table_type = 'BASE TABLE'",
                )
                .fetch_all(&mut db)
                .await
                .unwrap();
                // Bytes appear in hexadecimal digits.
                let digits: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
                for table in tables {
                    let sql = AssertSqlSafe(format!("SELECT t::text FROM \"{table}\" t"));
                    let rows: Vec<String> =
                        sqlx::query_scalar(sql).fetch_all(&mut db).await.unwrap();
                    if rows.iter().any(|row| row.contains(word) || row.contains(&digits)) {
                        return true;
                    }
                }
                false
            }
        }
    }

    /// Removes deleted rows from the files.
    pub(crate) async fn compact(&self) {
        match self {
            Self::Sqlite { .. } => {
                self.execute_raw("VACUUM").await;
                self.execute_raw("PRAGMA wal_checkpoint(TRUNCATE)").await;
            }
            Self::Postgres { .. } => {}
        }
    }

    async fn prepare(&self) {
        match self {
            Self::Sqlite { .. } => {}
            Self::Postgres { server, name } => {
                let mut db = server.connect().await.expect("the PostgreSQL server must answer");
                let sql = AssertSqlSafe(format!("CREATE DATABASE {name}"));
                sqlx::query(sql).execute(&mut db).await.unwrap();
            }
        }
    }

    async fn clear(&self) {
        match self {
            Self::Sqlite { folder } => std::fs::remove_dir_all(folder).unwrap(),
            Self::Postgres { server, name } => {
                let mut db = server.connect().await.unwrap();
                let sql = AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
                sqlx::query(sql).execute(&mut db).await.unwrap();
            }
        }
    }
}

/// Runs a test in its own runtime. The database of a failed test is kept.
pub(crate) fn run<F: Future<Output = ()>>(
    database: TestDatabase,
    test: impl FnOnce(Arc<TestDatabase>) -> F,
) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Arc::new(database);
        database.prepare().await;
        test(database.clone()).await;
        database.clear().await;
    });
}
