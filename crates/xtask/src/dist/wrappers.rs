//! Packages of other package managers, which carry the programs: npm, PyPI and Homebrew.

use anyhow::{Context, Result, ensure};

use super::architecture::Architecture;
use super::archive::{PackedFile, gzip, sha256, tar};
use super::contents::{folder, read};
use super::package::{PackageFiles, VERSION};

/// Makes the package for npm and the one for PyPI.
pub(super) fn packages(
    binaries: &[(Architecture, Vec<u8>)],
    epoch: u64,
    level: u32,
) -> Result<PackageFiles> {
    let mut npm = folder("deploy/npm")?;
    let mut pypi = folder("deploy/pypi")?;
    for (file, line) in [
        ("deploy/npm/package.json", format!("\"version\": \"{VERSION}\"")),
        ("deploy/pypi/pyproject.toml", format!("version = \"{VERSION}\"")),
        ("deploy/helm/portunus/Chart.yaml", format!("\nversion: {VERSION}\n")),
        ("deploy/helm/portunus/Chart.yaml", format!("appVersion: \"{VERSION}\"")),
    ] {
        let text = String::from_utf8(read(file)?)?;
        ensure!(text.contains(&line), "{file} has another version than {VERSION}");
    }
    for (architecture, bytes) in binaries {
        let name = format!("portunus-{}", architecture.machine());
        npm.insert(format!("bin/{name}"), PackedFile::program(bytes.as_slice()));
        let place = format!("src/portunus_gateway/bin/{name}");
        pypi.insert(place, PackedFile::program(bytes.as_slice()));
    }
    if let Some(start) = npm.get_mut("bin/portunus.js") {
        start.mode = 0o755;
    }
    let info = format!("Metadata-Version: 2.1\nName: portunus-gateway\nVersion: {VERSION}\n");
    pypi.insert("PKG-INFO".to_owned(), PackedFile::text(info));
    let name = format!("portunus_gateway-{VERSION}");
    Ok(PackageFiles::from([
        (format!("portunus-gateway-{VERSION}.tgz"), gzip(&tar(&npm, "package/", epoch)?, level)?),
        (format!("{name}.tar.gz"), gzip(&tar(&pypi, &format!("{name}/"), epoch)?, level)?),
    ]))
}

/// Fills in the formula for Homebrew. An architecture without an archive is left out.
pub(super) fn formula(base_url: &str, files: &PackageFiles) -> Result<Vec<u8>> {
    let mut text = String::from_utf8(read("deploy/homebrew/portunus.rb")?)?;
    for architecture in Architecture::ALL {
        let machine = architecture.machine();
        let word = format!("@SHA256_{machine}@");
        match files.get(&format!("portunus-{VERSION}-linux-{machine}.tar.gz")) {
            Some(archive) => text = text.replace(&word, &sha256(archive)),
            None => text = without_block(&text, &word)?,
        }
    }
    let base_url = base_url.trim_end_matches('/');
    for (word, value) in
        [("@VERSION@", VERSION), ("@BASE_URL@", base_url), ("@HOMEPAGE@", base_url)]
    {
        text = text.replace(word, value);
    }
    Ok(text.into_bytes())
}

/// Removes the paragraph that contains a word.
fn without_block(text: &str, word: &str) -> Result<String> {
    let paragraphs: Vec<&str> = text.split("\n\n").filter(|part| !part.contains(word)).collect();
    let kept = paragraphs.join("\n\n");
    (kept.len() < text.len()).then_some(kept).with_context(|| format!("the formula has no {word}"))
}
