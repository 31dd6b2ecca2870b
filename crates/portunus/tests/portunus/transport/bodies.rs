//! Bodies of callers and providers: size, speed and compression.

use super::raw_client::{CHAT, Caller, call, hello};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::json;
use std::io::Write as _;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, chat_stream};

/// `{"model":"m","messages":[{"role":"user","content":"Hello!"}]}`.
const HELLO_BR: &str =
    "GzwAQJwHts0juyELC7s2H7EW2Xvb2l1tcn2KRadFQsrYgkNOBI5fIM0DgDqz6aAQaiXyrkv/ZAoANcE1Mw==";
/// 64 MiB of zeros.
const BOMB_BR: &str = "y///PwAkAOKxQHLv//j//weABEAcFoDu/R////8AkACIwwLQvf/j//8fABIAcVgAuvd//P//\
                       A0ACIA4LQPf+j///fwBIAMRhAeje//H//w8ACYA4LADd+7/8//8DIAEQhwWge/8H";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[tokio::test]
async fn compressed_requests_reach_the_provider_plain() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let plain = hello("m", false);
    // Concatenated members are one body.
    let (first, second) = plain.split_at(9);
    let frames = [zstd(first), zstd(second)].concat();
    let members = [gzip(first), gzip(second)].concat();
    let rows = [
        ("gzip", gzip(&plain)),
        ("x-gzip", members),
        ("GZip, identity", gzip(&plain)),
        ("deflate", zlib(&plain)),
        ("deflate", deflate(&plain)),
        ("br", STANDARD.decode(HELLO_BR).unwrap()),
        ("zstd", zstd(&plain)),
        ("zstd", frames),
        ("identity", plain.clone()),
    ];
    for (coding, body) in &rows {
        let ask = gateway.request(http::Method::POST, CHAT).body(body.clone());
        let got = ask.header("content-encoding", coding).send().await;
        assert_eq!(got.status, 200, "{coding}: {}", got.text());
    }
    let asked = provider.requests();
    assert_eq!(asked.len(), rows.len());
    for (asked, (coding, _)) in asked.iter().zip(rows) {
        assert_eq!(asked.json()["messages"][0]["content"], "Hello!", "{coding}");
        let head = asked.head.to_ascii_lowercase();
        assert!(!head.contains("content-encoding"), "{coding}: {head}");
        assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
    }
}

