//! Two versions of the gateway side by side on one PostgreSQL, as during an upgrade.
//!
//! The earlier one is built from `PORTUNUS_EARLIER` (a commit or tag), or from the commit before the
//! newest migration, into a target folder of its own. `PORTUNUS_EARLIER_BINARY` names a finished binary.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::postgres::Postgres;
use crate::gateway::{Binary, Server, free_address};
use crate::http::{self, Client};
use crate::process::{Signal, TempFolder};
use crate::tools::{self, cargo};
use crate::workspace;

const MIGRATIONS: &str = "crates/store/migrations/postgres";
/// Calls at each node before, during and after the upgrade.
const CALLS: usize = 20;

pub(super) fn run() -> Result<()> {
    let new = Binary::build()?;
    let old = Binary { path: earlier()?, cores: None };
    let postgres = Postgres::start()?;
    let tested = upgrade(&old, &new, &postgres.url);
    postgres.end(tested)
}

/// Returns the binary of the earlier version.
fn earlier() -> Result<PathBuf> {
    if let Ok(binary) = env::var("PORTUNUS_EARLIER_BINARY") {
        return Ok(PathBuf::from(binary));
    }
    let commit = match env::var("PORTUNUS_EARLIER") {
        Ok(commit) => commit,
        Err(_) => {
            let newest = ["log", "--diff-filter=A", "-1", "--format=%H", "--", MIGRATIONS];
            format!("{}^", git(&newest)?)
        }
    };
    let commit = git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")])?;
    println!("the earlier version is {commit}");
    let folder = workspace::target().join("versions");
    let tree = folder.join("tree");
    if tree.exists() {
        git(&["worktree", "remove", "--force", &tree.display().to_string()])?;
    }
    fs::create_dir_all(&folder)?;
    git(&["worktree", "add", "--detach", &tree.display().to_string(), &commit])?;
    let target = folder.join("target");
    let mut build = cargo(&["build", "--bin", "portunus", "--target-dir"]);
    let built = tools::run(build.arg(&target).current_dir(&tree));
    git(&["worktree", "remove", "--force", &tree.display().to_string()])?;
    built?;
    Ok(target.join("debug/portunus"))
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace::root()).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {stderr}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Starts the new version beside the old one, and makes calls at both.
fn upgrade(old: &Binary, new: &Binary, database: &str) -> Result<()> {
    let folder = TempFolder::new("versions")?;
    let (before, after) = (folder.path().join("old"), folder.path().join("new"));
    let config = folder.path().join("portunus.toml");
    fs::write(&config, format!("[store]\nurl = \"{database}\"\n"))?;
    let made = old
        .command()
        .args(["keys", "create", "--name", "k", "--cap", "1000", "--json", "--data"])
        .arg(&before)
        .arg("--config")
        .arg(&config)
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout)?;
    let key = made.get("key").and_then(serde_json::Value::as_str).context("no key")?;
    let start = |binary: &Binary, data: &Path, name: &str| -> Result<Server> {
        let address = free_address()?;
        let mut command = binary.serve(address, data, Some(&config));
        Server::start(name, &mut command, address, "/healthz", &folder.path().join(name))
    };
    let first = start(old, &before, "old.log")?;
    calls(first.address, key)?;
    let check = |code: i32| -> Result<()> {
        let mut check = new.command();
        check.args(["migrate", "--check", "--data"]).arg(&after).arg("--config").arg(&config);
        let found = check.status()?.code();
        ensure!(found == Some(code), "`migrate --check` exited with {found:?} and not {code}");
        Ok(())
    };
    check(3)?;
    let second = start(new, &after, "new.log")?;
    for _ in 0..3 {
        calls(first.address, key)?;
        calls(second.address, key)?;
    }
    check(0)?;
    let ended = first.running.stop(Signal::Term)?;
    ensure!(ended.success(), "the old version ended with {ended}");
    calls(second.address, key)?;
    let ended = second.running.stop(Signal::Term)?;
    ensure!(ended.success(), "the new version ended with {ended}");
    let mut verify = new.command();
    let verify = verify.args(["ledger", "verify", "--data"]).arg(&after);
    let proved = verify.arg("--config").arg(&config).output()?;
    let said = String::from_utf8_lossy(&proved.stdout);
    ensure!(proved.status.success(), "{said}");
    let expected = format!("{} calls", CALLS * 8);
    ensure!(said.contains(&expected), "not all of {expected} are on the books:\n{said}");
    println!("{} calls at both versions are on the books, which balance", CALLS * 8);
    Ok(())
}

fn calls(address: SocketAddr, key: &str) -> Result<()> {
    let body =
        r#"{"model":"demo-chat","max_tokens":20,"messages":[{"role":"user","content":"Hi"}]}"#;
    let request = http::post(address, "/v1/chat/completions", key, body);
    let (mut client, mut answer) = (Client::open(address)?, Vec::new());
    for _ in 0..CALLS {
        let status = client.exchange(&request, &mut answer)?.status;
        ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}
