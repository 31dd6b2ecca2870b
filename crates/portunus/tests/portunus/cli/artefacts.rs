//! Version, schema, completions and manual pages of the program.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Folder, fails};

#[test]
fn the_version_names_the_build() {
    let folder = Folder::new("version");
    let output = folder.run(&["--version"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let build = text.trim().strip_prefix(&format!("portunus {version} ("));
    let build = build.and_then(|rest| rest.strip_suffix(')')).unwrap_or_else(|| panic!("{text}"));
    let is_commit = build.split(['-', ' ']).next().unwrap().len() == 12;
    assert!(is_commit || build == "unknown commit", "{text}");
}

/// Compiles the build script alone.
fn build_script(folder: &Folder) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let program = folder.0.join("build-script");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compile = Command::new(rustc);
    compile.args(["--edition", "2024", "-o"]).arg(&program).arg(script);
    assert!(compile.status().unwrap().success());
    program
}

#[test]
fn the_build_finds_its_commit_in_variables_archives_and_git() {
    let folder = Folder::new("build-script");
    let script = build_script(&folder);
    let package = folder.0.join("project/crates/portunus");
    std::fs::create_dir_all(&package).unwrap();
    let git = |arguments: &[&str], at: &Path| {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
        let output = Command::new("git").args(identity).args(arguments).current_dir(at).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(&script);
        command.current_dir(&package).env_remove("PORTUNUS_COMMIT").env_remove("GIT_DIR");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("cargo::rustc-env=PORTUNUS_BUILD="));
        (line.unwrap().to_owned(), text)
    };
    // A repository around an unpacked archive is not that of the project.
    git(&["init", "-q"], &folder.0);
    git(&["commit", "-q", "--allow-empty", "-m", "another project"], &folder.0);
    std::fs::write(package.join("archive_commit.txt"), "$Format:%H %cs$\n").unwrap();
    assert_eq!(run(&[]).0, "unknown commit");

    let project = folder.0.join("project");
    git(&["init", "-q"], &project);
    std::fs::write(
        project.join(".gitattributes"),
        "crates/portunus/archive_commit.txt export-subst\n",
    )
    .unwrap();
    git(&["add", "-A"], &project);
    git(&["commit", "-q", "-m", "first"], &project);
    let first = git(&["log", "-1", "--format=%H"], &project);
    let (build, said) = run(&[]);
    assert!(build.starts_with(first.get(..12).unwrap()), "{build}");
    assert!(said.contains("rerun-if-changed") && said.contains("logs/HEAD"), "{said}");
    assert!(!said.contains("rerun-if-changed=.\n"), "{said}");

    git(&["archive", "-o", "../archive.tar", "HEAD"], &project);
    let unpacked = folder.0.join("unpacked");
    std::fs::create_dir_all(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(folder.0.join("archive.tar")).arg("-C").arg(&unpacked);
    assert!(tar.status().unwrap().success());
    let text = std::fs::read_to_string(unpacked.join("crates/portunus/archive_commit.txt"));
    std::fs::write(package.join("archive_commit.txt"), text.unwrap()).unwrap();
    std::fs::remove_dir_all(project.join(".git")).unwrap();
    assert!(run(&[]).0.starts_with(first.get(..12).unwrap()));

    let named =
        [("PORTUNUS_COMMIT", "0123456789abcdef-modified"), ("PORTUNUS_COMMIT_DATE", "2026-11-18")];
    assert_eq!(run(&named).0, "0123456789ab-modified 2026-11-18");
}

#[test]
fn the_repository_marks_its_archives_with_the_commit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let attributes = std::fs::read_to_string(root.join(".gitattributes")).unwrap();
    assert!(attributes.contains("crates/portunus/archive_commit.txt export-subst"));
}

#[test]
fn the_schema_is_printed_and_fits_every_example_configuration() {
    let folder = Folder::new("schema");
    let schema = folder.json(&["schema"]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in
        ["config/portunus.toml", "deploy/package/portunus.toml", "deploy/compose/portunus.toml"]
    {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let value: Value =
            serde_json::to_value(toml::from_str::<toml::Value>(&text).unwrap()).unwrap();
        assert!(validator.is_valid(&value), "{file}: {:?}", validator.validate(&value));
        // The gateway itself reads the same file.
        let path = root.join(file);
        let checked = folder.run(&["check", "--config", path.to_str().unwrap()]);
        assert!(checked.status.success(), "{file}: {checked:?}");
    }
}

#[test]
fn completions_and_manual_pages_cover_the_commands() {
    let folder = Folder::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let output = folder.run(&["completions", shell]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("reset-password"), "{shell}: {text}");
    }
    fails(&folder.run(&["completions", "csh"]), 2, "csh");
    let page = String::from_utf8(folder.run(&["man"]).stdout).unwrap();
    assert!(page.starts_with(".ie") && page.contains("simulate"), "{page}");
    assert!(folder.run(&["man", "pages"]).status.success());
    for name in ["portunus.1", "portunus-keys.1", "portunus-keys-create.1"] {
        assert!(folder.0.join("pages").join(name).is_file(), "{name}");
    }
    std::fs::write(folder.0.join("file"), "").unwrap();
    fails(&folder.run(&["man", "file"]), 1, "file");
}
