//! Pictures, at once and as tasks.

use http::Method;
use serde_json::{Value, json};
use testkit::{TestGateway, until};

use super::{check, check_json, check_read, compare, plain, with};

#[tokio::test]
async fn image_generations() {
    let gateway = TestGateway::start().await;
    let good = json!({ "model": "demo-image", "prompt": "a lighthouse", "size": "256x128",
        "quality": "low" });
    let wrong = [
        ("400_missing_field", json!({ "model": "demo-image" })),
        ("400_size", with(good.clone(), "size", json!("7x7x7"))),
        ("404_model", with(good.clone(), "model", json!("no-such-model"))),
    ];
    check_json(&gateway, "images", "/v1/images/generations", &good, &wrong).await;
}

#[tokio::test]
async fn image_edits() {
    let gateway = TestGateway::start().await;
    let edits = |body: &'static str| {
        gateway
            .request(Method::POST, "/v1/images/edits")
            .header("content-type", "multipart/form-data; boundary=b")
            .body(body)
    };
    check("image_edits_400_no_boundary", edits("no form")).await;
    let unnamed = "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n";
    check("image_edits_400_unnamed_part", edits(unnamed)).await;
    check("image_edits_401", edits(unnamed).without_key()).await;
}

/// Returns the answer as that of a task that has not begun. It may be done already when it is shown.
fn as_pending(answer: &str) -> String {
    let (head, body) = answer.rsplit_once("\n\n").unwrap();
    let mut task: Value = serde_json::from_str(body).unwrap();
    for (field, value) in [("status", json!("pending")), ("progress", json!(0))] {
        task[field] = value;
    }
    for field in ["request_id", "completed_at", "expires_at", "data", "usage"] {
        task[field] = Value::Null;
    }
    format!("{head}\n\n{task:#}")
}

#[tokio::test]
async fn image_tasks() {
    let gateway = TestGateway::start().await;
    let order = json!({ "model": "demo-image", "prompt": "a lighthouse", "size": "256x128",
        "quality": "low", "async": true });
    let path = "/v1/images/generations";
    let created = as_pending(&gateway.post(path, &order).wire_text().await);
    compare("tasks_create_202", &created);
    let id = gateway.get("/v1/tasks").send().await.json()["data"][0]["id"].clone();
    let path = format!("/v1/tasks/{}", id.as_str().unwrap());
    until("the task is completed", async || {
        gateway.get(&path).send().await.json()["status"] == "completed"
    })
    .await;
    check_read(&gateway, "tasks", "/v1/tasks").await;
    check_read(&gateway, "task", &path).await;
    check("task_404", gateway.get("/v1/tasks/none")).await;
    check("task_cancel_409", plain(&gateway, Method::POST, &format!("{path}/cancel"))).await;
    check("task_cancel_404", plain(&gateway, Method::POST, "/v1/tasks/none/cancel")).await;
    check("webhook_secret_401", gateway.get("/v1/webhooks/secret").without_key()).await;
}
