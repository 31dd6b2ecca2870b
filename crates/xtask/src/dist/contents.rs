//! Files of a package, the same in every kind.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::{FileTree, PackedFile};
use crate::process::TempFolder;
use crate::workspace;

/// Paths that belong to the administrator: an upgrade keeps a changed one.
pub(super) const CONFIG_FILES: [&str; 2] = ["etc/portunus/portunus.toml", SECRETS_FILE];

/// Environment of the service.
const SECRETS_FILE: &str = "etc/portunus/portunus.env";

/// Folder of the data. Packages create it, and never remove it.
pub(super) const DATA_FOLDER: &str = "var/lib/portunus";

/// Files that do not depend on the architecture.
pub(super) fn common_files(program: &Path) -> Result<FileTree> {
    let mut tree = FileTree::new();
    for (path, source) in [
        ("etc/portunus/portunus.toml", "deploy/package/portunus.toml"),
        ("usr/lib/systemd/system/portunus.service", "deploy/systemd/portunus.service"),
        ("usr/lib/systemd/system/portunus.socket", "deploy/systemd/portunus.socket"),
        ("usr/lib/sysusers.d/portunus.conf", "deploy/systemd/portunus.sysusers"),
        ("usr/share/doc/portunus/portunus.example.toml", "config/portunus.toml"),
        ("usr/share/doc/portunus/copyright", "LICENSE"),
    ] {
        tree.insert(path.to_owned(), PackedFile::text(read(source)?));
    }
    // RPM gives a file its mode again at each upgrade, before the script runs.
    let secrets =
        PackedFile { mode: 0o640, ..PackedFile::text(read("deploy/package/portunus.env")?) };
    tree.insert(SECRETS_FILE.to_owned(), secrets);
    for (path, arguments) in [
        ("usr/share/bash-completion/completions/portunus", &["completions", "bash"][..]),
        ("usr/share/zsh/vendor-completions/_portunus", &["completions", "zsh"]),
        ("usr/share/fish/vendor_completions.d/portunus.fish", &["completions", "fish"]),
        ("usr/share/portunus/portunus.schema.json", &["schema"]),
    ] {
        tree.insert(path.to_owned(), PackedFile::text(output(program, arguments)?));
    }
    let pages = TempFolder::new("man")?;
    output(program, &["man", &pages.path().display().to_string()])?;
    for page in fs::read_dir(pages.path())? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        let text = PackedFile::text(fs::read(page.path())?);
        tree.insert(format!("usr/share/man/man1/{name}"), text);
    }
    tree.insert(DATA_FOLDER.to_owned(), PackedFile::folder(0o700));
    Ok(tree)
}

/// Reads all files below a folder of the workspace.
pub(super) fn folder(path: &str) -> Result<FileTree> {
    let mut tree = FileTree::new();
    add_folder(&workspace::root().join(path), "", &mut tree)?;
    Ok(tree)
}

fn add_folder(folder: &Path, prefix: &str, tree: &mut FileTree) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Python and npm leave these behind.
        if ["__pycache__", "node_modules", "build", "dist"].contains(&name.as_str())
            || name.ends_with(".egg-info")
        {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            add_folder(&entry.path(), &format!("{path}/"), tree)?;
        } else {
            tree.insert(path, PackedFile::text(fs::read(entry.path())?));
        }
    }
    Ok(())
}

/// Reads a file of the workspace.
pub(super) fn read(path: &str) -> Result<Vec<u8>> {
    fs::read(workspace::root().join(path)).with_context(|| format!("reading {path}"))
}

/// Returns the standard output of the program.
pub(super) fn output(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "portunus {}: {stderr}", arguments.join(" "));
    Ok(output.stdout)
}
