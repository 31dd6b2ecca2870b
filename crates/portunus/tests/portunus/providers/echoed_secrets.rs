//! A provider that repeats the operator's secrets in its errors: the caller reads the rest.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_stream, reply, sse};

const SECRET: &str = "vault.9f-the-operators-own";

#[tokio::test]
async fn no_piece_of_a_credential_reaches_the_caller() {
    let message = format!(
        "temperature is too high for key {SECRET} (starts with {}), account org-77, seen at \
         10.0.0.8 and gpu.cluster.internal",
        &SECRET[..9]
    );
    let expected = "temperature is too high for key [hidden] (starts with [hidden]), account \
                    [hidden], seen at [hidden] and [hidden]";
    for (speaks, path, status) in [
        ("chat", "/v1/chat/completions", 400),
        ("messages", "/v1/messages", 400),
        ("responses", "/v1/responses", 400),
        ("native", "/v1beta/models/m:generateContent", 400),
        ("chat", "/v1/messages", 413),
    ] {
        let body = json!({"type": "error", "error": {"message": message, "type": "bad",
            "code": 400, "status": "INVALID_ARGUMENT"}});
        let answers = vec![reply(status, "application/json", &body.to_string())];
        let provider = ScriptedProvider::start(answers).await;
        let auth = format!("auth = {{ bearer = {{ text = \"{SECRET}\" }} }}");
        let config = provider.config(speaks).replace("auth = \"none\"", &auth);
        let gateway = TestGateway::with_config(&config).await;
        let request = json!({"model": "m", "max_tokens": 9, "input": "Hi",
            "messages": [{"role": "user", "content": "Hi"}]});
        let request = match path.contains(":generate") {
            true => json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
            false => request,
        };
        let answer = gateway.post(path, &request).send().await;
        let sent = provider.requests();
        assert!(sent.iter().any(|sent| format!("{sent:?}").contains(SECRET)), "{speaks}");
        assert_eq!(answer.status, status, "{speaks}: {}", answer.text());
        assert!(answer.text().contains(expected), "{speaks}: {}", answer.text());
        let shown = format!("{answer:?}");
        for at in 0..SECRET.len() - 8 {
            assert!(!shown.contains(&SECRET[at..at + 8]), "{speaks}: {shown}");
        }
    }
}

/// The first event of a stream, and the error that ends it.
fn broken_stream(speaks: &str, message: &str) -> [String; 2] {
    let mut response = json!({ "id": "resp_1", "object": "response", "created_at": 1,
        "model": "up", "status": "in_progress", "output": [] });
    let begin = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
        "content": [], "stop_reason": null, "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let created = json!({ "type": "response.created", "sequence_number": 0, "response": response });
    let text = json!({ "role": "model", "parts": [{ "text": "Ho" }] });
    response["status"] = json!("failed");
    response["error"] = json!({ "code": "invalid_image_url", "message": message });
    let wrong = json!({ "type": "invalid_request_error", "message": message });
    let (first, error) = match speaks {
        "chat" => (chat_stream(&["Ho"], 1, 1).remove(1), json!({ "error": wrong })),
        "messages" => (
            json!({ "type": "message_start", "message": begin }).to_string(),
            json!({ "type": "error", "error": wrong }),
        ),
        "responses" => (
            created.to_string(),
            json!({ "type": "error", "sequence_number": 1, "code": "invalid_image_url",
                "message": message, "param": null }),
        ),
        "responses, failed" => (
            created.to_string(),
            json!({ "type": "response.failed", "sequence_number": 1, "response": response }),
        ),
        _ => (
            json!({ "candidates": [{ "content": text }] }).to_string(),
            json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message": message } }),
        ),
    };
    [first, error.to_string()]
}

