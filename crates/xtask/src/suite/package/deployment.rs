//! Units, the compose file and its nginx, each read by the program that it is for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::succeed;
use crate::tools::{self, apt, find, go_tool};
use crate::workspace;

/// Reader of compose files by their authors: module, package, version.
const COMPOSE_CHECKER: (&str, &str) = ("github.com/compose-spec/compose-go/v2/cmd", "v2.16.2");
/// Highest exposure of the unit that is accepted, in tenths, as `systemd-analyze security` counts it.
const MAX_EXPOSURE: &str = "20";

/// Checks all files.
pub(super) fn run(scratch: &Path) -> Result<()> {
    units(scratch)?;
    compose(scratch)?;
    nginx(scratch)?;
    dockerfile()
}

fn source(path: &str) -> PathBuf {
    workspace::root().join("deploy").join(path)
}

fn units(scratch: &Path) -> Result<()> {
    if find("systemd-analyze").is_none() {
        apt("systemd")?;
    }
    let folder = scratch.join("units");
    fs::create_dir_all(&folder)?;
    let service = fs::read_to_string(source("systemd/portunus.service"))?;
    // The program is not installed on this machine.
    let (before, after) = service.split_once("ExecStart=").context("the unit starts nothing")?;
    let (_, after) = after.split_once('\n').unwrap_or_default();
    let unit = folder.join("portunus.service");
    fs::write(&unit, format!("{before}ExecStart=/bin/true\n{after}"))?;
    let socket = folder.join("portunus.socket");
    fs::copy(source("systemd/portunus.socket"), &socket)?;
    let verified = succeed(
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args([&unit, &socket]),
    )?;
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    ensure!(!said.contains("portunus"), "systemd complains: {said}");
    let threshold = format!("--threshold={MAX_EXPOSURE}");
    let rate = ["security", "--no-pager", "--offline=true", &threshold];
    succeed(Command::new("systemd-analyze").args(rate).arg(&unit))?;
    Ok(())
}

/// Reads the compose file with the code of Docker Compose, and compares it with the image and the
/// configuration.
fn compose(scratch: &Path) -> Result<()> {
    let folder = scratch.join("compose");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(source("compose"))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    let example = fs::read_to_string(folder.join(".env.example"))?;
    let text = fs::read_to_string(folder.join("compose.yaml"))?;
    fs::write(folder.join("compose.yaml"), filled(&text, &example)?)?;
    let (package, version) = COMPOSE_CHECKER;
    let checker = go_tool("compose-check", package, version)?;
    let mut read = Command::new(checker);
    read.args(["-format", "json", "compose.yaml"]).current_dir(&folder);
    let output = succeed(&mut read)?;
    let project: Value = serde_json::from_slice(&output.stdout).context("the checker's output")?;
    let services = project.get("services").and_then(Value::as_object).context("no services")?;
    for name in ["node1", "node2", "node3", "nginx", "postgres", "valkey", "minio"] {
        ensure!(services.contains_key(name), "the compose file lacks {name}");
    }
    let variables = services.get("node1").and_then(|node| node.get("environment"));
    let variables = variables.and_then(Value::as_object).context("node1 has no variables")?;
    known_variables(variables.keys().map(String::as_str))
}

/// Checks that the gateway reads these variables.
pub(super) fn known_variables<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let known = fs::read_to_string(workspace::root().join("crates/config/src/overrides.rs"))?;
    for name in names.filter(|name| name.starts_with("PORTUNUS_")) {
        let is_known = name == "PORTUNUS_CONFIG" || known.contains(&format!("\"{name}\""));
        ensure!(is_known, "the gateway does not read {name}");
    }
    Ok(())
}

/// Replaces variables as Docker Compose does: `${NAME:-default}` by the default, and `${NAME:?message}`,
/// which must be in the example of `.env`, by a word.
fn filled(text: &str, example: &str) -> Result<String> {
    let mut parts = text.split("${");
    let mut done = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (variable, rest) = part.split_once('}').context("a variable without its end")?;
        if let Some((_, default)) = variable.split_once(":-") {
            done.push_str(default);
        } else {
            let (name, _) = variable.split_once(":?").context("a variable without a default")?;
            let is_shown = example.lines().any(|line| line.split('=').next() == Some(name));
            ensure!(is_shown, ".env.example lacks {name}");
            done.push_str("filled");
        }
        done.push_str(rest);
    }
    Ok(done)
}

/// Lets nginx read its configuration. The nodes have no addresses here.
fn nginx(scratch: &Path) -> Result<()> {
    let nginx = tools::nginx()?;
    let mut text = fs::read_to_string(source("compose/nginx.conf"))?;
    for node in ["node1", "node2", "node3"] {
        text = text.replace(&format!("{node}:8080"), "127.0.0.1:8080");
    }
    let folder = scratch.join("nginx");
    fs::create_dir_all(&folder)?;
    let file = folder.join("nginx.conf");
    fs::write(&file, text)?;
    let pid = format!("pid {}/nginx.pid; error_log stderr;", folder.display());
    succeed(
        Command::new(nginx)
            .arg("-t")
            .arg("-p")
            .arg(&folder)
            .arg("-c")
            .arg(&file)
            .args(["-g", &pid]),
    )?;
    Ok(())
}

/// Compares the Dockerfile with the image that `cargo xtask dist` makes, and with the workspace.
fn dockerfile() -> Result<()> {
    let text = fs::read_to_string(source("docker/Dockerfile"))?;
    let manifest = fs::read_to_string(workspace::root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.context("the workspace names no version of Rust")?.trim_matches('"');
    for line in [
        &format!("FROM rust:{version}-"),
        "FROM scratch",
        "USER 65532:65532",
        "ENTRYPOINT [\"/usr/bin/portunus\"]",
        "PORTUNUS_DATA=/var/lib/portunus",
    ] {
        ensure!(text.contains(line), "the Dockerfile lacks `{line}`");
    }
    Ok(())
}
