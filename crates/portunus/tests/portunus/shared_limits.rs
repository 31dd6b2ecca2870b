//! Several gateways, each a process of its own, on one PostgreSQL and one Valkey.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, chat_reply, until};
use tokio::sync::Semaphore;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portunus-nodes-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A Valkey with nothing in it.
struct Valkey {
    process: Process,
    url: String,
    _folder: Folder,
}

impl Valkey {
    async fn start() -> Self {
        let program = std::env::var("PORTUNUS_TEST_VALKEY")
            .expect("PORTUNUS_TEST_VALKEY must name the program of a Valkey server");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = Folder::new();
        let child = Command::new(program)
            .current_dir(&folder.0)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let valkey = Self {
            process: Process(child),
            url: format!("redis://127.0.0.1:{port}"),
            _folder: folder,
        };
        until("Valkey answers", async || valkey.try_ask::<String>(&["PING"]).await.is_ok()).await;
        valkey
    }

    async fn try_ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await?;
        let (name, rest) = words.split_first().unwrap();
        let mut command = redis::cmd(name);
        for word in rest {
            command.arg(*word);
        }
        command.query_async(&mut connection).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).await.unwrap()
    }
}

/// Gateways that share everything but their data folder.
struct Nodes {
    nodes: Vec<(Process, String)>,
    folder: Folder,
    client: Client<HttpConnector, Full<Bytes>>,
}

struct Got {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Nodes {
    fn start(count: usize, config: &str) -> Self {
        let folder = Folder::new();
        let store = std::env::var("PORTUNUS_TEST_POSTGRES")
            .expect("PORTUNUS_TEST_POSTGRES must be the address of a PostgreSQL");
        let config = format!("[store]\nurl = \"{store}\"\n{config}");
        std::fs::write(folder.0.join("gateway.toml"), config).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut nodes = Self { nodes: Vec::new(), folder, client };
        nodes.cli(&["migrate"]);
        nodes.nodes = (0..count).map(|number| nodes.serve(number)).collect();
        nodes
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&self.folder.0).env_clear().env("PORTUNUS_SERVER_LINGER", "0s");
        command.args(["--config", "gateway.toml"]);
        command
    }

