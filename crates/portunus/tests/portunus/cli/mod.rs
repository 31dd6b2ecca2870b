//! The program: its output and its exit codes.

mod agents;
mod archive;
mod artefacts;
mod audit;
mod backup;
mod cloud_identity;
mod directory;
mod doctor;
mod documented;
mod full_disk;
mod import;
mod journal_damage;
mod json_logs;
mod long_logs;
mod lost_index;
mod migrate;
mod output;
mod process_limits;
mod reconcile;
mod scim;

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portunus-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        program(self).args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn program(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
    command.current_dir(&folder.0).env_clear().env("PORTUNUS_SERVER_LINGER", "0s");
    command
}

fn fails(output: &Output, code: i32, cause: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(cause), "{said}");
    if code == 1 {
        // The database driver warns on a busy machine.
        let lines = said.trim().lines().filter(|line| !line.contains("slow threshold"));
        assert_eq!(lines.count(), 1, "one clear line: {said}");
    }
}

/// Generous, because it only decides how long a broken test takes to fail.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asks again until the condition holds; false when it does not within the deadline.
fn holds_soon(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > DEADLINE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A signal during the start, here while the database does not answer, ends it cleanly.
#[test]
fn a_signal_during_the_start_ends_it_cleanly() {
    let folder = Folder::new("starting");
    let database = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = database.local_addr().unwrap();
    let config = format!("[store]\nurl = \"postgres://a:b@{address}/c\"\n");
    std::fs::write(folder.0.join("p.toml"), config).unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut child = program(&folder)
            .args(["serve", "--config", "p.toml", "--listen", "127.0.0.1:0"])
            .spawn()
            .unwrap();
        let _silent = database.accept().unwrap();
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert_eq!(end_of(&mut child).code(), Some(0), "{signal}");
    }
}

/// The log of a running program, line by line.
struct LogLines(mpsc::Receiver<String>);

fn log_lines(child: &mut Child) -> LogLines {
    let (send, receive) = mpsc::channel();
    let log = BufReader::new(child.stderr.take().unwrap());
    std::thread::spawn(move || {
        log.lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
    });
    LogLines(receive)
}

impl LogLines {
    /// Returns the next line that contains the word.
    fn wait_for(&self, word: &str) -> String {
        loop {
            let line = self.0.recv_timeout(DEADLINE).unwrap();
            if line.contains(word) {
                return line;
            }
        }
    }
}

/// Starts a server and reads its greeting up to the curl line.
fn serve(folder: &Folder, listen: &str) -> (Child, String) {
    let mut child = program(folder)
        .args(["serve", "--listen", listen])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut greeting = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    while !greeting.contains("  -d '") && !greeting.contains("Make a key with") {
        if lines.read_line(&mut greeting).unwrap() == 0 {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("it ended: {greeting}{said}");
        }
    }
    (child, greeting)
}

fn terminate(mut child: Child) -> Option<i32> {
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    end_of(&mut child).code()
}

