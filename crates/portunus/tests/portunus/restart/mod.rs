//! Restarts without failed calls: processes that stop, start again and take over under load.

#[cfg(feature = "node-tests")]
mod balancer;
mod linger;
mod load;
mod metrics_peers;
mod plain_http;
mod round_robin;
mod stalled_handshakes;
mod supervisor;
mod take_over;
#[cfg(feature = "node-tests")]
mod take_over_database;
mod take_over_kills;
mod take_over_stops;

use demo::{SimulatorOptions, StreamPace};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::until;
use tokio::net::TcpListener;

use crate::transport::raw_client::Caller;

/// A folder with a configuration for gateways, and providers that they call.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        // A failed test leaves its files for inspection.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The demo models behind a socket of this process.
async fn provider(pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = SimulatorOptions { pace: StreamPace { pause }, ..SimulatorOptions::default() };
    tokio::spawn(demo::simulate(listener, options, std::future::pending::<()>()));
    format!("http://{address}")
}

impl Site {
    /// A site whose gateways linger that long, with these lines under `[server]` besides. The model
    /// `m` answers at once, and streams of `slow` take seconds.
    pub(crate) async fn new(linger: &str, server: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portunus-restart-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let fast = provider(Duration::ZERO).await;
        let slow = provider(Duration::from_millis(100)).await;
        let config = format!(
            r#"
[server]
linger = "{linger}"
{server}
[store]
url = "sqlite:{}"
[providers.fast]
speaks = "chat"
base = "{fast}"
auth = "none"
[providers.slow]
speaks = "chat"
base = "{slow}"
auth = "none"
[models.m]
lanes = ["fast/demo-chat"]
price = {{ input = "1.00", output = "2.00" }}
[models.slow]
lanes = ["slow/demo-chat"]
price = {{ input = "1.00", output = "2.00" }}
"#,
            folder.join("portunus.db").display()
        );
        std::fs::write(folder.join("p.toml"), config).unwrap();
        Self { folder }
    }

    pub(crate) fn program(&self, data: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&self.folder).env_clear();
        command.args(["--config", "p.toml", "--data", data]);
        command
    }

    /// Makes a key: `--unlimited`, or `--cap` and an amount.
    pub(crate) fn key(&self, money: &[&str]) -> String {
        let create = ["keys", "create", "--name", "k", "--json"];
        let output = self.program("commands").args(create).args(money).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        made["key"].as_str().unwrap().to_owned()
    }

    /// Starts a gateway at an address, and waits for its greeting.
    pub(crate) fn start(&self, data: &str, address: &str, options: &[&str]) -> Gateway {
        self.start_command(self.program(data), address, options)
    }

    pub(crate) fn start_command(
        &self,
        mut command: Command,
        address: &str,
        options: &[&str],
    ) -> Gateway {
        let log = self.folder.join("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = command
            .args(["serve", "--listen", address])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut greeting = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = greeting.find(|line| line.as_ref().unwrap().contains("  API "));
        let line = line.unwrap_or_else(|| panic!("it ended: {}", self.log())).unwrap();
        let address = line.split_once("://").unwrap().1.trim().to_owned();
        // Read to its end, so that the program can write.
        std::thread::spawn(move || greeting.count());
        Gateway { child, address }
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn run(&self, data: &str, arguments: &[&str]) -> String {
        let output = self.program(data).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The ids of all settled calls.
    pub(crate) fn receipts(&self) -> BTreeSet<String> {
        self.entries().iter().map(|one| one["request_id"].as_str().unwrap().to_owned()).collect()
    }

    /// All settled calls.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let lines = self.run("commands", &["ledger", "export"]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: String,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end of the process and returns its exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let mut code = None;
        until("the process ends", async || match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        })
        .await;
        code
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The status of `/readyz` on a new connection.
    pub(crate) async fn readiness(&self) -> Option<u16> {
        readiness(&self.address).await
    }
}

/// The status of `/readyz` at an address, on a new connection.
pub(crate) async fn readiness(address: &str) -> Option<u16> {
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let mut caller = Caller::over(stream);
    caller.send("GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    Some(caller.answer().await?.status)
}

/// Certificate of `gateway.test` and its key.
const TLS_FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/portunus/transport/data");

/// Returns the line under `[server]` for a listener with TLS.
fn tls_line() -> String {
    format!("tls = {{ cert = \"{TLS_FILES}/cert.pem\", key = \"{TLS_FILES}/key.pem\" }}")
}

/// Returns curl for a path of the gateway with TLS at an address.
fn tls_curl(address: &str, path: &str) -> Command {
    let port = address.rsplit(':').next().unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-s", "--resolve", &format!("gateway.test:{port}:127.0.0.1")]);
    curl.args(["--cacert", &format!("{TLS_FILES}/cert.pem")]);
    curl.arg(format!("https://gateway.test:{port}{path}"));
    curl
}

/// Returns the status of `/readyz` of the gateway with TLS at an address.
fn tls_readiness(address: &str) -> String {
    let mut curl = tls_curl(address, "/readyz");
    let output = curl.args(["-o", "/dev/null", "-w", "%{http_code}"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns an address that is free now.
pub(crate) fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().to_string()
}
