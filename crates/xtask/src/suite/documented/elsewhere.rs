//! Commands of the page on installation that other steps run: with packages, and with Helm.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::page::{CommandPlace, OperatorPage};
use super::run::PageRunner;
use crate::process::free_port;
use crate::tools;
use crate::workspace;

/// The page.
const PATH: &str = "docs/operate/install.md";

/// Shell in a copy of the machine, whose changes are thrown away: an overlay over all its files. Words:
/// mount point, folder that is shared with the machine, script.
const COPY_SHELL: &str = r#"#!/bin/sh
exec unshare --mount --propagation private sh -c '
set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root"
for folder in /dev /proc "$1"; do mount --rbind "$folder" "$0/root$folder"; done
exec chroot "$0/root" env -C "$PWD" bash "$2"' "@mount@" "@shared@" "$1"
"#;

fn read_page() -> Result<OperatorPage> {
    OperatorPage::parse(PATH, &fs::read_to_string(workspace::root().join(PATH))?)
}

/// Runs the commands that install packages, in a copy of this machine. The folder has all packages.
pub(in crate::suite) fn run_installation(
    scratch: &Path,
    packages: &Path,
    public_key: &str,
) -> Result<()> {
    for program in ["curl", "minisign", "npm"] {
        if tools::find(program).is_none() {
            tools::apt(program)?;
        }
    }
    let folder = |name: &str| {
        let folder = scratch.join(name);
        fs::create_dir_all(&folder).map(|()| folder)
    };
    let (mount, outputs) = (folder("copy")?, folder("copy-outputs")?);
    let shell = scratch.join("copy-shell");
    let text = COPY_SHELL.replace("@mount@", &mount.display().to_string());
    fs::write(&shell, text.replace("@shared@", &scratch.display().to_string()))?;
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755))?;
    let runner = PageRunner {
        folder: packages.to_path_buf(),
        outputs,
        path: std::env::var_os("PATH").unwrap_or_default(),
        addresses: vec![
            ("\"$PUBLIC_KEY\"".to_owned(), public_key.to_owned()),
            (":8080".to_owned(), format!(":{}", free_port()?)),
        ],
        place: CommandPlace::Package,
        shell,
    };
    let count = runner.run(&read_page()?)?;
    println!("{count} commands of {PATH} were run");
    Ok(())
}

/// Renders the chart with the values of each `helm install` and `helm upgrade` of the page.
pub(in crate::suite) fn run_chart(helm: &Path, version: &str) -> Result<()> {
    let page = read_page()?;
    let mut count = 0;
    for command in page.commands().filter(|command| command.place == CommandPlace::Chart) {
        let words = command.text.replace("--reuse-values", "").replace("\\\n", " ");
        let values = words.strip_prefix("helm install ");
        let values = values.or_else(|| words.strip_prefix("helm upgrade "));
        let values = values.with_context(|| format!("{PATH}:{}: not for Helm", command.line))?;
        let template = format!("\"$0\" template \"$1\" {values}");
        let mut shell = Command::new("bash");
        shell.args(["-c", &template]).arg(helm).arg(version).current_dir(workspace::root());
        let output = shell.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{PATH}:{}: {words}\n{said}", command.line);
        count += 1;
    }
    ensure!(count > 0, "{PATH} has no command for Helm");
    Ok(())
}
