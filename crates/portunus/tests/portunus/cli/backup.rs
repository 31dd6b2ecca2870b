//! Backup of a running gateway, and what capped keys can spend after it is restored.

use serde_json::Value;
use sqlx::{Connection as _, SqliteConnection};

use super::full_disk::{accept, answer, call, prepare, reply, start};
use super::{Folder, fails, holds_soon, program, terminate};
use crate::small_disk::SmallDisk;

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
fn no_command_makes_a_database_in_place_of_a_missing_one() {
    let folder = Folder::new("missing-database");
    let verify = ["ledger", "verify"].as_slice();
    let backup = ["backup", "copy.db"].as_slice();
    let database = folder.0.join("data/portunus.db");
    for command in [verify, backup, &["audit"], &["ledger", "export"]] {
        fails(&folder.run(command), 1, "there is no database at");
    }
    assert!(!database.exists());
    let (upstream, key) = prepare(&folder);
    let (child, _log, url) = start(&folder);
    let caller = call(&url, &key);
    answer(&mut accept(&upstream));
    assert!(reply(caller).starts_with("HTTP/1.1 200"));
    assert_eq!(terminate(child), Some(0));
    let away = folder.0.join("away.db");
    std::fs::rename(&database, &away).unwrap();
    let create = ["keys", "create", "--name", "new", "--unlimited"].as_slice();
    for command in [verify, backup, create, &["keys", "list"], &["users", "list"]] {
        fails(&folder.run(command), 1, "1 calls of this data folder were posted to it");
    }
    let serve = ["serve", "--config", "portunus.toml", "--listen", "127.0.0.1:0"].as_slice();
    for command in [serve, &["serve", "--config", "portunus.toml", "--take-over"]] {
        let refused = folder.run(command);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("1 calls of this data folder were posted to it"), "{said}");
    }
    assert!(!database.exists());
    // Another database looks right, too.
    let other = Folder::new("other-database");
    assert!(other.run(&["migrate"]).status.success());
    std::fs::copy(other.0.join("data/portunus.db"), &database).unwrap();
    for command in [verify, backup] {
        fails(&folder.run(command), 1, "were posted to another database than this one");
    }
    std::fs::rename(&away, &database).unwrap();
    for command in [verify, backup] {
        assert!(folder.run(command).status.success());
    }
}

#[test]
fn a_link_to_the_database_stays_a_link() {
    let folder = Folder::new("linked-database");
    let (database, target) = (folder.0.join("data/portunus.db"), folder.0.join("target.db"));
    assert!(folder.run(&["migrate"]).status.success());
    std::fs::rename(&database, &target).unwrap();
    std::os::unix::fs::symlink(&target, &database).unwrap();
    assert!(folder.run(&["backup", "copy.db"]).status.success());
    assert!(folder.run(&["restore", "copy.db"]).status.success());
    assert!(database.is_symlink());
    assert!(folder.run(&["ledger", "verify"]).status.success());
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

/// Runs a statement on a database and returns its number.
fn number(database: &std::path::Path, sql: &'static str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{}", database.display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        let found = sqlx::query_scalar(sql).fetch_optional(&mut db).await.unwrap();
        db.close().await.unwrap();
        found.unwrap_or(-1)
    })
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_changed_or_cut_backup_is_refused_before_anything_is_changed() {
    let folder = Folder::new("changed-backup");
    folder.json(&["keys", "create", "--name", "c", "--cap", "0.2", "--json"]);
    let made = folder.run(&["backup", "copy"]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(names(&folder.0), ["copy", "data"], "no other file is left");
    let sound = std::fs::read(folder.0.join("copy")).unwrap();
    let before = std::fs::read(folder.0.join("data/portunus.db")).unwrap();
    let files = names(&folder.0.join("data"));
    let mut changed = sound.clone();
    changed[sound.len() / 2] ^= 1;
    std::fs::write(folder.0.join("changed"), changed).unwrap();
    std::fs::write(folder.0.join("cut"), &sound[..sound.len() - 7]).unwrap();
    std::fs::write(folder.0.join("foreign"), "something else").unwrap();
    fails(&folder.run(&["restore", "changed"]), 1, "damaged");
    fails(&folder.run(&["restore", "cut"]), 1, "incomplete");
    fails(&folder.run(&["restore", "foreign"]), 1, "no backup");
    assert_eq!(std::fs::read(folder.0.join("data/portunus.db")).unwrap(), before);
    assert_eq!(names(&folder.0.join("data")), files);
    assert!(folder.run(&["restore", "copy"]).status.success());

    // A backup of an earlier version is a plain file of SQLite.
    std::fs::copy(folder.0.join("data/portunus.db"), folder.0.join("plain")).unwrap();
    assert!(folder.run(&["restore", "plain"]).status.success());
}

/// Returns a backup of these sections, with the right checksum.
fn sealed(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = b"portunus backup 1\n".to_vec();
    for (name, content) in sections {
        file.push(b'S');
        file.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
        file.extend(name.as_bytes());
        file.push(b'C');
        file.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        file.extend(*content);
    }
    file.push(b'E');
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &file);
    file.extend(sum.as_ref());
    file
}