/// Waits for the end of a process, which is killed if it does not come.
fn end_of(child: &mut Child) -> ExitStatus {
    let mut status = None;
    let ends = holds_soon(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ends {
        child.kill().unwrap();
    }
    status.expect("it ends")
}

#[test]
fn the_first_start_prints_a_curl_line_that_works_and_a_signal_ends_it_cleanly() {
    let folder = Folder::new("first");
    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    assert!(greeting.contains("/console/setup/"), "{greeting}");
    let curl = greeting.split_once("Try it:").unwrap().1.trim().to_owned();
    let output = Command::new("sh").args(["-c", &format!("{curl} -s -S")]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).expect(&curl);
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(terminate(child), Some(0));

    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    assert!(!greeting.contains("sk-pt-"), "a key is shown once: {greeting}");
    assert_eq!(terminate(child), Some(0));
    let exported = folder.json(&["ledger", "export"]);
    assert_eq!((&exported["model"], &exported["status"]), (&"demo-chat".into(), &200.into()));
    let proved = folder.run(&["ledger", "verify"]);
    assert!(proved.status.success());
    let said = String::from_utf8(proved.stdout).unwrap();
    let laws: Vec<&str> = said.lines().filter_map(|line| line.get(..8)).take(8).collect();
    let expected: Vec<String> = (1..=8).map(|law| format!("L{law} holds")).collect();
    assert_eq!(laws, expected, "{said}");
    assert!(said.ends_with("the books balance: 1 keys, 1 calls\n"), "{said}");
    let proved = folder.json(&["ledger", "verify", "--json"]);
    assert_eq!((&proved["ok"], &proved["laws"][6]["name"]), (&true.into(), &"immutable".into()));
    assert_eq!(proved["journal"], json!({ "unposted": [], "open": [], "torn_bytes": 0 }));

    let export = |flags: &[&str]| {
        let output = folder.run(&[&["ledger", "export"], flags].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let table = export(&["--format", "csv"]);
    let mut rows = table.lines();
    let names: Vec<&str> = rows.next().unwrap().split(',').collect();
    assert!(names.starts_with(&["request_id", "key_id", "model", "lane"]), "{names:?}");
    let id = exported["request_id"].as_str().unwrap();
    let row = rows.next().unwrap();
    assert!(row.starts_with(id) && row.contains(exported["cost_usd"].as_str().unwrap()), "{row}");
    assert_eq!(rows.next(), None);
    let key = exported["key_id"].as_str().unwrap();
    let all = ["--from", "2026-01-01", "--to", "2126-01-01", "--key", key, "--model", "demo-chat"];
    assert_eq!(export(&all).lines().count(), 1);
    for none in [["--from", "2126-01-01"], ["--to", "2026-01-01T00:00:00Z"]] {
        assert_eq!(export(&none), "");
    }
    for none in [["--key", "nobody"], ["--model", "demo-echo"]] {
        assert_eq!(export(&none), "");
    }
    fails(&folder.run(&["ledger", "export", "--from", "yesterday"]), 2, "--from");
}

/// The first start and a script may both be the first to need the owner's account.
#[test]
fn keys_are_made_at_the_same_time_in_an_empty_folder() {
    let folder = Folder::new("first-keys");
    let create = |name: &str| folder.run(&["keys", "create", "--name", name, "--unlimited"]);
    let made = std::thread::scope(|scope| {
        let created = ["a", "b", "c", "d"].map(|name| scope.spawn(|| create(name)));
        created.map(|one| one.join().unwrap())
    });
    for output in made {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn keys_are_made_listed_rotated_and_revoked_while_a_server_runs() {
    let folder = Folder::new("keys");
    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    let url =
        greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let made = folder.json(&["keys", "create", "--name", "ci", "--cap", "1.50", "--json"]);
    assert_eq!((&made["name"], &made["cap_usd"]), (&"ci".into(), &"1.500000000".into()));
    let id = made["id"].as_str().unwrap().to_owned();
    let status = |key: &Value| {
        let bearer = format!("Authorization: Bearer {}", key.as_str().unwrap());
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &bearer];
        let output =
            Command::new("curl").args(arguments).arg(format!("{url}/v1/key")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(status(&made["key"]), "200", "a new key works at once");
    let listed = String::from_utf8(folder.run(&["keys", "list", "--json"]).stdout).unwrap();
    assert!(listed.lines().count() == 2 && !listed.contains("sk-pt-"), "{listed}");
    let rotated = folder.json(&["keys", "rotate", &id, "--json"]);
    let soon = |key: &Value, expected: &str| holds_soon(|| status(key) == expected);
    assert!(soon(&rotated["key"], "200"));
    assert_eq!(status(&made["key"]), "200", "the old value works on");
    assert!(folder.run(&["keys", "revoke", &id]).status.success());
    assert!(soon(&rotated["key"], "401") && soon(&made["key"], "401"));
    fails(&folder.run(&["keys", "revoke", "nope"]), 1, "no key `nope`");
    assert_eq!(terminate(child), Some(0));
}

#[test]
fn an_admin_key_is_made_shown_and_always_ends() {
    let folder = Folder::new("scopes");
    let first = folder.json(&["keys", "create", "--name", "calls", "--unlimited", "--json"]);
    assert_eq!((&first["scope"], &first["expires_at"]), (&json!("call"), &Value::Null));
    let create = ["keys", "create", "--name", "robot", "--scope", "admin"];
    let said = String::from_utf8(folder.run(&create).stdout).unwrap();
    assert!(said.contains("30 days") && said.contains("cannot make calls"), "{said}");
    assert!(said.starts_with("sk-pt-admin-"), "{said}");
    assert!(!first["key"].as_str().unwrap().starts_with("sk-pt-admin-"), "{first}");
    let made = folder.json(&[&create[..], &["--expires", "2d", "--json"]].concat());
    assert_eq!((&made["scope"], &made["cap_usd"]), (&json!("admin"), &json!("0.000000000")));
    let (from, to) = (made["created_at"].as_str().unwrap(), made["expires_at"].as_str().unwrap());
    let [from, to]: [jiff::Timestamp; 2] = [from, to].map(|time| time.parse().unwrap());
    let life = to.as_second() - from.as_second();
    assert!((2 * 86_400 - 5..=2 * 86_400).contains(&life), "{made}");
    let said = String::from_utf8(folder.run(&[&create[..], &["--expires", "2d"]].concat()).stdout);
    assert!(!said.unwrap().contains("30 days"));
    let listed = String::from_utf8(folder.run(&["keys", "list"]).stdout).unwrap();
    let scopes: Vec<_> = listed.lines().map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(scopes, ["scope", "call", "admin", "admin", "admin"].map(Some), "{listed}");
    let id = made["id"].as_str().unwrap();
    fails(&folder.run(&["keys", "set", id, "--expires", "never"]), 1, "must have an end");
    for flags in [&["--cap", "5"][..], &["--unlimited"]] {
        fails(&folder.run(&[&["keys", "set", id], flags].concat()), 1, "cannot spend");
    }
    fails(&folder.run(&[&create[..], &["--cap", "5"]].concat()), 1, "cannot spend");
    assert_eq!(folder.json(&["keys", "set", id, "--expires", "3d", "--json"])["scope"], "admin");
    folder.json(&["users", "create", "mia", "--json"]);
    fails(&folder.run(&[&create[..], &["--account", "mia"]].concat()), 1, "`mia`");
    let narrow = |scope| ["keys", "create", "--name", "n", "--json", "--scope", scope];
    let made = folder.json(&narrow("admin:usage,admin:keys"));
    assert_eq!(made["scope"], "admin:keys admin:usage");
    assert!(
        made["key"].as_str().unwrap().starts_with("sk-pt-admin-") && !made["expires_at"].is_null()
    );
    let made = folder.json(&narrow("read"));
    assert_eq!((&made["scope"], &made["cap_usd"]), (&json!("read"), &json!("0.000000000")));
    fails(&folder.run(&narrow("admin:root")), 2, "admin:keys");
    fails(&folder.run(&[&narrow("read")[..], &["--cap", "5"]].concat()), 1, "cannot spend");
}

#[test]
fn impossible_arguments_are_refused_in_one_line() {
    let folder = Folder::new("refusals");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(&folder.run(&["serve", "--listen", &address]), 1, "in use");
    std::fs::write(folder.0.join("file"), "").unwrap();
    fails(&folder.run(&["serve", "--listen", "127.0.0.1:0", "--data", "file/data"]), 1, "--data");
    std::fs::write(folder.0.join("bad.toml"), "[server]\nlisen = \"x\"\n").unwrap();
    fails(&folder.run(&["check", "--config", "bad.toml"]), 1, "did you mean `listen`?");
    fails(&folder.run(&["check", "--config", "none.toml"]), 1, "none.toml");
    let secret =
        "[providers.p]\nspeaks=\"chat\"\nbase=\"http://x\"\nauth={bearer={env=\"NO_KEY\"}}\n";
    std::fs::write(folder.0.join("secret.toml"), secret).unwrap();
    fails(&folder.run(&["serve", "--config", "secret.toml"]), 1, "export NO_KEY=");
    fails(&folder.run(&["keys", "create", "--name", "x"]), 2, "--unlimited");
    fails(&folder.run(&["keys", "create", "--name", "x", "--cap", "much"]), 2, "--cap");
    fails(&folder.run(&["keys", "create", "--name", "x", "--scope", "call"]), 2, "--unlimited");
    fails(&folder.run(&["keys", "create", "--name", "x", "--scope", "root"]), 2, "--scope");
    fails(&folder.run(&["dance"]), 2, "dance");
    assert!(folder.run(&["check"]).status.success());
    assert!(folder.run(&["--version"]).status.success());
    let models = folder.run(&["models", "--json"]);
    let first: Value =
        serde_json::from_slice(models.stdout.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert!(first["id"].is_string() && first["pricing"]["input"].is_number());
}

#[test]
fn check_warns_of_a_machine_without_root_certificates() {
    let folder = Folder::new("roots");
    let run = |arguments: &[&str]| {
        program(&folder).args(arguments).env("SSL_CERT_DIR", ".").output().unwrap()
    };
    let checked = run(&["check"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{text}");
    assert!(text.contains("warning: no provider can be reached by https"), "{text}");
    assert!(text.contains("ca-certificates"), "{text}");
    // A command that opens no TLS connection needs none.
    let models = run(&["models", "--json"]);
    assert!(models.status.success() && models.stderr.is_empty(), "{models:?}");
}

#[test]
fn two_servers_cannot_share_a_data_folder() {
    let folder = Folder::new("two");
    let (child, _) = serve(&folder, "127.0.0.1:0");
    fails(&folder.run(&["serve", "--listen", "127.0.0.1:0"]), 1, "another portunus process");
    assert_eq!(terminate(child), Some(0));
}

#[test]
fn a_changed_configuration_is_taken_and_a_bad_one_is_not() {
    let folder = Folder::new("reload");
    let file = folder.0.join("p.toml");
    std::fs::write(&file, "").unwrap();
    let mut child = program(&folder)
        .args(["serve", "--listen", "127.0.0.1:0", "--config", "p.toml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut greeting = String::new();
    while !greeting.contains("  -d '") {
        lines.read_line(&mut greeting).unwrap();
    }
    let url =
        greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let total = || -> i64 {
        let output =
            Command::new("curl").args(["-s", &format!("{url}/api/models")]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["total"].as_i64().unwrap()
    };
    let becomes = |expected: i64| holds_soon(|| total() == expected);
    let before = total();
    std::fs::write(&file, "[models.mine]\nlanes = [\"demo/demo-chat\"]\n").unwrap();
    assert!(becomes(before + 1), "a change is noticed");
    std::fs::write(&file, "[models.mine]\nlane = 5\n").unwrap();
    let log = log_lines(&mut child);
    let refusal = log.wait_for("refused");
    assert!(refusal.contains("unknown field `lane`"), "{refusal}");
    assert_eq!(total(), before + 1, "a bad one is refused");
    std::fs::write(&file, "").unwrap();
    Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    assert!(becomes(before), "a hang-up reloads");
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert_eq!(end_of(&mut child).code(), Some(0));
}

#[test]
fn faults_are_listed_and_a_bad_rule_of_faults_is_named() {
    let folder = Folder::new("faults");
    let help = String::from_utf8(folder.run(&["simulate", "--help"]).stdout).unwrap();
    for (name, _, _) in demo::faults() {
        assert!(help.contains(&format!("\n  {name}")), "{name} is not in {help}");
    }
    std::fs::write(folder.0.join("bad.toml"), "[[rule]]\nfault = \"reset-after wait=3\"\n")
        .unwrap();
    fails(&folder.run(&["simulate", "--faults", "bad.toml"]), 1, "rule 1: fault: `wait`");
    fails(&folder.run(&["simulate", "--faults", "none.toml"]), 1, "none.toml");
    fails(&folder.run(&["simulate", "--faults", "bad.toml", "--canned"]), 2, "--canned");
}

#[test]
fn a_keys_limits_are_set_shown_changed_and_taken_away() {
    let folder = Folder::new("limits");
    let made = folder.json(&[
        "keys",
        "create",
        "--name",
        "ci",
        "--unlimited",
        "--rpm",
        "60",
        "--tpm",
        "9000",
        "--concurrency",
        "4",
        "--ips",
        "10.0.0.0/8,2001:db8::1",
        "--budget",
        "5.00/day",
        "--account",
        "owner",
        "--json",
    ]);
    let id = made["id"].as_str().unwrap();
    let listed = String::from_utf8(folder.run(&["keys", "list", "--json"]).stdout).unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    for told in [&made, &listed] {
        assert_eq!(told["limits"], json!({ "rpm": 60, "tpm": 9000, "concurrency": 4 }));
        assert_eq!(told["ips"], json!(["10.0.0.0/8", "2001:db8::1"]));
        assert_eq!(told["budget"], json!({ "most_usd": "5.000000000", "per": "day" }));
    }
    let set = |flags: &[&str]| folder.json(&[&["keys", "set", id, "--json"], flags].concat());
    let changed = set(&["--rpm", "none", "--tpm", "7", "--ips", "none", "--cap", "2"]);
    assert_eq!(changed["limits"], json!({ "rpm": null, "tpm": 7, "concurrency": 4 }));
    assert_eq!((&changed["ips"], &changed["cap_usd"]), (&json!([]), &json!("2.000000000")));
    assert_eq!(changed["budget"]["per"], "day", "what is not named stays");
    let changed = set(&["--budget", "20/month", "--unlimited", "--models", "m", "--name", "n"]);
    assert_eq!((&changed["cap_usd"], &changed["name"]), (&Value::Null, &json!("n")));
    assert_eq!(changed["budget"], json!({ "most_usd": "20.000000000", "per": "month" }));
    assert_eq!(set(&["--budget", "none", "--models", "all"])["models"], json!([]));

    let account =
        |flags: &[&str]| folder.json(&[&["keys", "account", "owner", "--json"], flags].concat());
    assert_eq!(account(&["--rpm", "5"])["limits"]["rpm"], 5);
    let told = account(&["--cap", "12.5", "--budget", "3/week"]);
    assert_eq!((&told["cap_usd"], &told["limits"]["rpm"]), (&json!("12.500000000"), &json!(5)));
    assert_eq!(told["budget"], json!({ "most_usd": "3.000000000", "per": "week" }));
    assert_eq!(account(&["--unlimited"])["cap_usd"], json!(null));
    let all = folder.json(&["keys", "account", "--json"]);
    assert_eq!((&all["account"], &all["budget"]["per"]), (&json!("owner"), &json!("week")));
    assert_eq!(account(&["--budget", "none"])["budget"], json!(null));
    let told = account(&["--share", "account", "--models", "a,b"]);
    assert_eq!((&told["share"], &told["models"]), (&json!("account"), &json!(["a", "b"])));
    let told = account(&["--models", "all"]);
    assert_eq!((&told["share"], &told["models"]), (&json!("account"), &json!([])));
    assert_eq!(account(&["--share", "key"])["share"], "key");
    fails(&folder.run(&["keys", "account", "owner", "--share", "all"]), 2, "--share");
    assert_eq!(account(&[])["limits"], json!({ "rpm": 5, "tpm": null, "concurrency": null }));

    for (flag, value) in [
        ("--rpm", "0"),
        ("--rpm", "-1"),
        ("--tpm", "x"),
        ("--ips", "10.0.0.0/40"),
        ("--ips", "home"),
        ("--budget", "5"),
        ("--budget", "5/year"),
        ("--budget", "-5/day"),
        ("--budget", "x/day"),
    ] {
        let output = folder.run(&["keys", "set", id, &format!("{flag}={value}")]);
        fails(&output, 2, flag);
    }
    fails(&folder.run(&["keys", "set", "nobody", "--rpm", "1"]), 1, "nobody");
    fails(&folder.run(&["keys", "account", "nobody"]), 1, "nobody");
    let stranger = ["keys", "create", "--name", "x", "--unlimited", "--account", "nobody"];
    fails(&folder.run(&stranger), 1, "nobody");
}

#[test]
fn accounts_are_made_listed_helped_and_locked() {
    let folder = Folder::new("users");
    let (child, greeting) = serve(&folder, "127.0.0.1:0");
    let url =
        greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let email = ["--email", "anna@example.com"];
    let create = ["users", "create", "anna", "--role", "admin", "--json"];
    let made = folder.json(&[&create[..], &email].concat());
    assert_eq!((&made["name"], &made["role"]), (&"anna".into(), &"admin".into()));
    assert_eq!(made["state"], "no password");
    let path = made["link"].as_str().unwrap().split_once("/link/").unwrap().1.to_owned();
    let status = || {
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"];
        let address = format!("{url}/link/{path}");
        let output = Command::new("curl").args(arguments).arg(address).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(status().starts_with("303") && status().ends_with("/reset/new"), "{}", status());

    let reset = folder.json(&["users", "reset-password", "ANNA@example.com", "--json"]);
    assert!(reset["link"].as_str().unwrap().contains("/link/"));
    let invite = folder.json(&["users", "invite", "--role", "viewer", "--json"]);
    assert_eq!(invite["role"], "viewer");
    let locked = folder.json(&["users", "disable", "anna", "--json"]);
    assert_eq!(locked["disabled"], true);
    assert!(status().starts_with("400"), "a lock ends its links: {}", status());
    assert_eq!(terminate(child), Some(0));

    let listed = String::from_utf8(folder.run(&["users", "list", "--json"]).stdout).unwrap();
    let states: Vec<Value> = listed.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(states.len(), 2);
    assert_eq!(states[1]["state"], "locked");
    assert!(!listed.contains("argon2"), "{listed}");
    fails(&folder.run(&["users", "reset-password", "anna"]), 1, "is locked");
    let create = ["keys", "create", "--name", "k", "--cap", "1", "--json", "--account", "bea"];
    folder.json(&["users", "create", "bea", "--json"]);
    let key = folder.json(&create)["id"].clone();
    let locked = folder.run(&["users", "disable", "bea", "--keys"]);
    let said = String::from_utf8(locked.stdout).unwrap();
    assert!(said.contains("1 of its keys are revoked"), "{said}");
    assert!(folder.run(&["users", "enable", "bea"]).status.success());
    let listed = String::from_utf8(folder.run(&["keys", "list", "--json"]).stdout).unwrap();
    let mut keys = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let state = keys.find(|one| one["id"] == key).unwrap()["state"].clone();
    assert_eq!(state, "revoked", "keys that were revoked do not come back with the account");
    fails(&folder.run(&["users", "disable", "owner"]), 1, "only owner");
    fails(&folder.run(&["users", "disable", "nobody"]), 1, "no account `nobody`");
    fails(&folder.run(&["users", "create", "../x"]), 1, "Letters, digits");
    fails(&folder.run(&["users", "create", "b2", "--email", "x"]), 1, "e-mail address");
    fails(&folder.run(&["users", "create", "ANNA"]), 1, "already taken");
    fails(&folder.run(&["users", "create", "bert", "--role", "king"]), 2, "owner, admin");
    assert!(folder.run(&["users", "enable", "anna"]).status.success());
    let with_password = |name: &str, password: &str| {
        let mut command = program(&folder);
        command.args(["users", "create", name, "--password-stdin"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), password.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    fails(&with_password("cleo", "password123\n"), 1, "first to be guessed");
    assert!(with_password("cleo", "three harbour lights\n").status.success());
}
