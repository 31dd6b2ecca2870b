//! Dependencies between the crates, and the facts every manifest must state.
//!
//! The compiler refuses cycles. The order below also refuses dependencies that would compile but
//! were not designed.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::finding::Finding;
use crate::workspace::Source;

/// The crates of the workspace. Arrows point only upwards in this list: a crate may depend on the
/// crates that stand before it.
const ORDER: [&str; 20] = [
    "text_scan",
    "canon",
    "media",
    "dialects",
    "catalog",
    "transport",
    "upstream",
    "ledger",
    "store",
    "demo",
    "config",
    "access",
    "telemetry",
    "relay",
    "admin",
    "api",
    "console",
    "portunus",
    "testkit",
    "xtask",
];

/// The crates with unsafe code, which the lints of the workspace forbid. They state their own.
const UNSAFE_CRATES: [&str; 1] = ["text_scan"];

/// Checks every crate's manifest: its dependencies, its description, its lints.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let manifests = sources.iter().filter_map(|source| Some((manifest_of(&source.path)?, source)));
    let manifests: Vec<_> = manifests.collect();
    let members: BTreeSet<&str> = manifests.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for (name, source) in &manifests {
        match source.text.parse::<Table>() {
            Ok(manifest) => {
                findings.extend(missing_facts(name, &manifest, source));
                findings.extend(forbidden_dependencies(name, &manifest, source, &members));
            }
            Err(error) => findings.push(Finding::new(&source.path, 1, error.message())),
        }
    }
    findings
}

/// The name of the crate's folder, if the path is the manifest of a crate.
fn manifest_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

fn missing_facts(folder: &str, manifest: &Table, source: &Source) -> Vec<Finding> {
    let text = |key: &str| manifest.get("package")?.get(key)?.as_str();
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    let mut broken = Vec::new();
    if text("name") != Some(folder) {
        broken.push("the crate's name is not its folder's name");
    }
    if text("description").is_none_or(str::is_empty) {
        broken.push("no description");
    }
    if lints.and_then(Value::as_bool) != Some(true) && !UNSAFE_CRATES.contains(&folder) {
        broken.push("no `[lints] workspace = true`");
    }
    broken.into_iter().map(|rule| Finding::new(&source.path, 1, rule)).collect()
}

fn forbidden_dependencies(
    name: &str,
    manifest: &Table,
    source: &Source,
    members: &BTreeSet<&str>,
) -> Vec<Finding> {
    let place = |name: &str| ORDER.iter().position(|ordered| *ordered == name);
    let Some(own) = place(name) else {
        let rule = format!("`{name}` is not in the order of the crates; add it there first");
        return vec![Finding::new(&source.path, 1, rule)];
    };
    dependencies(manifest)
        .into_iter()
        .filter(|(to, _)| members.contains(to.as_str()))
        // The tests of any crate may use the testkit: nothing that ships depends on it.
        .filter(|(to, dev)| !(place(to) < Some(own) || *dev && to == "testkit"))
        .map(|(to, _)| {
            let starts = |line: &str| line.split(['=', '.', ' ']).next() == Some(to.as_str());
            let line = source.text.lines().position(starts).map_or(1, |at| at + 1);
            Finding::new(&source.path, line, format!("`{name}` may not depend on `{to}`"))
        })
        .collect()
}

/// The names of all dependencies, each with true if only tests see it.
fn dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut found = Vec::new();
    for table in targets.chain([manifest]) {
        for (kind, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            for (key, value) in table.get(kind).and_then(Value::as_table).into_iter().flatten() {
                // A dependency may be renamed; the arrow goes to the crate it names.
                let name = value.get("package").and_then(Value::as_str).unwrap_or(key);
                found.push((name.to_owned(), dev));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[package]\nname = \"NAME\"\ndescription = \"d\"\n[lints]\nworkspace = true\n";

    fn manifest(name: &str, rest: &str) -> Source {
        let text = GOOD.replace("NAME", name) + rest;
        Source { path: format!("crates/{name}/Cargo.toml"), text }
    }

    fn reported(sources: &[Source]) -> Vec<String> {
        check(sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn upward_dependencies_are_fine() {
        let ledger =
            manifest("ledger", "[dependencies]\ncanon = { workspace = true }\nserde = \"1\"\n");
        assert_eq!(reported(&[manifest("canon", ""), ledger]), [""; 0]);
    }

    #[test]
    fn an_arrow_that_forbidden_dependencies_is_found_on_its_line() {
        let canon = manifest("canon", "[dependencies]\nledger = { workspace = true }\n");
        let want = "crates/canon/Cargo.toml:7: `canon` may not depend on `ledger`";
        assert_eq!(reported(&[canon, manifest("ledger", "")]), [want]);
    }

    #[test]
    fn renamed_build_and_target_dependencies_count_too() {
        for rest in [
            "[dependencies]\nmoney = { package = \"ledger\", path = \"../ledger\" }\n",
            "[build-dependencies]\nledger = { workspace = true }\n",
            "[target.'cfg(unix)'.dependencies]\nledger = { workspace = true }\n",
        ] {
            let found = reported(&[manifest("canon", rest), manifest("ledger", "")]);
            assert_eq!(found.len(), 1, "{rest}");
        }
    }

    #[test]
    fn only_tests_may_use_the_testkit() {
        let kit = || manifest("testkit", "");
        let dev = manifest("canon", "[dev-dependencies]\ntestkit = { workspace = true }\n");
        assert_eq!(reported(&[dev, kit()]), [""; 0]);
        let shipped = manifest("canon", "[dependencies]\ntestkit = { workspace = true }\n");
        assert_eq!(reported(&[shipped, kit()]).len(), 1);
    }

    #[test]
    fn a_manifest_needs_name_description_and_lints() {
        let bare = Source { path: "crates/canon/Cargo.toml".into(), text: "[package]\n".into() };
        assert_eq!(reported(&[bare]).len(), 3);
    }

    #[test]
    fn a_dependency_on_itself_is_found() {
        let canon = manifest("canon", "[dependencies]\ncanon = { workspace = true }\n");
        assert_eq!(reported(&[canon]).len(), 1);
    }

    #[test]
    fn a_crate_outside_the_order_is_found() {
        assert_eq!(reported(&[manifest("shed", "")]).len(), 1);
    }
}