#[tokio::test]
async fn no_piece_of_a_credential_in_an_error_event_reaches_the_caller() {
    let message = format!("the key {SECRET} and sk-abc123 failed");
    let mut shown = 0;
    for speaks in ["chat", "messages", "responses", "responses, failed", "native"] {
        for (format, path) in [
            ("chat", "/v1/chat/completions"),
            ("messages", "/v1/messages"),
            ("responses", "/v1/responses"),
            ("native", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        ] {
            let [first, error] = broken_stream(speaks, &message);
            let error = format!("data: {error}\n\n");
            // The secret arrives in two pieces.
            let (one, other) = error.split_at(error.find(SECRET).unwrap() + 9);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                        transfer-encoding: chunked\r\n\r\n";
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            let pieces = [chunk(&format!("data: {first}\n\n")), chunk(one), chunk(other)];
            let mut steps = vec![AnswerStep::Bytes(head.as_bytes().to_vec())];
            steps.extend(pieces.map(|piece| AnswerStep::Bytes(piece.into_bytes())));
            steps.push(AnswerStep::Bytes(b"0\r\n\r\n".to_vec()));
            let provider = ScriptedProvider::start(vec![steps]).await;
            let auth = format!("auth = {{ bearer = {{ text = \"{SECRET}\" }} }}");
            let config = provider.config(speaks.split(',').next().unwrap());
            let config = config.replace("auth = \"none\"", &auth);
            let gateway = TestGateway::with_config(&config).await;
            let request = match format {
                "native" => json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
                _ => json!({"model": "m", "max_tokens": 9, "input": "Hi", "stream": true,
                    "messages": [{"role": "user", "content": "Hi"}]}),
            };
            let text = gateway.post(path, &request).wire_text().await;
            let name = format!("{format} by {speaks}: {text}");
            assert!(!text.contains("sk-abc123"), "{name}");
            for at in 0..SECRET.len() - 8 {
                assert!(!text.contains(&SECRET[at..at + 8]), "{name}");
            }
            // Some formats have words of their own for some errors.
            if text.contains("the key ") {
                assert!(text.contains("the key [hidden] and [hidden] failed"), "{name}");
                shown += 1;
            }
        }
    }
    assert!(shown >= 12, "{shown} of 20 errors are explained");
}

#[tokio::test]
async fn a_caller_that_guesses_pieces_learns_nothing() {
    for piece in ["vault.9f", "vault.9g"] {
        let body = json!({ "error": { "message": format!("unknown user {piece} here") } });
        let answer = reply(400, "application/json", &body.to_string());
        let provider = ScriptedProvider::start(vec![answer]).await;
        let auth = format!("auth = {{ bearer = {{ text = \"{SECRET}\" }} }}");
        let config = provider.config("chat").replace("auth = \"none\"", &auth);
        let gateway = TestGateway::with_config(&config).await;
        let hi = json!([{ "role": "user", "content": "Hi" }]);
        let plain = json!({ "model": "m", "messages": hi, "user": piece }).to_string();
        let escaped = plain.replace("vault", "\\u0076ault");
        for request in [plain, escaped] {
            let post = gateway.post("/v1/chat/completions", &json!({})).body(request.clone());
            let got = post.send().await;
            assert_eq!(got.status, 400, "{request}: {}", got.text());
            let message = format!("unknown user {piece} here");
            assert!(got.text().contains(&message), "{request}: {}", got.text());
        }
    }
}

#[tokio::test]
async fn words_of_the_caller_stay_in_an_explanation() {
    let id = "call_7f3c2a1b9d8e4f60a1b2c3d4";
    let message = format!("no output for {id} of org_X9, see key {SECRET} of org_X8");
    let body = json!({ "error": { "message": message } });
    let provider =
        ScriptedProvider::start(vec![reply(400, "application/json", &body.to_string())]).await;
    let auth = format!("auth = {{ bearer = {{ text = \"{SECRET}\" }} }}");
    let config = provider.config("chat").replace("auth = \"none\"", &auth);
    let gateway = TestGateway::with_config(&config).await;
    let call = json!({ "id": id, "type": "function",
        "function": { "name": "org_X9", "arguments": "{}" } });
    let request = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" },
        { "role": "assistant", "content": null, "tool_calls": [call] }] });
    let got = gateway.post("/v1/chat/completions", &request).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    let expected = format!("no output for {id} of org_X9, see key [hidden] of [hidden]");
    assert!(got.text().contains(&expected), "{}", got.text());
}

