//! List of everything that is compiled into the program, as CycloneDX 1.5
//! (<https://cyclonedx.org/docs/1.5/json/>), from `cargo metadata` and the lock file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::architecture::Architecture;
use super::archive;
use super::commit::SourceCommit;
use super::package::VERSION;
use crate::tools::cargo;
use crate::workspace;

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<MetadataPackage>,
    resolve: ResolvedGraph,
}

#[derive(Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct ResolvedGraph {
    nodes: Vec<ResolvedNode>,
}

#[derive(Deserialize)]
struct ResolvedNode {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` is a normal dependency.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct LockFile {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Writes the list.
pub(super) fn write(commit: &SourceCommit) -> Result<Vec<u8>> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--locked"]);
    for architecture in Architecture::ALL {
        command.args(["--filter-platform", architecture.target()]);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: CargoMetadata = serde_json::from_slice(&output.stdout)?;
    let lock: LockFile =
        toml::from_str(&fs::read_to_string(workspace::root().join("Cargo.lock"))?)?;
    Ok(serde_json::to_vec_pretty(&document(&metadata, &lock, commit)?)?)
}

fn document(metadata: &CargoMetadata, lock: &LockFile, commit: &SourceCommit) -> Result<Value> {
    let packages: BTreeMap<&str, &MetadataPackage> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &ResolvedNode> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let root = metadata.packages.iter().find(|package| package.name == "portunus");
    let root = root.context("the workspace has no package portunus")?;
    let checksums: BTreeMap<(&str, &str), &str> = lock
        .package
        .iter()
        .filter_map(|one| Some(((&*one.name, &*one.version), one.checksum.as_deref()?)))
        .collect();

    let mut reached = BTreeSet::from([root.id.as_str()]);
    let mut open = vec![root.id.as_str()];
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    while let Some(id) = open.pop() {
        let depends_on = edges.entry(id).or_default();
        for dependency in nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default() {
            // Only normal dependencies are linked.
            if dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()) {
                depends_on.insert(&dependency.pkg);
                if reached.insert(&dependency.pkg) {
                    open.push(&dependency.pkg);
                }
            }
        }
    }
    let reference = |id: &str| packages.get(id).map(|package| purl(package)).unwrap_or_default();
    let mut components: Vec<(String, Value)> = Vec::new();
    for id in reached.iter().filter(|id| **id != root.id) {
        let Some(package) = packages.get(id) else { continue };
        let mut component = json!({
            "type": "library",
            "bom-ref": purl(package),
            "name": package.name,
            "version": package.version,
            "purl": purl(package),
        });
        if let Some(fields) = component.as_object_mut() {
            if let Some(license) = &package.license {
                // Some old crates separate licences by a slash.
                let expression = license.replace('/', " OR ");
                fields.insert("licenses".to_owned(), json!([{ "expression": expression }]));
            }
            if let Some(sum) = checksums.get(&(&*package.name, &*package.version)) {
                fields.insert("hashes".to_owned(), json!([{ "alg": "SHA-256", "content": sum }]));
            }
        }
        components.push((purl(package), component));
    }
    components.sort_by(|a, b| a.0.cmp(&b.0));
    let components: Vec<Value> = components.into_iter().map(|(_, component)| component).collect();
    let mut dependencies: Vec<(String, Vec<String>)> = edges
        .iter()
        .map(|(id, to)| (reference(id), to.iter().map(|id| reference(id)).collect()))
        .collect();
    for (_, to) in &mut dependencies {
        to.sort();
    }
    dependencies.sort();
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(from, to)| json!({ "ref": from, "dependsOn": to }))
        .collect();
    let time = jiff::Timestamp::from_second(i64::try_from(commit.epoch)?)?;
    let mut document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": "",
        "version": 1,
        "metadata": {
            "timestamp": time.to_string(),
            "component": {
                "type": "application",
                "bom-ref": purl(root),
                "name": "portunus",
                "version": VERSION,
                "licenses": [{ "expression": "Apache-2.0" }],
                "properties": [{ "name": "portunus:commit", "value": commit.id }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    // The number depends on the content, so that the same sources have the same list.
    let number = serial_number(&archive::sha256(&serde_json::to_vec(&document)?));
    if let Some(fields) = document.as_object_mut() {
        fields.insert("serialNumber".to_owned(), json!(number));
    }
    Ok(document)
}

/// Returns a UUID (version 8, RFC 9562) of hexadecimal digits.
fn serial_number(digest: &str) -> String {
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 15),
        part(15, 18),
        part(18, 30)
    )
}

/// Returns the package URL (<https://github.com/package-url/purl-spec>). Crates of the workspace are not
/// on crates.io.
fn purl(package: &MetadataPackage) -> String {
    let kind = if package.source.is_some() { "cargo" } else { "generic" };
    format!("pkg:{kind}/{}@{}", package.name, package.version)
}
