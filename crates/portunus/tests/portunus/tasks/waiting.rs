//! The number of unfinished tasks and background responses of one key.

use http::Method;
use serde_json::json;
use testkit::{ScriptedProvider, TestGateway, TestResponse, until};

use crate::tasks::harness::{config, order, silence};

const GENERATIONS: &str = "/v1/images/generations";

fn assert_refused(got: &TestResponse) {
    assert_eq!(got.status, 429, "{}", got.text());
    assert_eq!(got.json()["error"]["code"], "too_many_tasks");
    assert_eq!(got.header("retry-after"), "5");
}

fn stored_files(gateway: &TestGateway) -> usize {
    let mut folders = vec![gateway.data_folder().join("files")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                _ => files += 1,
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_a_number_of_unfinished_tasks() {
    let provider = ScriptedProvider::start(vec![silence()]).await;
    let few = "[tasks]\nwaiting = 2\n";
    let gateway = TestGateway::with_config(&config(&provider.url, few)).await;
    // So long that it is stored as a file.
    let long = format!("{}{}", order(), " ".repeat(100_000));
    let first = gateway.post(GENERATIONS, &order()).send().await;
    assert_eq!(first.status, 202, "{}", first.text());
    assert_eq!(gateway.post(GENERATIONS, &order()).send().await.status, 202);
    let files = stored_files(&gateway);
    for body in [order().to_string(), long] {
        let ask = gateway.request(Method::POST, GENERATIONS).body(body);
        assert_refused(&ask.send().await);
    }
    assert_eq!(stored_files(&gateway), files, "no file is left");
    let listed = gateway.get("/v1/tasks").send().await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "no row is left");

    let id = first.json()["id"].as_str().unwrap().to_owned();
    let cancelled = gateway.request(Method::POST, &format!("/v1/tasks/{id}/cancel")).send().await;
    assert_eq!(cancelled.status, 200);
    assert_eq!(gateway.post(GENERATIONS, &order()).send().await.status, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_a_number_of_background_responses() {
    let provider = ScriptedProvider::start(vec![silence()]).await;
    let few = format!("{}[tasks]\nwaiting = 2\n", provider.config("chat"));
    let gateway = TestGateway::with_config(&few).await;
    let body = json!({ "model": "m", "input": "Hello!", "background": true });
    let first = gateway.post("/v1/responses", &body).send().await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(gateway.post("/v1/responses", &body).send().await.status, 200);
    let refused = gateway.post("/v1/responses", &body).send().await;
    assert_refused(&refused);
    let others = json!({ "model": "demo-chat", "input": "Hello!" });
    assert_eq!(gateway.post("/v1/responses", &others).send().await.status, 200);

    let path = format!("/v1/responses/{}/cancel", first.json()["id"].as_str().unwrap());
    assert_eq!(gateway.post(&path, &json!({})).send().await.status, 200);
    until("a place is free", async || {
        gateway.post("/v1/responses", &body).send().await.status == 200
    })
    .await;
}
