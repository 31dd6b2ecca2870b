//! `portunus doctor` and `portunus check`: every trouble has a name, a sentence and a remedy.

use serde_json::Value;
use std::net::TcpListener;
use std::process::Command;

use super::full_disk::start;
use super::{Folder, fails, holds_soon, terminate};
use crate::small_disk::SmallDisk;

/// A configuration whose connections fit into any limit of open files.
const SMALL: &str = "[limits]\nconnections = 100\n";

fn write(folder: &Folder, config: &str) {
    std::fs::write(folder.0.join("portunus.toml"), config).unwrap();
}

/// Returns the exit code and the checks.
fn doctor(folder: &Folder, more: &[&str]) -> (i32, Vec<Value>) {
    let base = ["doctor", "--json", "--config", "portunus.toml"];
    let output = folder.run(&[&base, more].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let checks = report["checks"].as_array().unwrap().clone();
    let code = output.status.code().unwrap();
    assert_eq!(report["ok"], code == 0, "{report}");
    for check in checks.iter().filter(|check| check["state"] != "good") {
        assert!(check["message"].is_string() && check["hint"].is_string(), "{check}");
    }
    (code, checks)
}

fn state(checks: &[Value], name: &str) -> String {
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {checks:?}"))["state"].as_str().unwrap().to_owned()
}

fn message(checks: &[Value], name: &str) -> String {
    let found = checks.iter().find(|check| check["name"] == name).unwrap();
    found["message"].as_str().unwrap().to_owned()
}

fn curl(address: &str) -> (u16, String) {
    let asked = Command::new("curl").args(["-s", "-w", "\n%{http_code}", address]).output();
    let said = String::from_utf8(asked.unwrap().stdout).unwrap();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

#[test]
fn a_gateway_that_does_not_run_is_checked_without_touching_anything() {
    let folder = Folder::new("doctor-stopped");
    write(&folder, &format!("[server]\nlisten = \"127.0.0.1:1\"\n{SMALL}"));
    let (code, checks) = doctor(&folder, &[]);
    assert_eq!(code, 0, "{checks:?}");
    assert!(message(&checks, "gateway").starts_with("none runs at"), "{checks:?}");
    assert!(!folder.0.join("data").exists(), "nothing is created");
    let text = folder.run(&["doctor", "--config", "portunus.toml"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("good     store         SQLite has no tables yet"), "{text}");
    assert!(text.lines().last().unwrap().ends_with("checks are good"), "{text}");
}

#[test]
fn a_folder_that_no_start_creates_is_missing() {
    let folder = Folder::new("doctor-folder");
    write(&folder, &format!("[store]\nurl = \"sqlite:nowhere/portunus.db\"\n{SMALL}"));
    let (code, checks) = doctor(&folder, &[]);
    assert_eq!((code, state(&checks, "store").as_str()), (1, "failing"));
    assert!(message(&checks, "store").contains("the folder `nowhere` does not exist"));
    let checked = folder.run(&["check", "--config", "portunus.toml"]);
    let said = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("`nowhere`"), "{said}");
}

#[test]
fn each_trouble_is_named_with_a_remedy() {
    let folder = Folder::new("doctor-troubles");
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = refusing.local_addr().unwrap();
    drop(refusing);
    write(
        &folder,
        &format!(
            "[server]\nlisten = \"127.0.0.1:1\"\n[store]\nurl = \"postgres://u:hush@{closed}/d\"\n\
             [shared]\nvalkey = \"redis://:hush@{closed}\"\n[limits]\nconnections = 999999999\n\
             [files]\nurl = \"s3://bucket/x\"\nendpoint = \"http://{closed}\"\nregion = \"r\"\n\
             access_key = {{ text = \"hush\" }}\nsecret_key = {{ text = \"hush\" }}\n\
             [providers.p]\nspeaks = \"chat\"\nbase = \"http://{closed}/v1\"\n\
             auth = {{ bearer = {{ text = \"hush\" }} }}\n"
        ),
    );
    let journal = folder.0.join("data/journal");
    std::fs::create_dir_all(&journal).unwrap();
    std::fs::write(journal.join("000000000001.journal.damaged"), "x").unwrap();
    let (code, checks) = doctor(&folder, &[]);
    assert_eq!(code, 1);
    assert_eq!(state(&checks, "store"), "failing");
    assert_eq!(checks[0]["name"], "store", "the worst comes first");
    for name in
        ["journal", "valkey", "files", "vault", "credentials", "configuration", "descriptors"]
    {
        assert_eq!(state(&checks, name), "warning", "{name}");
    }
    assert!(message(&checks, "configuration").contains("/v1/v1/"), "{checks:?}");
    let all = format!("{checks:?}");
    assert!(!all.contains("hush"), "{all}");

    let offline = doctor(&folder, &["--offline"]).1;
    assert!(offline.iter().all(|check| check["name"] != "store"), "{offline:?}");
    let checked = folder.run(&["check", "--config", "portunus.toml", "--json"]);
    assert_eq!(checked.status.code(), Some(1));
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["ok"], false);
    let (warnings, errors) = (checked["warnings"].to_string(), checked["errors"].to_string());
    assert!(errors.contains("the database cannot be reached"), "{checked}");
    for word in ["Valkey", "bucket", "/v1/v1/", "`p`, credential 1"] {
        assert!(warnings.contains(word), "{word}: {checked}");
    }
    let checked = folder.run(&["check", "--offline", "--config", "portunus.toml"]);
    assert!(checked.status.success(), "{checked:?}");
    write(&folder, "[store]\nurl = \"mysql://u:hush@h/d\"\n");
    fails(&folder.run(&["check", "--config", "portunus.toml"]), 1, "store.url: `mysql://`");
}

/// Returns the exit code, the warnings and the errors of `check`.
fn checked(folder: &Folder, more: &[&str]) -> (i32, String, String) {
    let output = folder.run(&[&["check", "--config", "portunus.toml", "--json"], more].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let code = output.status.code().unwrap();
    (code, report["warnings"].to_string(), report["errors"].to_string())
}

#[test]
fn a_url_of_the_store_that_a_start_refuses_is_refused_by_every_command() {
    let folder = Folder::new("check-store-url");
    for (url, why) in [
        ("sqlite:x.db?mode=rwc", "takes a plain path after `sqlite:`, without options"),
        ("sqlite:", "takes a plain path"),
        ("postgres://u:hush@host:port/d", "cannot be read as an address of PostgreSQL"),
    ] {
        write(&folder, &format!("[store]\nurl = \"{url}\"\n{SMALL}"));
        for command in [&["check", "--offline"][..], &["check"], &["doctor"], &["serve"]] {
            let output = folder.run(&[command, &["--config", "portunus.toml"]].concat());
            fails(&output, 1, why);
            assert!(!String::from_utf8_lossy(&output.stderr).contains("hush"), "{output:?}");
        }
    }
}

#[test]
fn a_certificate_that_ends_is_named_by_check_and_doctor() {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    let folder = Folder::new("check-certificate");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["models.example.com".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.0.join("tls.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.0.join("tls.key"), key.serialize_pem()).unwrap();
    write(
        &folder,
        &format!(
            "[server]\nlisten = \"127.0.0.1:1\"\npublic_url = \"https://models.example.com\"\n\
         [server.tls]\ncert = \"tls.pem\"\nkey = \"tls.key\"\n{SMALL}"
        ),
    );
    let (code, warnings, _) = checked(&folder, &["--offline"]);
    assert!(code == 0 && warnings.contains("has expired at 2021-01-01"), "{warnings}");
    assert!(message(&doctor(&folder, &["--offline"]).1, "certificates").contains("has expired"));
}

#[test]
fn an_archive_that_cannot_be_written_is_named() {
    let folder = Folder::new("check-archive");
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = refusing.local_addr().unwrap();
    drop(refusing);
    let bucket = format!(
        "archive = \"s3://bucket/x\"\nendpoint = \"http://{closed}\"\nregion = \"r\"\n\
         access_key = {{ text = \"a\" }}\nsecret_key = {{ text = \"b\" }}\n"
    );
    let under_a_file = "archive = \"file:portunus.toml/old\"\n".to_owned();
    let mut places = vec![bucket, under_a_file];
    // Without root there is no disk to make read-only, and root may write any other folder.
    let disk = SmallDisk::mount(&folder.0.join("small"), "100k");
    if disk.is_some() {
        let remount = ["-o", "remount,ro"];
        let done = Command::new("mount").args(remount).arg(folder.0.join("small")).status();
        assert!(done.unwrap().success());
        places.push("archive = \"file:small/old\"\n".to_owned());
    }
    for place in places {
        write(&folder, &format!("{SMALL}[retention]\n{place}"));
        let (code, warnings, _) = checked(&folder, &[]);
        assert!(
            code == 0 && warnings.contains("old calls cannot be archived"),
            "{place}{warnings}"
        );
        let (_, checks) = doctor(&folder, &[]);
        assert_eq!(state(&checks, "files"), "warning", "{place}");
    }
    write(&folder, &format!("{SMALL}[retention]\narchive = \"file:new/old\"\n"));
    assert_eq!(checked(&folder, &[]).1, "[]");
}

#[test]
fn a_key_file_of_the_vault_that_others_can_read_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("check-vault-file");
    write(&folder, SMALL);
    std::fs::create_dir_all(folder.0.join("data")).unwrap();
    let file = folder.0.join("data/vault.key");
    std::fs::write(&file, "one:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    for (mode, is_open) in [(0o600, false), (0o640, false), (0o644, true), (0o666, true)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let (code, warnings, _) = checked(&folder, &["--offline"]);
        assert_eq!((code, warnings.contains("data/vault.key is open")), (0, is_open), "{warnings}");
        let (_, checks) = doctor(&folder, &["--offline"]);
        assert_eq!(state(&checks, "vault") == "warning", is_open, "{mode:o}");
    }
}

#[test]
fn a_base_that_is_the_url_of_a_call_is_named() {
    let folder = Folder::new("check-base");
    for (base, advice) in [
        ("https://h.example/v1/chat/completions", Some("write `https://h.example`")),
        ("https://h.example/api/chat/completions", Some("write `https://h.example/api`")),
        ("https://h.example/v1/embeddings", Some("write `https://h.example`")),
        ("https://h.example/v1", Some("write `https://h.example`")),
        ("https://h.example/api", None),
    ] {
        write(
            &folder,
            &format!(
                "{SMALL}[providers.p]\nspeaks = \"chat\"\nbase = \"{base}\"\nauth = \"none\"\n"
            ),
        );
        let (code, warnings, _) = checked(&folder, &["--offline"]);
        assert_eq!(code, 0);
        match advice {
            Some(advice) => assert!(warnings.contains(advice), "{base}: {warnings}"),
            None => assert_eq!(warnings, "[]", "{base}"),
        }
    }
}

#[test]
fn a_running_gateway_tells_strangers_states_and_operators_sentences() {
    let folder = Folder::new("doctor-running");
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    write(&folder, &format!("[server]\nmetrics = \"{metrics}\"\n{SMALL}"));
    let (child, _log, url) = start(&folder);
    let checks = |address: &str| -> Vec<Value> {
        let (status, body) = curl(address);
        assert_eq!(status, 200, "{body}");
        let report: Value = serde_json::from_str(&body).unwrap();
        report["checks"].as_array().unwrap().clone()
    };
    let open = format!("{url}/readyz?verbose");
    // The first round of the slower checks has ended.
    assert!(holds_soon(|| checks(&open).iter().any(|check| check["name"] == "drift")));
    for check in checks(&open) {
        let fields: Vec<&String> = check.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["name", "state"], "{check}");
    }
    let full = checks(&format!("http://{metrics}/readyz?verbose"));
    assert!(full.iter().all(|check| check["message"].is_string()), "{full:?}");
    for name in [
        "shutdown",
        "store",
        "leases",
        "journal",
        "disk",
        "valkey",
        "files",
        "vault",
        "certificates",
        "clock",
        "credentials",
        "configuration",
        "drift",
        "descriptors",
    ] {
        assert_eq!(state(&full, name), "good", "{full:?}");
    }
    assert_eq!(curl(&format!("{url}/readyz")), (200, "{\"status\":\"ready\"}".to_owned()));

    let (code, told) = doctor(&folder, &[]);
    assert_eq!(code, 0, "{told:?}");
    assert_eq!(message(&told, "leases"), "leases are renewed");
    assert!(message(&told, "gateway").contains(&metrics.to_string()), "{told:?}");
    let (code, told) = doctor(&folder, &["--url", &url]);
    assert_eq!((code, state(&told, "leases").as_str()), (0, "good"));
    let made = folder.json(&[
        "keys",
        "create",
        "--name",
        "a",
        "--scope",
        "admin",
        "--json",
        "--config",
        "portunus.toml",
    ]);
    let key = made["key"].as_str().unwrap();
    assert!(holds_soon(|| {
        let (_, told) = doctor(&folder, &["--url", &url, "--key", key]);
        state(&told, "gateway") == "good" && message(&told, "leases") == "leases are renewed"
    }));
    let (code, told) = doctor(&folder, &["--url", &url, "--key", "sk-pt-wrong"]);
    assert_eq!((code, state(&told, "gateway").as_str()), (1, "warning"), "{told:?}");

    for (path, status) in [
        ("/metrics", 200),
        ("/healthz", 200),
        ("/readyz", 200),
        ("/", 404),
        ("/metrics/x", 404),
        ("/v1/models", 404),
        ("/console", 404),
        ("/api/admin/health", 404),
    ] {
        assert_eq!(curl(&format!("http://{metrics}{path}")).0, status, "{path}");
    }
    let posted = Command::new("curl")
        .args(["-s", "-i", "-X", "POST", &format!("http://{metrics}/metrics")])
        .output()
        .unwrap();
    let posted = String::from_utf8(posted.stdout).unwrap();
    assert!(posted.starts_with("HTTP/1.1 405") && posted.contains("allow: GET, HEAD"), "{posted}");
    assert_eq!(terminate(child), Some(0));
}
