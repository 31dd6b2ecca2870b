//! Backup of a running gateway, and what capped keys can spend after it is restored.

use serde_json::Value;

use super::full_disk::{accept, answer, call, prepare, reply, start};
use super::{Folder, fails, terminate};

#[test]
fn after_a_restore_a_capped_key_spends_at_once_what_is_left() {
    let folder = Folder::new("backed-up");
    let (upstream, _) = prepare(&folder);
    // A call reserves more than half of it, so that nothing may be kept aside.
    let made = folder.json(&["keys", "create", "--name", "c", "--cap", "0.2", "--json"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let (mut child, _log, url) = start(&folder);
    let serve_one = |url: &str| {
        let caller = call(url, key);
        answer(&mut accept(&upstream));
        let got = reply(caller);
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    };
    serve_one(&url);
    let backup = folder.run(&["--config", "portunus.toml", "backup", "copy.db"]);
    assert!(backup.status.success(), "{backup:?}");
    fails(&folder.run(&["backup", "copy.db"]), 1, "exists");
    serve_one(&url);
    fails(&folder.run(&["restore", "copy.db"]), 1, "another portunus process");
    child.kill().unwrap();
    child.wait().unwrap();

    // On another machine, without the journal of this one.
    let other = Folder::new("restored");
    for file in ["portunus.toml", "copy.db"] {
        std::fs::copy(folder.0.join(file), other.0.join(file)).unwrap();
    }
    std::fs::write(other.0.join("empty"), "").unwrap();
    fails(&other.run(&["restore", "empty"]), 1, "no backup");
    fails(&other.run(&["restore", "missing"]), 1, "cannot be read");
    let restored = other.run(&["restore", "copy.db"]);
    let said = String::from_utf8(restored.stdout.clone()).unwrap();
    assert!(restored.status.success(), "{restored:?}");
    assert!(said.contains(&format!("key {id}: 0.199820000 of 0.200000000 USD are left")), "{said}");
    assert!(said.contains("the books balance"), "{said}");
    let (child, _log, url) = start(&other);
    serve_one(&url);
    assert_eq!(terminate(child), Some(0));

    // On the same machine its journal has the call that came after the backup.
    let restored = folder.run(&["restore", "copy.db"]);
    assert!(restored.status.success(), "{restored:?}");
    let kept = std::fs::read_dir(folder.0.join("data")).unwrap();
    let kept = kept.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(kept.into_iter().any(|name| name.starts_with("portunus.db.before-")));
    let exported = folder.run(&["ledger", "export"]);
    let exported = String::from_utf8(exported.stdout).unwrap();
    let costs = exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let costs: Vec<Value> = costs.map(|line| line["cost_usd"].clone()).collect();
    assert_eq!(costs, ["0.000180000", "0.000180000"]);
    let audit = folder.run(&["audit", "--action", "store.adopt"]);
    assert!(String::from_utf8(audit.stdout).unwrap().contains("store.adopt"));
    let (child, _log, url) = start(&folder);
    serve_one(&url);
    assert_eq!(terminate(child), Some(0));
    assert!(folder.run(&["ledger", "verify"]).status.success(), "nothing is missing");

    // The start has retired the segments with the calls after the backup.
    let restored = folder.run(&["restore", "copy.db"]);
    let said = String::from_utf8(restored.stdout).unwrap();
    assert!(said.contains("2 calls taken from the journal"), "{said}");
    assert!(said.contains(&format!("key {id}: 0.199460000 of 0.200000000 USD are left")), "{said}");
    assert!(!said.contains("any more"), "{said}");
    let (child, _log, _) = start(&folder);
    assert_eq!(terminate(child), Some(0));
    assert!(folder.run(&["ledger", "verify"]).status.success(), "nothing is missing");
}

#[test]
fn a_database_that_was_set_back_while_the_gateway_was_stopped_is_noticed() {
    let folder = Folder::new("set-back");
    let (upstream, key) = prepare(&folder);
    let serve_one = || {
        let (child, log, url) = start(&folder);
        let caller = call(&url, &key);
        answer(&mut accept(&upstream));
        let got = reply(caller);
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        assert_eq!(terminate(child), Some(0));
        log
    };
    drop(serve_one());
    let (database, stale) = (folder.0.join("data/portunus.db"), folder.0.join("stale.db"));
    std::fs::copy(&database, &stale).unwrap();
    drop(serve_one());
    drop(serve_one());
    assert!(folder.run(&["ledger", "verify"]).status.success());
    std::fs::copy(&stale, &database).unwrap();
    let line = serve_one().wait_for("the store went back");
    assert!(line.contains("2 calls of this node were missing, 2 were posted again"), "{line}");
    let exported = folder.run(&["ledger", "export"]);
    assert_eq!(String::from_utf8(exported.stdout).unwrap().lines().count(), 4);
    let proved = folder.run(&["ledger", "verify"]);
    assert_eq!(proved.status.code(), Some(1));
    let said = String::from_utf8(proved.stdout).unwrap();
    assert!(said.contains("the database went back: "), "{said}");
    assert!(folder.run(&["ledger", "accept-rollback"]).status.success());
    assert!(folder.run(&["ledger", "verify"]).status.success());
}
