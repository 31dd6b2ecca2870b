//! `cargo xtask dist`: everything to install Portunus from, in `target/dist/packages`.
//!
//! Packages are made from static binaries. Their bytes depend on the binaries and the commit only, so that
//! anybody can make them again and compare. A build repeats the order of functions of an earlier one
//! with `--function-order`.

mod architecture;
mod archive;
mod commit;
mod contents;
mod deb;
mod oci;
pub(crate) mod ordered_build;
mod package;
mod rpm;
mod sbom;
mod signature;
mod static_build;
mod wrappers;

pub(crate) use architecture::Architecture;
pub(crate) use archive::sha256;
pub(crate) use package::{PackageFiles, PackageLevel, VERSION};

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace;
use archive::{FileTree, PackedFile, gzip, tar};
use commit::SourceCommit;
use package::PackageJob;
use signature::PackageSigner;

/// Name of the list of checksums, as `sha256sum --check` reads it.
pub(crate) const CHECKSUMS: &str = "SHA256SUMS";

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct DistArgs {
    /// The cargo profile; `release` is built in a third of the time
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Only build the program for this machine, without packages
    #[arg(long)]
    program_only: bool,
    /// Build for this architecture only; may be repeated
    #[arg(long, value_name = "ARCH")]
    only: Vec<Architecture>,
    /// Package this static program instead of building one; once per architecture
    #[arg(long, value_name = "ARCH=FILE", value_parser = parse_binary)]
    binary: Vec<(Architecture, PathBuf)>,
    /// Sign every file with this secret key of minisign
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Address where the archives will be; makes the formula for Homebrew
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Link functions in the order of this file, which an earlier build wrote
    #[arg(long, value_name = "FILE")]
    function_order: Option<PathBuf>,
    /// Compression, from 1 to 9
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=9))]
    level: u32,
    /// Folder for the packages
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Binaries and options of the packages.
pub(crate) struct PackageOptions {
    /// Static program of each architecture.
    pub(crate) binaries: Vec<(Architecture, PathBuf)>,
    /// Order of the functions of a program, which its next build repeats.
    pub(crate) function_orders: Vec<(Architecture, PathBuf)>,
    /// Secret key of minisign.
    pub(crate) sign: Option<PathBuf>,
    /// Address where the archives will be.
    pub(crate) base_url: Option<String>,
    /// Compression.
    pub(crate) level: PackageLevel,
}

/// Runs the command.
pub(crate) fn run(args: DistArgs) -> Result<()> {
    let DistArgs {
        profile,
        program_only,
        only,
        binary,
        sign,
        base_url,
        function_order,
        level,
        output,
    } = args;
    if program_only {
        println!("built {}", ordered_build::build_profile(&profile)?.display());
        return Ok(());
    }
    let mut binaries = binary;
    let mut function_orders = Vec::new();
    if binaries.is_empty() {
        let commit = SourceCommit::read()?;
        let own = Architecture::of_this_machine();
        ensure!(
            only.is_empty() || own.is_some_and(|own| only.contains(&own)),
            "--only must name the architecture of this machine too: its program prints the manual pages"
        );
        let is_wanted = |one: &Architecture| only.is_empty() || only.contains(one);
        for architecture in Architecture::ALL.into_iter().filter(is_wanted) {
            let order = function_order.as_deref();
            if let Some(built) = static_build::build(architecture, &profile, &commit, order)? {
                function_orders.extend(built.function_order.map(|file| (architecture, file)));
                binaries.push((architecture, built.program));
            }
        }
    }
    ensure!(
        !binaries.is_empty(),
        "no program can be built here: the lines above name what is missing"
    );
    let level = PackageLevel(level);
    let files =
        make_packages(&PackageOptions { binaries, function_orders, sign, base_url, level })?;
    let folder = output.unwrap_or_else(|| workspace::target().join("dist/packages"));
    write_packages(&folder, &files)?;
    for (name, bytes) in &files {
        println!("{:>12} {}", bytes.len(), folder.join(name).display());
    }
    Ok(())
}

/// Writes all packages to an empty folder.
pub(crate) fn write_packages(folder: &Path, files: &PackageFiles) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

