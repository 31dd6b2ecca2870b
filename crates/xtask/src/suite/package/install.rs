//! Packages of distributions and of package managers, installed into folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::succeed;
use crate::dist::VERSION;
use crate::tools::{self, apt, find};

/// Path of the configuration in a root.
const CONFIG: &str = "etc/portunus/portunus.toml";

/// Installs what needs no rights: the archive, and the packages of npm and PyPI.
pub(super) fn run(scratch: &Path, packages: &Path) -> Result<()> {
    archive(scratch, &packages.join(format!("portunus-{VERSION}-linux-x86_64.tar.gz")))?;
    formula(&packages.join("portunus.rb"))?;
    npm(scratch, &packages.join(format!("portunus-gateway-{VERSION}.tgz")))?;
    pypi(scratch, &packages.join(format!("portunus_gateway-{VERSION}.tar.gz")))
}

/// Installs the packages of distributions.
pub(super) fn run_as_root(scratch: &Path, packages: &Path) -> Result<()> {
    deb(scratch, &packages.join(format!("portunus_{VERSION}_amd64.deb")))?;
    rpm(scratch, &packages.join(format!("portunus-{VERSION}-1.x86_64.rpm")))
}

/// Checks that a program starts and tells its version.
fn tells_version(command: &mut Command) -> Result<()> {
    let output = succeed(command.arg("--version"))?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(line.starts_with(&format!("portunus {VERSION} (")), "{line}");
    Ok(())
}

fn archive(scratch: &Path, package: &Path) -> Result<()> {
    let folder = scratch.join("archive");
    fs::create_dir_all(&folder)?;
    let tar = ["--strip-components=1", "-C"];
    succeed(Command::new("tar").args(tar).arg(&folder).arg("-xzf").arg(package))?;
    tells_version(&mut Command::new(folder.join("usr/bin/portunus")))?;
    for (file, word) in [
        ("usr/share/man/man1/portunus.1", "portunus"),
        ("usr/share/man/man1/portunus-keys-create.1", "--unlimited"),
        ("usr/share/bash-completion/completions/portunus", "--unlimited"),
        ("usr/share/zsh/vendor-completions/_portunus", "#compdef portunus"),
        ("usr/share/fish/vendor_completions.d/portunus.fish", "complete -c portunus"),
        ("usr/share/portunus/portunus.schema.json", "\"first_byte\""),
        ("usr/lib/systemd/system/portunus.service", "Type=notify"),
    ] {
        let text =
            fs::read_to_string(folder.join(file)).with_context(|| format!("reading {file}"))?;
        // Manual pages write a hyphen as `\-`.
        ensure!(text.replace('\\', "").contains(word), "{file} lacks `{word}`");
    }
    completions(&folder.join("usr/share"))?;
    manual(&folder.join("usr/share/man/man1"))
}

/// Lets each shell that is installed load its completions.
fn completions(share: &Path) -> Result<()> {
    for (shell, script) in [
        ("bash", "source bash-completion/completions/portunus && complete -p portunus"),
        (
            "zsh",
            "fpath=($PWD/zsh/vendor-completions $fpath); autoload -Uz compinit && compinit -u -D \
             && autoload +X -Uz _portunus && test \"${_comps[portunus]}\" = _portunus",
        ),
        (
            "fish",
            "source fish/vendor_completions.d/portunus.fish; \
             complete --do-complete 'portunus keys ' | string match --quiet 'create*'",
        ),
    ] {
        let Some(program) = find(shell) else {
            println!("{shell} is not here: its completions are not loaded");
            continue;
        };
        let home = share.join("home");
        let mut load = Command::new(program);
        load.args(["-c", script]).current_dir(share).env("HOME", &home);
        let output = succeed(&mut load)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.is_empty(), "{shell} complains of the completions: {said}");
    }
    Ok(())
}

