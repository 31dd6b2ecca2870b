//! `portunus audit`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{Folder, fails, program};

fn lines(folder: &Folder, arguments: &[&str]) -> Vec<String> {
    let output = folder.run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_audit_log_is_printed_filtered_and_exported() {
    let folder = Folder::new("audit");
    assert!(folder.run(&["users", "create", "anna"]).status.success());
    let key = folder.json(&["keys", "create", "--name", "robot", "--unlimited", "--json"]);
    let id = key["id"].as_str().unwrap();
    let text = lines(&folder, &["audit"]);
    let made = text.iter().position(|line| line.contains("  key.create  robot")).unwrap();
    let person = text.iter().position(|line| line.contains("  account.create  anna")).unwrap();
    assert!(person < made, "oldest first: {text:?}");
    assert!(text[made].contains("Z  command line  "), "{text:?}");
    let json: Vec<Value> = lines(&folder, &["audit", "--action", "key", "--json"])
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(json.len(), 1, "{json:?}");
    assert_eq!(json[0]["subject"], id);
    assert_eq!((&json[0]["address"], &json[0]["agent"]), (&Value::Null, &Value::Null));
    let csv = lines(&folder, &["audit", "--format", "csv", "--action", "key.create"]);
    assert_eq!(csv[0], "at,actor,actor_id,action,subject,subject_id,detail,key_id,address,agent");
    assert!(csv[1].contains(&format!(",command line,command line,key.create,robot,{id},")));
    assert_eq!(lines(&folder, &["audit", "--until", "2026-01-01"]), [""; 0]);
    assert_eq!(lines(&folder, &["audit", "--actor", "anna"]), [""; 0]);
    fails(&folder.run(&["audit", "--since", "yesterday"]), 2, "--since");
    fails(&folder.run(&["audit", "--follow", "--until", "2026-01-01"]), 2, "--until");
}

#[test]
fn following_prints_changes_of_other_processes() {
    let folder = Folder::new("audit-follow");
    folder.json(&["keys", "create", "--name", "first", "--unlimited", "--json"]);
    let mut child = program(&folder)
        .args(["audit", "--action", "key.create", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(printed.next().unwrap().unwrap().contains("first"));
    folder.json(&["keys", "create", "--name", "second", "--unlimited", "--json"]);
    assert!(printed.next().unwrap().unwrap().contains("second"));
    child.kill().unwrap();
    child.wait().unwrap();
}
