//! Root and text files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders of generated files.
const MADE: [&str; 6] = ["target", "node_modules", "__pycache__", "data", "corpus", "artifacts"];
/// Hidden folders that belong to the project.
const HIDDEN: [&str; 3] = [".cargo", ".ci", ".github"];

/// A text file of the project.
pub(crate) struct Source {
    /// Path relative to the root of the workspace, with `/` as separator.
    pub(crate) path: String,
    /// Content.
    pub(crate) text: String,
}

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns all text files of the project, sorted by path. Files that are not UTF-8 are left out.
/// The folders are walked without git, so that an unpacked archive can be checked too.
pub(crate) fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<Source>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if is_ours(&name, prefix.is_empty()) {
                walk(&entry.path(), &path, found)?;
            }
        } else if kind.is_file()
            // In a git worktree `.git` is a file.
            && name != ".git"
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            found.push(Source { path, text });
        }
    }
    Ok(())
}

/// At the root, `data` is the gateway's data folder; crates may have a folder of that name.
fn is_ours(name: &str, at_root: bool) -> bool {
    if name.starts_with('.') {
        return HIDDEN.contains(&name);
    }
    !MADE.contains(&name) || (name == "data" && !at_root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("crates/xtask").is_dir());
    }

    #[test]
    fn made_and_hidden_folders_are_passed_by() {
        for name in ["target", "node_modules", ".git", ".venv", "__pycache__"] {
            assert!(!is_ours(name, true), "{name}");
        }
        assert!(!is_ours("data", true));
        for (name, at_root) in [("data", false), (".ci", true), ("crates", true)] {
            assert!(is_ours(name, at_root), "{name}");
        }
    }
}
