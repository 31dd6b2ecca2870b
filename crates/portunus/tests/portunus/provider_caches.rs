//! Copies of cached contents at providers: made once, paid once, named at their lane only.

use canon::Money;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{
    AnswerStep, ReceivedRequest, ScriptedProvider, TestGateway, TestResponse, reply, until,
};

use tokio::sync::Semaphore;
use upstream::LaneState;

use crate::money::{key, receipt};

const CACHES: &str = "/v1beta/cachedContents";
const GENERATE: &str = "/v1beta/models/m:generateContent";
const PRICES: &str = "price = { input = \"1.00\", output = \"2.00\", cached_input = \"0.10\", \
    cache_storage = \"4.50\" }";

fn json_answer(status: u16, body: &Value) -> Vec<AnswerStep> {
    reply(status, "application/json", &body.to_string())
}

fn counted(tokens: u64) -> Vec<AnswerStep> {
    json_answer(200, &json!({ "totalTokens": tokens }))
}

fn created(name: &str, tokens: u64) -> Vec<AnswerStep> {
    json_answer(200, &json!({ "name": name, "usageMetadata": { "totalTokenCount": tokens } }))
}

fn answered(cached: u64) -> Vec<AnswerStep> {
    json_answer(
        200,
        &json!({
            "candidates": [{ "content": { "role": "model", "parts": [{ "text": "A heron." }] },
                             "finishReason": "STOP" }],
            "usageMetadata": { "promptTokenCount": 2_010, "candidatesTokenCount": 3,
                               "totalTokenCount": 2_013, "cachedContentTokenCount": cached },
        }),
    )
}

fn missing() -> Vec<AnswerStep> {
    let message = "CachedContent not found (or permission denied)";
    json_answer(
        403,
        &json!({ "error": { "code": 403, "message": message, "status": "PERMISSION_DENIED" } }),
    )
}

fn config(provider: &ScriptedProvider) -> String {
    let plain = "price = { input = \"1.00\", output = \"2.00\" }";
    provider.config("native").replace(plain, PRICES)
}

fn content() -> Value {
    json!({
        "model": "models/m", "ttl": "7200s",
        "contents": [{ "role": "user", "parts": [{ "text": "A long tale of a heron. ".repeat(300) }] }],
        "systemInstruction": { "parts": [{ "text": "Speak of birds." }] },
    })
}

fn ask(name: &str) -> Value {
    json!({ "contents": [{ "role": "user", "parts": [{ "text": "Who?" }] }],
            "generationConfig": { "topK": 5 }, "cachedContent": name })
}

async fn kept(gateway: &TestGateway) -> (String, TestResponse) {
    let made = gateway.post(CACHES, &content()).send().await;
    assert_eq!(made.status, 200, "{}", made.text());
    (made.json()["name"].as_str().unwrap().to_owned(), made)
}

fn line(request: &ReceivedRequest) -> &str {
    request.head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
}

fn lines(provider: &ScriptedProvider) -> Vec<String> {
    provider.requests().iter().map(|one| line(one).to_owned()).collect()
}

fn dimensions(receipt: &Value) -> Vec<(String, u64)> {
    let charges = receipt["charges"].as_array().unwrap();
    let row = |charge: &Value| {
        (charge["for"].as_str().unwrap().to_owned(), charge["count"].as_u64().unwrap())
    };
    charges.iter().map(row).collect()
}

