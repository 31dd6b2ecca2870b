//! Sessions: each stays at one lane, is on the receipt, and has its sums.

use super::*;
use futures_util::future::{join, join_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::until;
use tokio::sync::Semaphore;

use crate::money::key;

const EQUAL: &str = "lanes = [{ lane = \"a/x\", weight = 1 }, { lane = \"b/x\", weight = 1 }]";

/// The call of an agent with the same long instructions in every session.
fn agent_call() -> Value {
    let system = "You are a coding agent. ".repeat(300);
    json!({ "model": "m", "messages": [
        { "role": "system", "content": system }, { "role": "user", "content": "hi" },
    ] })
}

async fn lane_of(gateway: &TestGateway, session: &str) -> String {
    let call = gateway.post(CHAT, &agent_call()).header("x-claude-code-session-id", session);
    let got = call.send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.header("x-portunus-lane").to_owned()
}

#[tokio::test]
async fn sixty_sessions_with_one_prompt_share_two_lanes() {
    let (a, b) = (good().await, good().await);
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], EQUAL)).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for session in 0..60 {
        let session = format!("{session:08x}-0000-4000-8000-000000000000");
        let lane = lane_of(&gateway, &session).await;
        for _ in 0..2 {
            assert_eq!(lane_of(&gateway, &session).await, lane, "{session} moved");
        }
        *counts.entry(lane).or_default() += 1;
    }
    assert!(counts.values().all(|count| (24..=36).contains(count)), "{counts:?}");
}

/// A provider that answers each call after the test has let it through.
async fn held(gate: &Arc<Semaphore>) -> ScriptedProvider {
    let mut answer = vec![AnswerStep::WaitFor(Arc::clone(gate))];
    answer.extend(chat_reply("hi", 3, 5));
    ScriptedProvider::start(vec![answer]).await
}

#[tokio::test]
async fn sessions_that_run_at_the_same_time_share_two_lanes() {
    let gate = Arc::new(Semaphore::new(0));
    let (a, b) = (held(&gate).await, held(&gate).await);
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], EQUAL)).await;
    // Two calls of each session, of which none is answered before all have begun.
    let names: Vec<String> = (0..120).map(|number| format!("same-time-{}", number / 2)).collect();
    let calls = join_all(names.iter().map(|name| lane_of(&gateway, name)));
    let open = async {
        until("all calls run", async || a.requests().len() + b.requests().len() == 120).await;
        gate.add_permits(120);
    };
    let (lanes, ()) = join(calls, open).await;
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for pair in lanes.chunks(2) {
        assert_eq!(pair[0], pair[1], "a session is at two lanes");
        *counts.entry(&pair[0]).or_default() += 1;
    }
    assert!(counts.values().all(|count| (24..=36).contains(count)), "{counts:?}");
}

#[tokio::test]
async fn calls_of_a_session_at_the_same_time_stay_at_its_lane() {
    let gate = Arc::new(Semaphore::new(0));
    let (a, b) = (held(&gate).await, held(&gate).await);
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], EQUAL)).await;
    // A new session, and then the same one again.
    for count in [6, 30] {
        let before = a.requests().len() + b.requests().len();
        let calls = join_all((0..count).map(|_| lane_of(&gateway, "one")));
        let open = async {
            let all = || a.requests().len() + b.requests().len();
            until("all calls run", async || all() == before + count).await;
            gate.add_permits(count);
        };
        let (lanes, ()) = join(calls, open).await;
        assert!(lanes.iter().all(|lane| *lane == lanes[0]), "{lanes:?}");
    }
    assert!(a.requests().is_empty() || b.requests().is_empty());
}

