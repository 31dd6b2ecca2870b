//! A database, a provider, and some gateways on both.

use serde_json::Value;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) struct Cluster {
    folder: PathBuf,
    nodes: Vec<Node>,
    simulator: String,
    server: sqlx::postgres::PgConnectOptions,
    database: String,
}

struct Node {
    child: Option<Child>,
    url: String,
}

pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// The demo models behind a socket of this process.
async fn provider(per_piece: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pace = demo::Pace { per_piece };
    let options = demo::Options { pace, ..demo::Options::default() };
    tokio::spawn(demo::simulate(listener, options, std::future::pending::<()>()));
    format!("http://{address}")
}

impl Cluster {
    pub(crate) async fn start(nodes: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "portunus_nodes_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let url = std::env::var("PORTUNUS_TEST_POSTGRES")
            .expect("PORTUNUS_TEST_POSTGRES must name a PostgreSQL server to make databases on");
        let server: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
        let mut db = server.connect().await.expect("the PostgreSQL server must answer");
        let sql = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::query(sql).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
        let simulator = provider(Duration::ZERO).await;
        let slow = provider(Duration::from_millis(400)).await;
        let config = format!(
            r#"
[store]
url = "{}"
[providers.simulator]
speaks = ["chat", "responses", "messages", "native"]
base = "{simulator}"
auth = "none"
[providers.slow]
speaks = "chat"
base = "{slow}"
auth = "none"
[models.flat]
lanes = ["simulator/demo-chat"]
price = {{ input = "0", output = "0", per_request = "0.001" }}
[models.slow]
lanes = ["slow/demo-chat"]
price = {{ input = "10", output = "100" }}
"#,
            server.clone().database(&name).to_url_lossy()
        );
        std::fs::write(folder.join("p.toml"), config).unwrap();
        let mut cluster = Self { folder, nodes: Vec::new(), simulator, server, database: name };
        for number in 0..nodes {
            let (child, url) = cluster.serve(number);
            cluster.nodes.push(Node { child: Some(child), url });
        }
        cluster
    }

    fn program(&self, data: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&self.folder).env_clear();
        command.args(["--config", "p.toml", "--data", data, "--json"]);
        command
    }

    /// Starts a gateway and reads its greeting.
    fn serve(&self, number: usize) -> (Child, String) {
        let mut log = std::fs::OpenOptions::new();
        log.create(true).append(true);
        let log = log.open(self.folder.join(format!("{number}.log"))).unwrap();
        let mut child = self
            .program(&number.to_string())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("  -d '") && !greeting.contains("Make a key with") {
            assert!(lines.read_line(&mut greeting).unwrap() > 0, "it ended: {greeting}");
        }
        let url = greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        (child, url.to_owned())
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.program("command").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Makes a key with a cap of so many nanodollars.
    pub(crate) fn key(&self, cap: i64) -> Key {
        let cap = canon::Money::nanos(cap).to_string();
        let made = self.run(&["keys", "create", "--name", "k", "--cap", &cap]);
        let made: Value = serde_json::from_str(&made).unwrap();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Key { id: text("id"), text: text("key") }
    }

    pub(crate) fn revoke(&self, id: &str) {
        self.run(&["keys", "revoke", id]);
    }

    /// Fails unless every invariant holds.
    pub(crate) fn verify(&self) {
        self.run(&["ledger", "verify"]);
    }

    /// Every settled call.
    pub(crate) fn export(&self) -> Vec<Value> {
        let lines = self.run(&["ledger", "export"]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.url.clone()).collect()
    }

    /// How many calls the provider says it served.
    pub(crate) async fn served(&self) -> usize {
        let (_, meter) = crate::ask(&self.simulator, "/meter", "none").await.unwrap();
        meter["requests"].as_u64().unwrap() as usize
    }

    async fn command(&self, sql: String) {
        let mut db = self.server.connect().await.unwrap();
        sqlx::query(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }

    /// Waits until every node has had its word with the store.
    pub(crate) async fn all_tended(&self) {
        let mut db = self.server.clone().database(&self.database).connect().await.unwrap();
        let now: i64 =
            sqlx::query_scalar("SELECT now FROM store_clock").fetch_one(&mut db).await.unwrap();
        loop {
            let query = sqlx::query_scalar("SELECT COUNT(*) FROM nodes WHERE seen > $1").bind(now);
            let tended: i64 = query.fetch_one(&mut db).await.unwrap();
            if tended == self.nodes.len() as i64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        db.close().await.unwrap();
    }

    /// Nobody reaches the database any more.
    pub(crate) async fn cut_store(&self) {
        let name = &self.database;
        self.command(format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")).await;
        self.command(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await;
    }

    pub(crate) async fn mend_store(&self) {
        self.command(format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", self.database)).await;
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, number: usize) {
        let mut child = self.nodes[number].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self, number: usize) {
        let (child, url) = self.serve(number);
        self.nodes[number] = Node { child: Some(child), url };
    }

    /// Ends all gateways as a signal would, and waits for them.
    pub(crate) fn stop(&self) {
        for child in self.nodes.iter().filter_map(|node| node.child.as_ref()) {
            Command::new("kill").arg(child.id().to_string()).status().unwrap();
        }
        for node in &self.nodes {
            let address = node.url.strip_prefix("http://").unwrap();
            while std::net::TcpStream::connect(address).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(child) = &mut node.child {
                if std::thread::panicking() {
                    drop(child.kill());
                }
                drop(child.wait());
            }
        }
        // What failed stays there to be looked at.
        if !std::thread::panicking() {
            drop(std::fs::remove_dir_all(&self.folder));
            let (server, database) = (self.server.clone(), self.database.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let mut db = server.connect().await.unwrap();
                    let sql = AssertSqlSafe(format!("DROP DATABASE {database} WITH (FORCE)"));
                    sqlx::query(sql).execute(&mut db).await.unwrap();
                });
            })
            .join()
            .unwrap();
        }
    }
}