#[tokio::test]
async fn a_copy_is_made_and_paid_once_and_named_by_later_calls() {
    let answers = vec![counted(2_000), created("cachedContents/p1", 2_000), answered(2_000)];
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&config(&provider)).await;
    let (name, made) = kept(&gateway).await;
    // 2,000 tokens at 1 USD, and for two hours at 4.50 USD.
    assert_eq!(made.header("x-portunus-cost"), "0.020000000");
    let paid = receipt(&gateway, &made).await;
    let expected = [("input".to_owned(), 2_000), ("cache_storage".to_owned(), 4_000)];
    assert_eq!(dimensions(&paid), expected, "{paid}");
    let create = &provider.requests()[1];
    assert_eq!(line(create), "POST /v1beta/cachedContents");
    let sent = content();
    assert_eq!(
        create.json(),
        json!({ "model": "models/up", "ttl": "7200s", "contents": sent["contents"],
                "systemInstruction": sent["systemInstruction"] })
    );
    assert!(!made.text().contains("p1"), "{}", made.text());
    for path in [GENERATE, "/v1beta/models/m:streamGenerateContent?alt=sse"] {
        if path.contains("stream") {
            let event = String::from_utf8(match answered(2_000).into_iter().next() {
                Some(AnswerStep::Bytes(bytes)) => bytes,
                _ => Vec::new(),
            });
            let event = event.unwrap();
            let (_, event) = event.split_once("\r\n\r\n").unwrap();
            provider.set_answers(vec![testkit::sse(&[event])]);
        }
        let got = gateway.post(path, &ask(&name)).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let sent = provider.requests().last().unwrap().json();
        let mut expected = ask("cachedContents/p1");
        expected["generationConfig"] = sent["generationConfig"].clone();
        assert_eq!(sent, expected);
        assert_eq!(sent["generationConfig"]["topK"], 5);
        gateway.wait_until_settled().await;
        let paid = receipt(&gateway, &got).await;
        let expected = [
            ("cached_input".to_owned(), 2_000),
            ("input".to_owned(), 10),
            ("output".to_owned(), 3),
        ];
        assert_eq!(dimensions(&paid), expected, "{paid}");
    }
    provider.set_answers(vec![json_answer(200, &json!({}))]);
    let gone = gateway.request(Method::DELETE, &format!("/v1beta/{name}")).send().await;
    assert_eq!(gone.status, 200);
    until("the copy is deleted", async || {
        lines(&provider).last().is_some_and(|last| last == "DELETE /v1beta/cachedContents/p1")
    })
    .await;
}

#[tokio::test]
async fn a_lost_copy_is_replaced_by_the_content_within_the_call() {
    let answers = vec![
        counted(2_000),
        created("cachedContents/p1", 2_000),
        missing(),
        answered(0),
        answered(0),
    ];
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&config(&provider)).await;
    let (name, _) = kept(&gateway).await;
    for _ in 0..2 {
        let got = gateway.post(GENERATE, &ask(&name)).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(receipt(&gateway, &got).await["attempts"], 1);
    }
    let sent: Vec<Value> = provider.requests().iter().skip(2).map(ReceivedRequest::json).collect();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert_eq!(sent[0]["cachedContent"], "cachedContents/p1");
    for whole in &sent[1..] {
        assert_eq!(whole.get("cachedContent"), None, "{whole}");
        assert_eq!(whole["contents"].as_array().unwrap().len(), 2, "{whole}");
        assert_eq!(whole["systemInstruction"], content()["systemInstruction"]);
    }
    // A refused name says nothing of the credential.
    let lanes = gateway.app.engine.config().routes["m"].lanes.clone();
    assert_eq!(lanes[0].slots[0].health.state(gateway.app.engine.monotonic_now()), LaneState::Good);
}

#[tokio::test]
async fn content_works_without_a_copy() {
    let without_price = |provider: &ScriptedProvider| provider.config("native");
    let refused =
        json!({ "error": { "code": 400, "message": "too small", "status": "INVALID_ARGUMENT" } });
    let cases = [
        ("no price", vec![counted(2_000), answered(0)], without_price as fn(&_) -> String, 1),
        ("small", vec![counted(1_000), answered(0)], config, 1),
        ("refused", vec![counted(2_000), json_answer(400, &refused), answered(0)], config, 2),
        ("odd name", vec![counted(2_000), created("../x", 9), answered(0)], config, 2),
        ("down", vec![counted(2_000), json_answer(500, &json!({})), answered(0)], config, 2),
    ];
    for (case, answers, config, asked) in cases {
        let provider = ScriptedProvider::start(answers).await;
        let gateway = TestGateway::with_config(&config(&provider)).await;
        let (name, made) = kept(&gateway).await;
        assert_eq!(made.header("x-portunus-cost"), "", "{case}");
        assert_eq!(provider.requests().len(), asked, "{case}: {:?}", lines(&provider));
        let got = gateway.post(GENERATE, &ask(&name)).send().await;
        assert_eq!(got.status, 200, "{case}: {}", got.text());
        let sent = provider.requests().last().unwrap().json();
        assert_eq!(sent.get("cachedContent"), None, "{case}: {sent}");
        assert_eq!(sent["contents"].as_array().unwrap().len(), 2, "{case}: {sent}");
    }
}

