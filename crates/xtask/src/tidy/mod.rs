//! The house rules as code: each rule is a small function from files to findings, with a test of
//! its own, and the whole of them runs as a test too, so that `cargo test` notices.

mod arrows;
mod links;
mod rules;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::workspace::{self, Source};

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: impl Into<String>) -> Self {
        Self { path: path.into(), line, rule: rule.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

/// Checks everything and prints what it found. True when there was nothing.
pub(crate) fn run() -> Result<bool> {
    let findings = check(&workspace::root())?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: nothing to mend"),
        1 => println!("tidy: 1 finding"),
        n => println!("tidy: {n} findings"),
    }
    Ok(findings.is_empty())
}

/// All findings in the workspace at `root`, in order of their place.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let sources = workspace::sources(root)?;
    let mut findings = Vec::new();
    for source in &sources {
        findings.extend(rules::leftovers(source));
        if is_rust(source) {
            findings.extend(rules::length(source));
            findings.extend(rules::opening(source));
            findings.extend(rules::no_from(source));
        }
        if source.path.ends_with(".md") {
            findings.extend(links::broken(source, root));
        }
    }
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    findings.extend(rules::missing_files(&paths));
    findings.extend(arrows::check(&sources));
    findings.sort();
    Ok(findings)
}

fn is_rust(source: &Source) -> bool {
    source.path.starts_with("crates/") && source.path.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_tidy() {
        let findings = check(&workspace::root()).unwrap();
        let told: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(told.is_empty(), "\n{}\n", told.join("\n"));
    }

    #[test]
    fn a_finding_is_one_line_an_editor_can_jump_to() {
        let finding = Finding::new("crates/a/src/lib.rs", 7, "too long");
        assert_eq!(finding.to_string(), "crates/a/src/lib.rs:7: too long");
    }
}
