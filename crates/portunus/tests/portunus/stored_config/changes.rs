//! Stored providers and models: create, change, remove, and the effect on callers.

use super::*;
use std::sync::Arc;
use testkit::AnswerStep;
use tokio::sync::Semaphore;

#[tokio::test]
async fn a_gateway_without_a_file_serves_what_was_configured_by_the_api() {
    let provider = good().await;
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &provider.url).await;
    let got = gateway.post(CHAT, &hello("m")).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-lane"), "house/up");
    assert_eq!(shown(&provider), [SECRET]);
    let told = get(&gateway, "/providers/house").await;
    assert_eq!(told["source"], "stored");
    assert_eq!(told["base"], provider.url);
    assert_eq!(told["speaks"], json!(["chat"]));
    assert_eq!(told["settings"], json!({ "speaks": "chat", "base": provider.url }));
    assert_eq!((&told["trouble"], &told["max_in_flight"]), (&Value::Null, &Value::Null));
    assert_eq!(told["credentials"][0]["name"], "main");
    assert_eq!(told["credentials"][0]["source"], "stored");
    assert!(told["credentials"][0]["added"].as_str().unwrap().contains('T'));
    assert_eq!(told["lanes"][0]["lane"], "house/up");
    let all = get(&gateway, "/providers").await;
    let sources: Vec<_> =
        all["data"].as_array().unwrap().iter().map(|p| (&p["id"], &p["source"])).collect();
    assert_eq!(
        sources,
        [(&json!("demo"), &json!("built-in")), (&json!("house"), &json!("stored"))]
    );
    let model = get(&gateway, "/models/m").await;
    assert_eq!((&model["source"], &model["lanes"]), (&json!("stored"), &json!(["house/up"])));
    let models = get(&gateway, "/models").await;
    let demo = models["data"].as_array().unwrap().iter().find(|m| m["id"] == "demo-chat").unwrap();
    assert_eq!((&demo["source"], &demo["settings"]), (&json!("built-in"), &Value::Null));
    let audit = get(&gateway, "/audit").await;
    let actions: Vec<_> = audit["data"].as_array().unwrap().iter().map(|a| &a["action"]).collect();
    assert_eq!(actions, ["model.create", "credential.add", "provider.create"]);
}

#[tokio::test]
async fn a_provider_that_moves_loses_its_credentials_and_they_are_never_sent_there() {
    let (here, there) = (good().await, good().await);
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &here.url).await;
    let same = json!({ "speaks": "chat", "base": here.url, "max_in_flight": 7 });
    let kept = put(&gateway, "/providers/house", same).await;
    assert_eq!((&kept["dropped_credentials"], &kept["max_in_flight"]), (&json!(0), &json!(7)));
    let shared = json!({ "speaks": "chat", "base": here.url, "objects": "shared" });
    assert_eq!(
        (&kept["objects"], &json!("shared")),
        (&json!("own"), &put(&gateway, "/providers/house", shared).await["objects"])
    );
    assert_eq!(kept["credentials"].as_array().unwrap().len(), 1);
    let moved = json!({ "speaks": "chat", "base": there.url });
    let told = put(&gateway, "/providers/house", moved.clone()).await;
    assert_eq!((&told["dropped_credentials"], &told["credentials"]), (&json!(1), &json!([])));
    let checked = admin(&gateway, Method::POST, "/providers/house/check", json!({})).await;
    assert_eq!(checked.status, 200);
    gateway.post(CHAT, &hello("m")).send().await;
    assert_eq!(shown(&there), ["", ""], "asked, with nothing to prove us");
    assert_eq!(shown(&here), [""; 0], "and never where it was");
    // With new credentials in the same change it works at once.
    let mut back = json!({ "speaks": "chat", "base": here.url });
    back["credentials"] = json!([{ "name": "new", "value": "sk-new-one" }]);
    let told = put(&gateway, "/providers/house", back).await;
    assert_eq!(told["credentials"][0]["name"], "new");
    assert_eq!(gateway.post(CHAT, &hello("m")).send().await.status, 200);
    assert_eq!(shown(&here), ["sk-new-one"]);
    // The credential is sent to the provider's further hosts as well.
    let more = json!({ "speaks": "chat", "base": here.url, "hosts": ["*.example.com"] });
    let told = put(&gateway, "/providers/house", more).await;
    assert_eq!(told["dropped_credentials"], 1);
    let mut back = json!({ "speaks": "chat", "base": here.url });
    back["credentials"] = json!([{ "name": "new", "value": "sk-new-one" }]);
    put(&gateway, "/providers/house", back).await;
    // A write to the database does not move it either: the sealed value is bound to its address.
    let row = gateway.app.store.configured().await.unwrap().entries;
    let mut house = row.into_iter().find(|entry| entry.id == "house").unwrap();
    house.settings = moved.to_string();
    let seen = gateway.app.store.configured_revision().await.unwrap();
    assert!(gateway.app.store.configure(seen, &[store::ConfigChange::Put(house)]).await.unwrap());
    until("the credential is told to be for another place", async || {
        let told = get(&gateway, "/providers/house").await;
        told["credentials"][0]["trouble"].as_str().is_some_and(|why| why.contains("address"))
    })
    .await;
    assert_eq!(gateway.post(CHAT, &hello("m")).send().await.status, 404, "no lane is left");
    assert_eq!(shown(&there).len(), 2);
    let health = get(&gateway, "/health").await;
    assert!(health["troubles"].to_string().contains("providers.house"), "{health}");
}

