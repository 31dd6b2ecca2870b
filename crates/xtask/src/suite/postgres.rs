//! A PostgreSQL server for tests: a new cluster in a temporary folder on a free port, always removed
//! afterwards.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::{ChildServer, Signal, TempFolder, free_port};
use crate::tools;

/// User account of PostgreSQL, which refuses to run as root.
const POSTGRES_USER: &str = "postgres";

/// An empty server.
pub(crate) struct Postgres {
    running: ChildServer,
    /// Connection URL.
    pub(crate) url: String,
    _scratch: TempFolder,
}

impl Postgres {
    /// Starts a server.
    pub(crate) fn start() -> Result<Self> {
        let programs = tools::postgres()?;
        let scratch = TempFolder::new("postgres")?;
        let owner = if tools::is_root() { Some(user_ids(POSTGRES_USER)?) } else { None };
        if let Some((user, group)) = owner {
            chown(scratch.path(), Some(user), Some(group))?;
        }
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command.current_dir(scratch.path());
            if let Some((user, group)) = owner {
                command.uid(user).gid(group);
            }
            command
        };

        let cluster = scratch.path().join("cluster");
        let mut initdb = program("initdb");
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        initdb.args(["--username", POSTGRES_USER, "-D"]).arg(&cluster);
        let made = initdb.output().context("starting initdb")?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let port = free_port()?.to_string();
        let mut server = program("postgres");
        server.arg("-D").arg(&cluster).args(["-p", &port, "-k"]).arg(scratch.path());
        // The cluster does not outlive the tests, so it needs no durability.
        for setting in [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
            "max_connections=400",
        ] {
            server.args(["-c", setting]);
        }
        let mut running = ChildServer::start("postgres", &mut server, &scratch.path().join("log"))?;
        running.wait_until(Duration::from_secs(30), || {
            let mut ask = Command::new(programs.join("pg_isready"));
            ask.args(["-q", "-h", "127.0.0.1", "-p", &port]).status().is_ok_and(|s| s.success())
        })?;
        println!("PostgreSQL listens on port {port}");
        let url = format!("postgres://{POSTGRES_USER}@127.0.0.1:{port}/postgres");
        Ok(Self { running, url, _scratch: scratch })
    }

    /// Stops the server. An error of the tests takes precedence.
    pub(crate) fn end(self, tested: Result<()>) -> Result<()> {
        let ended = self.running.stop(Signal::Int);
        tested?;
        ensure!(ended?.success(), "PostgreSQL did not end well");
        Ok(())
    }
}

/// Returns user id and group id.
fn user_ids(name: &str) -> Result<(u32, u32)> {
    let text = fs::read_to_string(Path::new("/etc/passwd"))?;
    account_ids(&text, name).with_context(|| format!("there is no user `{name}`"))
}

fn account_ids(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = passwd.lines().map(|line| line.split(':'));
    let mut entry = fields.find(|entry| entry.clone().next() == Some(name))?.skip(2);
    Some((entry.next()?.parse().ok()?, entry.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let text = "postgres2:x:7:8::/:\npostgres:x:104:111:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(account_ids(text, "postgres"), Some((104, 111)));
        assert_eq!(account_ids(text, "nobody"), None);
    }
}
