//! A damaged journal: everything readable is used, the file is kept, and people hear of it.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

use super::{Folder, fails, holds_soon, log_lines, program, serve, terminate};

fn curl(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn segments(folder: &Folder, ending: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.0.join("data").join("journal")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.to_str().is_some_and(|path| path.ends_with(ending))).collect();
    paths.sort();
    paths
}

#[test]
fn a_flipped_bit_is_reported_until_it_is_accepted_and_costs_one_record() {
    let folder = Folder::new("damage");
    let (mut child, greeting) = serve(&folder, "127.0.0.1:0");
    let call = greeting.split_once("Try it:").unwrap().1.trim().to_owned();
    for _ in 0..5 {
        curl(&format!("{call} -s -S"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let [segment] = &segments(&folder, ".journal")[..] else { panic!("one segment") };
    let mut bytes = std::fs::read(segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(segment, bytes).unwrap();
    let proved = folder.run(&["ledger", "verify", "--json"]);
    assert_eq!(proved.status.code(), Some(1));
    let proved: Value = serde_json::from_slice(&proved.stdout).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert_eq!((&proved["ok"], &proved["damaged"][0]["file"]), (&false.into(), &name.into()));
    assert_eq!(proved["broken"], serde_json::json!([]));

    let mut child = program(&folder)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let log = log_lines(&mut child);
    let line = log.wait_for("the journal is damaged");
    assert!(line.contains(name), "{line}");
    let kept = format!("{name}.damaged");
    let line = log.wait_for("accept-damage");
    assert!(line.contains(&kept), "{line}");
    assert!(holds_soon(|| segments(&folder, ".damaged").len() == 1));
    let url = {
        use std::io::{BufRead as _, BufReader};
        let greeting = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        greeting
            .filter_map(|line| Some(line.split_once("  API      ")?.1.trim().to_owned()))
            .next()
            .unwrap()
    };
    let journal = || {
        let report = curl(&format!("curl -s {url}/readyz?verbose"));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["status"], "ready");
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "journal").unwrap()
    };
    assert_eq!(journal(), json!({ "name": "journal", "state": "warning" }));
    let doctor = folder.run(&["doctor", "--json", "--url", &url]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8(doctor.stdout).unwrap().contains(&kept));
    let proved = folder.run(&["ledger", "verify"]);
    assert_eq!(proved.status.code(), Some(1));
    let said = String::from_utf8(proved.stdout).unwrap();
    assert!(said.contains(&format!("{kept} is damaged")), "{said}");
    assert!(said.contains("the journal is damaged: 1 keys, 5 calls"), "{said}");

    fails(&folder.run(&["ledger", "accept-damage", name]), 1, "damaged file of the journal");
    let accepted = folder.run(&["ledger", "accept-damage", &kept]);
    assert!(accepted.status.success(), "{accepted:?}");
    assert!(folder.run(&["ledger", "verify"]).status.success());
    assert!(holds_soon(|| journal()["state"] == "good"), "the running gateway sees it");
    assert_eq!(segments(&folder, ".accepted").len(), 1, "the file is never deleted");
    let audit = folder.run(&["audit", "--action", "journal.accept_damage"]);
    assert!(String::from_utf8(audit.stdout).unwrap().contains(&kept));
    assert_eq!(terminate(child), Some(0));
}
