//! Commit and date of the build, as `PORTUNUS_BUILD` for `portunus --version`.
//!
//! They come from the variables `PORTUNUS_COMMIT` and `PORTUNUS_COMMIT_DATE`, from a source archive made
//! by `git archive`, or from git. Without any of them the build says so. Only this crate is compiled
//! again after a commit.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Digits of the commit that are shown.
const COMMIT_DIGITS: usize = 12;

/// File in which `git archive` replaces a placeholder by commit and date.
const ARCHIVE_FILE: &str = "archive_commit.txt";

fn main() {
    for variable in ["PORTUNUS_COMMIT", "PORTUNUS_COMMIT_DATE"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ARCHIVE_FILE}");
    let found = from_environment().or_else(from_archive).or_else(from_git);
    let build = found.unwrap_or_else(|| "unknown commit".to_owned());
    println!("cargo::rustc-env=PORTUNUS_BUILD={build}");
}

fn from_environment() -> Option<String> {
    let commit = variable("PORTUNUS_COMMIT")?;
    Some(describe(&commit, variable("PORTUNUS_COMMIT_DATE").as_deref()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Reads the commit of a source archive. In a checkout the file still has its placeholder.
fn from_archive() -> Option<String> {
    let text = fs::read_to_string(ARCHIVE_FILE).ok()?;
    let mut words = text.split_whitespace();
    let commit = words.next().filter(|word| word.chars().all(|c| c.is_ascii_hexdigit()))?;
    Some(describe(commit, words.next()))
}

fn from_git() -> Option<String> {
    // The repository must be that of the project, and not one that the sources were unpacked into.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let root = fs::canonicalize(Path::new("../..")).ok()?;
    if fs::canonicalize(top).ok()? != root {
        return None;
    }
    // Both change with a commit or a checkout, and nothing else here does.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).is_file() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let shown = git(&["log", "-1", "--format=%H %cs"])?;
    let (commit, date) = shown.split_once(' ')?;
    Some(describe(commit, Some(date)))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Shortens the commit; a mark behind it (`-modified`) stays.
fn describe(commit: &str, date: Option<&str>) -> String {
    let (digits, mark) = commit.split_once('-').unwrap_or((commit, ""));
    let mut text: String = digits.chars().take(COMMIT_DIGITS).collect();
    if !mark.is_empty() {
        text.push('-');
        text.push_str(mark);
    }
    if let Some(date) = date {
        text.push(' ');
        text.push_str(date.trim());
    }
    text
}
