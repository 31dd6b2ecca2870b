//! The binary to hand out, with the functions that run side by side.
//!
//! The memory of a quiet gateway is mostly its code. The kernel maps 64 KiB around each instruction that
//! is executed first, so that functions that are scattered over the file make most of it resident.
//! callgrind tells which functions a start and each kind of call execute, and the same objects are linked
//! again with these functions first (`--symbol-ordering-file` of `ld.lld`, after `--reproduce` has kept the
//! inputs of the first link). No code is compiled for the second link. The list is not kept in the
//! repository: names of functions contain hashes that change with each version of the compiler and of a
//! dependency.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench::instructions;
use crate::tools::{self, cargo};
use crate::workspace;

/// Names inside the folder of the second link.
pub(super) const LINK_INPUTS: &str = "inputs.tar";
pub(super) const FUNCTION_ORDER: &str = "function_order.txt";
const LINKED: &str = "portunus";

/// Builds the binary to hand out. Returns its path. A binary that is newer than its objects is kept.
pub(crate) fn build() -> Result<PathBuf> {
    build_profile("dist")
}

/// Builds the binary of a profile for this system in the same way.
pub(crate) fn build_profile(profile: &str) -> Result<PathBuf> {
    let plain = workspace::target().join(profile).join("portunus");
    let build = ["rustc", "--profile", profile, "-p", "portunus", "--bin", "portunus"];
    let mut build = cargo(&build);
    if linker()?.is_none() {
        println!("no linker that orders functions is known for this system");
        tools::run(&mut build)?;
        return Ok(plain);
    }
    let folder = workspace::target().join(format!("{profile}-ordered"));
    fs::create_dir_all(&folder)?;
    let inputs = folder.join(LINK_INPUTS);
    build.args(["--", "-C"]).arg(format!("link-arg=-Wl,--reproduce={}", inputs.display()));
    tools::run(&mut build)?;
    order(&plain, &folder, None)
}

/// Links the binary again from the inputs of its first link, which are in the folder
/// ([`LINK_INPUTS`]). Without a known order of the functions, they are counted.
pub(super) fn order(plain: &Path, folder: &Path, known: Option<&Path>) -> Result<PathBuf> {
    let linker = linker()?.context("no linker that orders functions is known for this system")?;
    let ordered = folder.join(LINKED);
    if let Some(known) = known {
        let text =
            fs::read_to_string(known).with_context(|| format!("reading {}", known.display()))?;
        link(&linker, folder, &text.lines().map(str::to_owned).collect::<Vec<_>>())?;
        return Ok(ordered);
    }
    if is_newer(&ordered, plain) {
        return Ok(ordered);
    }
    println!("counting which functions run; this takes about two minutes");
    let functions = instructions::executed_functions(plain)?;
    println!("{} functions run in a start and in calls", functions.len());
    link(&linker, folder, &functions)?;
    Ok(ordered)
}

/// Links the unpacked inputs again, with these functions first. The linker resolves all paths in its
/// folder (`--chroot`), so that names are relative to it.
fn link(linker: &Path, folder: &Path, functions: &[String]) -> Result<()> {
    let unpacked = folder.join("unpacked");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    fs::create_dir_all(&unpacked)?;
    // The archive has one folder, which is named after it.
    let tar = ["--strip-components=1", "-xf"];
    tools::run(
        Command::new("tar").args(tar).arg(folder.join(LINK_INPUTS)).arg("-C").arg(&unpacked),
    )?;
    fs::write(unpacked.join(FUNCTION_ORDER), functions.join("\n") + "\n")?;
    let mut command = Command::new(linker);
    command
        .current_dir(&unpacked)
        .arg("@response.txt")
        .arg(format!("--symbol-ordering-file={FUNCTION_ORDER}"))
        // Functions of the C library are in the list too.
        .arg("--no-warn-symbol-ordering")
        .args(["-o", LINKED]);
    tools::run(&mut command)?;
    fs::rename(unpacked.join(LINKED), folder.join(LINKED))?;
    fs::rename(unpacked.join(FUNCTION_ORDER), folder.join(FUNCTION_ORDER))?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// Returns the linker that rustc itself uses on this system, if it can order functions.
pub(super) fn linker() -> Result<Option<PathBuf>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Ok(None);
    }
    let output = Command::new("rustc").args(["--print", "target-libdir"]).output()?;
    ensure!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr));
    let libraries = String::from_utf8(output.stdout).context("a path that is not UTF-8")?;
    let linker = Path::new(libraries.trim()).with_file_name("bin").join("gcc-ld/ld.lld");
    Ok(linker.is_file().then_some(linker))
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    modified(file).zip(modified(than)).is_some_and(|(file, than)| file > than)
}