#[tokio::test]
async fn bombs_lies_and_unknown_codings_are_refused() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let zeros = vec![b' '; 64 << 20];
    let plain = hello("m", false);
    // Beyond the first MiB a ratio of 100 to 1 is refused.
    let small_bomb = gzip(&zeros[..8 << 20]);
    // A body that compresses by less than that is refused for its size alone.
    let mut noise = Vec::new();
    for number in 0..120_000_u32 {
        noise.extend(number.wrapping_mul(2_654_435_761).to_le_bytes());
        noise.extend_from_slice(&zeros[..300]);
    }
    let half = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let rows = [
        ("gzip", gzip(&zeros), 413),
        ("gzip", small_bomb, 413),
        ("gzip", gzip(&noise), 413),
        ("deflate", zlib(&zeros), 413),
        ("deflate", deflate(&zeros), 413),
        ("br", STANDARD.decode(BOMB_BR).unwrap(), 413),
        ("zstd", zstd(&zeros), 413),
        ("gzip", plain.clone(), 400),
        ("deflate", plain.clone(), 400),
        ("br", b"\xff\xff\xff\xff".to_vec(), 400),
        ("zstd", plain.clone(), 400),
        ("gzip", half(gzip(&plain)), 400),
        ("deflate", half(zlib(&plain)), 400),
        ("deflate", half(deflate(&plain)), 400),
        ("br", half(STANDARD.decode(HELLO_BR).unwrap()), 400),
        ("zstd", half(zstd(&plain)), 400),
        ("gzip", [gzip(&plain), b"more".to_vec()].concat(), 400),
        ("deflate", [zlib(&plain), b"more".to_vec()].concat(), 400),
        ("br", [STANDARD.decode(HELLO_BR).unwrap(), b"more".to_vec()].concat(), 400),
        ("zstd", [zstd(&plain), b"more".to_vec()].concat(), 400),
        ("compress", plain.clone(), 415),
        ("gzip, gzip", gzip(&gzip(&plain)), 415),
        ("gzip, br", gzip(&plain), 415),
        ("banana", plain.clone(), 415),
    ];
    for (number, (coding, body, status)) in rows.into_iter().enumerate() {
        let ask = gateway.request(http::Method::POST, CHAT).body(body);
        let got = ask.header("content-encoding", coding).send().await;
        assert_eq!(got.status, status, "{number} {coding}: {}", got.text());
        let message = got.json()["error"]["message"].as_str().unwrap().to_owned();
        match status {
            413 if number == 2 => assert!(message.contains("33554432"), "{message}"),
            413 => {
                assert!(message.contains("more than 100 times"), "{number}: {message}");
                assert_eq!(got.json()["error"]["param"], "content-encoding", "{number}");
            }
            415 => assert!(message.contains("gzip, deflate, br, zstd"), "{message}"),
            _ => assert_eq!(
                got.json()["error"]["param"],
                "content-encoding",
                "{number} {coding}: {message}"
            ),
        }
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn the_hold_is_sized_from_what_comes_out() {
    let provider = ScriptedProvider::start(vec![chat_reply("Hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask = testkit::NewKey {
        name: "small".to_owned(),
        cap: Some("0.05".parse().unwrap()),
        models: vec![],
        expires: None,
    };
    let (record, key) =
        ask.into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    let sized = |bytes: usize| {
        let message = json!({ "role": "user", "content": "x".repeat(bytes) });
        gzip(
            json!({ "model": "m", "max_tokens": 10, "messages": [message] }).to_string().as_bytes(),
        )
    };
    // A dollar for a million tokens: 100 kB can cost ten cents, a few kilobytes cannot.
    for (bytes, status) in [(1_000, 200), (100_000, 429)] {
        let ask = gateway.request(http::Method::POST, CHAT).body(sized(bytes)).key(&key);
        let got = ask.header("content-encoding", "gzip").send().await;
        assert_eq!(got.status, status, "{bytes}: {}", got.text());
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_before_it_is_read() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"64KiB\"\n").await;
    let big = vec![b' '; 100 << 10];
    let length = format!("content-length: {}\r\n", 5_u64 << 30);
    let chunks = format!("{:x}\r\n", big.len());
    let rows = [
        ("a length of 5 GiB", call(&gateway, &length, b"")),
        ("one that waits", call(&gateway, &format!("{length}expect: 100-continue\r\n"), b"")),
        ("one that sends", call(&gateway, &length, &big)),
        (
            "chunks",
            call(
                &gateway,
                "transfer-encoding: chunked\r\n",
                &[chunks.as_bytes(), &big, b"\r\n"].concat(),
            ),
        ),
    ];
    for (name, bytes) in rows {
        let mut caller = Caller::to(&gateway).await;
        caller.send(bytes).await;
        let answer = caller.answer().await.unwrap();
        assert_eq!(answer.status, 413, "{name}: {}", answer.head);
        assert_eq!(answer.header("connection"), Some("close"), "{name}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("65536 bytes"), "{name}: {message}");
        assert!(caller.is_closed().await, "{name}");
    }
}

#[tokio::test]
async fn a_caller_that_waits_is_told_to_go_ahead() {
    let gateway = TestGateway::start().await;
    let body = hello("demo-chat", false);
    let length = format!("content-length: {}\r\nexpect: 100-Continue\r\n", body.len());
    let mut caller = Caller::to(&gateway).await;
    for _ in 0..2 {
        caller.send(call(&gateway, &length, b"")).await;
        assert_eq!(caller.answer().await.unwrap().status, 100);
        caller.send(&body).await;
        assert_eq!(caller.answer().await.unwrap().status, 200);
    }
    // One whose body is refused by its headers is not.
    for (wrong, word) in [("content-encoding: banana", "banana"), ("", "application/json")] {
        let mut head = String::from_utf8(call(&gateway, &length, b"")).unwrap();
        head = match wrong {
            "" => head.replace("application/json", "text/plain"),
            _ => head.replacen("\r\n", &format!("\r\n{wrong}\r\n"), 1),
        };
        let mut refused = Caller::to(&gateway).await;
        refused.send(&head).await;
        let answer = refused.answer().await.unwrap();
        assert_eq!(answer.status, 415, "{}", answer.head);
        assert!(answer.text().contains(word), "{}", answer.text());
        assert!(refused.is_closed().await, "{wrong}");
    }
    // A caller that sends its body at once gets no `100 Continue`.
    caller.send(call(&gateway, &length, &body)).await;
    assert_eq!(caller.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let gateway = TestGateway::with_config("[limits]\nbody_time = \"300ms\"\n").await;
    let bytes = call(&gateway, "content-length: 4000\r\n", b"{");
    let mut silent = Caller::to(&gateway).await;
    silent.send(&bytes).await;
    let answer = silent.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    assert!(silent.is_closed().await);
    // Single bytes do not count as progress.
    let mut slow = Caller::to(&gateway).await;
    slow.send(&bytes).await;
    let answer = loop {
        tokio::select! {
            answer = slow.answer() => break answer.unwrap(),
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
        }
        slow.send(" ").await;
    };
    assert_eq!(answer.status, 408);
    // A body that ends too early gets an error, if the caller still reads.
    let mut short = Caller::to(&gateway).await;
    short.send(&bytes).await;
    tokio::io::AsyncWriteExt::shutdown(&mut short.stream).await.unwrap();
    assert_eq!(short.answer().await.unwrap().status, 400);
}

fn answer_with(coding: &str, kind: &str, body: &[u8]) -> Vec<AnswerStep> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: {coding}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    vec![AnswerStep::Bytes([head.as_bytes(), body].concat())]
}

/// The body of a whole answer in its plain form.
fn plain_reply() -> Vec<u8> {
    let Some(AnswerStep::Bytes(bytes)) = chat_reply("Hi", 1, 1).into_iter().next() else {
        panic!()
    };
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    bytes[at + 4..].to_vec()
}

#[tokio::test]
async fn an_answer_compressed_unasked_is_undone_and_a_lie_is_an_outage() {
    let reply = plain_reply();
    let rows = [
        ("gzip", gzip(&reply), 200),
        ("deflate", zlib(&reply), 200),
        ("zstd", zstd(&reply), 200),
        ("gzip", reply.clone(), 503),
        ("zstd", reply.clone(), 503),
        ("br", reply.clone(), 503),
        ("gzip", gzip(&reply)[..20].to_vec(), 503),
        ("banana", reply.clone(), 503),
        ("gzip", gzip(&vec![b' '; 64 << 20]), 503),
    ];
    for (number, (coding, body, status)) in rows.into_iter().enumerate() {
        let provider =
            ScriptedProvider::start(vec![answer_with(coding, "application/json", &body)]).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        let got = gateway.request(http::Method::POST, CHAT).body(hello("m", false)).send().await;
        assert_eq!(got.status, status, "{number} {coding}: {}", got.text());
        if status == 200 {
            assert_eq!(got.json()["choices"][0]["message"]["content"], "Hi");
            assert!(got.headers.get("content-encoding").is_none());
        }
    }
}

#[tokio::test]
async fn a_compressed_stream_flows_event_by_event_and_breaks_loudly() {
    let events = chat_stream(&["one", "two", "three"], 1, 3);
    for whole in [true, false] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut steps = vec![AnswerStep::Bytes(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\
              transfer-encoding: chunked\r\n\r\n"
                .to_vec(),
        )];
        let mut chunk = |bytes: Vec<u8>| {
            let head = format!("{:x}\r\n", bytes.len());
            steps.push(AnswerStep::Bytes([head.as_bytes(), &bytes, b"\r\n"].concat()));
        };
        for event in events.iter().take(if whole { events.len() } else { 3 }) {
            encoder.write_all(format!("data: {event}\n\n").as_bytes()).unwrap();
            encoder.flush().unwrap();
            chunk(std::mem::take(encoder.get_mut()));
        }
        if whole {
            chunk(encoder.finish().unwrap());
            steps.push(AnswerStep::Bytes(b"0\r\n\r\n".to_vec()));
        } else {
            // The bytes must have arrived before the connection breaks.
            steps.push(AnswerStep::Wait(std::time::Duration::from_millis(300)));
            steps.push(AnswerStep::Close);
        }
        let provider = ScriptedProvider::start(vec![steps]).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        let got = gateway.request(http::Method::POST, CHAT).body(hello("m", true)).send().await;
        let text = got.text();
        assert_eq!(got.status, 200, "{text}");
        assert!(text.contains("\"one\"") && text.contains("\"two\""), "{text}");
        assert_eq!(text.contains("[DONE]"), whole, "{text}");
        assert_eq!(text.contains("upstream_interrupted"), !whole, "{text}");
    }
}

/// A large answer takes one more place for large work if it is compressed: a worker does not
/// decompress it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_compressed_answers_arrive_whole_and_leave_the_workers() {
    let text: String = (0..200_000).map(|number| number.to_string()).collect();
    let plain = chat_reply(&text, 1, 1);
    let [AnswerStep::Bytes(answer)] = &plain[..] else { panic!("one step") };
    let at = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let coded = |name: &str, body: Vec<u8>| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {name}\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        vec![AnswerStep::Bytes([head.into_bytes(), body].concat())]
    };
    let body = &answer[at..];
    let answers = vec![
        plain.clone(),
        coded("gzip", gzip(body)),
        coded("deflate", zlib(body)),
        coded("deflate", deflate(body)),
        coded("zstd", zstd(body)),
    ];
    let count = answers.len();
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let mut begun = Vec::new();
    for at in 0..count {
        let before = gateway.app.engine.heavy_work.usage().begun;
        let got = gateway
            .post(
                CHAT,
                &json!({ "model": "m",
            "messages": [{ "role": "user", "content": "Hi" }] }),
            )
            .send()
            .await;
        assert_eq!(got.status, 200, "{at}: {}", got.text());
        assert!(got.json()["choices"][0]["message"]["content"] == *text, "{at}");
        begun.push(gateway.app.engine.heavy_work.usage().begun - before);
    }
    assert!(begun[0] > 0 && begun[1..].iter().all(|own| *own == begun[0] + 1), "{begun:?}");
}
