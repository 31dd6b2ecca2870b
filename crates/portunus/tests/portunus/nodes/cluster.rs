//! A database, a provider, and several gateways on both.

use canon::Micros;
use parking_lot::Mutex;
use serde_json::Value;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

pub(crate) struct Cluster {
    folder: PathBuf,
    nodes: Vec<Node>,
    /// Address of each node.
    urls: Arc<Mutex<Vec<String>>>,
    simulator: String,
    server: sqlx::postgres::PgConnectOptions,
    database: String,
}

struct Node {
    child: Mutex<Option<Child>>,
    /// True if none of its files may grow beyond a few thousand bytes.
    confined: bool,
}

#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// The demo models behind a socket of this process.
async fn provider(per_piece: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pace = demo::StreamPace { pause: per_piece };
    let options = demo::SimulatorOptions { pace, ..demo::SimulatorOptions::default() };
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
        let _ = std::fs::remove_dir_all(&folder);
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
[models.metered]
lanes = ["simulator/demo-messages"]
price = {{ input = "3", output = "15", per_request = "0.0001" }}
[models.slow]
lanes = ["slow/demo-chat"]
price = {{ input = "10", output = "100" }}
"#,
            server.clone().database(&name).to_url_lossy()
        );
        std::fs::write(folder.join("p.toml"), config).unwrap();
        let (nodes_then, urls) = (Vec::new(), Arc::default());
        let mut cluster =
            Self { folder, nodes: nodes_then, urls, simulator, server, database: name };
        for _ in 0..nodes {
            cluster.add(false);
        }
        cluster
    }

    /// One node more; if it is confined, no file of it can grow beyond a few thousand bytes.
    pub(crate) fn add(&mut self, confined: bool) {
        let (child, url) = self.serve(self.nodes.len(), confined);
        self.nodes.push(Node { child: Mutex::new(Some(child)), confined });
        self.urls.lock().push(url);
    }

    /// The data folder of a node.
    pub(crate) fn data(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn program(&self, data: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&self.folder).env_clear().env("PORTUNUS_SERVER_LINGER", "0s");
        command.args(["--config", "p.toml", "--data", data, "--json"]);
        command
    }

    /// The program, with a limit on how far its files may grow: what is written beyond is refused.
    fn confined(&self, data: &str) -> Command {
        const SCRIPT: &str = "trap '' XFSZ; ulimit -f 24; exec \"$0\" \"$@\"";
        let program = self.program(data);
        let mut command = Command::new("sh");
        command.current_dir(&self.folder).env_clear().env("PORTUNUS_SERVER_LINGER", "0s");
        command.args(["-c", SCRIPT]).arg(program.get_program()).args(program.get_args());
        command
    }

    /// Starts a gateway and reads its greeting.
    fn serve(&self, number: usize, confined: bool) -> (Child, String) {
        let mut log = std::fs::OpenOptions::new();
        log.create(true).append(true);
        let log = log.open(self.folder.join(format!("{number}.log"))).unwrap();
        let data = number.to_string();
        let mut program = if confined { self.confined(&data) } else { self.program(&data) };
        let mut child = program
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

    /// Runs a command on the data folder of a node. Returns true if it succeeded, and all that it said.
    pub(crate) fn command_at(&self, number: usize, arguments: &[&str]) -> (bool, String) {
        let program = self.program(&number.to_string());
        let mut command = Command::new(program.get_program());
        command.current_dir(&self.folder).env_clear();
        command.args(program.get_args().filter(|argument| *argument != "--json"));
        let output = command.args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Makes an empty database, to which the configuration points from now on, and drops the earlier one.
    pub(crate) async fn replace_database(&mut self) {
        let new = format!("{}_new", self.database);
        let earlier = std::mem::replace(&mut self.database, new);
        self.command(format!("CREATE DATABASE {}", self.database)).await;
        self.command(format!("DROP DATABASE {earlier} WITH (FORCE)")).await;
        let config = self.folder.join("p.toml");
        let url = |name: &str| self.server.clone().database(name).to_url_lossy().to_string();
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace(&url(&earlier), &url(&self.database))).unwrap();
    }

    /// Makes a key with a cap of so many nanodollars.
    pub(crate) fn key(&self, cap: i64) -> Key {
        let cap = canon::Money::from_nanos(cap).to_string();
        self.made(&["keys", "create", "--name", "k", "--cap", &cap])
    }

    fn made(&self, arguments: &[&str]) -> Key {
        let made = self.run(arguments);
        let made: Value = serde_json::from_str(&made).unwrap();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Key { id: text("id"), text: text("key") }
    }

    /// Makes a team with a cap of so many nanodollars.
    pub(crate) async fn team(&self, name: &str, cap: i64) -> store::Team {
        let url = self.server.clone().database(&self.database).to_url_lossy();
        let store = store::Store::open(url.as_str()).await.unwrap();
        let team = store::Team {
            id: format!("team-{}", self.database),
            name: name.to_owned(),
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        store.add_team(&team).await.unwrap();
        store.close().await;
        let cap = canon::Money::from_nanos(cap).to_string();
        self.run(&["keys", "account", name, "--cap", &cap]);
        team
    }

    /// Makes a key of a team, with a cap of its own or without.
    pub(crate) fn team_key(&self, team: &store::Team, cap: Option<i64>) -> Key {
        let cap = cap.map(|cap| canon::Money::from_nanos(cap).to_string());
        let money = match &cap {
            Some(cap) => vec!["--cap", cap.as_str()],
            None => vec!["--unlimited"],
        };
        let create = ["keys", "create", "--name", "k", "--account", &team.name];
        self.made(&[&create[..], &money].concat())
    }

    /// Sums of a team's keys in the database: cap, spent, leased.
    pub(crate) async fn team_sums(&self, db: &mut sqlx::PgConnection, id: &str) -> (i64, i64, i64) {
        let sums = "SELECT a.cap, CAST(SUM(k.spent) AS BIGINT), CAST(SUM(k.leased) AS BIGINT) \
                    FROM account_caps a JOIN keys k ON k.account_id = a.account_id \
                    WHERE a.account_id = $1 GROUP BY a.cap";
        sqlx::query_as(sums).bind(id).fetch_one(db).await.unwrap()
    }

    /// Makes a key without a cap that may spend so many nanodollars a day.
    pub(crate) fn daily_key(&self, limit: i64) -> Key {
        let budget = format!("{}/day", canon::Money::from_nanos(limit));
        self.made(&["keys", "create", "--name", "k", "--unlimited", "--budget", &budget])
    }

    /// Changes the cap of a key to so many nanodollars.
    pub(crate) fn set_cap(&self, id: &str, cap: i64) {
        let cap = canon::Money::from_nanos(cap).to_string();
        self.run(&["keys", "set", id, "--cap", &cap]);
    }

    /// Changes the cap of a team to so many nanodollars.
    pub(crate) fn set_team_cap(&self, team: &store::Team, cap: i64) {
        let cap = canon::Money::from_nanos(cap).to_string();
        self.run(&["keys", "account", &team.name, "--cap", &cap]);
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
        self.urls.lock().clone()
    }

    /// Addresses of the nodes, also after a restart.
    pub(crate) fn places(&self) -> Arc<Mutex<Vec<String>>> {
        Arc::clone(&self.urls)
    }

    /// The provider's own meter.
    pub(crate) async fn meter(&self) -> Value {
        crate::nodes::ask(&self.simulator, "/meter", "none").await.unwrap().1
    }

    /// Number of calls by the provider's own meter.
    pub(crate) async fn served(&self) -> usize {
        self.meter().await["requests"].as_u64().unwrap() as usize
    }

    /// Figures of a key in the database: cap, spent, leased.
    pub(crate) async fn sums(&self, db: &mut sqlx::PgConnection, key: &Key) -> (i64, i64, i64) {
        let query = sqlx::query_as("SELECT cap, spent, leased FROM keys WHERE id = $1");
        query.bind(&key.id).fetch_one(db).await.unwrap()
    }

    /// A connection to the database.
    pub(crate) async fn database(&self) -> sqlx::PgConnection {
        self.server.clone().database(&self.database).connect().await.unwrap()
    }

    async fn command(&self, sql: String) {
        let mut db = self.server.connect().await.unwrap();
        sqlx::query(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }

    /// Waits until every node has had its word with the store.
    pub(crate) async fn all_tended(&self) {
        let mut db = self.database().await;
        let now: i64 =
            sqlx::query_scalar("SELECT now FROM store_clock").fetch_one(&mut db).await.unwrap();
        testkit::until("every node sent a heartbeat", async || {
            let query = sqlx::query_scalar("SELECT COUNT(*) FROM nodes WHERE seen > $1").bind(now);
            let tended: i64 = query.fetch_one(&mut db).await.unwrap();
            tended == self.nodes.len() as i64
        })
        .await;
        db.close().await.unwrap();
    }

    /// Cuts every connection to the database and refuses new ones.
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
        let mut child = self.nodes[number].child.lock().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts a node that was killed and kills it again after that time, wherever it is then.
    pub(crate) fn start_and_kill(&self, number: usize, after: Duration) {
        let mut program = self.program(&number.to_string());
        let program = program.args(["serve", "--listen", "127.0.0.1:0"]);
        let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self, number: usize) {
        let confined = self.nodes[number].confined;
        let (child, url) = self.serve(number, confined);
        *self.nodes[number].child.lock() = Some(child);
        self.urls.lock()[number] = url;
    }

    /// Ends all gateways as a signal would, and waits until their processes are gone: they post their
    /// last calls after they have stopped listening.
    pub(crate) fn stop(&self) {
        let ending: Vec<Child> =
            self.nodes.iter().filter_map(|node| node.child.lock().take()).collect();
        for child in &ending {
            Command::new("kill").arg(child.id().to_string()).status().unwrap();
        }
        let begun = Instant::now();
        for mut child in ending {
            while child.try_wait().unwrap().is_none() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{} still runs", child.id());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(child) = node.child.get_mut() {
                if std::thread::panicking() {
                    drop(child.kill());
                }
                drop(child.wait());
            }
        }
        // A failed test leaves its files for inspection.
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
