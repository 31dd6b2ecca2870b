//! A provider that answers with exactly the bytes and pauses a test gives it.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// One step of an answer.
#[derive(Clone, Debug)]
pub enum AnswerStep {
    /// These bytes, in one write.
    Bytes(Vec<u8>),
    /// A whole answer of JSON-RPC with this result, to the id of the request.
    RpcResult(Value),
    /// These bytes again and again, as fast as they are taken, until the connection ends.
    Flood(Vec<u8>),
    /// Silence.
    Wait(Duration),
    /// Silence until the test lets one answer through.
    WaitFor(Arc<Semaphore>),
    /// Nothing, but the semaphore gets a permit: the test learns that the answer came this far.
    Reached(Arc<Semaphore>),
    /// The connection ends here, with a reset if something is unread.
    Close,
}

/// A request the provider was sent.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The request line and headers as text.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A provider on a port of its own. It gives its answers in order; the last one again and again.
pub struct ScriptedProvider {
    /// Its address.
    pub url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    answers: Arc<Mutex<VecDeque<Vec<AnswerStep>>>>,
}

impl ScriptedProvider {
    /// A provider with these answers, each a list of steps.
    pub async fn start(answers: Vec<Vec<AnswerStep>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let (seen, given) = (Arc::clone(&asked), Arc::clone(&answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, seen) = (Arc::clone(&given), Arc::clone(&seen));
                tokio::spawn(answer_requests(stream, answers, seen));
            }
        });
        Self { url, requests: asked, answers }
    }

    /// Other answers from here on, for those that name the provider's own address.
    pub fn set_answers(&self, answers: Vec<Vec<AnswerStep>>) {
        *self.answers.lock().expect("no panic while answering") = VecDeque::from(answers);
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().expect("no panic while asking").clone()
    }

    /// A configuration with this provider, speaking that format, serving the model `m` as `up`.
    pub fn config(&self, speaks: &str) -> String {
        format!(
            "[providers.p]\nspeaks = \"{speaks}\"\nbase = \"{}\"\nauth = \"none\"\n\
             [models.m]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
            self.url
        )
    }
}

async fn answer_requests(
    mut stream: TcpStream,
    answers: Arc<Mutex<VecDeque<Vec<AnswerStep>>>>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
) {
    let _ = stream.set_nodelay(true);
    while let Some(asked) = read_request(&mut stream).await {
        let id = asked.json().get("id").cloned().unwrap_or_default();
        seen.lock().expect("no panic while asking").push(asked);
        let steps = {
            let mut answers = answers.lock().expect("no panic while answering");
            if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
        };
        for step in steps.unwrap_or_default() {
            match step {
                AnswerStep::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                AnswerStep::RpcResult(result) => {
                    let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
                    for step in reply(200, "application/json", &body.to_string()) {
                        let AnswerStep::Bytes(bytes) = step else { continue };
                        if stream.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                }
                AnswerStep::Flood(bytes) => {
                    while stream.write_all(&bytes).await.is_ok() {}
                    return;
                }
                AnswerStep::Wait(time) => tokio::time::sleep(time).await,
                AnswerStep::WaitFor(gate) => match gate.acquire().await {
                    Ok(place) => place.forget(),
                    Err(_) => return,
                },
                AnswerStep::Reached(moment) => moment.add_permits(1),
                AnswerStep::Close => return,
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(buffer.get(..count)?),
        }
    };
    let text = String::from_utf8_lossy(bytes.get(..head)?).into_owned();
    let length: usize = text
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned)
        })
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    while bytes.len() < head + length {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(buffer.get(..count)?),
        }
    }
    Some(ReceivedRequest { head: text, body: bytes.get(head..head + length)?.to_vec() })
}

/// A whole answer with that status and body.
pub fn reply(status: u16, kind: &str, body: &str) -> Vec<AnswerStep> {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    vec![AnswerStep::Bytes([head.as_bytes(), body.as_bytes()].concat())]
}

/// A stream of these events, ended properly.
pub fn sse(events: &[&str]) -> Vec<AnswerStep> {
    let mut steps = vec![AnswerStep::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    )];
    for event in events {
        let event = format!("data: {event}\n\n");
        steps.push(AnswerStep::Bytes(format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()));
    }
    steps.push(AnswerStep::Bytes(b"0\r\n\r\n".to_vec()));
    steps
}

/// A whole chat completion that says that text and reports that usage.
pub fn chat_reply(text: &str, input: u64, output: u64) -> Vec<AnswerStep> {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": text },
                      "finish_reason": "stop" }],
        "usage": { "prompt_tokens": input, "completion_tokens": output,
                   "total_tokens": input + output },
    });
    reply(200, "application/json", &body.to_string())
}

/// A chat stream of that text in those pieces, with usage at the end.
pub fn chat_stream(pieces: &[&str], input: u64, output: u64) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up",
                "choices": choices, "usage": usage })
        .to_string()
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), Value::Null)
    };
    let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), Value::Null)];
    events.extend(pieces.iter().map(|piece| delta(json!({ "content": piece }), Value::Null)));
    events.push(delta(json!({}), json!("stop")));
    let usage = json!({ "prompt_tokens": input, "completion_tokens": output,
                        "total_tokens": input + output });
    events.push(chunk(json!([]), usage));
    events.push("[DONE]".to_owned());
    events
}