/// A cap that cannot pay a copy does not forbid the content.
#[tokio::test]
async fn a_copy_is_never_beyond_the_cap() {
    let provider = ScriptedProvider::start(vec![counted(2_000), answered(0)]).await;
    let gateway = TestGateway::with_config(&config(&provider)).await;
    let poor = key(&gateway, |key| key.cap = Some(Money::from_nanos(1_000))).await;
    let made = gateway.post(CACHES, &content()).key(&poor).send().await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(lines(&provider), ["POST /v1beta/models/up:countTokens"]);
}

/// The lane with the copy comes first; another lane gets the content.
#[tokio::test]
async fn the_lane_with_the_copy_is_preferred() {
    let first = ScriptedProvider::start(vec![answered(0)]).await;
    let answers = vec![counted(2_000), created("cachedContents/p1", 2_000), answered(2_000)];
    let second = ScriptedProvider::start(answers).await;
    let config = format!(
        "[providers.a]\nspeaks = \"native\"\nbase = \"{}\"\nauth = \"none\"\n\
         [providers.b]\nspeaks = \"native\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [{{ lane = \"a/up\", price = {{ input = \"1.00\", output = \"2.00\" }} }}, \"b/up\"]\n{PRICES}\n",
        first.url, second.url
    );
    first.set_answers(vec![counted(2_000), answered(0)]);
    second.set_answers(vec![created("cachedContents/p1", 2_000), answered(2_000)]);
    let gateway = TestGateway::with_config(&config).await;
    let (name, _) = kept(&gateway).await;
    let got = gateway.post(GENERATE, &ask(&name)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(second.requests().last().unwrap().json()["cachedContent"], "cachedContents/p1");
    second.set_answers(vec![json_answer(503, &json!({}))]);
    let got = gateway.post(GENERATE, &ask(&name)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = first.requests().last().unwrap().json();
    assert_eq!(sent.get("cachedContent"), None, "{sent}");
    assert_eq!(sent["contents"].as_array().unwrap().len(), 2, "{sent}");
}

/// A count of nothing, or of more than the content can have, is not believed.
#[tokio::test]
async fn storage_is_paid_whatever_the_provider_counts() {
    for told in [0, u64::MAX / 2] {
        let answers = vec![counted(2_000), created("cachedContents/p1", told)];
        let provider = ScriptedProvider::start(answers).await;
        let gateway = TestGateway::with_config(&config(&provider)).await;
        let (_, made) = kept(&gateway).await;
        assert_eq!(made.header("x-portunus-cost"), "0.020000000", "{told}");
    }
}

/// An error of the caller's own says nothing of the copy, and a text of the provider with the name of the
/// copy does not reach the caller.
#[tokio::test]
async fn an_error_of_the_caller_keeps_the_copy() {
    let told = "cachedContents/p1 and contents[0] are too long";
    let refused = |status: u16| {
        json_answer(status, &json!({ "error": { "code": status, "message": told, "status": "X" } }))
    };
    let whole =
        json!({ "error": { "code": 400, "message": "too long", "status": "INVALID_ARGUMENT" } });
    for status in [400, 413, 422] {
        let answers = vec![
            counted(2_000),
            created("cachedContents/p1", 2_000),
            refused(status),
            json_answer(400, &whole),
            answered(2_000),
        ];
        let provider = ScriptedProvider::start(answers).await;
        let gateway = TestGateway::with_config(&config(&provider)).await;
        let (name, _) = kept(&gateway).await;
        let got = gateway.post(GENERATE, &ask(&name)).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(!got.text().contains("p1"), "{}", got.text());
        let got = gateway.post(GENERATE, &ask(&name)).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let sent = provider.requests().last().unwrap().json();
        assert_eq!(sent["cachedContent"], "cachedContents/p1", "{status}");
    }
}

/// The copy is paid and recorded although its caller sets a short time, or leaves.
#[tokio::test]
async fn a_copy_is_paid_without_its_caller() {
    let gate = Arc::new(Semaphore::new(0));
    let reached = Arc::new(Semaphore::new(0));
    let mut slow =
        vec![AnswerStep::Reached(Arc::clone(&reached)), AnswerStep::WaitFor(Arc::clone(&gate))];
    slow.extend(created("cachedContents/p1", 2_000));
    let provider = ScriptedProvider::start(vec![counted(2_000), slow, answered(2_000)]).await;
    let gateway = TestGateway::with_config(&config(&provider)).await;
    let body = content();
    let create = gateway.post(CACHES, &body).header("x-server-timeout", "1");
    tokio::select! {
        got = create.send() => panic!("{}", got.text()),
        () = async { reached.acquire().await.unwrap().forget() } => {}
    }
    gate.add_permits(1);
    until("the copy is paid", async || {
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        rows.iter().any(|row| row.cost == "0.02".parse().unwrap() && row.absorbed == Money::ZERO)
    })
    .await;
    let listed = gateway.get(CACHES).send().await.json();
    let name = listed["cachedContents"][0]["name"].as_str().unwrap();
    let got = gateway.post(GENERATE, &ask(name)).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = provider.requests().last().unwrap().json();
    assert_eq!(sent["cachedContent"], "cachedContents/p1");
}

/// Content that is deleted while its copy is made is paid, and the copy is deleted too.
#[tokio::test]
async fn a_copy_of_deleted_content_is_paid_and_deleted() {
    let gate = Arc::new(Semaphore::new(0));
    let reached = Arc::new(Semaphore::new(0));
    let mut slow =
        vec![AnswerStep::Reached(Arc::clone(&reached)), AnswerStep::WaitFor(Arc::clone(&gate))];
    slow.extend(created("cachedContents/p1", 2_000));
    let answers = vec![counted(2_000), slow, json_answer(200, &json!({}))];
    let provider = ScriptedProvider::start(answers).await;
    let gateway = TestGateway::with_config(&config(&provider)).await;
    let body = content();
    let delete = async {
        reached.acquire().await.unwrap().forget();
        let listed = gateway.get(CACHES).send().await.json();
        let name = listed["cachedContents"][0]["name"].as_str().unwrap();
        let gone = gateway.request(Method::DELETE, &format!("/v1beta/{name}")).send().await;
        assert_eq!(gone.status, 200, "{}", gone.text());
        gate.add_permits(1);
    };
    let (made, ()) = tokio::join!(gateway.post(CACHES, &body).send(), delete);
    assert_eq!(made.header("x-portunus-cost"), "0.020000000", "{}", made.text());
    until("the copy is deleted", async || {
        lines(&provider).last().is_some_and(|last| last == "DELETE /v1beta/cachedContents/p1")
    })
    .await;
}

/// A deadline at the making of a copy is covered by goodwill, or paid by the key.
#[tokio::test]
async fn a_copy_that_may_exist_costs_goodwill_or_the_key() {
    let hang = vec![AnswerStep::Wait(std::time::Duration::from_secs(60))];
    let provider = ScriptedProvider::start(vec![counted(2_000), hang]).await;
    let config = format!(
        "[limits]\ngoodwill = \"0\"\n{}",
        config(&provider)
            .replace("auth = \"none\"", "auth = \"none\"\ntimeouts = { first_byte = \"300ms\" }")
    );
    let gateway = TestGateway::with_config(&config).await;
    let (_, made) = kept(&gateway).await;
    let paid = receipt(&gateway, &made).await;
    assert_eq!(paid["cost_usd"], "0.020000000", "{paid}");
}

#[tokio::test]
async fn short_content_has_no_copy_and_a_dry_run_keeps_nothing() {
    let provider = ScriptedProvider::start(vec![counted(2_000)]).await;
    let gateway = TestGateway::with_config(&config(&provider)).await;
    let mut short = content();
    short["ttl"] = json!("59s");
    let made = gateway.post(CACHES, &short).send().await;
    assert_eq!((made.status.as_u16(), made.header("x-portunus-cost")), (200, ""));
    assert_eq!(provider.requests().len(), 1);
    let dry = gateway.post(CACHES, &content()).header("x-portunus-dry-run", "true").send().await;
    assert_eq!(dry.status, 400, "{}", dry.text());
    assert_eq!(provider.requests().len(), 1);
}
