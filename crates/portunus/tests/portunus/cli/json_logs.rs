//! Logs as JSON: every line, and no secret among them.

use serde_json::Value;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use super::{DEADLINE, Folder, holds_soon, log_lines, program, terminate};

/// Lines of a log up to the one that names the file, each of which must be JSON.
fn lines_up_to_file(lines: &super::LogLines) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    loop {
        let line = lines.0.recv_timeout(DEADLINE).unwrap();
        seen.push(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")));
        if seen.last().is_some_and(|line| line.get("file").is_some()) {
            return seen;
        }
    }
}

#[test]
fn with_json_logs_the_first_key_is_in_a_file_and_nothing_is_plain_text() {
    let folder = Folder::new("json-first");
    let mut child = program(&folder)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("PORTUNUS_LOG_FORMAT", "json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = log_lines(&mut child);
    let seen = lines_up_to_file(&lines);
    let logged = format!("{seen:?}");
    assert!(!logged.contains("sk-pt-") && !logged.contains("/console/setup/"), "{logged}");
    let file = folder.0.join(seen.last().unwrap()["file"].as_str().unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let greeting = std::fs::read_to_string(&file).unwrap();
    assert!(greeting.contains("/console/setup/"), "{greeting}");
    let curl = greeting.split_once("Try it:").unwrap().1.trim().to_owned();
    let works = || {
        let output = Command::new("sh").args(["-c", &format!("{curl} -s -S")]).output().unwrap();
        let answer = serde_json::from_slice::<Value>(&output.stdout);
        answer.is_ok_and(|answer| answer["object"] == "chat.completion")
    };
    assert!(holds_soon(works), "{curl}");
    let mut stdout = child.stdout.take().unwrap();
    assert_eq!(terminate(child), Some(0));
    let mut said = String::new();
    stdout.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    for line in lines.0.iter() {
        serde_json::from_str::<Value>(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(!line.contains("sk-pt-"), "{line}");
    }
}

#[test]
fn below_systemd_the_first_key_is_not_in_the_journal() {
    let folder = Folder::new("journald");
    let journal = std::fs::File::create(folder.0.join("journal.txt")).unwrap();
    let found = journal.metadata().unwrap();
    let mut child = program(&folder)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino()))
        .stdout(journal)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = log_lines(&mut child);
    let line = lines.wait_for("first-start.txt");
    assert!(!line.contains("sk-pt-"), "{line}");
    assert_eq!(terminate(child), Some(0));
    assert_eq!(std::fs::read_to_string(folder.0.join("journal.txt")).unwrap(), "");
    let greeting = std::fs::read_to_string(folder.0.join("data/first-start.txt")).unwrap();
    assert!(greeting.contains("sk-pt-"), "{greeting}");
}

#[test]
fn the_error_that_ends_the_process_is_json_too() {
    let folder = Folder::new("json-error");
    std::fs::write(folder.0.join("p.toml"), "[server]\nlisten = 7\n").unwrap();
    let output = program(&folder)
        .args(["serve", "--config", "p.toml"])
        .env("PORTUNUS_LOG_FORMAT", "json")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{said}");
    assert!(last["message"].as_str().unwrap().contains("p.toml:2: "), "{said}");
    assert!(last["timestamp"].as_str().unwrap().ends_with('Z'), "{said}");
}

#[test]
fn an_error_of_the_command_line_is_json_too() {
    let folder = Folder::new("json-usage");
    for wrong in [&["serve", "--nope"][..], &["nothing"], &["keys", "create", "--name", "x"]] {
        let output =
            program(&folder).args(wrong).env("PORTUNUS_LOG_FORMAT", "json").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        let line: Value = serde_json::from_str(said.trim_end()).expect(&said);
        assert!(line["message"].as_str().unwrap().starts_with("error: "), "{said}");
    }
}
