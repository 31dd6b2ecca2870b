//! Streams of providers that always have more data ready: deadlines, revoked keys and checkpoints
//! still count.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, until};

/// One wire format: the caller's request and the pieces of an endless answer.
struct Format {
    name: &'static str,
    path: &'static str,
    body: Value,
    opening: Vec<Value>,
    piece: Value,
}

fn formats() -> Vec<Format> {
    let words = "word ".repeat(40);
    let most = 1_000_000_000;
    let turns = json!([{ "role": "user", "content": "Hello!" }]);
    vec![
        Format {
            name: "chat",
            path: "/v1/chat/completions",
            body: json!({ "model": "m", "stream": true, "messages": turns,
                          "max_completion_tokens": most }),
            opening: vec![],
            piece: json!({ "id": "c", "object": "chat.completion.chunk", "created": 1,
                "model": "up", "choices": [{ "index": 0, "finish_reason": null,
                "delta": { "role": "assistant", "content": words } }] }),
        },
        Format {
            name: "responses",
            path: "/v1/responses",
            body: json!({ "model": "m", "stream": true, "input": "Hello!", "store": false,
                          "max_output_tokens": most }),
            opening: vec![
                json!({ "type": "response.created", "sequence_number": 0, "response": {
                    "id": "resp_1", "object": "response", "created_at": 1, "model": "up",
                    "status": "in_progress", "output": [] } }),
                json!({ "type": "response.output_item.added", "sequence_number": 1,
                    "output_index": 0, "item": { "type": "message", "id": "msg_1",
                    "role": "assistant", "status": "in_progress", "content": [] } }),
                json!({ "type": "response.content_part.added", "sequence_number": 2,
                    "item_id": "msg_1", "output_index": 0, "content_index": 0,
                    "part": { "type": "output_text", "text": "", "annotations": [] } }),
            ],
            piece: json!({ "type": "response.output_text.delta", "sequence_number": 3,
                "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": words }),
        },
        Format {
            name: "messages",
            path: "/v1/messages",
            body: json!({ "model": "m", "stream": true, "messages": turns, "max_tokens": most }),
            opening: vec![
                json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
                    "role": "assistant", "model": "up", "content": [], "stop_reason": null,
                    "stop_sequence": null,
                    "usage": { "input_tokens": 1, "output_tokens": 0 } } }),
                json!({ "type": "content_block_start", "index": 0,
                    "content_block": { "type": "text", "text": "" } }),
            ],
            piece: json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": words } }),
        },
        Format {
            name: "native",
            path: "/v1beta/models/m:streamGenerateContent?alt=sse",
            body: json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello!" }] }],
                          "generationConfig": { "maxOutputTokens": most } }),
            opening: vec![],
            piece: json!({ "candidates": [{ "index": 0,
                "content": { "role": "model", "parts": [{ "text": words }] } }] }),
        },
    ]
}

impl Format {
    fn event(&self, value: &Value) -> String {
        match &value["type"] {
            Value::String(name) => format!("event: {name}\ndata: {value}\n\n"),
            _ => format!("data: {value}\n\n"),
        }
    }

    /// A provider of this format that never stops, and a gateway in front of it.
    async fn begin(&self, more: &str) -> (ScriptedProvider, TestGateway) {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let opening: String = self.opening.iter().map(|value| self.event(value)).collect();
        let steps = vec![
            AnswerStep::Bytes(format!("{head}{opening}").into_bytes()),
            AnswerStep::Flood(self.event(&self.piece).repeat(200).into_bytes()),
        ];
        let provider = ScriptedProvider::start(vec![steps]).await;
        let gateway =
            TestGateway::with_config(&format!("{}{more}", provider.config(self.name))).await;
        (provider, gateway)
    }

    async fn ask(&self, gateway: &TestGateway) -> TestResponse {
        let asking = gateway.post(self.path, &self.body).send();
        let got = tokio::time::timeout(Duration::from_secs(15), asking).await;
        got.unwrap_or_else(|_| panic!("the {} stream does not end", self.name))
    }

    /// True if the answer ends with an error of this format that says so.
    fn ends_with(&self, got: &TestResponse, say: &str) -> bool {
        let text = got.text();
        let last = text.get(text.len().saturating_sub(2_000)..).unwrap_or(&text);
        got.status == 200 && last.contains(say) && got.is_truncated == (self.name == "native")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_revoked_key_ends_a_stream_that_is_always_ready() {
    for format in formats() {
        let (_provider, gateway) = format.begin("").await;
        let id = gateway.key.split('-').nth(2).unwrap().to_owned();
        let revoked = async {
            until("the stream runs", async || reached(&gateway)).await;
            let now = gateway.app.clock.now();
            assert!(gateway.app.store.revoke_key(&id, now).await.unwrap());
            Instant::now()
        };
        let (got, since) = tokio::join!(format.ask(&gateway), revoked);
        let took = since.elapsed();
        assert!(format.ends_with(&got, "the API key was revoked"), "{}", format.name);
        // A second until the key ring hears of it, one until the stream looks, and a slow machine.
        assert!(took < Duration::from_secs(5), "{}: {took:?}", format.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_total_timeout_ends_a_stream_that_is_always_ready() {
    for format in formats() {
        let (_provider, gateway) = format.begin("timeouts = { total = \"1s\" }\n").await;
        let begun = Instant::now();
        let got = format.ask(&gateway).await;
        let took = begun.elapsed();
        assert!(format.ends_with(&got, "took longer than is allowed"), "{}", format.name);
        assert!(took < Duration::from_secs(5), "{}: {took:?}", format.name);
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        assert_eq!((rows.len(), rows[0].ended_by), (1, ledger::EndedBy::Deadline));
        assert!(rows[0].usage.output > 0, "what was said is counted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_whole_answer_that_never_ends_meets_the_total_timeout() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    // One byte in each chunk: always ready, and for long below the size of the largest answer.
    let flood = AnswerStep::Flood(b"1\r\n \r\n".repeat(10_000));
    let steps = vec![AnswerStep::Bytes(head.into()), flood];
    let provider = ScriptedProvider::start(vec![steps]).await;
    let config = format!("{}timeouts = {{ total = \"1s\" }}\n", provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hello!" }] });
    let begun = Instant::now();
    let got = gateway.post("/v1/chat/completions", &body).send().await;
    assert_eq!(got.status, 504, "{}", got.text());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_that_is_always_ready_writes_checkpoints() {
    for format in formats() {
        let (_provider, gateway) = format.begin("timeouts = { total = \"3500ms\" }\n").await;
        let know = format!("the journal knows how far the {} call has come", format.name);
        tokio::join!(format.ask(&gateway), until(&know, async || reached(&gateway)));
    }
}

/// True if the journal tells how far a running call has come.
pub(super) fn reached(gateway: &TestGateway) -> bool {
    let folder = std::fs::read_dir(gateway.data_folder().join("journal")).unwrap();
    folder.map(|file| std::fs::read(file.unwrap().path()).unwrap_or_default()).any(|bytes| {
        let word = b"reached";
        bytes.windows(word.len()).any(|seven| seven == word)
    })
}
