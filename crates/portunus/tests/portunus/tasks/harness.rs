//! A provider of one small picture, and a gateway process in front of it that can be killed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{AnswerStep, reply};

/// One white dot.
pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\xdac\xfc\xcf\xc0P\x0f\0\x04\x85\x01\x80\x84\xa9\x8c!\0\0\0\0IEND\xaeB`\x82";
/// Price of one picture.
pub(crate) const PRICE: &str = "0.001000000";

/// A provider's answer with a picture.
pub(crate) fn picture() -> Vec<AnswerStep> {
    let body = json!({
        "created": 1, "output_format": "png", "size": "1024x1024", "quality": "low",
        "background": "opaque",
        "data": [{ "b64_json": STANDARD.encode(PNG), "revised_prompt": "a dot" }],
        "usage": { "input_tokens": 4, "output_tokens": 100, "total_tokens": 104,
                   "input_tokens_details": { "text_tokens": 4, "image_tokens": 0 },
                   "output_tokens_details": { "text_tokens": 0, "image_tokens": 100 } },
    });
    reply(200, "application/json", &body.to_string())
}

/// A provider's answer that never comes.
pub(crate) fn silence() -> Vec<AnswerStep> {
    vec![AnswerStep::Wait(Duration::from_secs(3_600))]
}

/// A configuration with the image model `m` of that provider.
pub(crate) fn config(provider: &str, more: &str) -> String {
    format!(
        "[providers.p]\nspeaks = \"images\"\nbase = \"{provider}\"\nauth = \"none\"\n\
         [models.m]\nkind = \"image\"\nlanes = [\"p/gpt-image-1\"]\n\
         price = {{ input = \"0\", output = \"0\", per_request = \"0.001\" }}\n{more}\n"
    )
}

/// An order for a picture that is not waited for.
pub(crate) fn order() -> Value {
    json!({ "model": "m", "prompt": "a dot", "async": true })
}

/// Asks again and again until there is an answer.
pub(crate) async fn soon<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    look: impl Fn() -> F,
) -> Option<T> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(found) = look().await {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Sends a request, with a key unless that is empty; `None` without an answer.
pub(crate) async fn send(
    method: Method,
    url: &str,
    key: &str,
    headers: &[(&'static str, &str)],
    body: &str,
) -> Option<Got> {
    let mut request = Request::builder().method(method).uri(url);
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (head, body) = client.request(request).await.ok()?.into_parts();
    let body = body.collect().await.ok()?.to_bytes().to_vec();
    Some(Got { status: head.status.as_u16(), headers: head.headers, body })
}

pub(crate) async fn get(url: &str, key: &str) -> Option<Got> {
    send(Method::GET, url, key, &[], "").await
}

/// Waits until a task is over.
pub(crate) async fn over(url: &str, key: &str, id: &str) -> Value {
    let task = soon(Duration::from_secs(90), || async {
        let task = get(&format!("{url}/v1/tasks/{id}"), key).await?.json();
        let over = matches!(task["status"].as_str()?, "completed" | "failed" | "cancelled");
        over.then_some(task)
    });
    task.await.expect("a task that comes to its end")
}

/// A gateway as a process of its own.
pub(crate) struct GatewayProcess {
    pub(crate) url: String,
    pub(crate) key: String,
    folder: PathBuf,
    /// Its data folder; several houses on one database have one each.
    data: String,
    child: Option<Child>,
}

impl GatewayProcess {
    /// Starts a gateway with nothing in it.
    pub(crate) fn start(config: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("portunus-tasks-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.toml"), config).unwrap();
        let mut gateway = Self {
            url: String::new(),
            key: String::new(),
            folder,
            data: "data".to_owned(),
            child: None,
        };
        let made = gateway.run(&["keys", "create", "--name", "k", "--unlimited"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        gateway.key = made["key"].as_str().unwrap().to_owned();
        gateway.serve();
        gateway
    }

    /// Another gateway on the same database, with a data folder of its own.
    #[cfg(feature = "node-tests")]
    pub(crate) fn beside(&self, data: &str) -> Self {
        let (folder, key) = (self.folder.clone(), self.key.clone());
        let mut gateway =
            Self { url: String::new(), key, folder, data: data.to_owned(), child: None };
        gateway.serve();
        gateway
    }

    /// Its data folder.
    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&self.folder).env_clear().env("PORTUNUS_SERVER_LINGER", "0s");
        command.args(["--config", "p.toml", "--data", &self.data, "--json"]);
        command
    }

    /// Starts the gateway again.
    pub(crate) fn serve(&mut self) {
        let log = self.folder.join(format!("{}.log", self.data));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = self
            .program()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("  -d '") && !greeting.contains("Make a key with") {
            assert!(lines.read_line(&mut greeting).unwrap() > 0, "it ended: {greeting}");
        }
        let url = greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        self.url = url.to_owned();
        self.child = Some(child);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it as a signal would, and waits.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        assert!(child.wait().unwrap().success());
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.program().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Every settled call.
    pub(crate) fn export(&self) -> Vec<Value> {
        let lines = self.run(&["ledger", "export"]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Submits an order and tells the id of its task.
    pub(crate) async fn submit(&self, order: &Value) -> String {
        let url = format!("{}/v1/images/generations", self.url);
        let got = send(Method::POST, &url, &self.key, &[], &order.to_string()).await.unwrap();
        assert_eq!(got.status, 202, "{}", got.json());
        got.json()["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
        // A failed test leaves its files for inspection.
        if !std::thread::panicking() && self.data == "data" {
            drop(std::fs::remove_dir_all(&self.folder));
        }
    }
}
