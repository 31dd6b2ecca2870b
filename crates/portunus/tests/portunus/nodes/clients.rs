//! Clients of all formats, each moving from node to node.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::nodes::cluster::Cluster;

type Http = Client<HttpConnector, Full<Bytes>>;

fn client() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Refused,
    /// The node cannot say whether it may be spent.
    Away,
    /// The node went away in the middle of it, or was not there.
    Gone,
}

#[derive(Clone)]
pub(crate) struct Callers(Arc<Shared>);

struct Shared {
    /// Addresses of the nodes; a restarted node has a new one.
    urls: Arc<Mutex<Vec<String>>>,
    model: &'static str,
    key: String,
    http: Http,
    calls: AtomicUsize,
    running: AtomicUsize,
    /// Answered calls, and which number each was.
    done: Mutex<Vec<(String, usize)>>,
    first_refusal: Mutex<Option<usize>>,
}

impl Callers {
    pub(crate) fn new(cluster: &Cluster, key: &str) -> Self {
        Self::of(cluster, key, "flat")
    }

    /// Callers of that model.
    pub(crate) fn of(cluster: &Cluster, key: &str, model: &'static str) -> Self {
        Self(Arc::new(Shared {
            urls: cluster.places(),
            model,
            key: key.to_owned(),
            http: client(),
            calls: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            done: Mutex::default(),
            first_refusal: Mutex::default(),
        }))
    }

    pub(crate) fn admitted(&self) -> usize {
        self.0.done.lock().len()
    }

    /// Number of calls made.
    pub(crate) fn made(&self) -> usize {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// The ids of all answered calls, and which number each was.
    pub(crate) fn done(&self) -> Vec<(String, usize)> {
        self.0.done.lock().clone()
    }

    /// Number of calls answered or under way when the first one was refused.
    pub(crate) fn admitted_at_first_refusal(&self) -> usize {
        self.0.first_refusal.lock().expect("somebody was refused")
    }

    /// So many callers at once, until each was refused; how many calls were answered in all.
    pub(crate) async fn call_until_refused(&self, callers: usize) -> usize {
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..callers {
            let all = self.clone();
            tasks.spawn(async move {
                for node in caller.. {
                    match all.one(node).await {
                        Answer::Done => {}
                        Answer::Refused => return,
                        // The store may be late on a busy machine.
                        Answer::Away | Answer::Gone => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                }
            });
        }
        tasks.join_all().await;
        self.admitted()
    }

    /// Runs so many callers at once until `stop`; failed calls do not matter.
    pub(crate) async fn call_until(&self, callers: usize, stop: Arc<AtomicBool>) {
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..callers {
            let (all, stop) = (self.clone(), Arc::clone(&stop));
            tasks.spawn(async move {
                for node in caller.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match all.one(node).await {
                        Answer::Done | Answer::Refused => {}
                        Answer::Away | Answer::Gone => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                }
            });
        }
        tasks.join_all().await;
    }

    /// One call at that node, in one format after the other.
    pub(crate) async fn one(&self, node: usize) -> Answer {
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.0.running.fetch_add(1, Ordering::Relaxed);
        let answer = self.try_one(node, number).await;
        let running = self.0.running.fetch_sub(1, Ordering::Relaxed) - 1;
        match answer {
            Some((StatusCode::OK, id)) => {
                self.0.done.lock().push((id, number));
                Answer::Done
            }
            Some((StatusCode::TOO_MANY_REQUESTS, _)) => {
                let now = self.admitted() + running;
                self.0.first_refusal.lock().get_or_insert(now);
                Answer::Refused
            }
            Some((StatusCode::SERVICE_UNAVAILABLE, _)) => Answer::Away,
            Some((other, _)) => panic!("{other}"),
            None => Answer::Gone,
        }
    }

    async fn try_one(&self, node: usize, number: usize) -> Option<(StatusCode, String)> {
        // A short pause per piece, and a tag for the provider's meter.
        let said = format!("call {number} [[fault: slow wait=1ms tag=c{number}]]");
        let turn = json!([{ "role": "user", "content": said }]);
        let stream = number.is_multiple_of(3);
        let model = self.0.model;
        let (path, body) = match number % 4 {
            0 => (
                "/v1/chat/completions".to_owned(),
                json!({ "model": model, "messages": turn, "stream": stream }),
            ),
            1 => (
                "/v1/messages".to_owned(),
                json!({ "model": model, "messages": turn, "max_tokens": 64, "stream": stream }),
            ),
            2 => (
                "/v1/responses".to_owned(),
                json!({ "model": model, "input": said, "store": false, "stream": stream }),
            ),
            _ => (
                match stream {
                    true => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
                    false => format!("/v1beta/models/{model}:generateContent"),
                },
                json!({ "contents": [{ "role": "user", "parts": [{ "text": said }] }] }),
            ),
        };
        let url = {
            let urls = self.0.urls.lock();
            urls[node % urls.len()].clone()
        };
        let key = &self.0.key;
        let (status, id, mut body) = send(&self.0.http, &url, &path, key, Some(body)).await?;
        while let Some(frame) = body.frame().await {
            frame.ok()?;
        }
        Some((status, id))
    }
}

async fn send(
    http: &Http,
    url: &str,
    path: &str,
    key: &str,
    body: Option<Value>,
) -> Option<(StatusCode, String, Incoming)> {
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let request = Request::builder()
        .method(method)
        .uri(format!("{url}{path}"))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .header("anthropic-version", "2023-06-01")
        .body(Full::new(body.map(|body| Bytes::from(body.to_string())).unwrap_or_default()))
        .unwrap();
    let response = http.request(request).await.ok()?;
    let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    let id = id.unwrap_or_default().to_owned();
    Some((response.status(), id, response.into_body()))
}

/// A GET and its JSON; nothing when the node is not there.
pub(crate) async fn ask(url: &str, path: &str, key: &str) -> Option<(u16, Value)> {
    let (status, _, body) = send(&client(), url, path, key, None).await?;
    let body = body.collect().await.ok()?.to_bytes();
    Some((status.as_u16(), serde_json::from_slice(&body).unwrap_or_default()))
}

/// A stream that has begun.
pub(crate) struct Begun {
    pub(crate) request_id: String,
    pub(crate) body: Incoming,
}

/// Begins a slow stream of so many tokens and reads until there is some output.
pub(crate) async fn begin_stream(url: &str, key: &str, max_tokens: u32) -> Begun {
    let content = "Tell me a long story, please, with many words in it.";
    let body = json!({
        "model": "slow", "stream": true, "max_tokens": max_tokens,
        "messages": [{ "role": "user", "content": content }],
    });
    let sent = send(&client(), url, "/v1/chat/completions", key, Some(body)).await;
    let (status, request_id, mut body) = sent.unwrap();
    assert_eq!(status, 200);
    let mut pieces = 0;
    while pieces < 6 {
        body.frame().await.expect("more of the stream").expect("an unbroken stream");
        pieces += 1;
    }
    Begun { request_id, body }
}

/// Tries until there is something, or the time is over.
pub(crate) async fn soon<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    mut attempt: impl FnMut() -> F,
) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = attempt().await;
        if found.is_some() || begun.elapsed() > limit {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
