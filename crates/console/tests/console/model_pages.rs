//! Pages for models and prices, and the system page, on the real administration.

use admin::{Actor, ModelView};
use canon::Micros;
use http::StatusCode;
use serde_json::{Value, json};
use store::AccountRole;
use upstream::AttemptFailure;

use crate::admin_pages::{admin_fixture, last_audit, store_model, store_provider, version};
use crate::gateway::{ConsoleGateway, entry};

fn model(gateway: &ConsoleGateway, id: &str) -> Option<ModelView> {
    gateway.host.admin.model(&Actor::Operator, id).ok()
}

fn stored_settings(gateway: &ConsoleGateway, id: &str) -> Option<Value> {
    model(gateway, id)?.settings.map(Value::Object)
}

#[tokio::test]
async fn models_are_searched_and_their_lanes_and_prices_changed() {
    let (gateway, cookie) = admin_fixture().await;
    for name in ["other", "third"] {
        let settings = json!({ "base": format!("https://{name}.example"), "speaks": ["chat"] });
        store_provider(&gateway, name, settings, None).await;
    }
    let settings = json!({
        "lanes": [{ "lane": "acme/x", "weight": 3, "price": { "input": "1", "output": "2" } },
            "other/x"],
        "price": { "input": "3", "output": "15.5" }, "about": "kept",
    });
    store_model(&gateway, "house/x:1", settings).await;
    let page = gateway.get("/console/models?q=OTHER").cookie(&cookie).send().await;
    page.assert_contains("house/x:1");
    page.assert_lacks("demo-chat<");
    page.assert_contains("$3.00");
    page.assert_contains("$15.50");
    let none = gateway.get("/console/models?kind=embedding&q=house").cookie(&cookie).send().await;
    none.assert_contains("No such model");
    let at = "/console/models/edit?id=house%2Fx%3A1";
    let form = gateway.get(at).cookie(&cookie).send().await;
    form.assert_contains("acme/x 3\nother/x</textarea>");
    form.assert_contains("name=\"price.output\" type=\"text\" value=\"15.5\"");
    let tag = version(&form);
    let fields = [
        ("id", "house/x:1"),
        ("tag", tag.as_str()),
        ("lanes", "other/x\r\nacme/x 5\r\nthird/y"),
        ("kind", "chat"),
        ("price.input", "2.5"),
        ("price.output", "4"),
        ("price.per_image", "0.04"),
        ("price.further", r#"{"flex":{"rates":{"input":"1","output":"2"}}}"#),
    ];
    let got = gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/models?told=saved");
    let saved = json!({
        "lanes": [
            "other/x",
            { "lane": "acme/x", "price": { "input": "1", "output": "2" }, "weight": 5 },
            "third/y",
        ],
        "kind": "chat", "about": "kept",
        "price": { "input": "2.5", "output": "4", "per_image": "0.04",
            "flex": { "rates": { "input": "1", "output": "2" } } },
    });
    assert_eq!(stored_settings(&gateway, "house/x:1"), Some(saved.clone()));
    let (action, subject, _) = last_audit(&gateway).await;
    assert_eq!((action.as_str(), subject.as_str()), ("model.change", "house/x:1"));
    let late = gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    assert_eq!(late.status, StatusCode::PRECONDITION_FAILED);
    late.assert_contains("Somebody changed this meanwhile");

    for (name, value, beside) in [
        ("lanes", "acme/x often", "lanes"),
        ("lanes", "acme/x\nnobody/x", "lanes"),
        ("price.further", "[1]", "price.further"),
        ("price.input", "a lot", "price.input"),
        ("price.further", r#"{"long":[{"above":"many"}]}"#, "price.further"),
    ] {
        let wrong = [("id", "house/x:1"), (name, value), ("lanes", "acme/x")];
        let got = gateway.post("/console/models/edit", &wrong).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{name}: {}", got.body);
        got.assert_contains(&format!("id=\"{beside}-wrong\""));
        assert_eq!(stored_settings(&gateway, "house/x:1"), Some(saved.clone()), "{name}");
    }
    let free = [("id", "house/x:1"), ("lanes", "acme/y"), ("price.input", "0")];
    let got = gateway.post("/console/models/edit", &free).cookie(&cookie).send().await;
    got.assert_contains("Saved, but");
    got.assert_contains("cost nothing by acme/y");
    let tag = version(&gateway.get(at).cookie(&cookie).send().await);
    let stale = [("id", "house/x:1"), ("tag", "\"t\"")];
    let got = gateway.post("/console/models/remove", &stale).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::PRECONDITION_FAILED);
    let known = [("id", "house/x:1"), ("tag", tag.as_str())];
    let got = gateway.post("/console/models/remove", &known).cookie(&cookie).send().await;
    got.assert_redirect("/console/models?told=removed");
    assert!(model(&gateway, "house/x:1").is_none());
    assert_eq!(last_audit(&gateway).await.0, "model.delete");
}

#[tokio::test]
async fn directory_model_follows_directory_prices_until_changed() {
    let (gateway, cookie) = admin_fixture().await;
    let page = gateway.get("/console/models/edit?id=demo-chat").cookie(&cookie).send().await;
    page.assert_contains("built in");
    let inputs = page.body.split("name=\"price.").skip(1).filter_map(|input| {
        let (name, rest) = input.split_once("\" type=\"text\" value=\"")?;
        Some((format!("price.{name}"), rest.split('"').next()?.to_owned()))
    });
    let prices: Vec<(String, String)> = inputs.collect();
    assert_eq!(prices.len(), 20);
    let mut fields = vec![("id", "demo-chat"), ("lanes", "demo/demo-chat\nacme/x")];
    fields.extend(prices.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    let followed = json!({ "lanes": ["demo/demo-chat", "acme/x"] });
    assert_eq!(stored_settings(&gateway, "demo-chat"), Some(followed));
    let new = [("id", "house/new"), ("lanes", "acme/x"), ("price.input", "1")];
    let got = gateway.post("/console/models", &new).cookie(&cookie).send().await;
    got.assert_redirect("/console/models/edit?id=house%2Fnew");
    let settings = json!({ "lanes": ["acme/x"], "price": { "input": "1" } });
    assert_eq!(stored_settings(&gateway, "house/new"), Some(settings));
    assert_eq!(last_audit(&gateway).await.0, "model.create");
    gateway
        .get("/console/models?q=house")
        .cookie(&cookie)
        .send()
        .await
        .assert_contains("house/new");
    for id in ["", "demo-chat", "DEMO-CHAT", "a b"] {
        let got = gateway.post("/console/models", &[("id", id), ("lanes", "acme/x")]);
        let got = got.cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains("id=\"id-wrong\"");
    }
}

#[tokio::test]
async fn model_of_the_file_is_shown_and_not_changed() {
    let config = "[providers.written]\nbase = \"http://10.0.0.1\"\nspeaks = \"chat\"\n\
        [models.\"house/fixed\"]\nlanes = [\"written/x\"]\nprice = { input = \"3\", output = \"4\" }\n";
    let gateway = ConsoleGateway::with_config(config).await;
    gateway.account("olga", AccountRole::Owner).await;
    let cookie = gateway.sign_in("olga").await;
    let page = gateway.get("/console/models/edit?id=house/fixed").cookie(&cookie).send().await;
    page.assert_contains("[models.&quot;house/fixed&quot;]");
    page.assert_contains("written/x");
    page.assert_lacks("action=\"/console/models/edit\"");
    let fields = [("id", "house/fixed"), ("lanes", "demo/demo-chat")];
    let got = gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    got.assert_contains("is in the configuration file; change it there");
}

#[tokio::test]
async fn pages_of_a_large_gateway_are_small() {
    let mut config = String::new();
    for n in 0..10 {
        config +=
            &format!("[providers.acme-{n}]\nbase = \"http://10.0.0.{n}\"\nspeaks = \"chat\"\n");
    }
    for n in 0..2_000 {
        let lanes: Vec<String> =
            (0..3).map(|m| format!("\"acme-{}/a-model-with-a-name-{n}\"", (n + m) % 10)).collect();
        config +=
            &format!("[models.\"house/some-model-name-{n:04}\"]\nlanes = [{}]\n", lanes.join(","));
        config += "price = { input = \"3\", output = \"15\" }\n";
    }
    let gateway = ConsoleGateway::with_config(&config).await;
    gateway.account("olga", AccountRole::Owner).await;
    let cookie = gateway.sign_in("olga").await;
    let engine = &gateway.host.admin.engine;
    let route = &engine.config().routes["house/some-model-name-1990"];
    // Reported ahead of the clock, so that the state does not end before the page is drawn.
    let now = engine.monotonic_now() + Micros::from_secs(600);
    for _ in 0..5 {
        let mut attempt = route.lanes[0].slots[0].health.begin_attempt(now);
        attempt.failed(AttemptFailure::Down, now);
    }
    for path in ["/console/providers", "/console/providers/acme-0", "/console/models"] {
        let page = gateway.get(path).cookie(&cookie).send().await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.len() < 100_000, "{path}: {} bytes", page.body.len());
    }
    let page = gateway.get("/console/providers").cookie(&cookie).send().await;
    page.assert_contains("588 more lanes");
    page.assert_contains("cooling down");
    let all = gateway.host.admin.models(&Actor::Operator).unwrap();
    let pages = all.len().div_ceil(25);
    let last = format!("/console/models?page={pages}");
    let last = gateway.get(&last).cookie(&cookie).send().await;
    let name = all.iter().map(ModelView::id).max().unwrap();
    last.assert_contains(&format!("{name}<"));
    last.assert_lacks("rel=\"next\"");
}

#[tokio::test]
async fn system_page_shows_the_node_and_broken_entries() {
    let (gateway, cookie) = admin_fixture().await;
    store_model(&gateway, "house/x", json!({ "lanes": ["acme/x"] })).await;
    gateway
        .post("/console/providers/acme/remove", &[("force", "true")])
        .cookie(&cookie)
        .send()
        .await;
    let page = gateway.get("/console/system").cookie(&cookie).send().await;
    for seen in [
        "models.&quot;house/x&quot;: lanes: there is no provider `acme`",
        "SQLite",
        "answers",
        "node-a",
        "this one",
        "a folder",
        "open",
        "alive",
    ] {
        page.assert_contains(seen);
    }
    gateway.store.close().await;
    let away = gateway.get("/console/system").cookie(&cookie).send().await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE, "{}", away.body);
}

