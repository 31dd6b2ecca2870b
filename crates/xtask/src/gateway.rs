//! The gateway as a process: a key made by its command line, a server on a free port, and the
//! simulated upstream beside it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::http;
use crate::process::{Running, free_port};

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(30);

/// The binary under test, and the processors it may use.
pub(crate) struct Binary {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// A list for `taskset`; none lets it run anywhere.
    pub(crate) cores: Option<String>,
}

/// A server that answers.
pub(crate) struct Server {
    /// Its process.
    pub(crate) running: Running,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Binary {
    /// A command that runs the binary.
    pub(crate) fn command(&self) -> Command {
        pinned(&self.path, self.cores.as_deref())
    }

    /// A key without a cap, made before the server starts: it then prints no key of its own.
    pub(crate) fn create_key(&self, data: &Path) -> Result<String> {
        self.create_key_with(data, &[])
    }

    /// A key without a cap, but with these flags.
    pub(crate) fn create_key_with(&self, data: &Path, flags: &[&str]) -> Result<String> {
        self.create_any_key(data, &[&["--unlimited"], flags].concat())
    }

    /// A key with a cap, so that its money comes from a lease.
    pub(crate) fn create_capped_key(&self, data: &Path, cap: &str) -> Result<String> {
        self.create_any_key(data, &["--cap", cap])
    }

    fn create_any_key(&self, data: &Path, flags: &[&str]) -> Result<String> {
        let arguments = ["keys", "create", "--name", "xtask", "--json", "--data"];
        let output = self.command().args(arguments).arg(data).args(flags).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "keys create: {}\n{told}", output.status);
        let answer: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("keys create did not print JSON")?;
        let key = answer.get("key").and_then(serde_json::Value::as_str);
        Ok(key.context("keys create printed no `key`")?.to_owned())
    }

    /// The command of a gateway on that data folder.
    pub(crate) fn serve(&self, address: SocketAddr, data: &Path, config: Option<&Path>) -> Command {
        let mut command = self.command();
        command.args(["serve", "--listen", &address.to_string(), "--data"]).arg(data);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command
    }

    /// The command of an upstream, with these flags.
    pub(crate) fn simulate(&self, address: SocketAddr, flags: &[&str]) -> Command {
        let mut command = self.command();
        command.args(["simulate", "--listen", &address.to_string()]).args(flags);
        command
    }
}

impl Server {
    /// Starts a server and waits until something answers at `path`.
    pub(crate) fn start(
        name: &str,
        command: &mut Command,
        address: SocketAddr,
        path: &str,
        log: &Path,
    ) -> Result<Self> {
        let mut running = Running::start(name, command, log)?;
        running.wait_until(START, || http::status(address, path).is_some_and(|s| s < 500))?;
        Ok(Self { running, address })
    }
}

/// An address on this machine that nobody uses.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

/// A command bound to some processors.
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
