//! Keys and sessions at every route: who is admitted, and the refusals.

use canon::Micros;
use http::Method;
use serde_json::{Value, json};
use testkit::{TestGateway, until};

use crate::money::receipt;

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] })
}

#[tokio::test]
async fn every_keyed_address_refuses_a_missing_or_wrong_key() {
    let gateway = TestGateway::start().await;
    let keyed = portunus::route_summaries().into_iter().filter(|(_, _, keyed)| *keyed);
    let keyed: Vec<_> = keyed.map(|(method, path, _)| (method, filled(path))).collect();
    assert!(keyed.len() > 20);
    for (method, path) in &keyed {
        for wrong in ["", "wrong", "sk-pt-abcdefghijkl-x", "sk-proj-123"] {
            let ask = gateway.request(method.clone(), path);
            let ask = if wrong.is_empty() { ask.without_key() } else { ask.key(wrong) };
            let got = ask.send().await;
            assert_eq!(got.status, 401, "{method} {path} with `{wrong}`");
            assert!(got.header("x-request-id").starts_with("req_"));
            assert_eq!(got.header("x-should-retry"), "false", "some clients retry even a 401");
            let told = got.json();
            let message = told.pointer("/error/message").or_else(|| told.get("message"));
            assert!(message.is_some_and(Value::is_string), "{}", got.text());
        }
    }
}

/// A path with something in place of its parameters.
fn filled(path: &str) -> String {
    let rest = path.replace("{*rest}", "demo-chat:generateContent");
    let rest = rest.replace("{id}", "x").replace("{request_id}", "req_1");
    rest.replace("{account_id}", "y").replace("{server}", "x")
}

#[tokio::test]
async fn every_page_behind_a_session_sends_a_stranger_to_sign_in() {
    let gateway = TestGateway::start().await;
    for route in console::routes() {
        let path = route
            .path
            .replace("{id}", "x")
            .replace("{member}", "x")
            .replace("{token}", "x")
            .replace("{*id}", "x")
            .replace("{*path}", "v1/key");
        let got = gateway.request(route.method.clone(), &path).without_key().send().await;
        match route.guard {
            console::Guard::Session | console::Guard::Proof => {
                assert_eq!(got.status, 303, "{path}");
                let place = got.header("location");
                assert!(place == "/login" || place.starts_with("/login?next="), "{path} {place}");
            }
            console::Guard::Setup => assert_eq!(got.status, 404, "{path}"),
            // The short address that programs show.
            console::Guard::Public if path == "/device" => {
                assert_eq!(got.header("location"), "/console/device");
            }
            console::Guard::Public => assert_ne!(got.status, 303, "{path}"),
        }
    }
}

#[tokio::test]
async fn a_key_is_taken_from_each_of_its_carriers_but_not_from_two() {
    let gateway = TestGateway::start().await;
    let key = gateway.key.clone();
    for header in ["x-api-key", "x-vendor-api-key", "x-goog-api-key", "x-portunus-token"] {
        let got = gateway.get("/v1/key").without_key().header(header, &key).send().await;
        assert_eq!(got.status, 200, "{header}");
    }
    let both = gateway.get("/v1/key").header("x-api-key", &key).send().await;
    assert_eq!(both.status, 200, "the same key twice is one key");
    let two = gateway.get("/v1/key").header("x-api-key", "another").send().await;
    assert_eq!(two.status, 401);
    for wrong in [format!("{key} "), format!("{key},x"), format!("Basic {key}"), String::new()] {
        let got = gateway.get("/v1/key").header("authorization", &wrong).send().await;
        assert_eq!(got.status, 401, "`{wrong}`");
    }
    let got = gateway.get("/v1/key").header("authorization", &format!("bearer {key}")).send().await;
    assert_eq!(got.status, 200);
    let query = gateway.get(&format!("/v1/key?key={key}")).without_key().send().await;
    assert_eq!(query.status, 401, "the query carries keys on native addresses only");
    let shared = gateway.get(&format!("/v1/models?key={key}")).without_key().send().await;
    assert!(shared.json()["models"].is_array(), "a list as its clients read it: {}", shared.text());
}