#[tokio::test]
async fn a_session_that_moved_stays() {
    // Each provider fails five times and then answers for ever.
    let mut answers = vec![answer(500, "", "{}"); 5];
    answers.push(chat_reply("back", 1, 1));
    let (a, b) = (ScriptedProvider::start(answers).await, good().await);
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], EQUAL)).await;
    // Sessions whose own lane is `a`, which fails.
    let mut moved = Vec::new();
    let good_again =
        || gateway.app.config().lane_health(gateway.app.ticks())[0].health.failure_streak == 0;
    let number = AtomicUsize::new(0);
    let next = || number.fetch_add(1, Ordering::Relaxed);
    while a.requests().len() < 5 {
        let before = a.requests().len();
        let session = format!("moved-{}", next());
        assert_eq!(lane_of(&gateway, &session).await, "b/x");
        if a.requests().len() > before {
            moved.push(session);
        }
        assert!(next() < 400, "no session has `a` for its own lane");
    }
    until("the lane is taken back", async || {
        lane_of(&gateway, &format!("other-{}", next())).await == "a/x" && good_again()
    })
    .await;
    for session in moved {
        assert_eq!(lane_of(&gateway, &session).await, "b/x", "{session} went back");
    }
}

#[tokio::test]
async fn a_session_is_on_receipts_and_has_sums() {
    let a = good().await;
    let gateway = TestGateway::with_config(&config(&[&a.url], "lanes = [\"a/x\"]")).await;
    let mut body = hello("m");
    for number in 0..3 {
        body["prompt_cache_key"] = json!("run/7");
        let call = gateway.post(CHAT, &body);
        let call = if number == 0 { call.header("x-portunus-session", " run/7 ") } else { call };
        let got = call.send().await;
        assert_eq!(receipt(&gateway, &got).await["session"], "run/7");
    }
    let got = ask(&gateway).await;
    assert_eq!(receipt(&gateway, &got).await["session"], Value::Null);
    until("the calls are posted", async || {
        let got = gateway.get("/v1/sessions/run%2F7").send().await;
        got.status == 200 && got.json()["calls"] == 3
    })
    .await;
    let shown = gateway.get("/v1/sessions/run%2F7").send().await.json();
    assert_eq!(
        (&shown["id"], &shown["cost_usd"]),
        (&json!("run/7"), &json!("0.000039000")),
        "{shown}"
    );
    assert_eq!(shown["tokens"]["total"], 3 * 8);
    assert_eq!(
        (&shown["lanes"][0]["lane"], &shown["models"][0]["model"]),
        (&json!("a/x"), &json!("m"))
    );
    let list = gateway.get("/v1/sessions").send().await.json();
    assert_eq!(
        (list["data"].as_array().map(Vec::len), &list["data"][0]["id"]),
        (Some(1), &json!("run/7"))
    );
    let admin = gateway.admin_key().await.to_owned();
    let usage = async || gateway.get("/api/admin/usage?by=session").key(&admin).send().await.json();
    until("the call without a session counts in the total", async || {
        usage().await["total"]["calls"] == 4
    })
    .await;
    let report = usage().await;
    let group = &report["groups"][0];
    assert_eq!((&report["by"], &group["group"]), (&json!("session"), &json!("run/7")), "{report}");
    assert_eq!(group["used"]["cost_usd"], shown["cost_usd"]);
    let got = gateway.get("/api/admin/usage?by=session&lane=a").key(&admin).send().await;
    assert_eq!(got.status, 400);
    // Another key sees nothing of it.
    let other = key(&gateway, |_| {}).await;
    let got = gateway.get("/v1/sessions/run%2F7").key(&other).send().await;
    assert_eq!(got.status, 404);
    let got = gateway.get("/v1/sessions").key(&other).send().await;
    assert_eq!(got.json()["data"], json!([]));
}

#[tokio::test]
async fn ids_of_any_length_are_taken_and_bounded() {
    let a = good().await;
    let gateway = TestGateway::with_config(&config(&[&a.url], "lanes = [\"a/x\"]")).await;
    let long = "x".repeat(3_000);
    let got = gateway.post(CHAT, &hello("m")).header("session-id", &long).send().await;
    let session = receipt(&gateway, &got).await["session"].as_str().unwrap().to_owned();
    assert!(session.starts_with("sha256:") && session.len() == 71, "{session}");
    until("the call is posted", async || {
        gateway.get(&format!("/v1/sessions/{session}")).send().await.status == 200
    })
    .await;
    assert_eq!(gateway.get(&format!("/v1/sessions/{long}")).send().await.status, 200);
    for session in ["none", "%00", "%ff", ""] {
        let got = gateway.get(&format!("/v1/sessions/{session}")).send().await;
        assert_eq!(got.status, 404, "{session}: {}", got.text());
    }
}