    fn cli(&self, arguments: &[&str]) -> Value {
        let output = self.command().args(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn serve(&self, number: usize) -> (Process, String) {
        let mut child = self
            .command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data", &format!("node{number}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        let url = loop {
            if lines.read_line(&mut greeting).unwrap() == 0 {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it ended: {greeting}{said}");
            }
            let mut words = greeting.split_whitespace();
            if let Some(url) = words.find(|word| word.starts_with("http://")) {
                break url.trim_end_matches('/').to_owned();
            }
        };
        // Keeps reading, because the process would block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let mut said = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
        (Process(child), url)
    }

    /// A new key, with these flags.
    fn key(&self, flags: &[&str]) -> (String, String) {
        let made = self.cli(&[&["keys", "create", "--name", "k", "--unlimited"], flags].concat());
        let word = |name: &str| made[name].as_str().unwrap().to_owned();
        (word("id"), word("key"))
    }

    async fn post(&self, node: usize, key: &str, name: Option<&str>, body: &Value) -> Got {
        let mut request = Request::post(format!("{}/v1/chat/completions", self.nodes[node].1))
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json");
        if let Some(name) = name {
            request = request.header("idempotency-key", name);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }

    /// Sends calls to the first nodes and counts those that were admitted; the rest must be refused.
    async fn crowd(&self, nodes: usize, key: &str, callers: usize) -> usize {
        let hello = hello();
        let calls = (0..callers).map(|number| {
            let (node, hello) = (number % nodes, &hello);
            async move { self.post(node, key, None, hello).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        for got in &answers {
            assert!(matches!(got.status, 200 | 429), "{}: {}", got.status, got.body);
        }
        answers.iter().filter(|got| got.status == 200).count()
    }
}

fn hello() -> Value {
    json!({ "model": "demo-chat", "max_tokens": 4, "messages": [{ "role": "user", "content": "Hi" }] })
}

/// Waits until every node has heard of the others.
async fn acquainted(valkey: &Valkey, nodes: usize) {
    until("every node is registered", async || {
        valkey.ask::<usize>(&["ZCARD", "portunus:nodes"]).await >= nodes
    })
    .await;
    // Each node registers once a second and gets the count in the reply; nothing shows that it has.
    tokio::time::sleep(Duration::from_secs(4)).await;
}

/// Waits until the first node asks Valkey again.
async fn asked_again(valkey: &Valkey, nodes: &Nodes) {
    loop {
        let (id, key) = nodes.key(&["--rpm", "9"]);
        assert_eq!(nodes.crowd(1, &key, 1).await, 1);
        let counted = format!("portunus:rpm:key:{id}");
        if valkey.try_ask(&["EXISTS", &counted]).await.is_ok_and(|there: bool| there) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_a_limit_and_keep_their_shares_when_valkey_fails_them() {
    let valkey = Valkey::start().await;
    let shared = |patience: &str| {
        format!("[shared]\nvalkey = \"{}\"\npatience = \"{patience}\"\n", valkey.url)
    };
    {
        // A long timeout, so that a busy machine decides nothing.
        let nodes = Nodes::start(3, &shared("20s"));
        acquainted(&valkey, 3).await;
        let (_, key) = nodes.key(&["--rpm", "40"]);
        assert_eq!(nodes.crowd(3, &key, 150).await, 40, "together, not each");
        for node in 0..3 {
            let refused = nodes.post(node, &key, None, &hello()).await;
            assert_eq!(
                (refused.status, refused.header("x-ratelimit-remaining-requests")),
                (429, "0")
            );
        }
        let (_, key) = nodes.key(&["--rpm", "40"]);
        assert_eq!(nodes.crowd(1, &key, 80).await, 40, "one may use what the others do not");
        let (_, key) = nodes.key(&["--tpm", "200"]);
        assert!(nodes.crowd(3, &key, 60).await < 30);

        let (id, key) = nodes.key(&["--rpm", "30"]);
        let _: () = valkey.ask(&["SET", &format!("portunus:rpm:key:{id}"), "no count"]).await;
        assert_eq!(nodes.crowd(1, &key, 60).await, 10, "a third each: the name is another's");
        assert_eq!(nodes.crowd(3, &key, 60).await, 20, "and no more together");

        asked_again(&valkey, &nodes).await;
        let _: () = valkey.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let (_, key) = nodes.key(&["--rpm", "30"]);
        assert_eq!(nodes.crowd(1, &key, 60).await, 10, "a third each: Valkey is full");
        assert_eq!(nodes.crowd(3, &key, 60).await, 20, "and no more together");
        let _: () = valkey.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
    let nodes = Nodes::start(2, &shared("20ms"));
    // Stopped nodes are forgotten.
    until("two nodes are left", async || {
        valkey.ask::<usize>(&["ZCARD", "portunus:nodes"]).await == 2
    })
    .await;
    acquainted(&valkey, 2).await;
    let (_, key) = nodes.key(&["--rpm", "20"]);
    let _: () = valkey.ask(&["CLIENT", "PAUSE", "3000", "ALL"]).await;
    assert!(nodes.crowd(2, &key, 64).await <= 20, "slow");
    asked_again(&valkey, &nodes).await;
    let (_, key) = nodes.key(&["--rpm", "20"]);
    drop(valkey.process);
    assert_eq!(nodes.crowd(1, &key, 64).await, 10, "gone: a half each");
    assert_eq!(nodes.crowd(2, &key, 64).await, 10, "and no more together");
}

#[tokio::test(flavor = "multi_thread")]
async fn news_of_a_revoked_key_reach_every_node() {
    let valkey = Valkey::start().await;
    let nodes = Nodes::start(2, &format!("[shared]\nvalkey = \"{}\"\n", valkey.url));
    let (id, key) = nodes.key(&[]);
    for node in 0..2 {
        assert_eq!(nodes.post(node, &key, None, &hello()).await.status, 200);
    }
    // Both nodes are subscribed.
    until("both nodes listen", async || {
        let (_, listeners): (String, usize) =
            valkey.ask(&["PUBSUB", "NUMSUB", "portunus:keys"]).await;
        listeners == 2
    })
    .await;
    let client = redis::Client::open(valkey.url.as_str()).unwrap();
    let mut news = client.get_async_pubsub().await.unwrap();
    news.subscribe("portunus:keys").await.unwrap();
    nodes.cli(&["keys", "revoke", &id]);
    assert!(news.on_message().next().await.is_some(), "it is told");
    for node in 0..2 {
        until("the node refuses the key", async || {
            nodes.post(node, &key, None, &hello()).await.status == 401
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_call_runs_on_one_node_and_again_only_when_that_node_died() {
    let gate = Arc::new(Semaphore::new(0));
    let mut answer = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
    answer.extend(chat_reply("done", 10, 5));
    let provider = ScriptedProvider::start(vec![answer]).await;
    let mut nodes = Nodes::start(2, &provider.config("chat"));
    let (_, key) = nodes.key(&[]);
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
    {
        let calls = (0..40).map(|number| nodes.post(number % 2, &key, Some("once"), &body));
        let mut calls: FuturesUnordered<_> = calls.collect();
        for _ in 1..40 {
            let got = calls.next().await.unwrap();
            assert_eq!((got.status, got.header("x-should-retry")), (409, "true"), "{}", got.body);
        }
        gate.add_permits(1);
        let first = calls.next().await.unwrap();
        assert_eq!((first.status, first.header("idempotent-replayed")), (200, ""));
        for node in 0..2 {
            let again = nodes.post(node, &key, Some("once"), &body).await;
            assert_eq!((again.status, again.header("idempotent-replayed")), (200, "true"));
            assert_eq!(again.body, first.body);
        }
        let other = json!({ "model": "m", "messages": [{ "role": "user", "content": "y" }] });
        assert_eq!(nodes.post(1, &key, Some("once"), &other).await.status, 400);
    }
    assert_eq!(provider.requests().len(), 1, "of forty on two nodes one ran");

    // The node is killed during the call.
    let url = format!("{}/v1/chat/completions", nodes.nodes[0].1);
    let request = Request::post(url)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .header("idempotency-key", "twice")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let running = tokio::spawn(nodes.client.request(request));
    until("the second call reached the provider", async || provider.requests().len() == 2).await;
    assert_eq!(nodes.post(1, &key, Some("twice"), &body).await.status, 409);
    drop(nodes.nodes.remove(0));
    assert!(running.await.unwrap().is_err());
    gate.add_permits(8);
    let mut answer = None;
    until("the call of the dead node may run again", async || {
        let got = nodes.post(0, &key, Some("twice"), &body).await;
        let free = got.status != 409;
        answer = Some(got);
        free
    })
    .await;
    let got = answer.unwrap();
    assert_eq!((got.status, got.header("idempotent-replayed")), (200, ""), "{}", got.body);
    assert_eq!(provider.requests().len(), 3, "the survivor ran it, once");
    let again = nodes.post(0, &key, Some("twice"), &body).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, "true"));
}
