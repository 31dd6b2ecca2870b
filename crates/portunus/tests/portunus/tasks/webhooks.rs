//! Webhooks at the end of a task: retried until acknowledged, and only to public addresses.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit::{ReceivedRequest, ScriptedProvider, TestGateway, reply};

use crate::key_objects::share;
use crate::media_urls::support::ScriptedResolver;
use crate::money::key;
use crate::tasks::harness::{config, over, picture, soon};

/// Returns true if a message is signed with that secret as Standard Webhooks define it
/// (<https://www.standardwebhooks.com>).
pub(crate) fn is_signed(told: &ReceivedRequest, secret: &str) -> bool {
    let header = |name: &str| {
        let line = told.head.lines().find_map(|line| {
            let (own, value) = line.split_once(": ")?;
            own.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        });
        line.unwrap_or_default()
    };
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let signed = format!(
        "{}.{}.{}",
        header("webhook-id"),
        header("webhook-timestamp"),
        String::from_utf8_lossy(&told.body)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    header("webhook-signature").split(' ').any(|signature| {
        let signature = STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
        hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
    })
}

fn order(webhook: &str) -> Value {
    json!({ "model": "m", "prompt": "a dot", "async": true, "webhook": webhook })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_told_again_until_it_is_heard() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let busy = reply(500, "text/plain", "later");
    let listener = ScriptedProvider::start(vec![busy, reply(204, "text/plain", "")]).await;
    let place = listener.url.strip_prefix("http://").unwrap();
    let allowed = format!("[media]\nallow = [\"{place}\"]");
    let gateway = TestGateway::with_config(&config(&provider.url, &allowed)).await;
    let url = format!("{}/heard", listener.url);
    let got = gateway.post("/v1/images/generations", &order(&url)).send().await;
    assert_eq!(got.status, 202, "{}", got.text());
    let id = got.json()["id"].as_str().unwrap().to_owned();
    over(&gateway.url, &gateway.key, &id).await;
    let task = soon(Duration::from_secs(60), || async {
        let task = gateway.get(&format!("/v1/tasks/{id}")).send().await.json();
        (task["webhook"]["status"] == "delivered").then_some(task)
    });
    let task = task.await.expect("a message that is heard");
    let expected = json!({ "url": url, "status": "delivered", "attempts": 2, "last_status": 204 });
    assert_eq!(task["webhook"], expected);
    let secret = gateway.get("/v1/webhooks/secret").send().await.json();
    let secret = secret["secret"].as_str().unwrap();
    let told = listener.requests();
    assert_eq!(told.len(), 2);
    for message in &told {
        assert!(is_signed(message, secret), "{}", message.head);
        assert!(message.head.starts_with("POST /heard "), "{}", message.head);
        let body = message.json();
        assert_eq!(body["type"], "image.generation.completed");
        assert_eq!(body["data"]["id"], id);
        assert!(body["data"]["data"][0]["url"].is_string(), "{body}");
        assert!(!message.head.to_lowercase().contains("authorization"));
    }
    let other = format!("whsec_{}", STANDARD.encode([7; 32]));
    assert!(!is_signed(&told[0], &other));

    // The secret of another key of the account signs nothing here, the shared one of the account does.
    let second = key(&gateway, |_| ()).await;
    let secret_of = |key: String| {
        let request = gateway.get("/v1/webhooks/secret").key(&key);
        async { request.send().await.json()["secret"].as_str().unwrap().to_owned() }
    };
    let foreign = secret_of(second.clone()).await;
    assert_ne!(foreign, secret);
    assert!(!is_signed(&told[0], &foreign));
    share(&gateway).await;
    let shared = secret_of(second).await;
    assert_eq!(shared, secret_of(gateway.key.clone()).await);
    assert!(is_signed(&told[0], &shared));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_not_public_is_refused_before_anything_is_done() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    for wrong in [
        "http://example.com/hook",
        "https://127.0.0.1/hook",
        "https://localhost/hook",
        "https://169.254.169.254/latest",
        "https://kubernetes.default.svc/hook",
        "https://Hooks.Internal/hook",
        "https://printer.local./hook",
        "https://user:word@example.com/",
        "ftp://example.com/",
        "",
    ] {
        let got = gateway.post("/v1/images/generations", &order(wrong)).send().await;
        assert_eq!(got.status, 400, "{wrong}: {}", got.text());
        assert_eq!(got.json()["error"]["param"], "webhook", "{wrong}");
    }
    assert_eq!(provider.requests().len(), 0);
    let tasks = gateway.get("/v1/tasks").send().await.json();
    assert_eq!(tasks["data"], json!([]));
}

/// A name is only resolved when the message is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_a_private_address_ends_the_message_at_once() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let names = Arc::new(ScriptedResolver::default());
    names.set_answers("inner.example.com", &[&["127.0.0.1"]]);
    let gateway = TestGateway::with_names(&config(&provider.url, ""), names).await;
    let url = "https://inner.example.com/hook";
    let got = gateway.post("/v1/images/generations", &order(url)).send().await;
    assert_eq!(got.status, 202, "{}", got.text());
    let id = got.json()["id"].as_str().unwrap().to_owned();
    over(&gateway.url, &gateway.key, &id).await;
    let task = soon(Duration::from_secs(60), || async {
        let task = gateway.get(&format!("/v1/tasks/{id}")).send().await.json();
        // The attempt is counted before its result is known.
        (task["webhook"]["status"] != "pending").then_some(task)
    });
    let webhook = task.await.expect("a result")["webhook"].clone();
    assert_eq!((&webhook["status"], &webhook["attempts"]), (&json!("failed"), &json!(1)));
}