#[test]
fn only_a_database_of_portunus_takes_the_place_of_another() {
    let folder = Folder::new("foreign-database");
    let made = folder.json(&["keys", "create", "--name", "c", "--cap", "0.2", "--json"]);
    let database = folder.0.join("data/portunus.db");
    let other = folder.0.join("other.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{}?mode=rwc", other.display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("CREATE TABLE moz_places (a)").execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    });
    let schema = number(&database, "SELECT MAX(version) FROM _sqlx_migrations");
    let about = |kind: &str, schema: i64| {
        format!(
            "{{\"kind\":\"{kind}\",\"schema\":{schema},\"version\":\"1.0.0\",\
             \"created\":\"2026-11-16T00:00:00Z\"}}"
        )
    };
    let (own, foreign) = (std::fs::read(&database).unwrap(), std::fs::read(&other).unwrap());
    let about_own = about("sqlite", schema);
    let write = |name: &str, sections: &[(&str, &[u8])]| {
        std::fs::write(folder.0.join(name), sealed(sections)).unwrap();
    };
    write("sound", &[("database", &own), ("about", about_own.as_bytes())]);
    write("only-about", &[("about", about_own.as_bytes())]);
    write("empty", &[("database", b""), ("about", about_own.as_bytes())]);
    write("two", &[("database", &own), ("database", &own), ("about", about_own.as_bytes())]);
    write("foreign", &[("database", &foreign), ("about", about_own.as_bytes())]);
    write("schema", &[("database", &own), ("about", about("sqlite", schema - 1).as_bytes())]);
    let before = names(&folder.0.join("data"));
    for (file, why) in [
        ("other.db", "is no database of Portunus"),
        ("foreign", "is no database of Portunus"),
        ("empty", "is no database of Portunus"),
        ("only-about", "it has no database in it"),
        ("two", "it has no database in it"),
        ("schema", "its database has schema"),
    ] {
        fails(&folder.run(&["restore", file]), 1, why);
        assert_eq!(std::fs::read(&database).unwrap(), own, "{file}");
        let mut now = names(&folder.0.join("data"));
        now.retain(|name| before.contains(name) || name.contains("portunus.db"));
        assert_eq!(now, before, "{file}");
    }
    assert!(folder.run(&["restore", "sound"]).status.success());
    let listed = folder.run(&["keys", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(made["id"].as_str().unwrap()), "{listed}");

    write("tables", &[("about", about("postgres", schema).as_bytes())]);
    std::fs::write(
        folder.0.join("pg.toml"),
        "[store]\nurl = \"postgres://u:p@127.0.0.1:1/d\"\n[server]\nsecret = { text = \"0123456789abcdef0123456789abcdef\" }\n",
    )
    .unwrap();
    let refused = folder.run(&["--config", "pg.toml", "restore", "tables"]);
    fails(&refused, 1, "it has no database in it");
}