#[tokio::test]
async fn a_revoked_key_is_refused_within_seconds() {
    let gateway = TestGateway::start().await;
    assert_eq!(gateway.get("/v1/key").send().await.status, 200);
    let id = gateway.key.split('-').nth(2).unwrap().to_owned();
    let now = gateway.app.clock.now();
    assert!(gateway.app.store.revoke_key(&id, now).await.unwrap());
    until("the key is refused", async || gateway.get("/v1/key").send().await.status == 401).await;
}

#[tokio::test]
async fn a_capped_key_is_stopped_before_it_passes_its_cap() {
    let gateway = TestGateway::start().await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask = testkit::NewKey {
        name: "small".to_owned(),
        cap: Some(canon::Money::from_nanos(50_000)),
        models: vec!["demo-chat".to_owned()],
        expires: None,
    };
    let (record, key) =
        ask.into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    let other = json!({ "model": "demo-echo", "messages": [{ "role": "user", "content": "x" }] });
    assert_eq!(gateway.post(CHAT, &other).key(&key).send().await.status, 403);
    let mut refused = None;
    for _ in 0..40 {
        let got = gateway.post(CHAT, &hello()).key(&key).send().await;
        if got.status == 429 {
            refused = Some(got);
            break;
        }
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let refused = refused.expect("the cap is reached");
    assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
    assert_eq!(refused.header("x-should-retry"), "false");
    let standing = gateway.get("/v1/key").key(&key).send().await.json();
    assert!(standing["spent_usd"].as_str().unwrap() <= standing["cap_usd"].as_str().unwrap());
}

#[tokio::test]
async fn bad_bodies_are_refused_with_the_field_named() {
    let gateway = TestGateway::start().await;
    let cases: [(&[u8], &str); 5] = [
        (b"{not json", ""),
        (b"", ""),
        (b"{}", "model"),
        (br#"{"model":"demo-chat"}"#, "messages"),
        (br#"{"model":"demo-chat","messages":"nope"}"#, "messages"),
    ];
    for (body, field) in cases {
        let got = gateway.post(CHAT, &Value::Null).body(body).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert_eq!(got.json()["error"]["param"].as_str().unwrap_or_default(), field);
    }
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"]
    {
        let got = gateway.post(CHAT, &hello()).header("content-type", kind).send().await;
        assert_eq!(got.status, 415, "{kind}");
    }
    let unknown =
        json!({ "model": "no-such-model", "messages": [{ "role": "user", "content": "x" }] });
    assert_eq!(gateway.post(CHAT, &unknown).send().await.status, 404);
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.engine.funds.open_calls.running_count(), 0);
}

#[tokio::test]
async fn a_text_model_is_no_image_model() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-chat", "prompt": "a red square" });
    let got = gateway.post("/v1/images/generations", &ask).send().await;
    assert_eq!(
        (got.status.as_u16(), &got.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    assert!(got.text().contains("/v1/chat/completions"), "{}", got.text());
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_with_the_limit_named() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"1KiB\"\n").await;
    let long = json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "x".repeat(2000) }] });
    let got = gateway.post(CHAT, &long).send().await;
    assert_eq!(got.status, 413);
    assert!(got.text().contains("1024"), "{}", got.text());
    assert_eq!(gateway.post(CHAT, &hello()).send().await.status, 200);
}

