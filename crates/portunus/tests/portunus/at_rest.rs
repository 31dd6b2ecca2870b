//! Prompts, answers and pictures lie in the data folder sealed only.

use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use testkit::{ScriptedProvider, TestGateway, TestResponse};

use crate::tasks::harness::{PNG, config, get, over, picture};

const CANARY: &str = "zanzibar-canary-81c4";
const RESPONSES: &str = "/v1/responses";

/// Names the files below a folder that hold a word.
fn files_with(folder: &Path, word: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if memchr::memmem::find(&std::fs::read(&path).unwrap(), word).is_some() {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn chat() -> Value {
    json!({ "model": "demo-echo", "messages": [{ "role": "user", "content": CANARY }] })
}

fn thread(kind: Value, content: &str) -> Value {
    json!({ "model": "demo-echo", "max_tokens": 50, "thread": kind,
            "messages": [{ "role": "user", "content": content }] })
}

fn well(got: &TestResponse) -> Value {
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()
}

/// Everything that was kept, and how it was answered the first time.
struct KeptBodies {
    response: Value,
    message: String,
    replay: String,
    task: String,
    cache: Value,
}

impl KeptBodies {
    async fn make(gateway: &TestGateway) -> Self {
        let ask = json!({ "model": "demo-echo", "input": CANARY });
        let response = well(&gateway.post(RESPONSES, &ask).send().await);
        assert!(response.to_string().contains(CANARY), "{response}");
        let opened = thread(json!({ "type": "create" }), CANARY);
        let message = well(&gateway.post("/v1/messages", &opened).send().await);
        let replay = gateway.post("/v1/chat/completions", &chat());
        let replay = replay.header("idempotency-key", "k").send().await;
        assert!(replay.text().contains(CANARY), "{}", replay.text());
        let cache = json!({ "model": "demo-echo", "displayName": CANARY,
            "contents": [{ "role": "user", "parts": [{ "text": CANARY }] }] });
        let cache = well(&gateway.post("/v1beta/cachedContents", &cache).send().await);
        let webhook = format!("https://hooks.example/{CANARY}");
        let order = json!({ "model": "m", "prompt": CANARY, "async": true, "webhook": webhook });
        let order = gateway.post("/v1/images/generations", &order).send().await;
        let task = order.json()["id"].as_str().unwrap().to_owned();
        let ended = over(&gateway.url, &gateway.key, &task).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        Self {
            message: message["id"].as_str().unwrap().to_owned(),
            replay: replay.text(),
            response,
            task,
            cache,
        }
    }

    async fn check(&self, gateway: &TestGateway) {
        let path = format!("{RESPONSES}/{}", self.response["id"].as_str().unwrap());
        assert_eq!(well(&gateway.get(&path).send().await), self.response);
        let go_on = json!({ "type": "continue", "previous_message_id": self.message });
        well(&gateway.post("/v1/messages", &thread(go_on, "And now?")).send().await);
        let again = gateway.post("/v1/chat/completions", &chat());
        let again = again.header("idempotency-key", "k").send().await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        assert_eq!(again.text(), self.replay);
        let name = self.cache["name"].as_str().unwrap();
        assert_eq!(well(&gateway.get(&format!("/v1beta/{name}")).send().await), self.cache);
        let ask = json!({ "cachedContent": name, "contents": [{ "parts": [{ "text": "And?" }] }] });
        well(&gateway.post("/v1beta/models/demo-echo:generateContent", &ask).send().await);
        let task = over(&gateway.url, &gateway.key, &self.task).await;
        assert_eq!(task["webhook"]["url"], format!("https://hooks.example/{CANARY}"));
        let link = task["data"][0]["url"].as_str().unwrap();
        assert_eq!(get(link, "").await.unwrap().body, PNG);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_is_readable_in_the_data_folder() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let config = config(&provider.url, "");
    let gateway = TestGateway::with_config(&config).await;
    let kept = KeptBodies::make(&gateway).await;
    kept.check(&gateway).await;
    let clean = |gateway: &TestGateway| {
        assert_eq!(files_with(gateway.data_folder(), CANARY.as_bytes()), [""; 0]);
        assert_eq!(files_with(gateway.data_folder(), &PNG[..33]), [""; 0]);
    };
    clean(&gateway);
    let gateway = gateway.restart(&config).await;
    clean(&gateway);
    kept.check(&gateway).await;
    let rekeyed = gateway.request(Method::POST, "/api/admin/vault/rekey").body("{}").send().await;
    assert_eq!(well(&rekeyed)["sealed_anew"], 1, "the data key alone");
    kept.check(&gateway).await;
    let gateway = gateway.restart(&config).await;
    kept.check(&gateway).await;
    clean(&gateway);

    // Without the key there is an error and no rubbish. New answers are stored under a new key.
    let vault = gateway.data_folder().join("vault.key");
    let backup = gateway.data_folder().join("vault.backup");
    std::fs::rename(&vault, &backup).unwrap();
    let gateway = gateway.restart(&config).await;
    let path = format!("{RESPONSES}/{}", kept.response["id"].as_str().unwrap());
    let got = gateway.get(&path).send().await;
    assert_eq!(got.status, 503, "{}", got.text());
    assert!(got.text().contains("cannot be decrypted"), "{}", got.text());
    let cached = json!({ "cachedContent": kept.cache["name"],
        "contents": [{ "parts": [{ "text": "And?" }] }] });
    let got = gateway.post("/v1beta/models/demo-echo:generateContent", &cached).send().await;
    assert_eq!(got.status, 503, "{}", got.text());
    assert!(got.text().contains("cannot be decrypted"), "{}", got.text());
    let replay = gateway.post("/v1/chat/completions", &chat());
    let replay = replay.header("idempotency-key", "k").send().await;
    assert_eq!(replay.status, 503, "{}", replay.text());
    let ask = json!({ "model": "demo-echo", "input": "hi" });
    let new = well(&gateway.post(RESPONSES, &ask).send().await);
    let new_path = format!("{RESPONSES}/{}", new["id"].as_str().unwrap());
    assert_eq!(well(&gateway.get(&new_path).send().await), new);

    // The restored key opens everything again.
    std::fs::rename(&backup, &vault).unwrap();
    let gateway = gateway.restart(&config).await;
    kept.check(&gateway).await;
}