#[tokio::test]
async fn codex_gets_its_catalog() {
    let gateway = TestGateway::start().await;
    let plain = gateway.get("/v1/models").send().await.json();
    assert_eq!(plain.get("models"), None);
    let list = gateway.get("/v1/models?client_version=0.169.0").send().await.json();
    assert_eq!(list["data"], plain["data"]);
    let models = list["models"].as_array().unwrap();
    let entry = models.iter().find(|model| model["slug"] == "demo-chat").unwrap();
    // The fields without which Codex 0.169 refuses the whole list.
    for field in [
        "display_name",
        "supported_reasoning_levels",
        "shell_type",
        "visibility",
        "supported_in_api",
        "priority",
        "support_verbosity",
        "truncation_policy",
        "experimental_supported_tools",
        "base_instructions",
    ] {
        assert!(!entry[field].is_null(), "{field}");
    }
    assert!(models.iter().all(|model| model["slug"] != "demo-embed"));
}

/// The session of a chain of stored responses is that of its first call, however this call names it.
#[tokio::test]
async fn the_first_call_of_a_chain_has_the_session_of_the_chain() {
    let gateway = TestGateway::start().await;
    let send = async |body: &Value| {
        let got = gateway.post("/v1/responses", body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let session = receipt(&gateway, &got).await["session"].clone();
        (got.json()["id"].as_str().unwrap().to_owned(), session)
    };
    for (model, own) in [("demo-responses", json!({})), ("demo-chat", json!({}))]
        .into_iter()
        .chain([("demo-messages", json!({ "prompt_cache_key": "run/9" }))])
    {
        let mut body = json!({ "model": model, "input": "hello" });
        body.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let (first_id, first) = send(&body).await;
        match own["prompt_cache_key"].as_str() {
            Some(named) => assert_eq!(first, named),
            // The gateway has written this response, so its id is that of the session.
            None if model == "demo-chat" => assert_eq!(first, *first_id),
            None => assert!(first.as_str().unwrap().starts_with("resp_"), "{first}"),
        }
        let mut previous = first_id;
        for _ in 0..2 {
            let body =
                json!({ "model": model, "input": "go on", "previous_response_id": previous });
            let (id, session) = send(&body).await;
            assert_eq!(session, first, "{model}");
            previous = id;
        }
        let first = first.as_str().unwrap();
        let path = format!("/v1/sessions/{}", first.replace('/', "%2F"));
        until("all calls are posted", async || {
            let got = gateway.get(&path).send().await;
            got.status == 200 && got.json()["calls"] == 3
        })
        .await;
    }
    // A conversation is a session from its first call on.
    let made = gateway.post("/v1/conversations", &json!({})).send().await.json();
    for _ in 0..2 {
        let body = json!({ "model": "demo-chat", "input": "hello", "conversation": made["id"] });
        assert_eq!(send(&body).await.1, made["id"]);
    }
    // An answer that nobody can continue begins nothing.
    let body = json!({ "model": "demo-chat", "input": "hello", "store": false });
    assert_eq!(send(&body).await.1, Value::Null);
}

/// A call that continues another one finds its lane, although the session was only begun by it.
#[tokio::test]
async fn a_chain_stays_at_one_lane_from_its_first_call_on() {
    let (a, b) = (good().await, good().await);
    let gateway = TestGateway::with_config(&config(&[&a.url, &b.url], EQUAL)).await;
    let mut lanes: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..20 {
        let mut body = json!({ "model": "m", "input": "hello" });
        let mut first = None;
        for _ in 0..3 {
            let got = gateway.post("/v1/responses", &body).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
            let lane = got.header("x-portunus-lane").to_owned();
            assert_eq!(first.get_or_insert_with(|| lane.clone()), &lane);
            body["previous_response_id"] = got.json()["id"].clone();
        }
        *lanes.entry(first.unwrap()).or_default() += 1;
    }
    assert_eq!(lanes.len(), 2, "{lanes:?}");
}
