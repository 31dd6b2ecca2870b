//! A fresh database for one test, deleted when the test has passed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledger::LedgerEntry;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use store::Store;
use tokio::sync::OnceCell;
use uuid::Uuid;

/// A schema in which each call was a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldSchema {
    /// Without the columns that were added later.
    First,
    /// The last one before calls were stored in blocks.
    Last,
    /// The rows that are left to be moved into blocks.
    Left,
}

/// The location of a test's database.
pub(crate) enum TestDatabase {
    /// A folder of its own.
    Sqlite { folder: PathBuf },
    /// A database of its own on the server of `PORTUNUS_TEST_POSTGRES`.
    #[cfg_attr(not(feature = "postgres-tests"), expect(dead_code, reason = "SQLite only"))]
    Postgres { server: sqlx::postgres::PgConnectOptions, name: String },
}

/// A connection of another process within a transaction.
pub(crate) enum FrozenConnection {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl FrozenConnection {
    /// Ends the transaction.
    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(db) => db.close().await.unwrap(),
            Self::Postgres(db) => db.close().await.unwrap(),
        }
    }
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

    /// Runs a statement with values in its text.
    pub(crate) async fn execute_text(&self, sql: String) {
        match self {
            Self::Sqlite { .. } => {
                let mut db = sqlx::SqliteConnection::connect(&self.url()).await.unwrap();
                sqlx::query(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
                db.close().await.unwrap();
            }
            Self::Postgres { server, name } => {
                let mut db = server.clone().database(name).connect().await.unwrap();
                sqlx::query(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
                db.close().await.unwrap();
            }
        }
    }

    /// Creates the schema of an earlier build, in place of the one of a new database.
    pub(crate) async fn migrate_to(&self, version: i64) {
        if let Self::Postgres { .. } = self {
            self.clear().await;
            self.prepare().await;
        }
        let folder = match self {
            Self::Sqlite { .. } => "migrations/sqlite",
            Self::Postgres { .. } => "migrations/postgres",
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let all = Migrator::new(folder).await.unwrap();
        let some = all.iter().filter(|migration| migration.version <= version);
        let some = Migrator::with_migrations(some.cloned().collect());
        match self {
            Self::Sqlite { .. } => {
                let options: sqlx::sqlite::SqliteConnectOptions = self.url().parse().unwrap();
                let mut db = options.create_if_missing(true).connect().await.unwrap();
                some.run(&mut db).await.unwrap();
                db.close().await.unwrap();
            }
            Self::Postgres { server, name } => {
                let mut db = server.clone().database(name).connect().await.unwrap();
                some.run(&mut db).await.unwrap();
                db.close().await.unwrap();
            }
        }
    }

    /// Inserts calls as an earlier build did.
    pub(crate) async fn insert_old_rows(&self, calls: &[LedgerEntry], schema: OldSchema) {
        let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let json = |list: serde_json::Result<String>| text(&list.unwrap());
        let table = match schema {
            OldSchema::First | OldSchema::Last => "entries",
            OldSchema::Left => "old_entries",
        };
        let mut columns =
            "request_id, key_id, account_id, started, ended, first_byte_us, dialect, \
            model, lane, attempts, stream, status, outcome, input, cache_read, cache_write, \
            cache_write_long, input_audio, input_image, output, thinking, output_audio, \
            output_image, searches, estimated, cost, borne, price_version, losses, failed"
                .to_owned();
        if schema != OldSchema::First {
            columns.push_str(
                ", held, images, seconds, service, ended_by, charges, told, reasons, knowledge",
            );
        }
        let mut rows: Vec<String> = Vec::new();
        for call in calls {
            let (usage, null) = (&call.usage, || "NULL".to_owned());
            let mut values = vec![
                text(&call.request_id),
                text(&call.key_id),
                text(&call.account_id),
                call.started.get().to_string(),
                call.ended.get().to_string(),
                call.first_byte_us.map_or_else(null, |time| time.get().to_string()),
                text(&call.dialect),
                text(&call.model),
                text(&call.lane),
                call.attempts.to_string(),
                call.stream.to_string(),
                call.status.to_string(),
                text(call.outcome.word()),
            ];
            values.extend(
                [
                    usage.input,
                    usage.cache_read,
                    usage.cache_write,
                    usage.cache_write_long,
                    usage.input_audio,
                    usage.input_image,
                    usage.output,
                    usage.thinking,
                    usage.output_audio,
                    usage.output_image,
                    usage.searches,
                ]
                .map(|count| count.to_string()),
            );
            values.extend([
                call.estimated.to_string(),
                call.cost.as_nanos().to_string(),
                call.absorbed.as_nanos().to_string(),
                text(&call.price_version),
                json(serde_json::to_string(&call.losses)),
                json(serde_json::to_string(&call.failed)),
            ]);
            if schema != OldSchema::First {
                let told = call
                    .told
                    .as_ref()
                    .map_or_else(|| text(""), |told| json(serde_json::to_string(told)));
                let is_usual =
                    call.knowledge.is_final() && call.ended_by == call.outcome.usual_end();
                values.extend([
                    call.held.map_or_else(null, |held| held.as_nanos().to_string()),
                    usage.images.to_string(),
                    usage.seconds.to_string(),
                    text(&call.service),
                    // Rows from before these columns were added have none.
                    if is_usual { text("") } else { text(call.ended_by.word()) },
                    json(serde_json::to_string(&call.charges)),
                    told,
                    json(serde_json::to_string(&call.reasons)),
                    if is_usual { null() } else { call.knowledge.rank().to_string() },
                ]);
            }
            rows.push(format!("({})", values.join(", ")));
        }
        self.execute_text(format!("INSERT INTO {table} ({columns}) VALUES {}", rows.join(", ")))
            .await;
    }

    /// Takes the locks of all keys, until the connection is closed.
    pub(crate) async fn lock_keys(&self) -> FrozenConnection {
        match self {
            Self::Sqlite { .. } => {
                let mut db = sqlx::SqliteConnection::connect(&self.url()).await.unwrap();
                sqlx::query("BEGIN IMMEDIATE").execute(&mut db).await.unwrap();
                FrozenConnection::Sqlite(db)
            }
            Self::Postgres { server, name } => {
                let mut db = server.clone().database(name).connect().await.unwrap();
                sqlx::query("BEGIN").execute(&mut db).await.unwrap();
                sqlx::query("SELECT id FROM keys FOR UPDATE").execute(&mut db).await.unwrap();
                FrozenConnection::Postgres(db)
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

    /// Creates an empty database.
    pub(crate) async fn prepare(&self) {
        match self {
            Self::Sqlite { .. } => {}
            Self::Postgres { server, name } => create(server, name, "").await,
        }
    }

    /// Creates a database that has the schema on PostgreSQL, where a copy takes less time than all migrations.
    async fn prepare_schema(&self) {
        /// Database that others are copied from. It stays on the server, which does not outlive the tests.
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let Self::Postgres { server, name } = self else { return self.prepare().await };
        let template = TEMPLATE.get_or_init(async || {
            let name = format!("portunus_store_template_{}", Uuid::now_v7().simple());
            let template = Self::Postgres { server: server.clone(), name: name.clone() };
            template.prepare().await;
            template.open().await.close().await;
            name
        });
        create(server, name, &format!("TEMPLATE {}", template.await)).await;
        // As a migration makes it.
        self.execute_raw(
            "UPDATE store_identity SET id = replace(CAST(gen_random_uuid() AS TEXT), '-', '')",
        )
        .await;
    }

    pub(crate) async fn clear(&self) {
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

async fn create(server: &sqlx::postgres::PgConnectOptions, name: &str, options: &str) {
    let mut db = server.connect().await.expect("the PostgreSQL server must answer");
    let sql = AssertSqlSafe(format!("CREATE DATABASE {name} {options}"));
    sqlx::query(sql).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
}

/// Runs a test in its own runtime. The database of a failed test is kept.
pub(crate) fn run<F: Future<Output = ()>>(
    database: TestDatabase,
    test: impl FnOnce(Arc<TestDatabase>) -> F,
) {
    block_on(async {
        let database = Arc::new(database);
        database.prepare_schema().await;
        test(database.clone()).await;
        database.clear().await;
    });
}

/// The same with an empty database, for a test of migrations.
pub(crate) fn run_empty<F: Future<Output = ()>>(
    database: TestDatabase,
    test: impl FnOnce(Arc<TestDatabase>) -> F,
) {
    block_on(async {
        let database = Arc::new(database);
        database.prepare().await;
        test(database.clone()).await;
        database.clear().await;
    });
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}
