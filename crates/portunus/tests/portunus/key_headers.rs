//! One guard for every header and parameter that can carry a key; nothing in a request chooses the
//! provider.

use canon::{Micros, Money};
use serde_json::{Value, json};
use store::KeyRecord;
use testkit::NewKey;
use testkit::{ScriptedProvider, TestGateway, TestResponse, chat_reply, reply};

/// The calls that cost something, with a body each; the model is to be put in.
fn calls(model: &str) -> [(String, Value); 4] {
    let said = json!([{ "role": "user", "content": "Hello." }]);
    [
        ("/v1/chat/completions".to_owned(), json!({ "model": model, "messages": said })),
        ("/v1/messages".to_owned(), json!({ "model": model, "max_tokens": 9, "messages": said })),
        ("/v1/responses".to_owned(), json!({ "model": model, "input": "Hello.", "store": false })),
        (
            format!("/v1beta/models/{model}:generateContent"),
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello." }] }] }),
        ),
    ]
}

async fn key(gateway: &TestGateway, change: impl FnOnce(&mut KeyRecord)) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask = NewKey { name: "one".to_owned(), cap: None, models: vec![], expires: None };
    let now = gateway.app.clock.now();
    let (mut record, text) = ask.into_record(&account.id, &gateway.app.engine.keys, now).unwrap();
    change(&mut record);
    gateway.app.store.add_key(&record).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    text
}

const CARRIERS: [&str; 5] =
    ["authorization", "x-api-key", "x-vendor-api-key", "x-goog-api-key", "?key="];

async fn carried(
    gateway: &TestGateway,
    (path, body): &(String, Value),
    carrier: &'static str,
    key: &str,
) -> TestResponse {
    if carrier == "?key=" {
        return gateway.post(&format!("{path}?key={key}"), body).without_key().send().await;
    }
    let value = if carrier == "authorization" { format!("Bearer {key}") } else { key.to_owned() };
    gateway.post(path, body).without_key().header(carrier, &value).send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_the_same_by_whichever_carrier_it_comes() {
    let gateway = TestGateway::start().await;
    let now = gateway.app.clock.now();
    let states = [
        ("good", key(&gateway, |_| ()).await, 200),
        ("revoked", key(&gateway, |own| own.revoked = Some(now)).await, 401),
        ("expired", key(&gateway, |own| own.expires = Some(now - Micros::new(1))).await, 401),
        ("for others", key(&gateway, |own| own.models = vec!["demo-echo".into()]).await, 403),
        ("elsewhere", key(&gateway, |own| own.ips = vec!["192.0.2.1".into()]).await, 403),
        ("spent", key(&gateway, |own| own.cap = Some(Money::ZERO)).await, 429),
        ("unknown", "sk-pt-nobody".to_owned(), 401),
    ];
    let mut cells = 0;
    for call in calls("demo-chat") {
        for (state, key, status) in &states {
            for carrier in CARRIERS {
                let native = call.0.starts_with("/v1beta/");
                let got = carried(&gateway, &call, carrier, key).await;
                // A key in the query is accepted on native paths only.
                let status = if carrier == "?key=" && !native { 401 } else { *status };
                let case = format!("{} {state} {carrier}", call.0);
                assert_eq!(got.status.as_u16(), status, "{case}: {}", got.text());
                assert!(!got.text().contains(key.as_str()), "{case}");
                cells += 1;
            }
        }
        // Two different keys are refused, even if both are valid.
        let (good, other) = (&states[0].1, key(&gateway, |_| ()).await);
        for carrier in CARRIERS.into_iter().skip(1).take(3) {
            let ask = gateway.post(&call.0, &call.1).key(good).header(carrier, &other);
            assert_eq!(ask.send().await.status, 401, "{} {carrier}", call.0);
        }
    }
    assert_eq!(cells, 4 * 7 * 5);
}

const CANARY: &str = "sk-canary-of-the-caller";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_request_chooses_the_provider_or_its_credential() {
    let answers = [
        ("chat", chat_reply("hi", 1, 1)),
        (
            "messages",
            reply(
                200,
                "application/json",
                &json!({ "id": "m", "type": "message", "role": "assistant", "model": "x",
                         "content": [{ "type": "text", "text": "hi" }], "stop_reason": "end_turn",
                         "usage": { "input_tokens": 1, "output_tokens": 1 } })
                .to_string(),
            ),
        ),
    ];
    let trap = ScriptedProvider::start(vec![chat_reply("trapped", 1, 1)]).await;
    let places = ["base_url", "api_base", "apiBase", "endpoint", "url", "host", "proxy", "target"];
    let words = ["api_key", "apiKey", "authorization", "organization", "custom_llm_provider"];
    let whole = ["provider", "providers", "litellm_params", "extra_headers", "headers", "config"];
    let heads = [
        "x-base-url",
        "x-api-base",
        "x-provider",
        "x-upstream",
        "x-portunus-base",
        "x-portunus-provider",
        "x-portkey-custom-host",
        "helicone-target-url",
        "x-forwarded-host",
        "openai-organization",
    ];
    for (speaks, answer) in answers {
        let real = ScriptedProvider::start(vec![answer]).await;
        let config = real.config(speaks);
        let config = config.replace("\"none\"", "{ bearer = { text = \"sk-ours\" } }");
        let gateway = TestGateway::with_config(&config).await;
        let (mut tried, mut served) = (0, 0);
        let mut seen = async |got: TestResponse, case: String| {
            assert!([200, 400, 404].contains(&got.status.as_u16()), "{case}: {}", got.text());
            tried += 1;
            served += usize::from(got.status == 200);
        };
        for (path, body) in calls("m") {
            let mut bodies = Vec::new();
            for field in places {
                bodies.push((field, json!(trap.url)));
            }
            for field in words {
                bodies.push((field, json!(CANARY)));
            }
            for field in whole {
                let inside = json!({ "base_url": trap.url, "api_key": CANARY, "order": ["trap"],
                                     "authorization": format!("Bearer {CANARY}") });
                bodies.push((field, inside));
            }
            for (field, value) in bodies {
                let mut body = body.clone();
                body[field] = value;
                let got = gateway.post(&path, &body).send().await;
                seen(got, format!("{speaks} {path} {field}")).await;
            }
            for name in heads {
                let got = gateway.post(&path, &body).header(name, &trap.url).send().await;
                seen(got, format!("{speaks} {path} {name}")).await;
            }
            let query = format!("{path}?base_url={}&api_base={}", trap.url, trap.url);
            seen(gateway.post(&query, &body).send().await, query.clone()).await;
        }
        assert!(tried == 4 * (19 + 10 + 1) && served > tried / 2, "{served} of {tried}");
        assert_eq!(real.requests().len(), served, "each went where it belongs");
        for asked in real.requests() {
            let head = asked.head.to_ascii_lowercase();
            assert!(head.contains("authorization: bearer sk-ours"), "{head}");
            assert!(!head.contains(CANARY) && !head.contains(&trap.url), "{head}");
        }
    }
    assert_eq!(trap.requests().len(), 0);
}