#[tokio::test]
async fn wrong_methods_and_paths_are_told_in_json() {
    let gateway = TestGateway::start().await;
    let got = gateway.get(CHAT).send().await;
    assert_eq!((got.status.as_u16(), got.header("allow")), (405, "POST"));
    assert!(got.json()["error"]["message"].is_string());
    let got = gateway.request(Method::DELETE, "/api/models").send().await;
    assert_eq!(got.status, 405);
    assert_eq!(got.json()["success"], false);
    for path in [
        "/v1/chat/completions/",
        "/v1/chat/completions/x",
        "/chat/completions",
        "//v1/chat/completions",
        "/V1/chat/completions",
        "/v1/no/such",
    ] {
        let got = gateway.post(path, &hello()).send().await;
        assert_eq!(got.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_page_without_the_method_is_not_found_in_json_unless_a_page_is_wanted() {
    let gateway = TestGateway::start().await;
    for path in ["/", "/models", "/models/demo-chat", "/docs", "/console"] {
        for accept in ["*/*", "application/json"] {
            let got = gateway.post(path, &hello()).header("accept", accept).send().await;
            assert_eq!(got.status, 404, "{path}");
            assert_eq!(got.header("content-type"), "application/json", "{path}");
            assert!(got.json()["error"]["message"].is_string(), "{path}: {}", got.text());
        }
        let page = gateway.post(path, &hello()).header("accept", "text/html,*/*;q=0.8");
        let page = page.send().await;
        assert_eq!(page.status, 405, "{path}");
        assert!(page.header("content-type").starts_with("text/html"), "{path}");
        assert!(page.header("allow").contains("GET"), "{path}");
    }
}

#[tokio::test]
async fn a_wrong_base_address_is_told_in_the_callers_format_with_the_right_path() {
    let gateway = TestGateway::start().await;
    let native = "/models/demo-native:generateContent";
    for (path, meant) in [
        ("/chat/completions", "/v1/chat/completions"),
        ("/responses", "/v1/responses"),
        ("/embeddings", "/v1/embeddings"),
        ("/images/generations", "/v1/images/generations"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
    ] {
        let got = gateway.post(path, &hello()).send().await;
        assert_eq!((got.status.as_u16(), got.header("content-type")), (404, "application/json"));
        let error = got.json()["error"].clone();
        assert_eq!(error["type"], "invalid_request_error", "{path}: {error}");
        let hint = format!("check the base address, {meant} is meant");
        assert!(error["message"].as_str().unwrap().ends_with(&hint), "{path}: {error}");
    }
    for path in ["/messages", "/messages/count_tokens", "/v1/v1/messages"] {
        let got = gateway.post(path, &hello()).send().await.json();
        assert_eq!(
            (&got["type"], &got["error"]["type"]),
            (&json!("error"), &json!("not_found_error"))
        );
        assert!(got["error"]["message"].as_str().unwrap().contains("/v1/messages"), "{got}");
    }
    for path in [native, "/cachedContents", "/v1/v1beta/models/x:countTokens"] {
        let got = gateway.post(path, &hello()).send().await.json();
        assert_eq!(got["error"]["status"], "NOT_FOUND", "{path}: {got}");
        assert!(got["error"]["message"].as_str().unwrap().contains("/v1beta/"), "{path}: {got}");
    }
    // The list of models has the path of a page.
    let list = gateway.get("/models").header("accept", "application/json").send().await;
    assert_eq!(list.status, 404, "{}", list.text());
    assert!(list.text().contains("/v1/models is meant"), "{}", list.text());
    for accept in ["*/*", "text/html"] {
        let page = gateway.get("/models").header("accept", accept).send().await;
        assert!(page.header("content-type").starts_with("text/html"), "{accept}");
    }
}

#[tokio::test]
async fn a_native_path_names_models_with_odd_ids() {
    let ids = ["models/foo", "models/models/x", "org/name:tag", "tunedModels/y"];
    let model = |id: &&str| format!("[models.\"{id}\"]\nlanes = [\"demo/demo-native\"]\n");
    let config: String = ids.iter().map(model).collect();
    let gateway = TestGateway::with_config(&config).await;
    let body = json!({ "contents": [{ "parts": [{ "text": "Hello!" }] }] });
    let asked = async |path: &str| gateway.post(path, &body).send().await;
    for id in ids {
        let page = gateway.get(&format!("/models/{id}")).send().await.text();
        let address = format!("/v1beta/models/{id}:generateContent");
        assert_eq!(page.contains(&address), !id.starts_with("tuned"), "{id}");
        let escaped = id.replace('/', "%2F").replace(':', "%3A");
        for path in [address, format!("/v1beta/models/{escaped}:generateContent")] {
            let got = asked(&path).await;
            assert_eq!(got.status, 200, "{path}: {}", got.text());
            assert_eq!(receipt(&gateway, &got).await["model"], id, "{path}");
        }
    }
    // Official clients take such an id for the whole name of the model.
    let got = asked("/v1beta/models/foo:generateContent").await;
    assert_eq!(receipt(&gateway, &got).await["model"], "models/foo", "{}", got.text());
}

#[tokio::test]
async fn models_are_listed_in_the_callers_shape() {
    let gateway = TestGateway::start().await;
    let chat = gateway.get("/v1/models").send().await.json();
    assert_eq!(chat["object"], "list");
    let first = &chat["data"][0];
    assert!(
        first["created"].is_i64() && first["owned_by"].is_string() && first["object"] == "model"
    );
    let messages = gateway.get("/v1/models").header("anthropic-version", "2023-06-01").send().await;
    assert_eq!(messages.json()["data"][0]["type"], "model");
    let key = gateway.key.clone();
    let native =
        gateway.get("/v1/models").without_key().header("x-goog-api-key", &key).send().await;
    assert!(native.json()["models"][0]["name"].as_str().unwrap().starts_with("models/"));
    let vendor =
        |path: &str, key: &str| gateway.get(path).without_key().header("x-vendor-api-key", key);
    assert_eq!(vendor("/v1/models", &key).send().await.json()["object"], "list");
    assert_eq!(vendor("/v1/models/demo-chat", &key).send().await.json()["id"], "demo-chat");
    let refused = vendor("/v1/models", "wrong").send().await;
    assert_eq!(refused.json()["error"]["code"], "invalid_api_key", "{}", refused.text());
    let native = vendor("/v1beta/models", &key).send().await;
    assert!(native.json()["models"].is_array(), "{}", native.text());
    assert_eq!(gateway.get("/v1/models/demo-chat").send().await.json()["id"], "demo-chat");
    assert_eq!(gateway.get("/v1/models/nope").send().await.status, 404);
}

#[tokio::test]
async fn the_catalog_is_public_and_exactly_of_the_documented_shape() {
    let gateway = TestGateway::start().await;
    let got = gateway.get("/api/models").without_key().send().await;
    assert_eq!(got.status, 200);
    let list = got.json();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&list), ["success", "page", "page_size", "total", "data"]);
    let model = &list["data"][0];
    assert_eq!(
        keys(model),
        [
            "id",
            "provider",
            "provider_id",
            "aliases",
            "model_type",
            "features",
            "capabilities",
            "pricing",
            "api_doc_url",
            "released",
            "retires"
        ]
    );
    assert_eq!(
        keys(&model["pricing"]),
        ["currency", "input", "output", "per_request", "per_second", "details"]
    );
    let total = list["total"].as_u64().unwrap();
    let mut seen = Vec::new();
    for page in 1..=total {
        let one =
            gateway.get(&format!("/api/models?page_size=1&page={page}")).without_key().send().await;
        seen.push(one.json()["data"][0]["id"].as_str().unwrap().to_owned());
    }
    seen.dedup();
    assert_eq!(seen.len() as u64, total);
    for bad in ["page=0", "page=x", "page_size=0", "page_size=-1", "page_size=101"] {
        let got = gateway.get(&format!("/api/models?{bad}")).send().await;
        assert_eq!((got.status.as_u16(), &got.json()["success"]), (400, &json!(false)), "{bad}");
        let (name, _) = bad.split_once('=').unwrap();
        assert!(got.text().contains(&format!("`{name}`")), "{}", got.text());
    }
    let last = gateway.get("/api/models?page=1000000").send().await;
    assert_eq!((last.status.as_u16(), &last.json()["data"]), (200, &json!([])));
    let found = gateway.get("/api/models?q=ECHO").send().await.json();
    assert_eq!((&found["total"], &found["data"][0]["id"]), (&json!(1), &json!("demo-echo")));
}

/// More models than a page holds: a caller that knows of no pages still gets them all.
#[tokio::test]
async fn the_catalog_without_parameters_is_whole() {
    let mut config = String::new();
    for number in 0..120 {
        config += &format!("[models.\"house/{number}\"]\nlanes = [\"demo/demo-chat\"]\n");
    }
    let gateway = TestGateway::with_config(&config).await;
    let size = |list: &Value| list["data"].as_array().unwrap().len() as u64;
    let whole = gateway.get("/api/models").without_key().send().await.json();
    let total = whole["total"].as_u64().unwrap();
    assert!(total > 120, "{total}");
    assert_eq!((size(&whole), whole["page_size"].as_u64()), (total, Some(total)));
    let found = gateway.get("/api/models?q=house/").without_key().send().await.json();
    assert_eq!((size(&found), found["total"].as_u64()), (120, Some(120)));
    let first = gateway.get("/api/models?page=1").without_key().send().await.json();
    assert_eq!((size(&first), first["page_size"].as_u64()), (100, Some(100)));
    let second = gateway.get("/api/models?page=2").without_key().send().await.json();
    assert_eq!(size(&second), total - 100);
}

#[tokio::test]
async fn a_receipt_is_its_accounts_alone() {
    let gateway = TestGateway::start().await;
    let got = gateway.post(CHAT, &hello()).send().await;
    let path = format!("/v1/usage/{}", got.header("x-request-id"));
    let receipt = gateway.get(&path).send().await;
    assert_eq!(receipt.status, 200);
    let told = receipt.json();
    for field in ["tokens", "price_version", "lane", "attempts", "losses", "cost_usd", "outcome"] {
        assert!(told.get(field).is_some_and(|value| !value.is_null()), "{field}: {told}");
    }
    assert_eq!((&told["outcome"], &told["estimated"]), (&json!("done"), &json!(false)));
    let other = store::Account {
        id: "another".to_owned(),
        username: "another".to_owned(),
        email: None,
        role: store::AccountRole::Member,
        password_hash: None,
        disabled: false,
        created: Micros::new(1),
        changed: Micros::new(1),
    };
    gateway.app.store.add_account(&other).await.unwrap();
    let new = testkit::NewKey { name: "o".to_owned(), cap: None, models: vec![], expires: None };
    let (record, key) =
        new.into_record(&other.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    assert_eq!(gateway.get(&path).key(&key).send().await.status, 404, "while it is in memory");
    gateway.wait_until_settled().await;
    assert_eq!(gateway.get(&path).key(&key).send().await.status, 404, "and in the store");
    assert_eq!(gateway.get(&path).send().await.status, 200);
}

#[tokio::test]
async fn the_api_is_described_for_machines_and_for_people() {
    let gateway = TestGateway::start().await;
    let got = gateway.get("/openapi.json").without_key().send().await;
    assert_eq!(got.status, 200);
    let described = got.json();
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described["servers"][0]["url"], gateway.app.config().public_url.as_str());
    let page = gateway.get("/docs").without_key().send().await;
    assert_eq!(page.status, 200);
    assert!(page.text().len() < 100_000, "the page has {} bytes", page.text().len());
    for path in described["paths"].as_object().unwrap().keys() {
        assert!(page.text().contains(path.as_str()), "{path} is not on the page");
    }
}