/// Order in which texts stand on a page. Each is there.
fn order_of<'a>(page: &str, texts: &[&'a str]) -> Vec<&'a str> {
    let mut places: Vec<(usize, &str)> =
        texts.iter().map(|text| (page.find(text).unwrap(), *text)).collect();
    places.sort_unstable();
    places.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn models_are_sorted_by_what_was_spent_and_shown_in_pages() {
    let (gateway, cookie) = admin_fixture().await;
    for n in 0..30 {
        let settings = json!({ "lanes": ["acme/x"], "aliases": [format!("short-{n}")] });
        store_model(&gateway, &format!("many/m{n:02}"), settings).await;
    }
    let owner = gateway.store.accounts().await.unwrap().remove(0);
    let key = gateway.key_of(&owner, "abc", "website").await;
    let calls = [
        entry(&key, "a", "many/m03", 2_000),
        // A call by another name of the same model.
        entry(&key, "b", "short-27", 3_000),
        entry(&key, "c", "many/m27", 4_000),
    ];
    gateway.store.post(&calls).await.unwrap();
    let show = async |query: &str| {
        let path = format!("/console/models?q=many&{query}");
        gateway.get(&path).cookie(&cookie).send().await
    };
    let first = show("").await;
    first.assert_contains("many/m24");
    first.assert_lacks("many/m25");
    first.assert_contains("Page 1 of 2");
    show("page=2").await.assert_contains("many/m29");
    show("page=9").await.assert_redirect("/console/models?q=many&page=2");
    for sort in ["spent", "calls"] {
        let page = show(&format!("sort={sort}")).await;
        let models = ["many/m27", "many/m03", "many/m00"];
        assert_eq!(order_of(&page.body, &models), models, "{sort}");
        page.assert_contains("title=\"$0.000007000\"");
    }
    let images = show("kind=image").await;
    images.assert_contains("No such model");
    assert_eq!(show("kind=audio").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn providers_are_searched_sorted_and_those_in_trouble_are_found() {
    let (gateway, cookie) = admin_fixture().await;
    for name in ["other", "third"] {
        let settings = json!({ "base": format!("https://{name}.example"), "speaks": ["chat"] });
        store_provider(&gateway, name, settings, Some("sk-1")).await;
    }
    store_model(&gateway, "house/x", json!({ "lanes": ["other/plain", "third/broken"] })).await;
    let owner = gateway.store.accounts().await.unwrap().remove(0);
    let key = gateway.key_of(&owner, "abc", "website").await;
    let mut call = entry(&key, "a", "house/x", 5_000);
    call.lane = "third/broken".into();
    gateway.store.post(&[call]).await.unwrap();
    let show = async |query: &str| {
        gateway.get(&format!("/console/providers?{query}")).cookie(&cookie).send().await
    };
    let card = |name: &str| format!("href=\"/console/providers/{name}\"");
    let [acme, other, third] = ["acme", "other", "third"].map(card);
    let all = show("").await;
    assert_eq!(order_of(&all.body, &[&third, &other, &acme]), [&acme, &other, &third]);
    let paid = show("sort=spent").await;
    assert_eq!(order_of(&paid.body, &[&acme, &third]), [&third, &acme]);
    paid.assert_contains("1 call and");
    let found = show("q=BROKEN").await;
    found.assert_contains(&third);
    found.assert_lacks(&other);
    let engine = &gateway.host.admin.engine;
    let lanes = &engine.config().routes["house/x"].lanes;
    let now = engine.monotonic_now() + Micros::from_secs(600);
    for _ in 0..5 {
        lanes[1].slots[0].health.begin_attempt(now).failed(AttemptFailure::TimedOut, now);
    }
    let trouble = show("state=trouble").await;
    trouble.assert_contains(&third);
    trouble.assert_lacks(&other);
    show("state=good").await.assert_lacks(&third);
    show("q=nothing-like-it").await.assert_contains("No such provider");
    assert_eq!(show("state=odd").await.status, StatusCode::BAD_REQUEST);
}
