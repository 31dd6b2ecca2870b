//! Shutdown: running calls may finish, those that cannot get an error, nothing is lost.

use super::raw_client::{CHAT, Caller};
use crate::web_sockets::SocketClient;
use demo::{SimulatorOptions, StreamPace};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::until;
use tokio::net::{TcpListener, TcpStream};

const STREAMS: usize = 100;

/// A gateway in a process of its own, before a provider whose streams flow at a pace.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: String,
    pub(crate) key: String,
    folder: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Process {
    async fn start(name: &str, pace: Duration, drain: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = listener.local_addr().unwrap();
        let options =
            SimulatorOptions { pace: StreamPace { pause: pace }, ..SimulatorOptions::default() };
        tokio::spawn(demo::simulate(listener, options, std::future::pending::<()>()));
        Self::before(name, provider, drain)
    }

    /// A gateway before the provider at that address.
    fn before(name: &str, provider: SocketAddr, drain: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("portunus-drain-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut config = format!(
            "[timeouts]\ndrain = \"{drain}\"\n[models.m]\nlanes = [\"p/demo-chat\"]\n\
             price = {{ input = \"1.00\", output = \"2.00\" }}\n\
             [providers.p]\nbase = \"http://{provider}\"\nauth = \"none\"\n"
        );
        config += "speaks = \"chat\"\n";
        std::fs::write(folder.join("p.toml"), config).unwrap();
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_portunus")), folder)
    }

    pub(crate) fn spawn(mut command: Command, folder: PathBuf) -> Self {
        let mut child = command
            .args(["serve", "--config", "p.toml", "--listen", "127.0.0.1:0"])
            .current_dir(&folder)
            .env_clear()
            .env("PORTUNUS_SERVER_LINGER", "0s")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut after = |word: &str| {
            let line = lines.find(|line| line.as_ref().unwrap().trim().starts_with(word));
            line.unwrap().unwrap().split_whitespace().nth(1).unwrap().to_owned()
        };
        let address = after("API").trim_start_matches("http://").to_owned();
        let key = after("Key");
        Self { child, address, key, folder }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end, and what it took.
    fn ended(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        let status = self.child.wait().unwrap();
        (status.code(), begun.elapsed())
    }

    /// Starts the gateway once more and ends it. A busy machine may not have posted every settled
    /// call before it ended; the next start posts them from the journal.
    fn post_journal(&self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_portunus"))
            .args(["serve", "--config", "p.toml", "--listen", "127.0.0.1:0"])
            .current_dir(&self.folder)
            .env_clear()
            .env("PORTUNUS_SERVER_LINGER", "0s")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.trim().starts_with("API")));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(child.wait().unwrap().success());
    }

    fn books_are_right(&self) {
        self.ledger("verify");
    }

    /// `ended_by` of each call's receipt.
    fn ended_by(&self) -> Vec<String> {
        let lines = self.ledger("export");
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["ended_by"].as_str().unwrap().to_owned()).collect()
    }

    fn ledger(&self, what: &str) -> String {
        let done = Command::new(env!("CARGO_BIN_EXE_portunus"))
            .args(["ledger", what, "--config", "p.toml"])
            .current_dir(&self.folder)
            .env_clear()
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Streams of every format, each seen to have begun.
    async fn streams(&self) -> Vec<(&'static str, Caller)> {
        let message =
            json!([{ "role": "user", "content": "Tell me a long story about harbours." }]);
        let mut open = Vec::new();
        for number in 0..STREAMS {
            let (path, body) = match number % 4 {
                0 => (CHAT, json!({ "model": "m", "stream": true, "messages": message })),
                1 => (
                    "/v1/messages",
                    json!({ "model": "m", "stream": true, "max_tokens": 500, "messages": message }),
                ),
                2 => ("/v1/responses", json!({ "model": "m", "stream": true, "input": message })),
                _ => (
                    "/v1beta/models/m:streamGenerateContent?alt=sse",
                    json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello!" }] }] }),
                ),
            };
            let body = body.to_string();
            let mut caller = Caller::at(&self.address).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                self.key,
                body.len()
            );
            caller.send([head.as_bytes(), body.as_bytes()].concat()).await;
            open.push((path, caller));
        }
        for (path, caller) in &mut open {
            let head = caller.head().await;
            assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        }
        open
    }
}