/// Lets `man` render all pages.
fn manual(folder: &Path) -> Result<()> {
    let Some(man) = find("man") else {
        println!("man is not here: no page is rendered");
        return Ok(());
    };
    let mut pages = Vec::new();
    for page in fs::read_dir(folder)? {
        pages.push(page?.path());
    }
    let options = ["--local-file", "--warnings", "--encoding=utf8", "--no-hyphenation"];
    let output = succeed(Command::new(man).args(options).args(&pages).env("MANWIDTH", "100"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.is_empty() && !output.stdout.is_empty(), "man complains: {said}");
    println!("{} manual pages are rendered", pages.len());
    Ok(())
}

/// Lets Ruby read the formula for Homebrew.
fn formula(file: &Path) -> Result<()> {
    match find("ruby") {
        Some(ruby) => succeed(Command::new(ruby).args(["-w", "-c"]).arg(file)).map(drop),
        None => {
            println!("Ruby is not here: the formula is not read");
            Ok(())
        }
    }
}

/// Makes a root with the users of the system, for scripts that look for one.
fn empty_root(scratch: &Path, name: &str) -> Result<PathBuf> {
    let root = scratch.join(name);
    for folder in ["etc", "var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for (file, text) in [
        ("etc/passwd", "root:x:0:0:root:/:/bin/sh\n"),
        ("etc/group", "root:x:0:\n"),
        ("etc/shadow", "root:*:19000:0:99999:7:::\n"),
        ("etc/gshadow", "root:*::\n"),
        ("var/lib/dpkg/status", ""),
        ("var/lib/dpkg/available", ""),
    ] {
        fs::write(root.join(file), text)?;
    }
    Ok(root)
}

/// Installs, changes the configuration, installs a version with another default, and removes.
fn deb(scratch: &Path, package: &Path) -> Result<()> {
    let root = empty_root(scratch, "deb")?;
    let dpkg = || {
        let mut command = Command::new("dpkg");
        // Scripts run outside of the root, which has no shell, and get its path.
        command.arg(format!("--root={}", root.display()));
        command.args(["--force-script-chrootless", "--force-depends", "--force-not-root"]);
        command.arg("--log=/dev/null").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    };
    succeed(dpkg().arg("--install").arg(package))?;
    tells_version(&mut Command::new(root.join("usr/bin/portunus")))?;
    let users = fs::read_to_string(root.join("etc/passwd"))?;
    ensure!(users.contains("\nportunus:"), "no user was made: {users}");
    has_rights(&root)?;
    let own = "[server]\nlisten = \"127.0.0.1:9999\"\n";
    fs::write(root.join(CONFIG), own)?;
    let next = changed_package(scratch, package)?;
    succeed(dpkg().args(["--force-confdef", "--install"]).arg(&next))?;
    ensure!(fs::read_to_string(root.join(CONFIG))? == own, "the upgrade changed the configuration");
    let offered = root.join(format!("{CONFIG}.dpkg-dist"));
    ensure!(offered.is_file(), "the new default is not beside it");
    succeed(dpkg().args(["--remove", "portunus"]))?;
    ensure!(!root.join("usr/bin/portunus").exists(), "the program is still there");
    ensure!(root.join(CONFIG).is_file(), "removal took the configuration");
    succeed(dpkg().args(["--purge", "portunus"]))?;
    ensure!(!root.join(CONFIG).exists(), "purge left the configuration");
    ensure!(root.join("var/lib/portunus/ledger").is_file(), "purge took the data");
    Ok(())
}

/// Checks owners and rights after an installation, and leaves a file with the data.
fn has_rights(root: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let data = fs::metadata(root.join("var/lib/portunus"))?;
    ensure!(data.mode() & 0o777 == 0o700 && data.uid() != 0, "the data folder is open to others");
    let secrets = fs::metadata(root.join("etc/portunus/portunus.env"))?;
    ensure!(secrets.mode() & 0o777 == 0o640, "secrets are readable by others");
    ensure!(
        secrets.uid() == 0 && secrets.gid() == data.gid(),
        "the service cannot read its secrets"
    );
    fs::write(root.join("var/lib/portunus/ledger"), "money")?;
    Ok(())
}

/// Makes a later version with another default configuration, with the tools of Debian.
fn changed_package(scratch: &Path, package: &Path) -> Result<PathBuf> {
    let folder = scratch.join("deb-next");
    succeed(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&folder))?;
    let control = folder.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let version = format!("Version: {VERSION}\n");
    fs::write(&control, text.replace(&version, &format!("Version: {VERSION}.next\n")))?;
    fs::write(folder.join(CONFIG), "# another default\n")?;
    let next = scratch.join("next.deb");
    let build = ["--root-owner-group", "-Zgzip", "-z1", "--build"];
    succeed(Command::new("dpkg-deb").args(build).arg(&folder).arg(&next))?;
    Ok(next)
}

fn rpm(scratch: &Path, package: &Path) -> Result<()> {
    if find("rpm").is_none() {
        apt("rpm")?;
    }
    let checked = succeed(Command::new("rpm").args(["--checksig", "--nosignature"]).arg(package))?;
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(said.contains("digests OK"), "{said}");
    let query = |flag: &str| -> Result<String> {
        let output =
            succeed(Command::new("rpm").args(["-qp", "--nosignature", flag]).arg(package))?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let config = query("--configfiles")?;
    ensure!(config.lines().count() == 2 && config.contains(CONFIG), "configuration: {config}");
    ensure!(query("--scripts")?.contains("useradd"), "no user is made");
    let root = scratch.join("rpm");
    fs::create_dir_all(&root)?;
    let install = ["--install", "--nodeps", "--noscripts", "--nosignature", "--ignorearch"];
    let mut rpm = Command::new("rpm");
    rpm.arg(format!("--root={}", root.display())).args(install).arg(package);
    succeed(&mut rpm)?;
    tells_version(&mut Command::new(root.join("usr/bin/portunus")))?;
    fs::write(root.join(CONFIG), "# own\n")?;
    // A changed file that is installed again stays, because it is `noreplace`.
    let mut again = Command::new("rpm");
    again.arg(format!("--root={}", root.display())).args(install).args(["--force"]).arg(package);
    succeed(&mut again)?;
    let kept = fs::read_to_string(root.join(CONFIG))?;
    ensure!(kept == "# own\n", "the configuration was replaced: {kept}");
    Ok(())
}

fn npm(scratch: &Path, package: &Path) -> Result<()> {
    if find("npm").is_none() {
        apt("npm")?;
    }
    let folder = scratch.join("npm");
    fs::create_dir_all(&folder)?;
    let install =
        ["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"];
    succeed(Command::new("npm").args(install).arg(&folder).arg(package))?;
    tells_version(&mut Command::new(folder.join("node_modules/.bin/portunus")))?;
    let mut absent = Command::new(folder.join("node_modules/.bin/portunus"));
    let output = absent.env("PORTUNUS_BINARY", "/nowhere").output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && said.contains("PORTUNUS_BINARY"), "{said}");
    Ok(())
}

fn pypi(scratch: &Path, package: &Path) -> Result<()> {
    let requirements = scratch.join("requirements.txt");
    fs::write(&requirements, "setuptools==80.9.0\n")?;
    let python = tools::python("package", &requirements)?;
    let folder = scratch.join("pypi");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let mut pip = Command::new(python);
    pip.args(install).args(["--no-build-isolation", "--no-cache-dir", "--target"]).arg(&folder);
    succeed(pip.arg(package))?;
    let mut start = Command::new(folder.join("bin/portunus"));
    tells_version(start.env("PYTHONPATH", &folder))
}