/// A database that was kept by a restore has commits that are in its log only.
#[test]
fn a_plain_file_is_restored_with_its_log() {
    let folder = Folder::new("kept-log");
    let (_upstream, _) = prepare(&folder);
    let (mut child, _log, _) = start(&folder);
    let made = folder.json(&["keys", "create", "--name", "late", "--cap", "0.2", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let database = folder.0.join("data/portunus.db");
    for ending in ["", "-wal"] {
        let copy = folder.0.join(format!("copy.db{ending}"));
        std::fs::copy(format!("{}{ending}", database.display()), copy).unwrap();
    }
    assert!(std::fs::metadata(folder.0.join("copy.db-wal")).unwrap().len() > 0);
    let other = Folder::new("kept-log-restored");
    let copy = folder.0.join("copy.db");
    let restored = other.run(&["restore", copy.to_str().unwrap()]);
    assert!(restored.status.success(), "{restored:?}");
    let listed = String::from_utf8(other.run(&["keys", "list"]).stdout).unwrap();
    assert!(listed.contains(made["id"].as_str().unwrap()), "{listed}");
}

/// The log of a database that is gone must not be applied to the restored one.
#[test]
fn a_restore_beside_the_log_of_a_lost_database_is_sound() {
    let folder = Folder::new("lost-database");
    let (_upstream, _) = prepare(&folder);
    folder.json(&["keys", "create", "--name", "early", "--cap", "0.2", "--json"]);
    assert!(folder.run(&["backup", "copy"]).status.success());
    fails(&folder.run(&["backup", "-"]), 1, "a backup is a file");
    let (mut child, _log, _) = start(&folder);
    for name in ["a", "b", "c", "d"] {
        folder.json(&["keys", "create", "--name", name, "--cap", "0.2", "--json"]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let data = folder.0.join("data");
    assert!(std::fs::metadata(data.join("portunus.db-wal")).unwrap().len() > 0);
    std::fs::remove_file(data.join("portunus.db")).unwrap();
    let restored = folder.run(&["restore", "copy"]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(number(&data.join("portunus.db"), "SELECT COUNT(*) FROM keys WHERE cap > 0"), 1);
    let kept = names(&data);
    let is_log = |name: &String| name.contains(".before-") && name.ends_with("-wal");
    assert!(kept.iter().any(is_log), "{kept:?}");
    assert!(folder.run(&["ledger", "verify"]).status.success());
    // Twice within a second: each keeps the database before it.
    for _ in 0..2 {
        assert!(folder.run(&["restore", "copy"]).status.success());
    }
    let is_kept = |name: &&String| name.contains(".before-") && !name.ends_with("-shm");
    assert_eq!(names(&data).iter().filter(is_kept).count(), 3, "{:?}", names(&data));
}

#[test]
fn the_vault_key_in_a_backup_opens_with_its_passphrase_only() {
    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let folder = Folder::new("sealed-key");
    folder.json(&["keys", "create", "--name", "c", "--unlimited", "--json"]);
    let sealed = ["backup", "copy", "--with-vault-key"];
    let phrase = |text: &str| std::fs::write(folder.0.join("phrase"), text).unwrap();
    phrase("correct horse battery\n");
    let with_file = [&sealed[..], &["--passphrase-file", "phrase"]].concat();
    fails(&folder.run(&with_file), 1, "vault.key");
    std::fs::write(folder.0.join("data/vault.key"), format!("one:{KEY}\n")).unwrap();
    fails(&folder.run(&sealed), 1, "PORTUNUS_BACKUP_PASSPHRASE");
    phrase("short\n");
    fails(&folder.run(&with_file), 1, "12 characters");
    phrase("correct horse battery\n");
    let made = folder.run(&with_file);
    assert!(made.status.success(), "{made:?}");
    let content = std::fs::read(folder.0.join("copy")).unwrap();
    assert!(!content.windows(KEY.len()).any(|part| part == KEY.as_bytes()));

    let other = Folder::new("opened-key");
    std::fs::copy(folder.0.join("copy"), other.0.join("copy")).unwrap();
    let restore = |phrase: &str| {
        let mut command = program(&other);
        command.args(["restore", "copy", "--with-vault-key"]);
        command.env("PORTUNUS_BACKUP_PASSPHRASE", phrase).output().unwrap()
    };
    fails(&restore("another phrase"), 1, "the passphrase is wrong");
    assert!(!other.0.join("data/portunus.db").exists(), "nothing is changed");
    let restored = restore("correct horse battery");
    assert!(restored.status.success(), "{restored:?}");
    let said = String::from_utf8(restored.stdout).unwrap();
    assert!(said.contains("the books balance") && !said.contains(KEY), "{said}");
    let key = std::fs::read_to_string(other.0.join("data/vault.key")).unwrap();
    assert_eq!(key, format!("one:{KEY}\n"));
    let plain = other.run(&["restore", "copy"]);
    assert!(String::from_utf8(plain.stdout).unwrap().contains("--with-vault-key does that"));
}

#[test]
fn a_full_disk_leaves_no_backup() {
    let folder = Folder::new("full-backup");
    folder.json(&["keys", "create", "--name", "c", "--unlimited", "--json"]);
    // Without root there is none to test on.
    let Some(_disk) = SmallDisk::mount(&folder.0.join("small"), "100k") else { return };
    fails(&folder.run(&["backup", "small/copy"]), 1, "small/copy cannot be written");
    assert_eq!(names(&folder.0.join("small")), [""; 0]);
    assert!(folder.run(&["backup", "copy"]).status.success());
}

/// Somebody copies the database of a running gateway to another machine, without `restore`.
#[test]
fn a_copied_database_locks_no_key_for_more_than_a_minute() {
    let folder = Folder::new("copied-from");
    let (upstream, _) = prepare(&folder);
    // A call reserves more than half of it.
    let made = folder.json(&["keys", "create", "--name", "c", "--cap", "0.2", "--json"]);
    let key = made["key"].as_str().unwrap();
    let (mut child, _log, url) = start(&folder);
    let caller = call(&url, key);
    answer(&mut accept(&upstream));
    let got = reply(caller);
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    let database = folder.0.join("data/portunus.db");
    let stated = || number(&database, "SELECT exposed FROM leases");
    assert!(holds_soon(|| stated() == 0), "nothing is stated for a quiet key: {}", stated());
    assert!(number(&database, "SELECT leased FROM keys WHERE cap IS NOT NULL") > 100_000_000);
    let other = Folder::new("copied-to");
    std::fs::create_dir_all(other.0.join("data")).unwrap();
    let copy = other.0.join("data/portunus.db");
    let into = format!("VACUUM INTO '{}'", copy.display());
    number(&database, Box::leak(into.into_boxed_str()));
    child.kill().unwrap();
    child.wait().unwrap();

    std::fs::copy(folder.0.join("portunus.toml"), other.0.join("portunus.toml")).unwrap();
    let (child, _log, url) = start(&other);
    assert!(holds_soon(|| number(&copy, "SELECT COUNT(*) FROM leases") == 0));
    let caller = call(&url, key);
    answer(&mut accept(&upstream));
    let got = reply(caller);
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    assert_eq!(terminate(child), Some(0));
    assert!(other.run(&["ledger", "verify"]).status.success());
}
