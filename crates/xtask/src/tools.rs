//! Programs the commands need beside Rust: found where they are, else installed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// The release of cargo-deny the checks were written for.
const CARGO_DENY: &str = "0.20.2";

/// Runs a command with its output shown; fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let told = describe(command);
    println!("$ {told}");
    let status = command.status().with_context(|| format!("starting `{told}`"))?;
    ensure!(status.success(), "`{told}`: {status}");
    Ok(())
}

/// `cargo`, in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Where a program is on the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Daemons live in folders that are not on everyone's path.
    let daemons = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(daemons);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Installs a Debian package, which takes root.
pub(crate) fn apt(package: &str) -> Result<()> {
    if !is_root() || find("apt-get").is_none() {
        bail!("this needs `{package}`: please install it and run the command again");
    }
    println!("installing {package}");
    // No package may start a service of its own on the machine it is installed on.
    let quiet = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        run(&mut command)
    };
    let install = ["install", "-y", "-q", "--no-install-recommends", package];
    if quiet(&install).is_err() {
        // The package lists may be missing or old.
        quiet(&["update", "-q"])?;
        quiet(&install)?;
    }
    Ok(())
}

/// nginx, installed if missing.
pub(crate) fn nginx() -> Result<PathBuf> {
    if find("nginx").is_none() {
        apt("nginx-light")?;
    }
    find("nginx").context("nginx is installed, yet not on the search path")
}

/// The folder of PostgreSQL's programs, installed if missing.
pub(crate) fn postgres() -> Result<PathBuf> {
    if let Some(found) = postgres_folder() {
        return Ok(found);
    }
    apt("postgresql")?;
    postgres_folder().context("PostgreSQL is installed, yet `initdb` is nowhere")
}

/// Valkey's server, or the one it comes from, which speaks the same; installed if missing.
pub(crate) fn valkey() -> Result<PathBuf> {
    let found = || find("valkey-server").or_else(|| find("redis-server"));
    if let Some(found) = found() {
        return Ok(found);
    }
    // Older releases of Debian have only the second.
    if apt("valkey-server").is_err() {
        apt("redis-server")?;
    }
    found().context("Valkey is installed, yet not on the search path")
}

/// Debian keeps one folder per release and none of them on the search path.
fn postgres_folder() -> Option<PathBuf> {
    let releases = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut folders: Vec<PathBuf> = releases.map(|entry| entry.path()).collect();
    folders.sort_by_key(|path| number(path));
    let folders = folders.into_iter().rev().map(|path| path.join("bin"));
    let on_path = find("initdb").and_then(|file| file.parent().map(Path::to_path_buf));
    folders.chain(on_path).find(|folder| folder.join("initdb").is_file())
}

/// cargo-deny, built once and kept under `target`. Without optimisation: it builds in half the
/// time and has little to do.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    let ours = workspace::target().join("tools/bin/cargo-deny");
    if let Some(found) = [ours.clone()].into_iter().chain(find("cargo-deny")).find(|p| p.is_file())
    {
        return Ok(found);
    }
    println!("building cargo-deny {CARGO_DENY}; this takes some minutes, once");
    let install = ["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--debug"];
    run(cargo(&install).arg("--root").arg(workspace::target().join("tools")))?;
    Ok(ours)
}

/// A Python with the packages of a requirements file, kept under `target` until the file changes.
pub(crate) fn python(name: &str, requirements: &Path) -> Result<PathBuf> {
    let folder = workspace::target().join(format!("{name}-venv"));
    let python = folder.join("bin/python");
    let stamp = folder.join("installed.txt");
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("reading {}", requirements.display()))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    if find("python3").is_none() {
        apt("python3")?;
    }
    // Debian ships Python without the part that makes environments.
    let can = Command::new("python3").args(["-c", "import ensurepip, venv"]).output()?;
    if !can.status.success() {
        apt("python3-venv")?;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run(Command::new(&python).args(pip).arg(requirements))?;
    fs::write(&stamp, wanted)?;
    Ok(python)
}