/// A whole reply and the events of a stream with a text about the call, each with its field.
fn explained_replies(why: &str) -> Vec<(&'static str, Value, Vec<Value>)> {
    let stamp =
        json!({ "modelVersion": "up", "createTime": "2026-01-01T00:00:00Z", "responseId": "r" });
    let native = |fields: Value| {
        let mut reply = stamp.clone();
        for (name, value) in fields.as_object().unwrap() {
            reply[name] = value.clone();
        }
        reply
    };
    let counts = json!({ "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2,
        "trafficType": "ON_DEMAND" });
    let said = json!({ "role": "model", "parts": [{ "text": "Ho" }] });
    let first = native(json!({ "candidates": [{ "index": 0, "content": said }] }));
    let last =
        native(json!({ "usageMetadata": counts, "candidates": [{ "index": 0, "content": said,
        "finishReason": "SAFETY", "finishMessage": why }] }));
    let blocked = native(json!({ "usageMetadata": counts,
        "promptFeedback": { "blockReason": "OTHER", "blockReasonMessage": why } }));
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
        "content": [{ "type": "text", "text": "Ho" }], "stop_reason": "refusal", "stop_sequence": null,
        "stop_details": { "type": "refusal", "explanation": why },
        "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let mut begun = message.clone();
    (begun["content"], begun["stop_reason"], begun["stop_details"]) =
        (json!([]), Value::Null, Value::Null);
    let messages = vec![
        json!({ "type": "message_start", "message": begun }),
        json!({ "type": "message_delta", "usage": { "output_tokens": 1 },
            "delta": { "stop_reason": "refusal", "stop_details": message["stop_details"] } }),
        json!({ "type": "message_stop" }),
    ];
    let mut response = json!({ "id": "resp_1", "object": "response", "created_at": 1, "error": null,
        "model": "up", "status": "incomplete", "output": [], "incomplete_details": { "reason": why },
        "instructions": null, "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto",
        "tools": [] });
    let incomplete =
        json!({ "type": "response.incomplete", "sequence_number": 1, "response": response });
    let whole = response.clone();
    (response["status"], response["incomplete_details"]) = (json!("in_progress"), Value::Null);
    let responses = vec![
        json!({ "type": "response.created", "sequence_number": 0, "response": response }),
        incomplete,
    ];
    let error = json!({ "code": 502, "message": why });
    let chat = json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Ho" },
            "finish_reason": "stop", "error": error }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } });
    let chunk = |choice: Value| {
        json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up",
            "choices": [choice] })
    };
    let chunks = vec![
        chunk(json!({ "index": 0, "delta": { "content": "Ho" }, "finish_reason": null })),
        chunk(json!({ "index": 0, "delta": {}, "finish_reason": "stop", "error": error })),
    ];
    vec![
        ("chat", chat, chunks),
        ("messages", message, messages),
        ("responses", whole, responses),
        ("native", last.clone(), vec![first, last]),
        ("native", blocked.clone(), vec![blocked]),
    ]
}

#[tokio::test]
async fn secrets_in_texts_about_an_answered_call_are_hidden() {
    // The last word is the credential, which has no shape of one.
    let why = "stopped  by sk-abc123 at 10.0.0.8 for Zq7vLx2pWn4Kd9";
    for (format, whole, events) in explained_replies(why) {
        let escaped = |value: &Value| value.to_string().replace("Zq7v", "\\u005aq7v");
        let events: Vec<String> = events.iter().map(escaped).collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let answers = vec![reply(200, "application/json", &escaped(&whole)), sse(&events)];
        let provider = ScriptedProvider::start(answers).await;
        let auth = "auth = { bearer = { text = \"Zq7vLx2pWn4Kd9\" } }";
        let config = provider.config(format).replace("auth = \"none\"", auth);
        let gateway = TestGateway::with_config(&config).await;
        for stream in [false, true] {
            let (path, mut request) = match format {
                "native" if stream => ("/v1beta/models/m:streamGenerateContent?alt=sse", json!({})),
                "native" => ("/v1beta/models/m:generateContent", json!({})),
                "chat" => ("/v1/chat/completions", json!({ "model": "m", "stream": stream })),
                "messages" => {
                    ("/v1/messages", json!({ "model": "m", "max_tokens": 9, "stream": stream }))
                }
                _ => ("/v1/responses", json!({ "model": "m", "input": "Hi", "stream": stream })),
            };
            match format {
                "native" => request["contents"] = json!([{ "parts": [{ "text": "Hi" }] }]),
                "responses" => {}
                _ => request["messages"] = json!([{ "role": "user", "content": "Hi" }]),
            }
            let got = gateway.post(path, &request).send().await;
            let name = format!("{format} {stream}: {}", got.text());
            assert_eq!(got.status, 200, "{name}");
            assert!(got.text().contains("stopped by [hidden] at [hidden] for [hidden]"), "{name}");
            for secret in ["sk-abc", "q7vLx2p", "Wn4Kd9"] {
                assert!(!got.text().contains(secret), "{name}");
            }
        }
        // The texts stay as they are without a secret.
        let plain = whole.to_string().replace(why, "too  long");
        let dialect = dialects::all().find(|own| own.origin().as_str() == format).unwrap();
        let facts = dialects::RequestFacts { model: "up".into(), ..Default::default() };
        let stamp = dialects::ReplyStamp { id: "s".to_owned(), created: 1 };
        let out = dialect.complete_reply(&plain.clone().into(), &facts, &stamp);
        assert!(String::from_utf8(out.to_vec()).unwrap().contains("too  long"), "{format}");
        // A reply that is read for another writer of the same format loses them as well.
        let read = format!("{:?}", dialect.read_reply(whole.to_string().as_bytes()).unwrap());
        assert!(!read.contains("sk-abc") || format == "responses" || format == "chat", "{read}");
    }
}
