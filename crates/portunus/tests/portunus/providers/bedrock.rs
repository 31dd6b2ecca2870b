//! Bedrock's own endpoint: signed requests, the model in the path, AWS event streams, for callers
//! of every format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, reply};

use crate::attacks::nested_texts;

const MODEL: &str = "eu.anthropic.claude-x-v1:0";
const SAID: &str = "Hello! How can I help you – or shall I sing? 🎵";
const WHOLE: &str = include_str!("../../../../dialects/tests/fixtures/messages/hello.reply.json");
const STREAM: &str = include_str!("../../../../dialects/tests/fixtures/messages/hello.sse");

/// A frame as AWS writes it, with headers of text.
fn frame(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap());
        head.extend_from_slice(name.as_bytes());
        head.push(7);
        head.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        head.extend_from_slice(value.as_bytes());
    }
    let total = u32::try_from(16 + head.len() + payload.len()).unwrap();
    let mut bytes = total.to_be_bytes().to_vec();
    bytes.extend_from_slice(&u32::try_from(head.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(payload.as_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

fn exception(kind: &str, said: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", kind),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    frame(&headers, &json!({ "message": said }).to_string())
}

/// The events of the fixture, a frame each.
fn frames() -> Vec<Vec<u8>> {
    let events = STREAM.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunk = |event: &str| {
        let payload = json!({ "bytes": STANDARD.encode(event), "p": "abcdefgh" });
        let headers = [
            (":event-type", "chunk"),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ];
        frame(&headers, &payload.to_string())
    };
    events.map(chunk).collect()
}

/// An answer of these bytes, in pieces that mind no frame.
fn stream(bytes: &[u8]) -> Vec<AnswerStep> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let mut steps = vec![AnswerStep::Bytes(head.into())];
    for piece in bytes.chunks(37) {
        let size = format!("{:x}\r\n", piece.len());
        steps.push(AnswerStep::Bytes([size.as_bytes(), piece, b"\r\n"].concat()));
    }
    steps.push(AnswerStep::Bytes(b"0\r\n\r\n".to_vec()));
    steps
}

async fn gateway(bedrock: &ScriptedProvider) -> TestGateway {
    TestGateway::with_config(&format!(
        "[providers.bedrock-runtime]\nbase = \"{}\"\n\
         auth = {{ sigv4 = {{ region = \"eu-west-1\", access_key = {{ text = \"AKIDEXAMPLE\" }}, \
         secret_key = {{ text = \"hush-hush\" }}, session_token = {{ text = \"session\" }} }} }}\n\
         [models.m]\nlanes = [\"bedrock-runtime/{MODEL}\"]\n\
         price = {{ input = \"1\", output = \"1\" }}\n",
        bedrock.url
    ))
    .await
}

const FORMATS: [&str; 4] = ["chat", "responses", "messages", "native"];

async fn ask(gateway: &TestGateway, format: &str, stream: bool) -> TestResponse {
    let turn = json!([{ "role": "user", "content": "Hi" }]);
    let (path, body) = match (format, stream) {
        ("chat", _) => (
            "/v1/chat/completions",
            json!({ "model": "m", "messages": turn, "stream": stream, "max_tokens": 50 }),
        ),
        ("responses", _) => {
            ("/v1/responses", json!({ "model": "m", "input": "Hi", "stream": stream }))
        }
        ("messages", _) => (
            "/v1/messages",
            json!({ "model": "m", "messages": turn, "max_tokens": 50, "stream": stream }),
        ),
        (_, false) => (
            "/v1beta/models/m:generateContent",
            json!({ "contents": [{ "parts": [{ "text": "Hi" }] }] }),
        ),
        (_, true) => (
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            json!({ "contents": [{ "parts": [{ "text": "Hi" }] }] }),
        ),
    };
    gateway.post(path, &body).send().await
}

/// The text of an answer in any format.
fn text(format: &str, got: &TestResponse, stream: bool) -> String {
    let all = |pieces: Vec<Value>, at: &str| -> String {
        pieces.iter().filter_map(|piece| piece.pointer(at)?.as_str()).collect()
    };
    let pieces: Vec<Value> = match stream {
        true => got.events().iter().filter_map(|data| serde_json::from_str(data).ok()).collect(),
        false => vec![got.json()],
    };
    match (format, stream) {
        ("chat", true) => all(pieces, "/choices/0/delta/content"),
        ("chat", false) => all(pieces, "/choices/0/message/content"),
        ("responses", true) => {
            let deltas = pieces.into_iter().filter(|p| p["type"] == "response.output_text.delta");
            all(deltas.collect(), "/delta")
        }
        ("responses", false) => all(pieces, "/output/0/content/0/text"),
        ("messages", true) => all(pieces, "/delta/text"),
        ("messages", false) => all(pieces, "/content/0/text"),
        _ => all(pieces, "/candidates/0/content/parts/0/text"),
    }
}

#[tokio::test]
async fn every_format_is_answered_whole_and_streamed() {
    let answers = || [reply(200, "application/json", WHOLE), stream(&frames().concat())];
    let bedrock = ScriptedProvider::start(FORMATS.iter().flat_map(|_| answers()).collect()).await;
    let gateway = gateway(&bedrock).await;
    for format in FORMATS {
        for stream in [false, true] {
            let got = ask(&gateway, format, stream).await;
            assert_eq!(got.status, 200, "{format}: {}", got.text());
            assert_eq!(text(format, &got, stream), SAID, "{format} {stream}: {}", got.text());
            assert!(!got.is_truncated, "{format}");
            let asked = bedrock.requests().pop().unwrap();
            let op = if stream { "invoke-with-response-stream" } else { "invoke" };
            let line = format!("POST /model/eu.anthropic.claude-x-v1%3A0/{op} HTTP/1.1\r\n");
            assert!(asked.head.starts_with(&line), "{}", asked.head);
            let body = asked.json();
            assert_eq!(body["anthropic_version"], "bedrock-2023-05-31");
            assert!(body.get("model").is_none() && body.get("stream").is_none(), "{body}");
            let proof = "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/";
            assert!(asked.head.contains(proof), "{}", asked.head);
            assert!(asked.head.contains("/eu-west-1/bedrock/aws4_request, SignedHeaders="));
            assert!(asked.head.contains("x-amz-security-token: session"));
            assert!(!asked.head.contains("hush-hush"));
        }
    }
}

#[tokio::test]
async fn the_callers_beta_words_go_into_the_body() {
    let bedrock = ScriptedProvider::start(vec![reply(200, "application/json", WHOLE)]).await;
    let gateway = gateway(&bedrock).await;
    let body = r#"{"model":"m", "max_tokens":50,"messages":[ {"role":"user","content":"Hi"} ]}"#;
    let ask = gateway.request(http::Method::POST, "/v1/messages").body(body);
    let got = ask.header("anthropic-beta", "one-2026, two-2026").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = String::from_utf8(bedrock.requests()[0].body.clone()).unwrap();
    let version = r#"{"anthropic_version":"bedrock-2023-05-31""#;
    let beta = r#""anthropic_beta":["one-2026","two-2026"]"#;
    // The other bytes are the caller's own.
    let rest = r#""max_tokens":50,"messages":[ {"role":"user","content":"Hi"} ]}"#;
    assert_eq!(sent, format!("{version},{beta},{rest}"));
}

#[tokio::test]
async fn an_exception_is_told_in_every_format_before_and_in_the_middle_of_an_answer() {
    let some = frames()[..4].concat();
    let cases = [
        (exception("throttlingException", "slow down"), Some(429)),
        (exception("modelTimeoutException", "late"), Some(504)),
        (exception("internalServerException", "oops"), Some(503)),
        ([some.clone(), exception("modelStreamErrorException", "oops")].concat(), None),
        ([some.clone(), exception("throttlingException", "slow down")].concat(), None),
    ];
    for (bytes, status) in cases {
        let bedrock = ScriptedProvider::start(vec![stream(&bytes)]).await;
        let gateway = gateway(&bedrock).await;
        for format in FORMATS {
            let got = ask(&gateway, format, true).await;
            match status {
                Some(status) => assert_eq!(got.status, status, "{format}: {}", got.text()),
                None => broken(format, &got),
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_or_short_stream_never_passes_for_a_whole_one() {
    let good = frames();
    let mut damaged = good.concat();
    let late = damaged.len() - 400;
    damaged[late] ^= 1;
    let short = good[..good.len() - 1].concat();
    let cut = [short, good[good.len() - 1][..20].to_vec()].concat();
    // Without its last two frames there is no reason for the end.
    let unfinished = good[..good.len() - 2].concat();
    for bytes in [damaged, unfinished] {
        let bedrock = ScriptedProvider::start(vec![stream(&bytes)]).await;
        let gateway = gateway(&bedrock).await;
        for format in FORMATS {
            broken(format, &ask(&gateway, format, true).await);
        }
    }
    // The answer and its usage are complete; a truncated end marker does not change that.
    let bedrock = ScriptedProvider::start(vec![stream(&cut)]).await;
    let gateway = gateway(&bedrock).await;
    for format in FORMATS {
        let got = ask(&gateway, format, true).await;
        assert_eq!(got.status, 200, "{format}: {}", got.text());
        assert!(
            !got.is_truncated && !got.text().contains("\"error\":{"),
            "{format}: {}",
            got.text()
        );
    }
}

/// Checks that the answer began and ended with an error in the caller's format.
fn broken(format: &str, got: &TestResponse) {
    assert_eq!(got.status, 200, "{format}: {}", got.text());
    let text = got.text();
    let last = got.events().pop().unwrap_or_default();
    match format {
        "chat" => assert!(last.contains("\"error\"") && !text.contains("[DONE]"), "{text}"),
        "responses" => {
            assert!(text.contains("response.failed") || last.contains("error"), "{text}")
        }
        "messages" => assert!(text.contains("event: error"), "{text}"),
        // Clients of this format learn of the error from the aborted body.
        _ => assert!(got.is_truncated, "{text}"),
    }
}

#[tokio::test]
async fn a_refusal_in_awss_own_words_reaches_the_caller() {
    let body = json!({ "message": "messages: at least one message is required" });
    let bedrock =
        ScriptedProvider::start(vec![reply(400, "application/json", &body.to_string())]).await;
    let gateway = gateway(&bedrock).await;
    let got = ask(&gateway, "messages", false).await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("at least one message is required"), "{}", got.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_read_as_another_text_is_refused() {
    let evil = nested_texts(9);
    let headers = |kind: &'static str, name: &'static str| {
        [(name, kind), (":content-type", "application/json"), (":message-type", "event")]
    };
    let good = frames();
    let data = STANDARD.encode(r#"{"type":"message_stop"}"#);
    let chunk =
        frame(&headers("chunk", ":event-type"), &format!(r#"{{"bytes":"{data}","p":{evil}}}"#));
    let event = STANDARD.encode(format!(r#"{{"type":"ping","x":{evil}}}"#));
    let inner = frame(&headers("chunk", ":event-type"), &format!(r#"{{"bytes":"{event}"}}"#));
    let mut failed = headers("throttlingException", ":exception-type");
    failed[2].1 = "exception";
    let failed = frame(&failed, &format!(r#"{{"message":"unread","x":{evil}}}"#));
    for bad in [chunk, inner, failed] {
        let bytes = [good[..4].concat(), bad].concat();
        let bedrock = ScriptedProvider::start(vec![stream(&bytes)]).await;
        let gateway = gateway(&bedrock).await;
        for format in FORMATS {
            let got = ask(&gateway, format, true).await;
            broken(format, &got);
            // The text of an unreadable exception is not known.
            assert!(!got.text().contains("unread"), "{format}: {}", got.text());
        }
        assert_eq!(gateway.get("/healthz").send().await.status, 200);
    }
}