/// Makes all packages.
pub(crate) fn make_packages(options: &PackageOptions) -> Result<PackageFiles> {
    let PackageOptions { binaries, function_orders, sign, base_url, level } = options;
    let commit = SourceCommit::read()?;
    let read = read_programs(binaries)?;
    // Manual pages and completions are printed by a program that this machine can run.
    let own = Architecture::of_this_machine();
    let program = binaries.iter().find(|(architecture, _)| Some(*architecture) == own);
    let (_, program) = program.context("a program for this machine must be among the binaries")?;
    let common = contents::common_files(program)?;
    let mut files = PackageFiles::new();
    for (architecture, bytes) in &read {
        let job = PackageJob {
            architecture: *architecture,
            epoch: commit.epoch,
            level: level.0,
            binary: bytes,
        };
        files.extend(packages_of(&job, &common)?);
    }
    files.insert(format!("portunus-{VERSION}-oci.tar"), oci::image(&read, &commit, *level)?);
    files.insert(format!("portunus-{VERSION}.cdx.json"), sbom::write(&commit)?);
    files.extend(wrappers::packages(&read, commit.epoch, level.0)?);
    for (architecture, file) in function_orders {
        files.insert(format!("function-order-{}.txt", architecture.machine()), fs::read(file)?);
    }
    files.insert(
        format!("portunus-{VERSION}.tgz"),
        gzip(
            &tar(&contents::folder("deploy/helm/portunus")?, "portunus/", commit.epoch)?,
            level.0,
        )?,
    );
    if let Some(url) = base_url {
        files.insert("portunus.rb".to_owned(), wrappers::formula(url, &files)?);
    } else {
        println!("no formula for Homebrew is made: --base-url is not given");
    }
    let sums = files.iter().map(|(name, bytes)| format!("{}  {name}\n", sha256(bytes)));
    files.insert(CHECKSUMS.to_owned(), sums.collect::<String>().into_bytes());
    if let Some(key) = sign {
        let signer = PackageSigner::read(key)?;
        let signatures: Result<Vec<_>> = files
            .iter()
            .map(|(name, bytes)| {
                Ok((format!("{name}.minisig"), signer.sign(name, bytes)?.into_bytes()))
            })
            .collect();
        files.extend(signatures?);
        println!("signed with the key {}", signer.public_key());
    }
    Ok(files)
}

/// Makes the container image alone.
pub(crate) fn make_image(
    binaries: &[(Architecture, PathBuf)],
    level: PackageLevel,
) -> Result<Vec<u8>> {
    oci::image(&read_programs(binaries)?, &SourceCommit::read()?, level)
}

fn read_programs(binaries: &[(Architecture, PathBuf)]) -> Result<Vec<(Architecture, Vec<u8>)>> {
    let read = binaries.iter().map(|(architecture, path)| {
        let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        Ok((*architecture, bytes))
    });
    read.collect()
}

/// Makes the archive and the packages of one architecture.
fn packages_of(job: &PackageJob<'_>, common: &FileTree) -> Result<PackageFiles> {
    let mut tree = common.clone();
    tree.insert("usr/bin/portunus".to_owned(), PackedFile::program(job.binary));
    let (machine, debian) = (job.architecture.machine(), job.architecture.debian());
    let name = format!("portunus-{VERSION}-linux-{machine}");
    let archive = gzip(&tar(&tree, &format!("{name}/"), job.epoch)?, job.level)?;
    Ok(PackageFiles::from([
        (format!("{name}.tar.gz"), archive),
        (format!("portunus_{VERSION}_{debian}.deb"), deb::package(job, &tree)?),
        (format!("portunus-{VERSION}-1.{machine}.rpm"), rpm::package(job, &tree)?),
    ]))
}

/// Reads `x86_64=path`.
fn parse_binary(text: &str) -> Result<(Architecture, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("write x86_64=FILE or aarch64=FILE")?;
    let architecture = Architecture::ALL.into_iter().find(|one| one.machine() == name);
    let architecture =
        architecture.ok_or_else(|| format!("`{name}` is neither x86_64 nor aarch64"))?;
    Ok((architecture, PathBuf::from(path)))
}
