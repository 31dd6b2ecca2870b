//! Answers, threads, tasks, replays, receipts and webhook secrets belong to the key that made them,
//! unless the account shares them.

use admin::Actor;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use store::{AccountTerms, ObjectSharing};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestRequest, TestResponse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::money::key;

/// Lets the keys of the first account share their objects.
pub(crate) async fn share(gateway: &TestGateway) {
    set_sharing(gateway, ObjectSharing::Account).await;
}

async fn set_sharing(gateway: &TestGateway, share: ObjectSharing) {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let terms = AccountTerms { share, ..AccountTerms::default() };
    gateway.app.store.set_account_terms(&account.id, &terms).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
}

fn id_of(got: &TestResponse) -> String {
    assert!(got.status.is_success(), "{}", got.text());
    got.json()["id"].as_str().unwrap().to_owned()
}

/// Objects that the first key of a gateway made.
struct MadeObjects {
    answer: String,
    background: String,
    message: String,
    task: String,
    call: String,
}

impl MadeObjects {
    async fn make(gateway: &TestGateway) -> Self {
        let answer = json!({ "model": "demo-chat", "input": "My name is Ada." });
        let mut background = answer.clone();
        background["background"] = json!(true);
        let thread = json!({ "model": "demo-chat", "max_tokens": 50, "thread": { "type": "create" },
            "messages": [{ "role": "user", "content": "Hello" }] });
        let picture = json!({ "model": "demo-image", "prompt": "a dot", "async": true });
        let answer = gateway.post("/v1/responses", &answer).send().await;
        Self {
            call: answer.header("x-request-id").to_owned(),
            answer: id_of(&answer),
            background: id_of(&gateway.post("/v1/responses", &background).send().await),
            message: id_of(&gateway.post("/v1/messages", &thread).send().await),
            task: id_of(&gateway.post("/v1/images/generations", &picture).send().await),
        }
    }

    /// Every way to one of the objects, and its status for a key that does not see it. Those that
    /// change an object come last.
    fn ways<'a>(&self, gateway: &'a TestGateway) -> Vec<(String, TestRequest<'a>, u16)> {
        let Self { answer, background, message, task, call } = self;
        let get = |path: String| (path.clone(), gateway.get(&path), 404);
        let post = |path: String, body: &Value, status| {
            (format!("{path} {body}"), gateway.post(&path, body), status)
        };
        let next = json!({ "model": "demo-chat", "input": "And?", "previous_response_id": answer });
        let thread = json!({ "model": "demo-chat", "max_tokens": 50,
            "thread": { "type": "continue", "previous_message_id": message },
            "messages": [{ "role": "user", "content": "And?" }] });
        let delete = format!("/v1/responses/{answer}");
        vec![
            get(format!("/v1/responses/{answer}")),
            get(format!("/v1/responses/{answer}/input_items")),
            get(format!("/v1/responses/{background}")),
            get(format!("/v1/responses/{background}?stream=true")),
            get(format!("/v1/tasks/{task}")),
            get(format!("/v1/images/generations/{task}")),
            get(format!("/v1/usage/{call}")),
            post("/v1/responses".to_owned(), &next, 404),
            post("/v1/responses/input_tokens".to_owned(), &next, 404),
            post("/v1/responses/compact".to_owned(), &next, 404),
            post("/v1/messages".to_owned(), &thread, 404),
            post(format!("/v1/responses/{background}/cancel"), &json!({}), 404),
            post(format!("/v1/tasks/{task}/cancel"), &json!({}), 404),
            (format!("DELETE {delete}"), gateway.request(Method::DELETE, &delete), 404),
        ]
    }
}