/// Everything of a stream, and whether it ended as a body does.
async fn rest(caller: &mut Caller) -> (String, bool) {
    let mut text = Vec::new();
    loop {
        match caller.chunk().await {
            Some(Some(chunk)) => text.extend(chunk),
            Some(None) => return (String::from_utf8(text).unwrap(), true),
            None => return (String::from_utf8(text).unwrap(), false),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_calls_finish_and_no_new_ones_begin() {
    let mut process = Process::start("finish", Duration::from_millis(50), "600s").await;
    let mut open = process.streams().await;
    let mut idle = Caller::at(&process.address).await;
    idle.send("GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    process.signal("-TERM");
    assert!(idle.is_closed().await, "an idle connection is let go at once");
    until("no connection is taken", async || TcpStream::connect(&process.address).await.is_err())
        .await;
    for (path, caller) in &mut open {
        let (text, proper) = rest(caller).await;
        assert!(proper, "{path}: cut: {text}");
        let end = match *path {
            CHAT => "data: [DONE]",
            "/v1/messages" => "message_stop",
            "/v1/responses" => "response.completed",
            _ => "\"finishReason\"",
        };
        assert!(text.contains(end) && !text.contains("\"error\":{"), "{path}: {text}");
        assert!(caller.is_closed().await);
    }
    let (code, _) = process.ended();
    assert_eq!(code, Some(0));
    process.post_journal();
    process.books_are_right();
    assert_eq!(process.ended_by(), vec!["provider"; STREAMS]);
}

/// A process that was stopped for longer than `gap` finds what its providers sent meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn streams_outlive_a_stopped_process() {
    let times = "600s\"\ngap = \"5s";
    let process = Process::start("stopped", Duration::from_millis(50), times).await;
    let mut open = process.streams().await;
    process.signal("-STOP");
    tokio::time::sleep(Duration::from_secs(8)).await;
    process.signal("-CONT");
    for (path, caller) in &mut open {
        let (text, proper) = rest(caller).await;
        assert!(proper && !text.contains("\"error\":{"), "{path}: {text}");
    }
    until("every call is posted", async || process.ended_by() == vec!["provider"; STREAMS]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_streams_end_with_an_error_in_their_format() {
    for (name, drain, signals) in [("limit", "1s", 1), ("twice", "600s", 2)] {
        let mut process = Process::start(name, Duration::from_secs(3), drain).await;
        let mut open = process.streams().await;
        process.signal("-TERM");
        if signals == 2 {
            until("no connection is taken", async || {
                TcpStream::connect(&process.address).await.is_err()
            })
            .await;
            process.signal("-INT");
        }
        let begun = Instant::now();
        for (path, caller) in &mut open {
            let (text, proper) = rest(caller).await;
            let (event, cut) = match *path {
                CHAT => ("\"code\":\"upstream_interrupted\"", false),
                "/v1/messages" => ("event: error", false),
                "/v1/responses" => ("event: response.failed", false),
                _ => ("data: {\"error\":{\"code\":503", true),
            };
            assert!(text.contains(event), "{name} {path}: {text}");
            assert_eq!(proper, !cut, "{name} {path}: {text}");
        }
        let (code, _) = process.ended();
        assert_eq!(code, Some(0), "{name}");
        // Far below the ten minutes that the second signal cut short.
        assert!(begun.elapsed() < Duration::from_secs(120), "{name}: {:?}", begun.elapsed());
        process.post_journal();
        process.books_are_right();
        let ended_by = process.ended_by();
        assert_eq!(ended_by.len(), STREAMS, "{name}");
        assert!(ended_by.iter().all(|who| who == "operator"), "{name}: {ended_by:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cut_short_is_refused_under_its_own_id() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut process = Process::before("id", silent.local_addr().unwrap(), "600s");
    let message = json!([{ "role": "user", "content": "Hello!" }]);
    let body = json!({ "model": "m", "messages": message }).to_string();
    let mut caller = Caller::at(&process.address).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        process.key,
        body.len()
    );
    caller.send([head.as_bytes(), body.as_bytes()].concat()).await;
    let _provider = silent.accept().await.unwrap();
    process.signal("-TERM");
    until("no connection is taken", async || TcpStream::connect(&process.address).await.is_err())
        .await;
    process.signal("-INT");
    let answer = caller.answer().await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    let id = answer.header("request-id").unwrap().to_owned();
    assert_eq!(process.ended().0, Some(0));
    process.post_journal();
    let row: Value = serde_json::from_str(process.ledger("export").trim()).unwrap();
    assert_eq!((&row["request_id"], &row["ended_by"]), (&id.into(), &"operator".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_file_descriptors_it_waits_quietly_and_recovers() {
    let folder = std::env::temp_dir().join(format!("portunus-drain-{}-files", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.toml"), "").unwrap();
    let mut shell = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_portunus");
    shell.args(["-c", &format!("ulimit -n 100; exec {program} \"$@\""), "sh"]);
    let mut process = Process::spawn(shell, folder);
    let mut crowd = Vec::new();
    for _ in 0..150 {
        crowd.push(Caller::at(&process.address).await);
    }
    // A busy loop never rests. The connections before may still be worked on, and the machine may be
    // slow, so that one quiet second among many is enough.
    let mut spent = Vec::new();
    while spent.last().is_none_or(|spent| *spent >= 50) {
        assert!(spent.len() < 60, "{spent:?} hundredths of a second computed in each second");
        let before = computed(process.child.id());
        tokio::time::sleep(Duration::from_secs(1)).await;
        spent.push(computed(process.child.id()) - before);
    }
    drop(crowd);
    until("an answer once there are descriptors again", async || {
        let mut caller = Caller::at(&process.address).await;
        caller.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        caller.answer().await.is_some_and(|answer| answer.status == 200)
    })
    .await;
    process.signal("-TERM");
    assert_eq!(process.ended().0, Some(0));
}

/// The processor time of a process, in hundredths of a second.
fn computed(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// WebSockets with one response each, which has begun.
async fn sockets(process: &Process, count: usize) -> Vec<SocketClient> {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut socket = SocketClient::open_at(&process.address, &process.key, "").await;
        let input = "Tell me a long story about harbours.";
        socket.send(&json!({ "type": "response.create", "model": "m", "input": input })).await;
        while socket.next().await.unwrap()["type"] != "response.output_text.delta" {}
        open.push(socket);
    }
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_over_web_sockets_end_before_their_connections() {
    let mut process = Process::start("sockets", Duration::from_millis(20), "60s").await;
    let open = sockets(&process, 8).await;
    process.signal("-TERM");
    for mut socket in open {
        let mut last = Value::Null;
        let code = loop {
            match socket.next().await {
                Ok(event) => last = event,
                Err(code) => break code,
            }
        };
        assert_eq!((&last["type"], code), (&json!("response.completed"), 1001));
    }
    assert_eq!(process.ended().0, Some(0));
    process.post_journal();
    process.books_are_right();
    assert_eq!(process.ended_by().len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_over_web_sockets_that_cannot_finish_end_with_an_error() {
    let mut process = Process::start("sockets-cut", Duration::from_millis(200), "300ms").await;
    let open = sockets(&process, 4).await;
    process.signal("-TERM");
    for mut socket in open {
        let mut last = Value::Null;
        while let Ok(event) = socket.next().await {
            last = event;
        }
        let kind = last["type"].as_str().unwrap();
        assert!(["response.failed", "error"].contains(&kind), "{last}");
    }
    process.ended();
    process.post_journal();
    process.books_are_right();
    assert_eq!(process.ended_by().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_loses_no_response_of_a_web_socket() {
    let mut process = Process::start("sockets-killed", Duration::from_millis(50), "60s").await;
    let mut open = sockets(&process, 4).await;
    process.signal("-KILL");
    process.ended();
    for socket in &mut open {
        while socket.next().await.is_ok() {}
    }
    process.post_journal();
    process.books_are_right();
    assert_eq!(process.ended_by().len(), 4);
}
