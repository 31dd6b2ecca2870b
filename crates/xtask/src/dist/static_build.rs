//! Static binaries, linked with musl. A static glibc loads modules of the machine to resolve names
//! (`nsswitch.conf`), which fails if their version is another one.
//!
//! C code is compiled by the clang of Zig (PyPI: `ziglang`), which has the headers for both
//! architectures, and rust-lld links. Nothing of the machine gets into the binary.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::architecture::Architecture;
use super::commit::SourceCommit;
use super::ordered_build;
use crate::tools::{self, cargo};
use crate::workspace;

/// A built program.
pub(super) struct StaticProgram {
    /// The program, without symbols.
    pub(super) program: PathBuf,
    /// Order of its functions. A build with the same order has the same bytes.
    pub(super) function_order: Option<PathBuf>,
}

/// Builds the static binary of an architecture. Returns `None`, and says why, if this machine lacks
/// what it takes.
pub(super) fn build(
    architecture: Architecture,
    profile: &str,
    commit: &SourceCommit,
    function_order: Option<&Path>,
) -> Result<Option<StaticProgram>> {
    let target = architecture.target();
    if let Err(error) = ensure_target(target) {
        println!("{} is left out: {error:#}", architecture.machine());
        return Ok(None);
    }
    let compiler = match c_compiler(architecture) {
        Ok(compiler) => compiler,
        Err(error) => {
            println!("{} is left out: no C compiler for it: {error:#}", architecture.machine());
            return Ok(None);
        }
    };
    // The folder of the profile `dev` has another name.
    let profile_folder = if profile == "dev" { "debug" } else { profile };
    let plain = workspace::target().join(target).join(profile_folder).join("portunus");
    let folder = workspace::target().join(format!("{target}-{profile}-ordered"));
    fs::create_dir_all(&folder)?;
    // callgrind runs only binaries of this machine.
    let is_ordered = Architecture::of_this_machine() == Some(architecture)
        && ordered_build::linker()?.is_some()
        && profile != "dev";
    let mut build = cargo(&["rustc", "--target", target, "--profile", profile]);
    build.args(["-p", "portunus", "--bin", "portunus", "--"]);
    if is_ordered {
        let inputs = folder.join(ordered_build::LINK_INPUTS);
        build.arg("-C").arg(format!("link-arg=--reproduce={}", inputs.display()));
    }
    set_environment(&mut build, architecture, &compiler, commit)?;
    tools::run(&mut build)?;
    let program = folder.join(format!("portunus-{}", architecture.machine()));
    if !is_ordered {
        strip(&plain, &program)?;
        return Ok(Some(StaticProgram { program, function_order: None }));
    }
    strip(&ordered_build::order(&plain, &folder, function_order)?, &program)?;
    let function_order = Some(folder.join(ordered_build::FUNCTION_ORDER));
    Ok(Some(StaticProgram { program, function_order }))
}

/// Sets the compilers, and replaces paths of this machine in the binary by fixed words.
fn set_environment(
    build: &mut Command,
    architecture: Architecture,
    compiler: &CompilerScripts,
    commit: &SourceCommit,
) -> Result<()> {
    let name = architecture.target().replace('-', "_");
    let root = workspace::root();
    let home = cargo_home()?;
    let mut flags: Vec<String> = ["-C", "linker=rust-lld"].map(String::from).to_vec();
    let target = workspace::target();
    // A later prefix wins over an earlier one.
    let prefixes = [(&home, "/cargo"), (&root, "/portunus"), (&target, "/portunus/target")];
    for (from, to) in prefixes {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    }
    // C code has paths too, in `__FILE__`.
    let c_flags =
        prefixes.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).join(" ");
    // This form of the variable allows spaces in paths.
    build
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env(format!("CC_{name}"), &compiler.cc)
        .env(format!("AR_{name}"), &compiler.ar)
        .env(format!("CFLAGS_{name}"), c_flags)
        .env("SOURCE_DATE_EPOCH", commit.epoch.to_string())
        .env("PORTUNUS_COMMIT", &commit.id)
        .env("PORTUNUS_COMMIT_DATE", &commit.date);
    Ok(())
}

fn cargo_home() -> Result<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let default = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    set.or_else(default).context("neither CARGO_HOME nor HOME is set")
}

/// Installs the standard library of a target if rustup can.
fn ensure_target(target: &str) -> Result<()> {
    let output =
        Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output()?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && Path::new(&folder).is_dir() {
        return Ok(());
    }
    if tools::find("rustup").is_none() {
        bail!("rustc has no standard library for {target}, and there is no rustup to install it");
    }
    let added = tools::run(Command::new("rustup").args(["target", "add", target]));
    added.with_context(|| {
        format!(
            "rustc has no standard library for {target}; run `rustup target add {target}` where \
                 static.rust-lang.org can be reached"
        )
    })
}

/// Scripts that stand for the C compiler and the archiver of a target.
struct CompilerScripts {
    cc: PathBuf,
    ar: PathBuf,
}

fn c_compiler(architecture: Architecture) -> Result<CompilerScripts> {
    let requirements = workspace::root().join("crates/xtask/src/dist/zig-requirements.txt");
    let python = tools::python("zig", &requirements)?;
    let folder = workspace::target().join("tools");
    fs::create_dir_all(&folder)?;
    let machine = architecture.machine();
    let script = |name: &str, text: String| -> Result<PathBuf> {
        let path = folder.join(format!("zig-{name}-{machine}"));
        // A file that does not change leaves cargo's fingerprints alone.
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(path)
    };
    // Zig has names of its own for targets, and checks for undefined behaviour unless told otherwise.
    let cc = format!(
        "#!/bin/sh\nfor word; do shift; case \"$word\" in --target=*) ;; *) set -- \"$@\" \"$word\" ;; \
         esac; done\nexec '{}' -m ziglang cc -target {machine}-linux-musl -fno-sanitize=all \"$@\"\n",
        python.display()
    );
    let ar = format!("#!/bin/sh\nexec '{}' -m ziglang ar \"$@\"\n", python.display());
    Ok(CompilerScripts { cc: script("cc", cc)?, ar: script("ar", ar)? })
}

/// Copies a binary without symbols. `objcopy` of this machine may not know the architecture, that of
/// rustc knows all.
fn strip(binary: &Path, to: &Path) -> Result<()> {
    let output = Command::new("rustc").args(["--print", "target-libdir"]).output()?;
    let libraries = String::from_utf8(output.stdout).context("a path that is not UTF-8")?;
    let tools_folder = Path::new(libraries.trim()).with_file_name("bin");
    let objcopy = tools_folder.join("rust-objcopy");
    let mut command = if objcopy.is_file() {
        let mut command = Command::new(objcopy);
        // It shares LLVM with the compiler, and finds it by itself only below `cargo run`.
        if let Some(toolchain) = tools_folder.ancestors().nth(3) {
            command.env("LD_LIBRARY_PATH", toolchain);
        }
        command
    } else {
        Command::new(tools::find("objcopy").context("binutils are missing")?)
    };
    tools::run(command.arg("--strip-all").arg(binary).arg(to))
}