#[tokio::test]
async fn each_credential_stands_for_itself_and_can_be_tried_and_removed() {
    let refuse = testkit::reply(401, "application/json", "{\"error\":\"secret-in-the-body\"}");
    let provider = ScriptedProvider::start(vec![refuse, chat_reply("hi", 1, 1)]).await;
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &provider.url).await;
    let second = json!({ "name": "spare", "auth": { "bearer": "sk-spare" } });
    let path = "/providers/house/credentials";
    let spare = admin(&gateway, Method::POST, path, second).await;
    assert_eq!(spare.status, 201, "{}", spare.text());
    let checked = admin(&gateway, Method::POST, "/providers/house/check", json!({})).await;
    let found = checked.json()["data"].clone();
    assert_eq!((&found[0]["ok"], &found[0]["status"]), (&json!(false), &json!(401)));
    assert_eq!((&found[1]["ok"], &found[1]["status"]), (&json!(true), &json!(200)));
    assert_eq!(found[1]["credential"], spare.json()["id"]);
    assert_eq!(found[1]["name"], spare.json()["name"]);
    assert!(!checked.text().contains("secret-in-the-body"), "nothing of the answer is repeated");
    assert!(provider.requests().iter().all(|asked| asked.head.starts_with("GET /v1/models ")));
    assert_eq!(shown(&provider), [SECRET, "sk-spare"]);
    let first = found[0]["credential"].as_str().unwrap();
    let gone = admin(&gateway, Method::DELETE, &format!("{path}/{first}"), Value::Null).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    let twice = admin(&gateway, Method::DELETE, &format!("{path}/{first}"), Value::Null).await;
    assert_eq!(twice.status, 404);
    assert_eq!(gateway.post(CHAT, &hello("m")).send().await.status, 200);
    assert_eq!(shown(&provider).last().unwrap(), "sk-spare");
}

#[tokio::test]
async fn a_running_call_keeps_its_price_and_its_provider() {
    let gate = Arc::new(Semaphore::new(0));
    let mut slow = vec![AnswerStep::WaitFor(Arc::clone(&gate))];
    slow.extend(chat_reply("hi", 3, 5));
    let provider = ScriptedProvider::start(vec![slow]).await;
    let gateway = Arc::new(TestGateway::with_config(OPEN).await);
    furnish(&gateway, &provider.url).await;
    let before = get(&gateway, "/models/m").await["price_version"].clone();
    let caller = Arc::clone(&gateway);
    let call = tokio::spawn(async move { caller.post(CHAT, &hello("m")).send().await });
    until("the provider is requests", async || !provider.requests().is_empty()).await;
    let dear = json!({ "lanes": ["house/up"], "price": { "input": "9.00", "output": "9.00" } });
    let changed = put(&gateway, "/models/m", dear).await;
    assert_ne!(changed["price_version"], before);
    let forced = admin(&gateway, Method::DELETE, "/providers/house?force=true", Value::Null).await;
    assert_eq!(forced.status, 200, "{}", forced.text());
    gate.add_permits(1);
    let got = call.await.unwrap();
    assert_eq!(got.status, 200, "{}", got.text());
    gateway.wait_until_settled().await;
    let path = format!("/v1/usage/{}", got.header("x-request-id"));
    let receipt = gateway.get(&path).send().await.json();
    assert_eq!(receipt["price_version"], before, "{receipt}");
    assert_eq!(receipt["cost_usd"], "0.000013000", "{receipt}");
}

