//! Model lists, the caller's own key, receipts, and what needs no key.

use serde_json::json;
use testkit::TestGateway;

use super::{check, check_read, compare, hello};

#[tokio::test]
async fn model_lists() {
    let gateway = TestGateway::start().await;
    check_read(&gateway, "models", "/v1/models").await;
    check_read(&gateway, "model", "/v1/models/demo-chat").await;
    check("model_404", gateway.get("/v1/models/no-such-model")).await;
    check_read(&gateway, "models_native", "/v1beta/models").await;
    check_read(&gateway, "model_native", "/v1beta/models/demo-native").await;
    check("model_native_404", gateway.get("/v1beta/models/no-such-model")).await;
    let messages = gateway.get("/v1/models").header("anthropic-version", "2023-06-01");
    check("models_messages_200", messages).await;
    check("model_catalog_200", gateway.get("/api/models?q=demo-chat").without_key()).await;
    check("model_catalog_empty_200", gateway.get("/api/models?q=no-such-model").without_key())
        .await;
}

#[tokio::test]
async fn own_key_and_receipts() {
    let gateway = TestGateway::start().await;
    check_read(&gateway, "key", "/v1/key").await;
    let ask = json!({ "model": "demo-chat", "messages": hello() });
    let got = gateway.post("/v1/chat/completions", &ask).send().await;
    gateway.wait_until_settled().await;
    let path = format!("/v1/usage/{}", got.header("x-request-id"));
    check_read(&gateway, "receipt", &path).await;
    check("receipt_404", gateway.get("/v1/usage/req_none")).await;
}

#[tokio::test]
async fn health() {
    let gateway = TestGateway::start().await;
    check("healthz_200", gateway.get("/healthz").without_key()).await;
    check("readyz_200", gateway.get("/readyz").without_key()).await;
    check("metrics_401", gateway.get("/metrics").without_key()).await;
    check("file_403", gateway.get("/files/none").without_key()).await;
}

/// The description is too long to read as a snapshot; its list of operations is not.
#[tokio::test]
async fn description() {
    let gateway = TestGateway::start().await;
    let document = gateway.get("/openapi.json").without_key().send().await.json();
    let mut lines = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let answers = operation["responses"].as_object();
            let answers: Vec<_> = answers.into_iter().flatten().map(|(status, _)| status).collect();
            lines.push(format!("{method} {path} {answers:?}"));
        }
    }
    lines.sort();
    compare("openapi_operations", &lines.join("\n"));
}
