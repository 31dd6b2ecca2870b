//! External programs: found on the search path, otherwise installed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// Version of cargo-deny.
const CARGO_DENY: &str = "0.20.2";
/// Package and version of Pebble.
const PEBBLE: (&str, &str) = ("github.com/letsencrypt/pebble/v2/cmd/pebble", "v2.10.1");

/// Runs a command and shows its output. Fails unless the command succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let description = describe(command);
    println!("$ {description}");
    let status = command.status().with_context(|| format!("starting `{description}`"))?;
    ensure!(status.success(), "`{description}`: {status}");
    Ok(())
}

/// Returns a `cargo` command in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Features with the tests that need PostgreSQL, Valkey, an S3 server or nginx.
const TEST_FEATURES: &str = "store/postgres-tests,portunus/node-tests";

/// Arguments of the linter, in the form in which `cargo clippy` passes them to its compiler.
const LINTER_ARGUMENTS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Returns `cargo test` for the whole workspace with all tests, with the linter as compiler of its crates: one pass
/// lints and builds, and a warning is an error. The steps of the suite share this command, because other packages,
/// features or compilers would need a second build.
pub(crate) fn cargo_test() -> Result<Command> {
    cargo_linted("test")
}

/// Returns the same for programs and examples. `cargo test` builds a program that has no integration tests only as a
/// test, in which code that only tests use is not dead.
pub(crate) fn cargo_build_programs() -> Result<Command> {
    let mut command = cargo_linted("build")?;
    command.args(["--bins", "--examples"]);
    Ok(command)
}

/// Returns a `cargo` command for the whole workspace, whose crates the linter compiles. `cargo clippy` is `cargo check`
/// with the same variables, which needs a second pass over all dependencies
/// (<https://github.com/rust-lang/rust-clippy/blob/master/src/main.rs>).
fn cargo_linted(command: &str) -> Result<Command> {
    let mut command = cargo(&[command, "--workspace", "--features", TEST_FEATURES]);
    command.env("RUSTC_WORKSPACE_WRAPPER", linter()?).env("CLIPPY_ARGS", LINTER_ARGUMENTS);
    Ok(command)
}

/// Returns the linter for the whole workspace with all tests, without a build.
pub(crate) fn cargo_clippy() -> Command {
    let mut command = cargo(&["clippy", "--workspace", "--features", TEST_FEATURES]);
    command.args(["--all-targets", "--", "-D", "warnings"]);
    command
}

/// Returns the path of the compiler that lints, which belongs to the compiler in use.
fn linter() -> Result<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "sysroot"]).current_dir(workspace::root());
    let output = rustc.output().context("starting rustc")?;
    let sysroot = String::from_utf8(output.stdout).context("the folder of rustc is not UTF-8")?;
    let linter = Path::new(sysroot.trim()).join("bin/clippy-driver");
    ensure!(linter.is_file(), "Clippy is missing: `rustup component add clippy` installs it");
    Ok(linter)
}

/// Returns the program and its arguments.
pub(crate) fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Returns the path of a program on the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Daemons are in folders that are not on every user's path.
    let daemons = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(daemons);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns true if this process runs as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Installs a Debian package. Requires root.
pub(crate) fn apt(package: &str) -> Result<()> {
    if !is_root() || find("apt-get").is_none() {
        bail!("this needs `{package}`: please install it and run the command again");
    }
    println!("installing {package}");
    // Prevents packages from starting services at installation.
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        run(&mut command)
    };
    let install = ["install", "-y", "-q", "--no-install-recommends", package];
    if apt_get(&install).is_err() {
        // The package lists may be missing or outdated.
        apt_get(&["update", "-q"])?;
        apt_get(&install)?;
    }
    Ok(())
}

/// Returns the path of valgrind; installs it if missing.
pub(crate) fn valgrind() -> Result<PathBuf> {
    if find("valgrind").is_none() {
        apt("valgrind")?;
    }
    find("valgrind").context("valgrind is installed, yet not on the search path")
}

/// Returns the path of strace; installs it if missing.
pub(crate) fn strace() -> Result<PathBuf> {
    if find("strace").is_none() {
        apt("strace")?;
    }
    find("strace").context("strace is installed, yet not on the search path")
}

/// Installs a keyring and the message bus that it needs, if they are missing.
pub(crate) fn keyring() -> Result<()> {
    for (program, package) in
        [("dbus-run-session", "dbus-daemon"), ("gnome-keyring-daemon", "gnome-keyring")]
    {
        if find(program).is_none() {
            apt(package)?;
        }
    }
    Ok(())
}