#[tokio::test]
async fn a_provider_in_use_is_removed_by_force_alone_and_a_model_keeps_its_other_lanes() {
    let (one, two) = (good().await, good().await);
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &one.url).await;
    put(&gateway, "/providers/spare", json!({ "speaks": "chat", "base": two.url })).await;
    put(&gateway, "/models/vendor%2Fboth:1", json!({ "lanes": ["house/up", "spare/up"] })).await;
    assert_eq!(get(&gateway, "/models/vendor/both:1").await["id"], "vendor/both:1");
    let refused = admin(&gateway, Method::DELETE, "/providers/house", Value::Null).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert_eq!(refused.json()["code"], "conflict");
    assert!(refused.text().contains("serves m;"), "only what it alone serves: {}", refused.text());
    let gone = admin(&gateway, Method::DELETE, "/providers/house?force=true", Value::Null).await;
    assert_eq!(gone.json()["models_left_alone"], json!(["m"]), "{}", gone.text());
    let left = get(&gateway, "/models/m").await;
    assert_eq!(left["source"], "stored");
    assert!(left["trouble"].as_str().unwrap().contains("house"), "{left}");
    let both = get(&gateway, "/models/vendor/both:1").await;
    assert_eq!(both["lanes"], json!(["spare/up"]));
    assert!(both["trouble"].as_str().unwrap().contains("house/up"), "{both}");
    assert_eq!(gateway.post(CHAT, &hello("vendor/both:1")).send().await.status, 200);
    let credentials = gateway.app.store.configured().await.unwrap().credentials;
    assert!(credentials.is_empty(), "its credentials went with it");
    let gone = admin(&gateway, Method::DELETE, "/models/m", Value::Null).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(admin(&gateway, Method::GET, "/models/m", Value::Null).await.status, 404);
}

#[tokio::test]
async fn health_outlives_a_change_and_a_change_of_what_was_changed_is_refused() {
    let busy = testkit::reply(404, "application/json", "{}");
    let (gone, alive) = (ScriptedProvider::start(vec![busy]).await, good().await);
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &gone.url).await;
    put(&gateway, "/providers/spare", json!({ "speaks": "chat", "base": alive.url })).await;
    put(&gateway, "/models/m", json!({ "lanes": ["house/up", "spare/up"] })).await;
    for round in 0..3 {
        let got = gateway.post(CHAT, &hello("m")).send().await;
        assert_eq!(got.header("x-portunus-lane"), "spare/up");
        put(&gateway, &format!("/models/n{round}"), json!({ "lanes": ["house/up"] })).await;
    }
    assert_eq!(gone.requests().len(), 1, "it rests, whatever else is configured");
    let seen = admin(&gateway, Method::GET, "/providers/spare", Value::Null).await;
    let tag = seen.header("etag").to_owned();
    let change = |most: u32| {
        let body = json!({ "speaks": "chat", "base": alive.url, "max_in_flight": most });
        let ask = gateway.request(Method::PUT, "/api/admin/providers/spare");
        ask.header("if-match", &tag).body(body.to_string()).send()
    };
    // Calls in between change its health, not its configuration.
    assert_eq!(gateway.post(CHAT, &hello("m")).send().await.status, 200);
    assert_eq!(change(5).await.status, 200);
    assert_eq!(change(6).await.status, 412);
}

#[tokio::test]
async fn a_price_of_nothing_at_a_paid_provider_is_warned_of_and_noted() {
    let provider = good().await;
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &provider.url).await;
    let free = json!({ "lanes": ["house/up"], "price": { "input": "0", "output": "0" } });
    let told = put(&gateway, "/models/m", free).await;
    assert_eq!(told["warnings"].as_array().unwrap().len(), 1, "{told}");
    let audit = get(&gateway, "/audit").await["data"][0].clone();
    assert!(audit["detail"].as_str().unwrap().contains("price is 0"), "{audit}");
    let own = json!({ "speaks": "chat", "base": provider.url });
    put(&gateway, "/providers/local", own).await;
    let told = put(&gateway, "/models/n", json!({ "lanes": ["local/up"] })).await;
    assert_eq!(told["warnings"], json!([]), "nobody is paid there");
}

#[tokio::test]
async fn the_directory_is_there_to_choose_from() {
    let gateway = TestGateway::start().await;
    let known = get(&gateway, "/directory").await;
    let one = |id: &str| {
        known["data"].as_array().unwrap().iter().find(|one| one["id"] == id).cloned().unwrap()
    };
    let openai = one("openai");
    assert_eq!(openai["auth"], "bearer");
    assert!(openai["models"].as_u64().unwrap() > 0 && openai["name"] == "OpenAI");
    assert_eq!(one("azure")["fill"], json!(["endpoint"]));
    // A directory provider needs only its key.
    let made = put(&gateway, "/providers/openai", json!({})).await;
    assert_eq!(made["trouble"], "it has no credential yet");
    let key = json!({ "name": "main", "value": SECRET });
    let given = admin(&gateway, Method::POST, "/providers/openai/credentials", key).await;
    assert_eq!(given.status, 201, "{}", given.text());
    let told = get(&gateway, "/providers/openai").await;
    assert_eq!((&told["trouble"], &told["of"]), (&Value::Null, &json!("openai")));
    assert!(gateway.app.config().catalog.iter().any(|model| model.provider == "openai"));
}
