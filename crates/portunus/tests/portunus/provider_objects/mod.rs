//! Objects in the operator's account at a provider: callers name only those that were made for
//! them, unless the operator shares all.

mod conversations;
mod image_requests;
mod media_fields;
mod native_samples;
mod samples;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, reply};

use samples::formats;

/// The field without a sample: the names of variables are free.
const OTHER_FIELDS: [&str; 1] = ["prompt.variables.*.file_id"];

async fn send(gateway: &TestGateway, way: &str, path: &str, body: &Value) -> TestResponse {
    let request = gateway.post(path, body);
    if way == "dry run" {
        request.header("x-portunus-dry-run", "true").send().await
    } else {
        request.send().await
    }
}

fn shared(config: &str) -> String {
    config.replace("auth = \"none\"", "auth = \"none\"\nobjects = \"shared\"")
}

/// Returns the configuration with providers that may be given addresses.
fn fetching(config: &str) -> String {
    config.replace("auth = \"none\"", "auth = \"none\"\nfetches = \"all\"")
}

#[test]
fn every_field_of_the_tables_has_a_sample() {
    for samples in formats() {
        let table = samples.dialect.traits().objects.paths();
        let table: BTreeSet<&str> = table.filter(|path| !OTHER_FIELDS.contains(path)).collect();
        let own = samples.fields.iter().map(|field| field.path).collect();
        assert_eq!(table, own);
        // One of several keys at the end needs a sample of its own.
        for path in table {
            let last = path.rsplit('.').next().unwrap();
            for key in last.split('|').filter(|_| last.contains('|')) {
                let mut shown = samples.fields.iter().filter(|field| field.path == path);
                let is_shown = shown.any(|field| {
                    let end = field.shown.rsplit('.').next().unwrap();
                    end.split('[').next().unwrap() == key
                });
                assert!(is_shown, "{path}: {key}");
            }
        }
    }
}

#[tokio::test]
async fn the_operators_objects_are_not_found_in_any_format() {
    for samples in formats() {
        let format = samples.dialect.origin().as_str();
        let provider = ScriptedProvider::start(vec![whole_reply(format)]).await;
        let gateway = TestGateway::with_config(&fetching(&provider.config(format))).await;
        let mut other = Vec::new();
        for sample in &samples.fields {
            for (way, path, body, prefix) in samples.ways(&samples.body(sample)) {
                let got = send(&gateway, way, path, &body).await;
                let name = format!("{format} {} {way}: {}", sample.path, got.text());
                if got.status != 404 {
                    other.push(name);
                    continue;
                }
                let error = &got.json()["error"];
                assert!(error["message"].as_str().unwrap().contains("not found"), "{name}");
                let shown = format!("{prefix}{}", sample.shown);
                match format {
                    // The errors of this format have no field for a path.
                    "messages" => {
                        assert_eq!(error["type"], "not_found_error", "{name}");
                        assert!(got.text().contains(&format!("{shown}: ")), "{name}");
                    }
                    "native" => assert!(error["details"].to_string().contains(&shown), "{name}"),
                    _ => assert_eq!(error["param"], shown, "{name}"),
                }
            }
        }
        assert_eq!(other, Vec::<String>::new());
        assert_eq!(provider.requests().len(), 0, "{format}");
    }
}

#[tokio::test]
async fn shared_objects_arrive_in_the_very_bytes_of_the_caller() {
    for samples in formats() {
        let format = samples.dialect.origin().as_str();
        let provider = ScriptedProvider::start(vec![whole_reply(format)]).await;
        let config = fetching(&shared(&provider.config(format)));
        let gateway = TestGateway::with_config(&config).await;
        let mut refused = Vec::new();
        for sample in &samples.fields {
            let body = samples.body(sample);
            let got = send(&gateway, "call", samples.path(false), &body).await;
            if got.status != 200 {
                refused.push(format!("{format} {}: {}", sample.path, got.text()));
                continue;
            }
            let sent = provider.requests().pop().unwrap().body;
            let own = body.to_string().replace("\"model\":\"m\"", "\"model\":\"up\"");
            assert_eq!(String::from_utf8(sent).unwrap(), own, "{format} {}", sample.path);
        }
        assert_eq!(refused, Vec::<String>::new());
    }
}

#[tokio::test]
async fn files_in_embeddings_are_not_found() {
    let answer = reply(200, "application/json", r#"{"embedding":{"values":[1]}}"#);
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = format!("{}kind = \"embedding\"\n", provider.config("native"));
    let gateway = TestGateway::with_config(&config).await;
    let content = json!({ "parts": [{ "text": "Hi" }, { "text": "Ho", "file_data": { "file_uri":
        "https://generativelanguage.googleapis.com/v1beta/files/x" } }] });
    let one = json!({ "content": content });
    let request = json!({ "model": "models/m", "content": content });
    for (path, body) in [
        ("/v1beta/models/m:embedContent", one.clone()),
        ("/v1beta/models/m:batchEmbedContents", json!({ "requests": [request] })),
    ] {
        for way in ["call", "dry run"] {
            let got = send(&gateway, way, path, &body).await;
            assert_eq!(got.status, 404, "{path} {way}: {}", got.text());
            assert!(got.text().contains("content.parts[1].fileData.fileUri"), "{}", got.text());
        }
    }
    assert_eq!(provider.requests().len(), 0);
    gateway.reload(&shared(&config));
    let got = send(&gateway, "call", "/v1beta/models/m:embedContent", &one).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(provider.requests()[0].json(), one);
}

fn whole_reply(format: &str) -> Vec<AnswerStep> {
    let body = match format {
        "chat" => json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "up",
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Ho" },
                "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } }),
        "messages" => json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
            "content": [{ "type": "text", "text": "Ho" }], "stop_reason": "end_turn",
            "stop_sequence": null, "usage": { "input_tokens": 1, "output_tokens": 1 } }),
        "responses" => response(json!([message()])),
        _ => json!({ "candidates": [{ "index": 0, "finishReason": "STOP",
                "content": { "role": "model", "parts": [{ "text": "Ho" }] } }],
            "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 } }),
    };
    reply(200, "application/json", &body.to_string())
}

fn message() -> Value {
    json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": "Ho", "annotations": [] }] })
}

fn response(output: Value) -> Value {
    json!({ "id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
        "model": "up", "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
            "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens_details": { "reasoning_tokens": 0 } } })
}
