//! House rules as code. Each rule is a function from files to findings and has a test of its own.
//! A test runs all of them, so that `cargo test` fails where `cargo xtask tidy` would.

mod arrows;
mod circles;
mod code;
mod finding;
mod format_folders;
mod imports;
mod limits;
mod links;
mod names;
mod prose;
mod rules;
mod spawns;
mod store_writes;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use finding::Finding;

use crate::workspace::{self, Source};

/// Prints all findings and the measured figures. Returns true if there is no finding.
pub(crate) fn run() -> Result<bool> {
    let root = workspace::root();
    let sources = workspace::sources(&root)?;
    let findings = check(&root, &sources);
    println!("tidy: {}", figures(&sources, &code::product_files(&sources)));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: no findings"),
        1 => println!("tidy: 1 finding"),
        n => println!("tidy: {n} findings"),
    }
    Ok(findings.is_empty())
}

/// The measured figures, to compare with [`limits::LIMITS`].
fn figures(sources: &[Source], product: &[Source]) -> String {
    format!(
        "largest circle {}, relative clauses {}, untracked spawns {}, {}",
        circles::circles(product).first().map_or(0, Vec::len),
        prose::relative_clauses(sources).len(),
        spawns::untracked(product).len(),
        names::figures(product),
    )
}

/// All findings in the workspace at `root`, sorted by place.
fn check(root: &Path, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
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
    findings.extend(format_folders::check(&paths));
    findings.extend(arrows::check(sources));
    let product = code::product_files(sources);
    findings.extend(circles::check(&product));
    findings.extend(names::check(&product));
    findings.extend(prose::check(sources));
    findings.extend(spawns::check(&product));
    findings.extend(store_writes::check(&product));
    findings.sort();
    findings
}

fn is_rust(source: &Source) -> bool {
    source.path.starts_with("crates/") && source.path.ends_with(".rs")
}
