//! The gateway as a process: a key created by the command line, a server on a free port, and the
//! simulated upstream.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http;
use crate::process::{ChildServer, free_port};
use crate::{tools, workspace};

/// Timeout from start to first answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The binary under test, and the processors it may use.
pub(crate) struct Binary {
    /// Path of the binary.
    pub(crate) path: PathBuf,
    /// Processor list for `taskset`; `None` allows all.
    pub(crate) cores: Option<String>,
}

/// A server that answers.
pub(crate) struct Server {
    /// Its process.
    pub(crate) running: ChildServer,
    /// Listening address.
    pub(crate) address: SocketAddr,
}

impl Binary {
    /// Builds the unoptimised gateway, as for its tests: without them, crates would have other features, and would be
    /// built once more.
    pub(crate) fn build() -> Result<Self> {
        tools::run(tools::cargo_test()?.args(["--no-run", "--quiet"]))?;
        Ok(Self { path: workspace::target().join("debug/portunus"), cores: None })
    }

    /// Returns a command that runs the binary.
    pub(crate) fn command(&self) -> Command {
        pinned(&self.path, self.cores.as_deref())
    }

    /// Creates a key without a cap. A server that starts afterwards prints no key of its own.
    pub(crate) fn create_key(&self, data: &Path) -> Result<String> {
        self.create_key_with(data, &[])
    }

    /// Creates a key without a cap, with these flags.
    pub(crate) fn create_key_with(&self, data: &Path, flags: &[&str]) -> Result<String> {
        self.create_any_key(data, &[&["--unlimited"], flags].concat())
    }

    /// Creates a key with a cap, which is paid from a lease.
    pub(crate) fn create_capped_key(&self, data: &Path, cap: &str) -> Result<String> {
        self.create_any_key(data, &["--cap", cap])
    }

    fn create_any_key(&self, data: &Path, flags: &[&str]) -> Result<String> {
        let arguments = ["keys", "create", "--name", "xtask", "--json", "--data"];
        let output = self.command().args(arguments).arg(data).args(flags).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "keys create: {}\n{stderr}", output.status);
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("keys create did not print JSON")?;
        let key = answer.get("key").and_then(serde_json::Value::as_str);
        Ok(key.context("keys create printed no `key`")?.to_owned())
    }

    /// Returns the command of a gateway on that data folder.
    pub(crate) fn serve(&self, address: SocketAddr, data: &Path, config: Option<&Path>) -> Command {
        let mut command = self.command();
        // No load balancer stands before it.
        command.env("PORTUNUS_SERVER_LINGER", "0s");
        command.args(["serve", "--listen", &address.to_string(), "--data"]).arg(data);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command
    }

    /// Returns the command of a simulated upstream with these flags.
    pub(crate) fn simulate(&self, address: SocketAddr, flags: &[&str]) -> Command {
        let mut command = self.command();
        command.args(["simulate", "--listen", &address.to_string()]).args(flags);
        command
    }
}

impl Server {
    /// Starts a server and waits until it answers at `path`.
    pub(crate) fn start(
        name: &str,
        command: &mut Command,
        address: SocketAddr,
        path: &str,
        log: &Path,
    ) -> Result<Self> {
        let mut running = ChildServer::start(name, command, log)?;
        running
            .wait_until(START_TIMEOUT, || http::status(address, path).is_some_and(|s| s < 500))?;
        Ok(Self { running, address })
    }
}

/// Returns an unused local address.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

/// Returns a command bound to some processors.
pub(crate) fn pinned(program: &Path, cores: Option<&str>) -> Command {
    match cores {
        Some(cores) => {
            let mut command = Command::new("taskset");
            command.args(["-c", cores]).arg(program);
            command
        }
        None => Command::new(program),
    }
}