async fn listed(gateway: &TestGateway, key: &str) -> usize {
    let tasks = gateway.get("/v1/tasks").key(key).send().await.json();
    tasks["data"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_key_are_unknown_to_the_other_keys_of_its_account() {
    let gateway = TestGateway::start().await;
    let made = MadeObjects::make(&gateway).await;
    gateway.wait_until_settled().await;
    let second = key(&gateway, |_| ()).await;
    for (name, request, expected) in made.ways(&gateway) {
        let got = request.key(&second).send().await;
        assert_eq!(got.status, expected, "{name}: {}", got.text());
    }
    assert_eq!(listed(&gateway, &second).await, 0);
    // Nothing was cancelled or deleted, and the maker sees everything.
    for path in [format!("/v1/responses/{}", made.answer), format!("/v1/usage/{}", made.call)] {
        assert_eq!(gateway.get(&path).send().await.status, 200, "{path}");
    }
    let task = gateway.get(&format!("/v1/tasks/{}", made.task)).send().await.json();
    assert_ne!(task["status"], "cancelled", "{task}");
    assert_eq!(listed(&gateway, &gateway.key).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_shares_lets_all_its_keys_use_the_objects() {
    let gateway = TestGateway::start().await;
    let made = MadeObjects::make(&gateway).await;
    gateway.wait_until_settled().await;
    share(&gateway).await;
    let second = key(&gateway, |_| ()).await;
    assert_eq!(listed(&gateway, &second).await, 1);
    for (name, request, _) in made.ways(&gateway) {
        let got = request.key(&second).send().await;
        // A task or a run that is over cannot be cancelled any more.
        let over = got.status == 409 && name.contains("/cancel");
        assert!(got.status.is_success() || over, "{name}: {} {}", got.status, got.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_run_ends_when_it_is_no_longer_shared_or_the_key_is_revoked() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let first = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"}}]}"#;
    let steps = vec![
        AnswerStep::Bytes(format!("{head}{first}\n\n").into_bytes()),
        AnswerStep::Wait(Duration::from_secs(60)),
    ];
    let provider = ScriptedProvider::start(vec![steps]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let ask = json!({ "model": "m", "input": "Hi", "background": true });
    let id = id_of(&gateway.post("/v1/responses", &ask).send().await);
    for (ends_sharing, say) in [(true, "no longer shared"), (false, "key is not valid")] {
        set_sharing(&gateway, ObjectSharing::Account).await;
        let second = key(&gateway, |_| ()).await;
        let mut socket = TcpStream::connect(gateway.url.replace("http://", "")).await.unwrap();
        let head = format!(
            "GET /v1/responses/{id}?stream=true HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             authorization: Bearer {second}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains("output_text.delta") {
            assert_ne!(socket.read_buf(&mut read).await.unwrap(), 0, "the stream has begun");
        }
        if ends_sharing {
            set_sharing(&gateway, ObjectSharing::Key).await;
        } else {
            let id = access::keys::KeyToken::parse(&second).unwrap().id().to_owned();
            let accounts = &gateway.app.admin.accounts;
            accounts.revoke_key(&Actor::Operator, &id, <_>::default()).await.unwrap();
        }
        socket.read_to_end(&mut read).await.unwrap();
        let text = String::from_utf8_lossy(&read);
        assert!(text.contains("response.failed") && text.contains(say), "{text}");
    }
}

#[tokio::test]
async fn replays_belong_to_the_key_unless_the_account_shares() {
    let gateway = TestGateway::start().await;
    let second = key(&gateway, |_| ()).await;
    let ask = json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hi" }] });
    let named = |key: &str| {
        let request = gateway.post("/v1/chat/completions", &ask).header("idempotency-key", "n");
        request.key(key).send()
    };
    for (key, replayed) in [(&gateway.key, ""), (&second, ""), (&gateway.key, "true")] {
        let got = named(key).await;
        assert_eq!((got.status.as_u16(), got.header("idempotent-replayed")), (200, replayed));
    }
    share(&gateway).await;
    for (key, replayed) in [(&gateway.key, ""), (&second, "true")] {
        let got = named(key).await;
        assert_eq!((got.status.as_u16(), got.header("idempotent-replayed")), (200, replayed));
    }
}
