//! Answers, threads, tasks, replays, receipts and webhook secrets belong to the key that made them,
//! unless the account shares them.

use http::Method;
use serde_json::{Value, json};
use store::{AccountTerms, ObjectSharing};
use testkit::{TestGateway, TestRequest, TestResponse};

use crate::money::key;

/// Lets the keys of the first account share their objects.
pub(crate) async fn share(gateway: &TestGateway) {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let terms = AccountTerms { share: ObjectSharing::Account, ..AccountTerms::default() };
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
            post("/v1/messages".to_owned(), &thread, 400),
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
