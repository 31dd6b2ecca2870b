//! Which crate may know which, and what every manifest must say. The compiler refuses cycles;
//! this table also refuses the arrows that would compile but were not designed.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use crate::workspace::Source;

/// The crates of the house, each with those it may depend on.
const ARROWS: [(&str, &[&str]); 11] = [
    ("canon", &[]),
    ("catalog", &["canon"]),
    ("console", &["canon", "catalog", "ledger", "store"]),
    ("demo", &["canon", "dialects"]),
    ("dialects", &["canon"]),
    ("ledger", &["canon"]),
    (
        "portunus",
        &["canon", "catalog", "console", "demo", "dialects", "ledger", "store", "upstream"],
    ),
    ("store", &["canon", "ledger"]),
    (
        "testkit",
        &[
            "canon", "catalog", "console", "demo", "dialects", "ledger", "portunus", "store",
            "upstream",
        ],
    ),
    ("upstream", &["canon"]),
    ("xtask", &[]),
];

/// Every crate's manifest: its arrows, its description, its lints.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let manifests = sources.iter().filter_map(|source| Some((member(&source.path)?, source)));
    let manifests: Vec<_> = manifests.collect();
    let members: BTreeSet<&str> = manifests.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for (name, source) in &manifests {
        match source.text.parse::<Table>() {
            Ok(manifest) => {
                findings.extend(facts(name, &manifest, source));
                findings.extend(turns_back(name, &manifest, source, &members));
            }
            Err(error) => findings.push(Finding::new(&source.path, 1, error.message())),
        }
    }
    findings
}

/// The folder name when this is the manifest of a crate of the workspace.
fn member(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

fn facts(folder: &str, manifest: &Table, source: &Source) -> Vec<Finding> {
    let text = |key: &str| manifest.get("package")?.get(key)?.as_str();
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    let mut broken = Vec::new();
    if text("name") != Some(folder) {
        broken.push("the crate's name is not its folder's name");
    }
    if text("description").is_none_or(str::is_empty) {
        broken.push("no description");
    }
    if lints.and_then(Value::as_bool) != Some(true) {
        broken.push("no `[lints] workspace = true`");
    }
    broken.into_iter().map(|rule| Finding::new(&source.path, 1, rule)).collect()
}

fn turns_back(
    name: &str,
    manifest: &Table,
    source: &Source,
    members: &BTreeSet<&str>,
) -> Vec<Finding> {
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
        let rule = format!("`{name}` is not in the table of arrows; draw it there first");
        return vec![Finding::new(&source.path, 1, rule)];
    };
    dependencies(manifest)
        .into_iter()
        .filter(|(to, _)| members.contains(to.as_str()))
        // Tests of any crate may use the kit made for them: nothing shipped depends on it.
        .filter(|(to, dev)| !(allowed.contains(&to.as_str()) || *dev && to == "testkit"))
        .map(|(to, _)| {
            let starts = |line: &str| line.split(['=', '.', ' ']).next() == Some(to.as_str());
            let line = source.text.lines().position(starts).map_or(1, |at| at + 1);
            Finding::new(&source.path, line, format!("`{name}` may not depend on `{to}`"))
        })
        .collect()
}

/// The names of all dependencies, and whether only tests see them.
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

    fn told(sources: &[Source]) -> Vec<String> {
        check(sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn designed_arrows_are_fine() {
        let ledger =
            manifest("ledger", "[dependencies]\ncanon = { workspace = true }\nserde = \"1\"\n");
        assert_eq!(told(&[manifest("canon", ""), ledger]), [""; 0]);
    }

    #[test]
    fn an_arrow_that_turns_back_is_found_on_its_line() {
        let canon = manifest("canon", "[dependencies]\nledger = { workspace = true }\n");
        let want = "crates/canon/Cargo.toml:7: `canon` may not depend on `ledger`";
        assert_eq!(told(&[canon, manifest("ledger", "")]), [want]);
    }

    #[test]
    fn renamed_build_and_target_dependencies_count_too() {
        for rest in [
            "[dependencies]\nmoney = { package = \"ledger\", path = \"../ledger\" }\n",
            "[build-dependencies]\nledger = { workspace = true }\n",
            "[target.'cfg(unix)'.dependencies]\nledger = { workspace = true }\n",
        ] {
            let found = told(&[manifest("canon", rest), manifest("ledger", "")]);
            assert_eq!(found.len(), 1, "{rest}");
        }
    }

    #[test]
    fn only_tests_may_use_the_testkit() {
        let kit = || manifest("testkit", "");
        let dev = manifest("canon", "[dev-dependencies]\ntestkit = { workspace = true }\n");
        assert_eq!(told(&[dev, kit()]), [""; 0]);
        let shipped = manifest("canon", "[dependencies]\ntestkit = { workspace = true }\n");
        assert_eq!(told(&[shipped, kit()]).len(), 1);
    }

    #[test]
    fn a_manifest_says_what_the_crate_is_and_takes_the_lints() {
        let bare = Source { path: "crates/canon/Cargo.toml".into(), text: "[package]\n".into() };
        assert_eq!(told(&[bare]).len(), 3);
    }

    #[test]
    fn a_crate_nobody_designed_is_found() {
        assert_eq!(told(&[manifest("shed", "")]).len(), 1);
    }

    #[test]
    fn the_table_itself_never_turns_back() {
        for (from, to) in ARROWS {
            for target in to {
                let (_, onward) = ARROWS.iter().find(|(name, _)| name == target).unwrap();
                assert!(!onward.contains(&from), "{from} and {target} know each other");
            }
        }
    }
}
