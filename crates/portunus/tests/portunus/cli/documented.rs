//! Commands in the documentation: the program knows each of them with its options. Those of the pages for
//! operators are run by `cargo xtask test --only docs`.

use std::path::Path;

use super::{Folder, program};

/// Returns the commands of the program in the shell blocks of a page.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The sign before each command of a block; `None` outside of shell blocks.
    let (mut sign, mut open) = (None, String::new());
    for line in page.lines() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            sign = match kind {
                "console" => Some("$ "),
                "sh" => Some(""),
                _ => None,
            };
            continue;
        }
        let Some(sign) = sign else { continue };
        let begun = if open.is_empty() { line.strip_prefix(sign) } else { Some(line) };
        // Other lines are output.
        let Some(text) = begun else { continue };
        open.push_str(text.split("  #").next().unwrap_or_default());
        if let Some(begun) = open.strip_suffix('\\') {
            open = format!("{begun} ");
            continue;
        }
        let command = std::mem::take(&mut open);
        // Several commands on one line, and the redirection of one.
        for part in command.split("&&").flat_map(|part| part.split(" > ").take(1)) {
            let words = part.split(" | ").next().unwrap_or_default().trim();
            if let Some(words) = words.strip_prefix("portunus ") {
                found.push(words.trim_end_matches('&').trim().to_owned());
            }
        }
    }
    found
}

#[test]
fn every_documented_command_is_known_with_its_options() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|kind| kind == "md"));
    let folder = Folder::new("documented");
    let mut seen = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        // Words in quotes and gaps are for a shell and a reader.
        for command in commands(&text).iter().filter(|text| !text.contains(['"', '…'])) {
            // Help is printed after the words before it were understood.
            let output =
                program(&folder).args(command.split_whitespace()).arg("--help").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {command}: {said}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} commands were found");
}

#[test]
fn every_error_code_is_documented_with_its_status() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/operate/errors.md")).unwrap();
    let source = std::fs::read_to_string(root.join("crates/dialects/src/chat/fault.rs")).unwrap();
    let mut seen = 0;
    for line in source.lines().filter(|line| line.trim().starts_with("ErrorKind::")) {
        let Some((status, rest)) = line.split_once("=> (").and_then(|(_, row)| row.split_once(','))
        else {
            continue;
        };
        let Some(code) = rest.split_once("Some(\"").and_then(|(_, code)| code.split('"').next())
        else {
            continue;
        };
        assert!(page.contains(&format!("| {status} | `{code}` |")), "{status} {code}");
        seen += 1;
    }
    assert!(seen > 20, "only {seen} codes were found");
}
