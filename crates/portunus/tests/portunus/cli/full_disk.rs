//! The program on a full disk: money of settled calls is stored later, or named when it is lost.

use serde_json::{Value, json};
use sqlx::Connection as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::{Folder, LogLines, end_of, holds_soon, log_lines, terminate};
use crate::small_disk::SmallDisk;

/// Sets how far the files of a process may grow. It stands for the space on its disk.
fn limit_files(child: &Child, limit: &str) {
    let arguments = [format!("--pid={}", child.id()), format!("--fsize={limit}:")];
    assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
}

/// Writes a configuration with a provider that the test plays, and makes a key.
pub(super) fn prepare(folder: &Folder) -> (TcpListener, String) {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "[timeouts]\ndrain = \"1s\"\n[providers.p]\nspeaks = \"chat\"\nbase = \"http://{}\"\n\
         auth = \"none\"\n[models.m]\nlanes = [\"p/m\"]\nprice = {{ input = \"3.00\", output = \
         \"15.00\" }}\ncontext = 200000\nmax_output = 8192\n",
        upstream.local_addr().unwrap()
    );
    std::fs::write(folder.0.join("portunus.toml"), config).unwrap();
    let made = folder.json(&["keys", "create", "--name", "k", "--unlimited", "--json"]);
    (upstream, made["key"].as_str().unwrap().to_owned())
}

/// Starts the program, and returns its log and address.
pub(super) fn start(folder: &Folder) -> (Child, LogLines, String) {
    // A write beyond the limit is to fail, not to end the process.
    let script = "trap '' XFSZ; exec \"$0\" serve --config portunus.toml --listen 127.0.0.1:0";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_portunus")])
        .current_dir(&folder.0)
        .env_clear()
        .env("PORTUNUS_SERVER_LINGER", "0s")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = log_lines(&mut child);
    let greeting = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let url = greeting
        .filter_map(|line| Some(line.split_once("  API      ")?.1.trim().to_owned()))
        .next()
        .unwrap();
    (child, log, url)
}

pub(super) fn call(url: &str, key: &str) -> Child {
    Command::new("curl")
        .args(["-s", "-i", "-m", "60", &format!("{url}/v1/chat/completions"), "-H"])
        .args([&format!("Authorization: Bearer {key}"), "-H", "Content-Type: application/json"])
        .args(["-d", r#"{"model":"m","messages":[{"role":"user","content":"Hello!"}]}"#])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn probe(url: &str) -> Child {
    let ready = format!("{url}/readyz");
    Command::new("curl")
        .args(["-s", "-i", "-m", "60", &ready])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns all that a caller got.
pub(super) fn reply(caller: Child) -> String {
    String::from_utf8(caller.wait_with_output().unwrap().stdout).unwrap()
}

/// Takes a request of the gateway.
pub(super) fn accept(upstream: &TcpListener) -> TcpStream {
    let mut accepted = None;
    let comes = holds_soon(|| {
        accepted = try_accept(upstream);
        accepted.is_some()
    });
    read_request(accepted.filter(|_| comes).expect("a call reaches the provider"))
}

/// Takes a request of the gateway; `None` if the caller got its answer without one.
pub(super) fn accept_of(caller: &mut Child, upstream: &TcpListener) -> Option<TcpStream> {
    let mut accepted = None;
    let ends = holds_soon(|| {
        accepted = try_accept(upstream);
        accepted.is_some() || caller.try_wait().unwrap().is_some()
    });
    assert!(ends, "the call has no answer and reaches no provider");
    accepted.map(read_request)
}

fn try_accept(upstream: &TcpListener) -> Option<TcpStream> {
    upstream.set_nonblocking(true).unwrap();
    let (connection, _) = upstream.accept().ok()?;
    connection.set_nonblocking(false).unwrap();
    Some(connection)
}

fn read_request(mut connection: TcpStream) -> TcpStream {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        let mut piece = [0; 4_096];
        let count = connection.read(&mut piece).unwrap();
        assert!(count > 0, "the request ended");
        request.extend_from_slice(&piece[..count]);
    }
    connection
}

pub(super) fn answer(connection: &mut TcpStream) {
    answer_with(connection, 10);
}

/// Answers with so many output tokens by the provider's count.
pub(super) fn answer_with(connection: &mut TcpStream, output: u32) {
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": "Hi." } }],
        "usage": { "prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output },
    });
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        answer.len()
    );
    connection.write_all(format!("{head}{answer}").as_bytes()).unwrap();
}

