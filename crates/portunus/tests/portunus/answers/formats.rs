//! The four request formats, whole and streamed, and their smaller companions.

use http::Method;
use serde_json::json;
use testkit::TestGateway;

use super::{check, check_json, hello, plain, with};

#[tokio::test]
async fn chat_completions() {
    let gateway = TestGateway::start().await;
    let path = "/v1/chat/completions";
    let good = json!({ "model": "demo-chat", "messages": hello() });
    let wrong = [
        ("400_missing_field", json!({ "model": "demo-chat" })),
        ("400_wrong_type", with(good.clone(), "temperature", json!("hot"))),
        ("404_model", with(good.clone(), "model", json!("no-such-model"))),
    ];
    check_json(&gateway, "chat", path, &good, &wrong).await;
    let stream = with(good.clone(), "stream", json!(true));
    check("chat_stream_200", gateway.post(path, &stream)).await;
    let stream = with(stream, "stream_options", json!({ "include_usage": true }));
    check("chat_stream_usage_200", gateway.post(path, &stream)).await;
    check("chat_400_not_json", gateway.post(path, &good).body("{")).await;
    check("chat_405", plain(&gateway, Method::GET, path)).await;
    let dry = gateway.post(path, &good).header("x-portunus-dry-run", "true");
    check("chat_dry_run_200", dry).await;
    let other = with(good, "model", json!("demo-messages"));
    check("chat_translated_200", gateway.post(path, &other)).await;
    check("chat_translated_stream_200", gateway.post(path, &with(other, "stream", json!(true))))
        .await;
}

#[tokio::test]
async fn responses() {
    let gateway = TestGateway::start().await;
    let path = "/v1/responses";
    let good = json!({ "model": "demo-responses", "input": "Hello!" });
    let wrong = [
        ("400_missing_field", json!({ "input": "Hello!" })),
        ("400_wrong_type", with(good.clone(), "input", json!(7))),
        ("404_model", with(good.clone(), "model", json!("no-such-model"))),
        ("404_previous", with(good.clone(), "previous_response_id", json!("resp_none"))),
    ];
    check_json(&gateway, "responses", path, &good, &wrong).await;
    let stream = with(good.clone(), "stream", json!(true));
    check("responses_stream_200", gateway.post(path, &stream)).await;
    let kept = gateway.post(path, &with(good.clone(), "store", json!(true))).send().await.json();
    let id = kept["id"].as_str().unwrap().to_owned();
    check("responses_stored_200", gateway.get(&format!("{path}/{id}"))).await;
    check("responses_stored_items_200", gateway.get(&format!("{path}/{id}/input_items"))).await;
    check("responses_stored_404", gateway.get(&format!("{path}/resp_none"))).await;
    let cancel = plain(&gateway, Method::POST, &format!("{path}/{id}/cancel"));
    check("responses_cancel_400", cancel).await;
    check("responses_delete_200", plain(&gateway, Method::DELETE, &format!("{path}/{id}"))).await;
    check("responses_delete_404", plain(&gateway, Method::DELETE, &format!("{path}/{id}"))).await;
    let count = json!({ "model": "demo-responses", "input": "Hello!" });
    let path = "/v1/responses/input_tokens";
    let wrong = [("404_model", with(count.clone(), "model", json!("no-such-model")))];
    check_json(&gateway, "responses_input_tokens", path, &count, &wrong).await;
}

#[tokio::test]
async fn messages() {
    let gateway = TestGateway::start().await;
    let path = "/v1/messages";
    let good = json!({ "model": "demo-messages", "max_tokens": 64, "messages": hello() });
    let wrong = [
        ("400_missing_field", json!({ "model": "demo-messages", "messages": hello() })),
        ("400_wrong_type", with(good.clone(), "max_tokens", json!("many"))),
        ("404_model", with(good.clone(), "model", json!("no-such-model"))),
    ];
    check_json(&gateway, "messages", path, &good, &wrong).await;
    let stream = with(good.clone(), "stream", json!(true));
    check("messages_stream_200", gateway.post(path, &stream)).await;
    let count = json!({ "model": "demo-messages", "messages": hello() });
    let wrong = [
        ("400_wrong_type", with(count.clone(), "messages", json!(7))),
        ("404_model", with(count.clone(), "model", json!("no-such-model"))),
    ];
    check_json(&gateway, "messages_count_tokens", "/v1/messages/count_tokens", &count, &wrong)
        .await;
}

#[tokio::test]
async fn native() {
    let gateway = TestGateway::start().await;
    let path = "/v1beta/models/demo-native:generateContent";
    let good = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello!" }] }] });
    let wrong = [("400_wrong_type", json!({ "contents": 7 }))];
    check_json(&gateway, "native", path, &good, &wrong).await;
    let path = "/v1beta/models/no-such-model:generateContent";
    check("native_404_model", gateway.post(path, &good)).await;
    check("native_404_method", gateway.post("/v1beta/models/demo-native:sing", &good)).await;
    let path = "/v1beta/models/demo-native:streamGenerateContent?alt=sse";
    check("native_stream_200", gateway.post(path, &good)).await;
    let path = "/v1beta/models/demo-native:countTokens";
    check("native_count_tokens_200", gateway.post(path, &good)).await;
}

#[tokio::test]
async fn embeddings() {
    let gateway = TestGateway::start().await;
    let good = json!({ "model": "demo-embed", "input": "Hello!", "dimensions": 4 });
    let wrong = [
        ("400_missing_field", json!({ "model": "demo-embed" })),
        ("400_wrong_type", with(good.clone(), "dimensions", json!("four"))),
        ("404_model", with(good.clone(), "model", json!("no-such-model"))),
    ];
    check_json(&gateway, "embeddings", "/v1/embeddings", &good, &wrong).await;
}
