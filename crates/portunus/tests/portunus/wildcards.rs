//! Models behind a wildcard, and keys that are limited to them.

use serde_json::{Value, json};
use testkit::{TestGateway, TestResponse};

use crate::money::key;

const CONFIG: &str = "[models.\"acme/*\"]\nlanes = [\"demo/*\"]\n";

async fn listed(gateway: &TestGateway, key: &str) -> Vec<String> {
    let got = gateway.get("/v1/models").key(key).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let list = got.json();
    let ids = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

async fn call(gateway: &TestGateway, key: &str, model: &str) -> TestResponse {
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": "hello" }] });
    gateway.post("/v1/chat/completions", &body).key(key).send().await
}

#[tokio::test]
async fn a_key_may_be_limited_to_a_wildcard_or_to_one_name_behind_it() {
    let gateway = TestGateway::with_config(CONFIG).await;
    let all = listed(&gateway, &gateway.key).await;
    let behind: Vec<String> = all.iter().filter(|id| id.starts_with("acme/")).cloned().collect();
    assert!(behind.len() > 3 && behind.len() < all.len(), "{all:?}");
    let one = behind.iter().find(|id| id.ends_with("demo-chat")).unwrap().as_str();
    let other = behind.iter().find(|id| id.ends_with("demo-messages")).unwrap().as_str();
    let limited = async |models: &[&str]| {
        let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
        key(&gateway, |record| record.models = models.clone()).await
    };
    let (wide, narrow) = (limited(&["acme/*"]).await, limited(&[one]).await);
    assert_eq!(listed(&gateway, &wide).await, behind);
    assert_eq!(listed(&gateway, &narrow).await, [one]);
    for (key, model, status) in [
        (&wide, one, 200),
        (&wide, other, 200),
        (&wide, "demo-chat", 403),
        (&narrow, one, 200),
        (&narrow, other, 403),
        (&narrow, "demo-chat", 403),
        // A name behind the wildcard that the directory does not know has no price, and is no model.
        (&gateway.key, "acme/unknown", 404),
        (&wide, "acme/unknown", 404),
        (&gateway.key, "acme/*", 404),
        (&wide, "acme/*", 404),
    ] {
        let got = call(&gateway, key, model).await;
        assert_eq!(got.status.as_u16(), status, "{model}: {}", got.text());
        if status == 404 {
            assert_eq!(got.json()["error"]["code"], "model_not_found", "{}", got.text());
        }
    }
    // A single model, the native list and the list of Codex follow the same rule.
    for (key, model, status) in [(&wide, other, 200), (&narrow, one, 200), (&narrow, other, 404)] {
        let got = gateway.get(&format!("/v1/models/{model}")).key(key).send().await;
        assert_eq!(got.status.as_u16(), status, "{model}: {}", got.text());
    }
    let names = |list: &Value, field: &str, name: &str| -> Vec<String> {
        let all = list[field].as_array().unwrap().iter();
        all.map(|model| model[name].as_str().unwrap().to_owned()).collect()
    };
    let native = gateway.get("/v1beta/models").key(&narrow).send().await.json();
    assert_eq!(names(&native, "models", "name"), [format!("models/{one}")]);
    let codex = gateway.get("/v1/models?client_version=0.169.0").key(&narrow).send().await.json();
    assert_eq!(names(&codex, "models", "slug"), [one]);
}
