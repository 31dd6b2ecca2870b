//! Packages: made from the debug build, compared, installed and started.

mod chart;
mod deployment;
mod image;
mod install;
mod service;

pub(super) use chart::run as run_chart;

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use minisign::{KeyPair, PublicKey, SignatureBox};

use super::documented;
use crate::dist::{
    self, Architecture, CHECKSUMS, PackageFiles, PackageLevel, PackageOptions, VERSION,
};
use crate::process::TempFolder;
use crate::tools::{self, cargo};
use crate::workspace;

/// Runs the step.
pub(super) fn run() -> Result<()> {
    let scratch = TempFolder::new("packages")?;
    let scratch = scratch.path();
    let binary = static_binary(scratch)?;
    let key = scratch.join("secret.key");
    let public = write_key(&key)?;
    let files = made_twice(scratch, &binary, &key)?;
    let folder = scratch.join("out");
    dist::write_packages(&folder, &files)?;
    sums_and_signatures(&folder, &files, &public)?;
    install::run(scratch, &folder)?;
    if tools::is_root() {
        install::run_as_root(scratch, &folder)?;
        documented::run_installation(scratch, &folder, &public.to_base64())?;
        service::run(scratch, &folder, &binary)?;
        let image = dist::make_image(&[(Architecture::X86_64, binary)], PackageLevel(1))?;
        image::run(scratch, &image)?;
    } else {
        println!("not root: packages are not installed, and neither service nor image is started");
    }
    deployment::run(scratch)?;
    match chart::found_helm() {
        Some(helm) => chart::check(&helm)?,
        None => println!("helm is not here: the chart is tried by `cargo xtask test --only chart`"),
    }
    Ok(())
}

/// Links the objects of the debug build with a static C library, which takes seconds. The programs to
/// hand out are built by `cargo xtask dist`.
fn static_binary(scratch: &Path) -> Result<PathBuf> {
    let link = ["rustc", "-p", "portunus", "--bin", "portunus", "--"];
    tools::run(cargo(&link).args(["-C", "target-feature=+crt-static"]))?;
    let built = workspace::target().join("debug/portunus");
    let binary = scratch.join("portunus-static");
    tools::run(Command::new("strip").arg("-o").arg(&binary).arg(&built))?;
    // The usual program takes its place again.
    tools::run(&mut cargo(&["build", "--bin", "portunus"]))?;
    let text = succeed(Command::new(&binary).arg("--version"))?;
    let line = String::from_utf8_lossy(&text.stdout).trim().to_owned();
    println!("{line}");
    ensure!(line.starts_with(&format!("portunus {VERSION} (")), "no commit in `{line}`");
    Ok(binary)
}

/// Makes the signed packages of both architectures twice, compares them and returns them. A script that
/// starts the program stands for it, because it is small.
fn made_twice(scratch: &Path, binary: &Path, key: &Path) -> Result<PackageFiles> {
    let script = scratch.join("stand-in");
    fs::write(&script, format!("#!/bin/sh\nexec '{}' \"$@\"\n", binary.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let make = || {
        dist::make_packages(&PackageOptions {
            binaries: vec![
                (Architecture::X86_64, script.clone()),
                (Architecture::Aarch64, script.clone()),
            ],
            function_orders: Vec::new(),
            sign: Some(key.to_owned()),
            base_url: Some("https://example.com/releases".to_owned()),
            level: PackageLevel(6),
        })
    };
    let first = make()?;
    // Times of files have a resolution of a second.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let second = make()?;
    ensure!(first.keys().eq(second.keys()), "two runs made different files");
    // Each signature has random bytes of its own.
    for (name, bytes) in first.iter().filter(|(name, _)| !name.ends_with(".minisig")) {
        ensure!(second.get(name) == Some(bytes), "two runs made a different {name}");
    }
    image::has_both_architectures(&file(&first, &format!("portunus-{VERSION}-oci.tar"))?)?;
    let formula = String::from_utf8(file(&first, "portunus.rb")?)?;
    ensure!(!formula.contains('@'), "words are left in the formula: {formula}");
    check_sbom(&file(&first, &format!("portunus-{VERSION}.cdx.json"))?)?;
    println!("{} files, the same in two runs", first.len());
    Ok(first)
}

/// Returns the bytes of a made file.
fn file(files: &PackageFiles, name: &str) -> Result<Vec<u8>> {
    files.get(name).cloned().with_context(|| format!("{name} was not made"))
}

/// Checks that the list names what is linked, once, with licence and checksum.
fn check_sbom(bytes: &[u8]) -> Result<()> {
    let list: serde_json::Value = serde_json::from_slice(bytes)?;
    let components = list.get("components").and_then(serde_json::Value::as_array);
    let components = components.context("the list has no components")?;
    let text = |component: &serde_json::Value, field: &str| {
        component.get(field).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let names: Vec<String> = components.iter().map(|one| text(one, "name")).collect();
    for linked in ["rustls", "tokio", "libsqlite3-sys", "relay", "webpki-roots"] {
        ensure!(names.iter().any(|name| name == linked), "the list lacks {linked}");
    }
    for absent in ["proptest", "insta", "xtask", "windows-sys"] {
        ensure!(!names.iter().any(|name| name == absent), "{absent} is not linked, and is listed");
    }
    let mut purls: Vec<String> = components.iter().map(|one| text(one, "purl")).collect();
    let all = purls.len();
    purls.sort();
    purls.dedup();
    ensure!(purls.len() == all, "a component is listed twice");
    for one in components.iter().filter(|one| text(one, "purl").starts_with("pkg:cargo/")) {
        let is_complete = one.get("hashes").is_some() && one.get("licenses").is_some();
        ensure!(is_complete, "{} has no checksum or licence", text(one, "purl"));
    }
    println!("{all} components are listed");
    Ok(())
}

/// Makes a key pair and returns the public key.
fn write_key(file: &Path) -> Result<PublicKey> {
    let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair()?;
    fs::write(file, sk.to_box(None)?.into_string())?;
    Ok(pk)
}

/// Checks checksums and signatures, and that a changed file has neither.
fn sums_and_signatures(folder: &Path, files: &PackageFiles, public: &PublicKey) -> Result<()> {
    let check = ["--check", "--strict", "--quiet", CHECKSUMS];
    tools::run(Command::new("sha256sum").args(check).current_dir(folder))?;
    let mut signed = 0;
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with(".minisig")) {
        let signature = String::from_utf8(file(files, &format!("{name}.minisig"))?)?;
        let signature = SignatureBox::from_string(&signature)?;
        let verify = |bytes: &[u8]| {
            minisign::verify(public, &signature, Cursor::new(bytes), true, false, false)
        };
        verify(bytes).with_context(|| format!("the signature of {name}"))?;
        ensure!(verify(b"another file").is_err(), "another file passes for {name}");
        signed += 1;
    }
    println!("{signed} files are signed");
    Ok(())
}

/// Runs a command and returns its output. Fails unless the command succeeds.
fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(output)
}