/// Returns the path of Python; installs it if missing.
pub(crate) fn python3() -> Result<PathBuf> {
    if find("python3").is_none() {
        apt("python3")?;
    }
    find("python3").context("Python is installed, yet not on the search path")
}

/// Returns the path of OpenSSL's program; installs it if missing.
pub(crate) fn openssl() -> Result<PathBuf> {
    if find("openssl").is_none() {
        apt("openssl")?;
    }
    find("openssl").context("OpenSSL is installed, yet not on the search path")
}

/// Returns the path of Prometheus' checker; installs it if missing.
pub(crate) fn promtool() -> Result<PathBuf> {
    if find("promtool").is_none() {
        apt("prometheus")?;
    }
    find("promtool").context("Prometheus is installed, yet promtool is not on the search path")
}

/// Returns the path of nginx; installs it if missing.
pub(crate) fn nginx() -> Result<PathBuf> {
    if find("nginx").is_none() {
        apt("nginx-light")?;
    }
    find("nginx").context("nginx is installed, yet not on the search path")
}

/// Returns the path of Pebble, an ACME server for tests; builds it if missing.
pub(crate) fn pebble() -> Result<PathBuf> {
    let (package, version) = PEBBLE;
    match find("pebble") {
        Some(found) => Ok(found),
        None => go_tool("pebble", package, version),
    }
}

/// Returns the folder of PostgreSQL's programs; installs them if missing.
pub(crate) fn postgres() -> Result<PathBuf> {
    if let Some(found) = postgres_folder() {
        return Ok(found);
    }
    apt("postgresql")?;
    postgres_folder().context("PostgreSQL is installed, yet `initdb` is nowhere")
}

/// Returns the path of the Valkey server or of the compatible Redis server; installs it if missing.
pub(crate) fn valkey() -> Result<PathBuf> {
    let found = || find("valkey-server").or_else(|| find("redis-server"));
    if let Some(found) = found() {
        return Ok(found);
    }
    // Older Debian releases have only Redis.
    if apt("valkey-server").is_err() {
        apt("redis-server")?;
    }
    found().context("Valkey is installed, yet not on the search path")
}

/// Debian has one folder per PostgreSQL version, none of them on the search path.
fn postgres_folder() -> Option<PathBuf> {
    let releases = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut folders: Vec<PathBuf> = releases.map(|entry| entry.path()).collect();
    folders.sort_by_key(|path| number(path));
    let folders = folders.into_iter().rev().map(|path| path.join("bin"));
    let on_path = find("initdb").and_then(|file| file.parent().map(Path::to_path_buf));
    folders.chain(on_path).find(|folder| folder.join("initdb").is_file())
}

/// Returns the path of cargo-deny, built once under `target`. The debug build takes half the time
/// and is fast enough.
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

/// Returns a program written in Go, built once under `target`.
pub(crate) fn go_tool(name: &str, package: &str, version: &str) -> Result<PathBuf> {
    if let Some(built) = built_go_tool(name, version) {
        return Ok(built);
    }
    if find("go").is_none() {
        apt("golang-go")?;
    }
    println!("building {name} {version}, once");
    let folder = workspace::target().join("tools").join(format!("{name}-{version}"));
    let mut install = Command::new("go");
    install.args(["install", &format!("{package}@{version}")]);
    // The program has the last part of its package as name.
    let own_name = package.rsplit('/').next().unwrap_or(package);
    run(install.env("GOBIN", &folder).env("GOFLAGS", "-trimpath"))?;
    if own_name != name {
        fs::rename(folder.join(own_name), folder.join(name))?;
    }
    built_go_tool(name, version).with_context(|| format!("go built no {name}"))
}

/// Returns a program written in Go that was built before.
pub(crate) fn built_go_tool(name: &str, version: &str) -> Option<PathBuf> {
    let path = workspace::target().join("tools").join(format!("{name}-{version}")).join(name);
    path.is_file().then_some(path)
}

/// Returns a Python with the packages of a requirements file, kept under `target` until the file
/// changes.
pub(crate) fn python(name: &str, requirements: &Path) -> Result<PathBuf> {
    let folder = workspace::target().join(format!("{name}-venv"));
    let python = folder.join("bin/python");
    let stamp = folder.join("installed.txt");
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("reading {}", requirements.display()))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let system_python = python3()?;
    // Debian ships Python without `venv`.
    let can = Command::new(&system_python).args(["-c", "import ensurepip, venv"]).output()?;
    if !can.status.success() {
        apt("python3-venv")?;
    }
    run(Command::new(&system_python).args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run(Command::new(&python).args(pip).arg(requirements))?;
    fs::write(&stamp, wanted)?;
    Ok(python)
}