/// Keeps the gateway from writing its database, until the value is dropped.
struct LockedDatabase {
    _connection: sqlx::SqliteConnection,
    _runtime: tokio::runtime::Runtime,
}

impl LockedDatabase {
    fn lock(folder: &Folder) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let url = format!("sqlite:{}", folder.0.join("data/portunus.db").display());
        let connection = runtime.block_on(async {
            let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            connection
        });
        Self { _connection: connection, _runtime: runtime }
    }
}

/// Without root there is no small disk, and the calls end on one that is not full.
#[test]
fn calls_that_end_on_a_full_disk_are_charged_even_after_a_kill() {
    const CALLS: usize = 10;
    for is_killed in [true, false] {
        let folder = Folder::new(&format!("small-{is_killed}"));
        let small = SmallDisk::mount(&folder.0.join("data"), "16m");
        let (upstream, key) = prepare(&folder);
        let (mut child, _log, url) = start(&folder);
        let callers: Vec<Child> = (0..CALLS).map(|_| call(&url, &key)).collect();
        let connections: Vec<TcpStream> = (0..CALLS).map(|_| accept(&upstream)).collect();
        // The journal alone has what happens from now on.
        let locked = is_killed.then(|| LockedDatabase::lock(&folder));
        let filling = small.as_ref().map(SmallDisk::fill);
        for mut connection in connections {
            answer(&mut connection);
        }
        for caller in callers {
            let got = reply(caller);
            assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        }
        if is_killed {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        drop(locked);
        if let Some(filling) = filling {
            std::fs::remove_file(filling).unwrap();
        }
        if is_killed {
            child = start(&folder).0;
        } else {
            // Without a restart it serves again.
            let ready = || reply(probe(&url)).starts_with("HTTP/1.1 200");
            assert!(holds_soon(ready));
            let caller = call(&url, &key);
            answer(&mut accept(&upstream));
            let got = reply(caller);
            assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        }
        assert_eq!(terminate(child), Some(0));
        let exported = folder.run(&["ledger", "export"]);
        let exported = String::from_utf8(exported.stdout).unwrap();
        let lines = exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let charged: Vec<Value> = lines.filter(|line| line["outcome"] == "done").collect();
        assert_eq!(charged.len(), CALLS + usize::from(!is_killed), "{exported}");
        assert!(charged.iter().all(|line| line["cost_usd"] == "0.000180000"), "{exported}");
        // Unmounted before the files are removed, because the file system is among them.
        drop(small);
    }
}

#[test]
fn a_call_settled_on_a_full_disk_is_stored_later_or_named_at_the_end() {
    for has_space_later in [true, false] {
        let folder = Folder::new(&format!("full-{has_space_later}"));
        let (upstream, key) = prepare(&folder);
        let (mut child, log, url) = start(&folder);
        let caller = call(&url, &key);
        let mut connection = accept(&upstream);
        limit_files(&child, "1");
        answer(&mut connection);
        let got = reply(caller);
        assert!(got.starts_with("HTTP/1.1 200"), "{got}");
        let id = got.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().trim();
        log.wait_for("settled calls could not be stored");
        if has_space_later {
            limit_files(&child, "unlimited");
            assert_eq!(terminate(child), Some(0));
            let exported = folder.json(&["ledger", "export"]);
            assert_eq!(
                (&exported["request_id"], &exported["outcome"]),
                (&id.into(), &"done".into())
            );
            assert_eq!(exported["cost_usd"], "0.000180000");
        } else {
            Command::new("kill").arg(child.id().to_string()).status().unwrap();
            let line = log.wait_for("neither in the database nor in the journal");
            assert!(line.contains(id), "{line}");
            assert_eq!(end_of(&mut child).code(), Some(1));
        }
    }
}

/// The database has a disk of its own that fills up, while the journal has room. Without root there is no
/// small disk, and no file of the process may grow instead.
#[test]
fn a_database_on_a_full_disk_makes_the_gateway_unready_until_there_is_room() {
    let folder = Folder::new("full-database");
    let small = SmallDisk::mount(&folder.0.join("db"), "24m");
    let config = "[timeouts]\ndrain = \"1s\"\n[store]\nurl = \"sqlite:db/p.db\"\naway = \"1s\"\n\
         [models.m]\nlanes = [\"demo/demo-chat\"]\nprice = { input = \"3.00\", output = \"15.00\" }\n\
         context = 200000\nmax_output = 8192\n";
    std::fs::write(folder.0.join("portunus.toml"), config).unwrap();
    let create = |more: &[&str]| {
        let base = ["keys", "create", "--json", "--config", "portunus.toml", "--name", "k"];
        let made = folder.json(&[&base, more].concat());
        made["key"].as_str().unwrap().to_owned()
    };
    let keys = [create(&["--unlimited"]), create(&["--cap", "5"])];
    let admin = create(&["--scope", "admin"]);
    let (child, _log, url) = start(&folder);
    let call_all = || keys.each_ref().map(|key| reply(call(&url, key)).starts_with("HTTP/1.1 200"));
    let is_ready = || reply(probe(&url)).starts_with("HTTP/1.1 200");
    let health = || -> Value {
        let mut asking = Command::new("curl");
        let asked = asking.args(["-s", &format!("{url}/api/admin/health"), "-H"]);
        let asked = asked.arg(format!("Authorization: Bearer {admin}")).output().unwrap();
        serde_json::from_slice(&asked.stdout).unwrap()
    };
    for round in 0..3 {
        assert_eq!(call_all(), [true; 2], "round {round}");
        assert!(is_ready());
        let filling = small.as_ref().map(SmallDisk::fill);
        if filling.is_none() {
            limit_files(&child, "1");
        }
        // Calls go on until the money on the node is used up or `store.away` is over. A write that needs no
        // further page still succeeds at times, and the gateway is ready again until the next one.
        let mut told = Value::Null;
        assert!(
            holds_soon(|| {
                call_all();
                if is_ready() || call_all() != [false; 2] {
                    return false;
                }
                // Asked seldom, because administration has a rate limit.
                told = health();
                told["ready"] == false
            }),
            "it says so, and tells the truth: {told}"
        );
        let of = |name: &str| {
            let checks = told["checks"].as_array().unwrap();
            checks.iter().find(|check| check["name"] == name).unwrap().clone()
        };
        let failing = if small.is_some() { of("store") } else { of("journal") };
        assert_eq!(failing["state"], "failing", "{told}");
        assert!(failing["message"].is_string() && failing["hint"].is_string(), "{told}");

        match filling {
            Some(filling) => std::fs::remove_file(filling).unwrap(),
            None => limit_files(&child, "unlimited"),
        }
        assert!(holds_soon(is_ready), "it heals by itself");
        assert!(holds_soon(|| call_all() == [true; 2]), "and serves");
        assert!(holds_soon(|| health()["journal"]["unposted"] == 0), "and posts");
        let mut changing = Command::new("curl");
        let changed =
            changing.args(["-s", "-f", "-X", "POST", "-d", r#"{"name":"new","cap_usd":null}"#]);
        let changed = changed.args([&format!("{url}/api/admin/keys"), "-H"]);
        let changed = changed.arg(format!("Authorization: Bearer {admin}"));
        let changed = changed.args(["-H", "Content-Type: application/json"]).output().unwrap();
        assert!(changed.status.success(), "and changes keys: {changed:?}");
    }
    assert_eq!(terminate(child), Some(0));
    let verified = folder.run(&["ledger", "verify", "--config", "portunus.toml"]);
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.status.success() && said.contains("the books balance"), "{said}");
    drop(small);
}
