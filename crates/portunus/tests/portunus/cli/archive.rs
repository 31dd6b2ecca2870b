//! Archiving and erasure by the program, beside a running gateway.

use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;

use super::{Folder, fails, holds_soon, serve, terminate};

/// Makes a call of a demo model and returns the status.
fn call(url: &str, key: &str, session: &str) -> String {
    let sent = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}"])
        .args([&format!("{url}/v1/responses"), "-H", &format!("Authorization: Bearer {key}")])
        .args(["-H", "Content-Type: application/json", "-H", &format!("session_id: {session}")])
        .args(["-d", r#"{"model":"demo-echo","input":"Hello quixotica!"}"#])
        .output()
        .unwrap();
    String::from_utf8(sent.stdout).unwrap()
}

fn address(greeting: &str) -> String {
    let line = greeting.lines().find_map(|line| line.split_once("  API      ")).unwrap();
    line.1.trim().to_owned()
}

fn verified(folder: &Folder) -> Value {
    let verified = folder.run(&["ledger", "verify", "--json"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    serde_json::from_slice(&verified.stdout).unwrap()
}

fn calls(folder: &Folder) -> i64 {
    let verified = folder.run(&["ledger", "verify", "--json"]);
    let verified: Value = serde_json::from_slice(&verified.stdout).unwrap_or_default();
    verified["calls"].as_i64().unwrap_or_default()
}

#[test]
fn calls_are_archived_and_an_account_is_forgotten_while_the_gateway_runs() {
    let folder = Folder::new("archived");
    folder.run(&["users", "create", "quixotica", "--email", "quixotica@example.com"]);
    let made = folder.json(&[
        "keys",
        "create",
        "--name",
        "k",
        "--unlimited",
        "--account",
        "quixotica",
        "--json",
    ]);
    let key = made["key"].as_str().unwrap();
    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    let url = address(&greeting);
    for number in 0..4 {
        assert_eq!(call(&url, key, &format!("quixotica-{number}")), "200");
    }
    assert!(holds_soon(|| calls(&folder) == 4));
    let before = verified(&folder);

    fails(&folder.run(&["archive"]), 1, "--until");
    fails(&folder.run(&["archive", "--until", "2100-01-01"]), 1, "--yes");
    fails(&folder.run(&["archive", "--until", "2100-01-01", "--to", "ftp:x", "--yes"]), 1, "--to");
    let archive = ["archive", "--until", "2100-01-01", "--to", "file:old", "--yes", "--json"];
    assert_eq!(folder.json(&archive)["calls"], 4);
    assert_eq!(folder.json(&archive)["calls"], 0);
    assert!(folder.run(&["ledger", "export"]).stdout.is_empty());
    assert_eq!(verified(&folder)["calls"], before["calls"]);
    let check = ["archive", "verify", "--to", "file:old", "--json"];
    let found = folder.json(&check);
    assert_eq!((found["ok"].as_bool(), found["calls"].as_i64()), (Some(true), Some(4)));
    assert_eq!(found["notes"], Value::Array(Vec::new()));

    // A file that is damaged or missing is found.
    let old = folder.0.join("old");
    let file = std::fs::read_dir(&old).unwrap().map(|file| file.unwrap().path());
    let file =
        file.into_iter().find(|file| file.extension().is_some_and(|end| end == "zst")).unwrap();
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, whole.split_last().unwrap().1).unwrap();
    let found = folder.run(&check);
    assert_eq!(found.status.code(), Some(1));
    assert!(String::from_utf8(found.stdout).unwrap().contains("SHA-256"));
    std::fs::write(&file, whole).unwrap();
    assert!(folder.run(&check).status.success());

    assert_eq!(call(&url, key, "quixotica-later"), "200");
    assert!(holds_soon(|| calls(&folder) == 5));
    let counted = folder.json(&["forget", "quixotica", "--dry-run", "--json"]);
    assert_eq!(counted["rows"]["keys"], 1);
    assert!(counted["rows"]["stored_answers"].as_i64() > Some(0), "{counted}");
    fails(&folder.run(&["forget", "quixotica"]), 1, "--yes");
    fails(&folder.run(&["forget", "nobody", "--yes"]), 1, "users list");
    let erased = folder.json(&["forget", "quixotica", "--yes", "--json"]);
    assert!(erased["rows"]["call_sessions"].as_i64() > Some(0), "{erased}");
    let served = Cell::new(0);
    let is_refused = || {
        let status = call(&url, key, "end");
        served.set(served.get() + i64::from(status == "200"));
        status == "401"
    };
    assert!(holds_soon(is_refused));
    assert!(holds_soon(|| verified(&folder)["calls"] == 5 + served.get()));
    let left = [
        folder.run(&["ledger", "export"]),
        folder.run(&["audit"]),
        folder.run(&["users", "list"]),
        folder.run(&["keys", "list"]),
    ];
    for output in left {
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.contains("quixotica"), "{said}");
    }
    let audit = String::from_utf8(folder.run(&["audit", "--action", "account"]).stdout).unwrap();
    assert!(audit.contains("account.erase"), "{audit}");
    let lines = || String::from_utf8(folder.run(&["audit"]).stdout).unwrap();
    let before = lines();
    fails(&folder.run(&["forget", "owner", "--yes"]), 1, "only owner");
    assert_eq!(lines(), before, "a refused erasure changes no line");
    let id = erased["id"].as_str().unwrap();
    for name in [id.to_owned(), format!("erased-{id}")] {
        assert_eq!(folder.json(&["forget", &name, "--yes", "--json"])["id"], id);
    }
    assert_eq!(terminate(child), Some(0));
    let database = std::fs::read(folder.0.join("data/portunus.db")).unwrap();
    assert!(!database.windows(9).any(|part| part == b"quixotica"));
    assert_eq!(verified(&folder)["calls"], 5 + served.get());
}

/// After a restore the parts have the numbers of parts that were archived since the backup.
#[test]
fn a_restored_gateway_replaces_no_file_of_the_archive() {
    let folder = Folder::new("archived-twice");
    let made = folder.json(&["keys", "create", "--name", "k", "--unlimited", "--json"]);
    let key = made["key"].as_str().unwrap();
    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    let url = address(&greeting);
    assert_eq!(call(&url, key, "a"), "200");
    assert!(holds_soon(|| calls(&folder) == 1));
    assert!(folder.run(&["backup", "copy"]).status.success());
    assert_eq!(call(&url, key, "b"), "200");
    assert!(holds_soon(|| calls(&folder) == 2));
    let archive = ["archive", "--until", "2100-01-01", "--to", "file:old", "--yes", "--json"];
    assert_eq!(folder.json(&archive)["calls"], 2);
    assert_eq!(terminate(child), Some(0));
    let files = || {
        let files = std::fs::read_dir(folder.0.join("old")).unwrap();
        files
            .map(|file| file.unwrap().path())
            .map(|file| (file.clone(), std::fs::read(file).unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let before = files();
    assert_eq!(before.len(), 2);

    // On another machine, without the journal of this one.
    std::fs::remove_dir_all(folder.0.join("data")).unwrap();
    assert!(folder.run(&["restore", "copy"]).status.success());
    assert_eq!(folder.json(&archive)["calls"], 1);
    let after = files();
    assert_eq!(after.len(), 4);
    assert!(before.iter().all(|(name, bytes)| after.get(name) == Some(bytes)));
    let found = folder.json(&["archive", "verify", "--to", "file:old", "--json"]);
    assert_eq!((found["ok"].as_bool(), found["calls"].as_i64()), (Some(true), Some(1)));
    assert_eq!(found["notes"].as_array().map(Vec::len), Some(2), "{found}");
}
