//! Tasks from submission to their end: polled, listed, cancelled, failed, and their price.

use canon::Micros;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit::NewKey;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, reply};
use tokio::sync::Semaphore;

use crate::tasks::harness::{PRICE, config, order, over, picture, silence, soon};

const GENERATIONS: &str = "/v1/images/generations";

fn id(got: &TestResponse) -> String {
    assert_eq!(got.status, 202, "{}", got.text());
    got.json()["id"].as_str().unwrap().to_owned()
}

async fn done(gateway: &TestGateway, id: &str) -> Value {
    over(&gateway.url, &gateway.key, id).await
}

/// The receipt of a call, once it is settled.
async fn receipt(gateway: &TestGateway, request_id: &Value) -> Value {
    let path = format!("/v1/usage/{}", request_id.as_str().unwrap());
    let found = soon(Duration::from_secs(30), || async {
        let got = gateway.get(&path).send().await;
        (got.status == 200).then(|| got.json())
    });
    found.await.expect("a receipt")
}

/// Another account's key.
async fn stranger(gateway: &TestGateway) -> String {
    let account = store::Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: "stranger".to_owned(),
        email: None,
        role: store::AccountRole::Member,
        password_hash: None,
        disabled: false,
        created: Micros::new(1),
        changed: Micros::new(1),
    };
    gateway.app.store.add_account(&account).await.unwrap();
    let key = NewKey { name: "k".to_owned(), cap: None, models: vec![], expires: None };
    let (record, text) =
        key.into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_wait_gets_its_picture_all_the_same() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let plain = json!({ "model": "m", "prompt": "a dot" });
    let query = format!("{GENERATIONS}?async=true");
    let asks = [
        gateway.post(GENERATIONS, &order()),
        gateway.post(&query, &plain),
        gateway.post(GENERATIONS, &plain).header("prefer", "respond-async, wait=5"),
    ];
    let mut ids = Vec::new();
    for (number, ask) in asks.into_iter().enumerate() {
        let got = ask.send().await;
        let id = id(&got);
        let task = got.json();
        assert_eq!(task["object"], "image.generation.task");
        assert!(["pending", "processing", "completed"].contains(&task["status"].as_str().unwrap()));
        assert_eq!(got.header("location"), format!("{GENERATIONS}/{id}"));
        assert_eq!(got.header("retry-after"), "1");
        let applied = if number == 2 { "respond-async" } else { "" };
        assert_eq!(got.header("preference-applied"), applied);
        ids.push(id);
    }
    for id in &ids {
        let task = done(&gateway, id).await;
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!((&task["model"], &task["progress"]), (&json!("m"), &json!(100)));
        assert_eq!(task["data"][0]["revised_prompt"], "a dot");
        assert_eq!(task["data"][0]["b64_json"], Value::Null);
        assert_eq!((&task["output_format"], &task["size"]), (&json!("png"), &json!("1024x1024")));
        assert_eq!(task["usage"]["output_tokens"], 100);
        assert_eq!((&task["error"], &task["webhook"]), (&Value::Null, &Value::Null));
        let life = task["expires_at"].as_i64().unwrap() - task["completed_at"].as_i64().unwrap();
        assert!((86_390..=86_400).contains(&life), "{task}");
        let aliased = gateway.get(&format!("{GENERATIONS}/{id}")).send().await;
        assert_eq!((aliased.json(), aliased.header("retry-after")), (task.clone(), ""));
        let receipt = receipt(&gateway, &task["request_id"]).await;
        assert_eq!((&receipt["outcome"], &receipt["cost_usd"]), (&json!("done"), &json!(PRICE)));
    }
    for asked in provider.requests() {
        let body = asked.json();
        assert_eq!((&body["async"], &body["model"]), (&Value::Null, &json!("gpt-image-1")));
    }

    // Newest first, page by page.
    ids.reverse();
    let page = gateway.get("/v1/tasks?limit=2").send().await.json();
    let listed = |page: &Value| -> Vec<String> {
        let tasks = page["data"].as_array().unwrap().iter();
        tasks.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((listed(&page), &page["has_more"]), (ids[..2].to_vec(), &json!(true)));
    let rest = format!("/v1/tasks?after={}", ids[1]);
    let rest = gateway.get(&rest).send().await.json();
    assert_eq!((listed(&rest), &rest["has_more"]), (ids[2..].to_vec(), &json!(false)));
    let none = gateway.get("/v1/tasks?status=failed").send().await.json();
    assert_eq!(none["data"], json!([]));
    for (wrong, param) in [("status=done", "status"), ("limit=0", "limit")] {
        let got = gateway.get(&format!("/v1/tasks?{wrong}")).send().await;
        assert_eq!((got.status.as_u16(), &got.json()["error"]["param"]), (400, &json!(param)));
    }

    // Another account does not see the task.
    let key = stranger(&gateway).await;
    for (method, path) in [
        (Method::GET, format!("/v1/tasks/{}", ids[0])),
        (Method::GET, format!("{GENERATIONS}/{}", ids[0])),
        (Method::POST, format!("/v1/tasks/{}/cancel", ids[0])),
        (Method::GET, "/v1/tasks/task_x".to_owned()),
    ] {
        let got = gateway.request(method, &path).key(&key).send().await;
        let code = &got.json()["error"]["code"];
        assert_eq!((got.status.as_u16(), code), (404, &json!("task_not_found")), "{path}");
    }
    let listed = gateway.get("/v1/tasks").key(&key).send().await.json();
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_and_unaffordable_tasks_are_refused_at_once() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    for (body, status, param) in [
        (json!({ "model": "m", "async": true }), 400, "prompt"),
        (json!({ "model": "m", "prompt": "a", "n": 0, "async": true }), 400, "n"),
        (json!({ "model": "m", "prompt": "a", "async": "yes" }), 400, "async"),
        (json!({ "model": "m", "prompt": "a", "async": true, "webhook": 5 }), 400, "webhook"),
        (json!({ "model": "nobody", "prompt": "a", "async": true }), 404, "model"),
        (json!({ "model": "demo-chat", "prompt": "a", "async": true }), 404, "model"),
    ] {
        let got = gateway.post(GENERATIONS, &body).send().await;
        assert_eq!(got.status, status, "{body}: {}", got.text());
        if status == 400 {
            assert_eq!(got.json()["error"]["param"], param, "{body}");
        }
    }
    let account = gateway
        .app
        .engine
        .keys
        .find(&gateway.key, &access::keys::KnownKey::default())
        .await
        .unwrap()
        .record
        .account_id
        .clone();
    let cap = Some("0.0005".parse().unwrap());
    let poor = NewKey { name: "poor".to_owned(), cap, models: vec![], expires: None };
    let (record, poor) =
        poor.into_record(&account, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    let got = gateway.post(GENERATIONS, &order()).key(&poor).send().await;
    assert_eq!(got.status, 429, "{}", got.text());
    assert_eq!(got.json()["error"]["code"], "insufficient_quota");
    assert_eq!(provider.requests().len(), 0);
    assert_eq!(gateway.get("/v1/tasks").send().await.json()["data"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_cancelled_before_and_while_it_runs_but_not_after() {
    let gate = Arc::new(Semaphore::new(0));
    let mut slow = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
    slow.extend(picture());
    let provider = ScriptedProvider::start(vec![silence(), slow]).await;
    let one = "[tasks]\nper_provider = 1";
    let gateway = TestGateway::with_config(&config(&provider.url, one)).await;
    let cancel = async |id: &str| {
        gateway.request(Method::POST, &format!("/v1/tasks/{id}/cancel")).send().await
    };
    let running = id(&gateway.post(GENERATIONS, &order()).send().await);
    let asked = soon(Duration::from_secs(30), || async { provider.requests().pop() });
    asked.await.expect("the provider was asked");
    let waiting = id(&gateway.post(GENERATIONS, &order()).send().await);
    let shown = gateway.get(&format!("/v1/tasks/{waiting}")).send().await;
    assert_eq!(shown.json()["status"], "pending", "one at a time for a provider");
    assert_eq!(shown.header("retry-after"), "2");

    let got = cancel(&waiting).await;
    assert_eq!((got.status.as_u16(), &got.json()["status"]), (200, &json!("cancelled")));
    assert_eq!(got.json()["request_id"], Value::Null, "it never ran");
    let got = cancel(&running).await;
    assert_eq!((got.status.as_u16(), &got.json()["status"]), (200, &json!("cancelled")));
    let receipt = receipt(&gateway, &got.json()["request_id"]).await;
    assert_eq!(receipt["outcome"], "caller_left");
    assert_eq!(receipt["cost_usd"], "0.001000000", "the provider makes what was ordered");
    assert_eq!(cancel(&running).await.status, 200, "cancelled twice is cancelled");

    // The provider is free for the next one.
    let last = id(&gateway.post(GENERATIONS, &order()).send().await);
    gate.add_permits(1);
    assert_eq!(done(&gateway, &last).await["status"], "completed");
    let got = cancel(&last).await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["code"]), (409, &json!("task_over")));
    assert_eq!(done(&gateway, &last).await["status"], "completed");
    assert_eq!(done(&gateway, &waiting).await["status"], "cancelled");
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_is_one_task() {
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let submit =
        async || gateway.post(GENERATIONS, &order()).header("idempotency-key", "k1").send().await;
    let (first, second) = (submit().await, submit().await);
    assert_eq!(id(&first), id(&second));
    assert_eq!(second.header("idempotent-replayed"), "true");
    done(&gateway, &id(&first)).await;
    assert_eq!(provider.requests().len(), 1);
    assert_eq!(gateway.get("/v1/tasks").send().await.json()["data"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_tried_again_if_that_can_help_and_told_if_not() {
    let policy = json!({ "error": { "message": "not that", "type": "invalid_request_error",
        "code": "content_policy_violation", "param": null } });
    let broken = json!({ "error": { "message": "oh", "type": "server_error" } });
    let provider = ScriptedProvider::start(vec![
        reply(400, "application/json", &policy.to_string()),
        reply(500, "application/json", &broken.to_string()),
        picture(),
    ])
    .await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let refused = id(&gateway.post(GENERATIONS, &order()).send().await);
    let task = done(&gateway, &refused).await;
    assert_eq!((&task["status"], &task["data"]), (&json!("failed"), &Value::Null), "{task}");
    assert_eq!(task["error"]["code"], "content_policy_violation", "{task}");
    assert_eq!(provider.requests().len(), 1);
    let receipt = receipt(&gateway, &task["request_id"]).await;
    assert_eq!(receipt["cost_usd"], "0.000000000");

    let mended = id(&gateway.post(GENERATIONS, &order()).send().await);
    let task = done(&gateway, &mended).await;
    assert_eq!((&task["status"], &task["error"]), (&json!("completed"), &Value::Null), "{task}");
    assert_eq!(provider.requests().len(), 3);
}

/// A caller cannot make an image slow, and the gateway runs the task again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_pays_for_none_of_its_runs_that_end_at_a_deadline() {
    let provider = ScriptedProvider::start(vec![silence(), silence(), picture()]).await;
    let limits = "[timeouts]\nfirst_byte = \"200ms\"\n[limits]\ngoodwill = \"0\"\n";
    let gateway = TestGateway::with_config(&config(&provider.url, limits)).await;
    let slow = id(&gateway.post(GENERATIONS, &order()).send().await);
    let task = done(&gateway, &slow).await;
    assert_eq!(task["status"], "completed", "{task}");
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 10).await.unwrap();
    let paid: Vec<_> = rows.iter().filter(|row| row.cost > canon::Money::ZERO).collect();
    assert_eq!((paid.len(), provider.requests().len()), (1, 3), "{rows:?}");
    let absorbed = rows.iter().filter(|row| row.absorbed > canon::Money::ZERO).count();
    assert!(absorbed > 0, "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_of_the_provider_is_reported_while_a_task_runs() {
    let there = json!({ "id": "t1", "status": "processing", "progress": 40 });
    let provider =
        ScriptedProvider::start(vec![reply(200, "application/json", &there.to_string())]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, "")).await;
    let id = id(&gateway.post(GENERATIONS, &order()).send().await);
    let told = soon(Duration::from_secs(30), || async {
        let task = gateway.get(&format!("/v1/tasks/{id}")).send().await.json();
        (task["progress"] == 40).then_some(task)
    });
    let task = told.await.expect("a provider that is asked how far it has come");
    assert_eq!(task["status"], "processing");
    let asked = provider.requests().pop().unwrap();
    assert!(asked.head.starts_with("GET /v1/images/generations/t1 "), "{}", asked.head);
    let got = gateway.request(Method::POST, &format!("/v1/tasks/{id}/cancel")).send().await;
    assert_eq!(got.json()["status"], "cancelled");
}
