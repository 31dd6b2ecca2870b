//! Pages for providers, models and prices: JSON sent, and errors beside their fields.

use http::StatusCode;
use serde_json::{Value, json};
use store::AccountRole;

use crate::fake_admin_api::RecordedRequest;
use crate::gateway::ConsoleGateway;

/// A gateway with a provider of each source, and a signed-in owner.
async fn admin_fixture() -> (ConsoleGateway, String) {
    let gateway = ConsoleGateway::new().await;
    gateway.account("olga", AccountRole::Owner).await;
    let lane = |standing: &str| {
        json!({
            "lane": "acme/x", "credential": "team", "standing": standing, "failures": 3,
            "pending": 2, "latency_ms": 340, "last_failure": "timeout",
        })
    };
    let acme = json!({
        "id": "acme", "source": "stored", "of": "acme", "speaks": ["messages"],
        "base": "https://acme.example", "max_in_flight": 9, "trouble": null,
        "settings": {
            "base": "https://acme.example", "speaks": ["messages"], "max_in_flight": 9,
            "paths": { "chat": "/x" }, "timeouts": { "gap": "9s" },
        },
        "credentials": [{
            "id": "c1", "name": "team <b>", "source": "stored",
            "added": "2026-03-12T10:00:00Z", "trouble": "it was given for another address",
        }],
        "lanes": [lane("good"), lane("cooling_down"), lane("busy")],
    });
    let file = json!({
        "id": "written", "source": "file", "speaks": ["chat"], "base": "http://10.0.0.1",
        "settings": null, "credentials": [], "lanes": [],
    });
    let admin_api = &gateway.host.admin_api;
    admin_api.set_reply("GET /providers", 200, json!({ "data": [acme, file] }));
    admin_api.set_reply("GET /providers/acme", 200, acme);
    admin_api.set_reply("GET /providers/written", 200, file);
    let known = json!({
        "id": "openai", "name": "OpenAI", "speaks": ["chat"], "base": "https://api.openai.com",
        "fill": [], "auth": "bearer", "models": 12,
    });
    admin_api.set_reply("GET /directory", 200, json!({ "data": [known] }));
    let cookie = gateway.sign_in("olga").await;
    (gateway, cookie)
}

/// The only recorded change.
fn change(gateway: &ConsoleGateway) -> (String, String, Value) {
    let mut changes = gateway.host.admin_api.recorded_changes();
    assert_eq!(changes.len(), 1, "{changes:?}");
    let RecordedRequest { who, what, tag, body } = changes.remove(0);
    assert_eq!(who, "olga");
    (what, tag, body)
}

#[tokio::test]
async fn providers_are_listed_with_lane_states() {
    let (gateway, cookie) = admin_fixture().await;
    let page = gateway.get("/console/providers").cookie(&cookie).send().await;
    for seen in [
        "acme",
        "in the console",
        "in the file",
        "340 ms",
        "timeout",
        "3 in a row",
        "health good",
        "health bad",
        "cooling down",
        "busy",
        "1 credential",
        "No model is served",
    ] {
        page.assert_contains(seen);
    }
    let own = gateway.get("/console/providers/acme").cookie(&cookie).send().await;
    own.assert_contains("team &lt;b&gt;");
    own.assert_contains("it was given for another address");
    own.assert_contains("added 2026-03-12");
    own.assert_contains("value=\"https://acme.example\"");
    own.assert_contains("value=\"9s\"");
    let fixed = gateway.get("/console/providers/written").cookie(&cookie).send().await;
    fixed.assert_contains("[providers.written]");
    fixed.assert_lacks("action=\"/console/providers/written\"");
    let none = gateway.get("/console/providers/other").cookie(&cookie).send().await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    gateway.account("mia", AccountRole::Member).await;
    let mia = gateway.sign_in("mia").await;
    for path in ["", "/new", "/acme"] {
        let path = format!("/console/providers{path}");
        let got = gateway.get(&path).cookie(&mia).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn provider_form_keeps_unknown_settings() {
    let (gateway, cookie) = admin_fixture().await;
    let fields = [
        ("tag", "\"a tag\""),
        ("base", "https://new.example"),
        ("speaks", "chat"),
        ("speaks", "images"),
        ("max_in_flight", ""),
        ("timeouts.gap", "7s"),
        ("fill", "region = eu-1"),
    ];
    let answer = json!({ "dropped_credentials": 1 });
    gateway.host.admin_api.set_reply("PUT /providers/acme", 200, answer);
    let got = gateway.post("/console/providers/acme", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/providers/acme?told=dropped");
    let body = json!({
        "base": "https://new.example", "speaks": ["chat", "images"], "paths": { "chat": "/x" },
        "timeouts": { "gap": "7s" }, "fill": { "region": "eu-1" },
    });
    assert_eq!(change(&gateway), ("PUT /providers/acme".to_owned(), "\"a tag\"".to_owned(), body));
}

#[tokio::test]
async fn provider_errors_are_shown_beside_fields() {
    let (gateway, cookie) = admin_fixture().await;
    let admin_api = &gateway.host.admin_api;
    for (field, shown, status) in [
        ("base", "id=\"base-wrong\"", 400),
        ("timeouts.gap", "id=\"timeouts.gap-wrong\"", 400),
        ("auth", "role=\"alert\">`auth`: so not", 400),
        ("", "Somebody changed this meanwhile", 412),
    ] {
        let say =
            json!({ "success": false, "message": format!("`{field}`: so not"), "field": field });
        admin_api.set_reply("PUT /providers/acme", status, say);
        let fields = [("base", "ftp://entered.example"), ("timeouts.gap", "soon")];
        let got = gateway.post("/console/providers/acme", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, status, "{field}");
        got.assert_contains(shown);
        got.assert_contains("value=\"ftp://entered.example\"");
    }
    let before = admin_api.recorded_changes().len();
    for (name, value) in [("max_in_flight", "many"), ("fill", "region")] {
        let got = gateway.post("/console/providers/acme", &[(name, value)]).cookie(&cookie);
        let got = got.send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains(&format!("id=\"{name}-wrong\""));
    }
    assert_eq!(admin_api.recorded_changes().len(), before, "nothing was sent");
}

#[tokio::test]
async fn directory_provider_is_added_with_its_credential() {
    let (gateway, cookie) = admin_fixture().await;
    let choice = gateway.get("/console/providers/new").cookie(&cookie).send().await;
    choice.assert_contains("<option value=\"openai\">OpenAI</option>");
    choice.assert_contains("Any compatible server");
    let form = gateway.get("/console/providers/new?like=openai").cookie(&cookie).send().await;
    form.assert_contains("Add OpenAI");
    form.assert_contains("autocomplete=\"off\"");
    let fields = [("like", "openai"), ("id", "openai"), ("value", "sk-secret"), ("base", "")];
    let got = gateway.post("/console/providers", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/providers/openai?told=added");
    let (what, _, body) = change(&gateway);
    assert_eq!(what, "PUT /providers/openai");
    assert_eq!(body, json!({ "credentials": [{ "name": "default", "value": "sk-secret" }] }));
    let other = [("like", "openai"), ("id", "second"), ("value", "")];
    gateway.post("/console/providers", &other).cookie(&cookie).send().await;
    assert_eq!(gateway.host.admin_api.recorded_changes()[1].body, json!({ "like": "openai" }));
    for id in ["acme", ""] {
        let fields = [("like", ""), ("id", id), ("base", "https://x.example"), ("value", "sk-new")];
        let got = gateway.post("/console/providers", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{id}");
        got.assert_contains("id=\"id-wrong\"");
        got.assert_lacks("sk-new");
    }
    let got = gateway.get("/console/providers/new?like=nobody").cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn credentials_are_added_checked_and_removed_and_never_shown() {
    let (gateway, cookie) = admin_fixture().await;
    let admin_api = &gateway.host.admin_api;
    let at = "/console/providers/acme";
    let add = format!("{at}/credentials");
    let fields = [("name", "second"), ("value", " sk-hidden ")];
    let got = gateway.post(&add, &fields).cookie(&cookie).send().await;
    got.assert_redirect(&format!("{at}?told=credential"));
    let (what, _, body) = change(&gateway);
    assert_eq!(what, "POST /providers/acme/credentials");
    assert_eq!(body, json!({ "name": "second", "value": "sk-hidden" }));
    let keys = r#"{"sigv4": {"access_key": "a", "secret_key": "b"}}"#;
    gateway.post(&add, &[("value", keys)]).cookie(&cookie).send().await;
    let sent = admin_api.recorded_changes().pop().unwrap().body;
    let auth = json!({ "sigv4": { "access_key": "a", "secret_key": "b" } });
    assert_eq!(sent, json!({ "name": "default", "auth": auth }));
    let no = json!({ "message": "`value`: is no key", "field": "value" });
    admin_api.set_reply("POST /providers/acme/credentials", 400, no);
    let got = gateway.post(&add, &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    got.assert_contains("id=\"value-wrong\"");
    got.assert_contains("value=\"second\"");
    got.assert_lacks("sk-hidden");
    let results = json!({ "data": [
        { "credential": "c1", "name": "team", "ok": true, "status": 200, "took_ms": 81, "say": "12 models" },
        { "credential": "c2", "name": "old", "ok": false, "status": 401, "took_ms": 9, "say": "refused" },
    ] });
    admin_api.set_reply("POST /providers/acme/check", 200, results);
    let got = gateway.post(&format!("{at}/check"), &[]).cookie(&cookie).send().await;
    for seen in ["accepted · 200", "not accepted · 401", "12 models · 81 ms"] {
        got.assert_contains(seen);
    }
    let remove = format!("{at}/credentials/c1/remove");
    let got = gateway.post(&remove, &[]).cookie(&cookie).send().await;
    got.assert_redirect(&format!("{at}?told=removed"));
    assert_eq!(
        admin_api.recorded_changes().pop().unwrap().what,
        "DELETE /providers/acme/credentials/c1"
    );
    let foreign = gateway.foreign_post(&format!("{at}/remove"), &[]).cookie(&cookie);
    let foreign = foreign.with("sec-fetch-site", "cross-site").send().await;
    assert_eq!(foreign.status, StatusCode::FORBIDDEN, "another site removes nothing");
    let got =
        gateway.post(&format!("{at}/remove"), &[("tag", "\"t\"")]).cookie(&cookie).send().await;
    got.assert_redirect("/console/providers");
    let forced = [("tag", "\"t\""), ("force", "true")];
    gateway.post(&format!("{at}/remove"), &forced).cookie(&cookie).send().await;
    let mut changes = admin_api.recorded_changes();
    assert_eq!(changes.pop().unwrap().what, "DELETE /providers/acme?force=true");
    let last = changes.pop().unwrap();
    assert_eq!((last.what.as_str(), last.tag.as_str()), ("DELETE /providers/acme", "\"t\""));
}

#[tokio::test]
async fn models_are_searched_and_their_lanes_and_prices_changed() {
    let (gateway, cookie) = admin_fixture().await;
    let admin_api = &gateway.host.admin_api;
    let pricing = json!({ "input": 3.0, "output": 15.5 });
    let stored = json!({
        "id": "house/x:1", "model_type": "chat", "source": "stored", "pricing": pricing,
        "lanes": ["acme/x", "other/x"], "trouble": null,
        "settings": {
            "lanes": [{ "lane": "acme/x", "weight": 3, "price": { "input": "1" } }, "other/x"],
            "price": { "input": "3", "output": "15.5" }, "about": "kept",
        },
    });
    let demo = json!({
        "id": "demo-chat", "model_type": "chat", "source": "built-in", "pricing": pricing,
        "lanes": ["demo/demo-chat"], "settings": null,
    });
    admin_api.set_reply("GET /models", 200, json!({ "data": [stored, demo] }));
    admin_api.set_reply("GET /models/house/x:1", 200, stored);
    let page = gateway.get("/console/models?q=OTHER").cookie(&cookie).send().await;
    page.assert_contains("house/x:1");
    page.assert_lacks("demo-chat<");
    page.assert_contains("$15.5");
    gateway
        .get("/console/models?kind=image")
        .cookie(&cookie)
        .send()
        .await
        .assert_contains("No such model");
    let at = "/console/models/edit?id=house%2Fx%3A1";
    let form = gateway.get(at).cookie(&cookie).send().await;
    form.assert_contains("acme/x 3\nother/x</textarea>");
    form.assert_contains("name=\"price.output\" type=\"text\" value=\"15.5\"");
    let fields = [
        ("id", "house/x:1"),
        ("tag", "\"t\""),
        ("lanes", "other/x\r\nacme/x 5\r\nthird/y"),
        ("kind", "chat"),
        ("price.input", "2.5"),
        ("price.per_image", "0.04"),
        ("price.further", r#"{"flex":{"rates":{"input":"1","output":"2"}}}"#),
    ];
    let got = gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/models?told=saved");
    let body = json!({
        "lanes": ["other/x", { "lane": "acme/x", "weight": 5, "price": { "input": "1" } }, "third/y"],
        "kind": "chat", "about": "kept",
        "price": { "input": "2.5", "per_image": "0.04",
            "flex": { "rates": { "input": "1", "output": "2" } } },
    });
    assert_eq!(change(&gateway), ("PUT /models/house/x:1".to_owned(), "\"t\"".to_owned(), body));

    for (name, value) in [("lanes", "acme/x often"), ("price.further", "[1]")] {
        let wrong = [("id", "house/x:1"), (name, value)];
        let got = gateway.post("/console/models/edit", &wrong).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains(&format!("id=\"{name}-wrong\""));
    }
    for (field, beside) in [
        ("lanes[1]", "lanes"),
        ("price.input", "price.input"),
        ("price.long[0].above", "price.further"),
    ] {
        let say = json!({ "message": format!("`{field}`: so not"), "field": field });
        admin_api.set_reply("PUT /models/house/x:1", 400, say);
        let got = gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
        got.assert_contains(&format!("id=\"{beside}-wrong\""));
    }
    admin_api.set_reply("PUT /models/house/x:1", 200, json!({ "warnings": ["nobody serves it"] }));
    let got = gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    got.assert_contains("nobody serves it");
    let flow = [("id", "house/x:1"), ("tag", "\"t\"")];
    let got = gateway.post("/console/models/remove", &flow).cookie(&cookie).send().await;
    got.assert_redirect("/console/models?told=removed");
    assert_eq!(admin_api.recorded_changes().pop().unwrap().what, "DELETE /models/house/x:1");
}

#[tokio::test]
async fn directory_model_follows_directory_prices_until_changed() {
    let (gateway, cookie) = admin_fixture().await;
    let demo = json!({
        "id": "demo-chat", "model_type": "chat", "source": "built-in",
        "lanes": ["demo/demo-chat"], "settings": null,
    });
    gateway.host.admin_api.set_reply("GET /models", 200, json!({ "data": [demo] }));
    gateway.host.admin_api.set_reply("GET /models/demo-chat", 200, demo);
    let page = gateway.get("/console/models/edit?id=demo-chat").cookie(&cookie).send().await;
    let inputs = page.body.split("name=\"price.").skip(1).filter_map(|input| {
        let (name, rest) = input.split_once("\" type=\"text\" value=\"")?;
        Some((format!("price.{name}"), rest.split('"').next()?.to_owned()))
    });
    let prices: Vec<(String, String)> = inputs.collect();
    assert_eq!(prices.len(), 14);
    let mut fields = vec![("id", "demo-chat"), ("lanes", "demo/demo-chat\nacme/x")];
    fields.extend(prices.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    gateway.post("/console/models/edit", &fields).cookie(&cookie).send().await;
    let (_, _, body) = change(&gateway);
    assert_eq!(body, json!({ "lanes": ["demo/demo-chat", "acme/x"] }));
    let new = [("id", "house/new"), ("lanes", "acme/x"), ("price.input", "1")];
    let got = gateway.post("/console/models", &new).cookie(&cookie).send().await;
    got.assert_redirect("/console/models/edit?id=house%2Fnew");
    let last = gateway.host.admin_api.recorded_changes().pop().unwrap();
    assert_eq!(last.what, "PUT /models/house/new");
    assert_eq!(last.body, json!({ "lanes": ["acme/x"], "price": { "input": "1" } }));
    for id in ["", "demo-chat"] {
        let got = gateway.post("/console/models", &[("id", id)]).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains("id=\"id-wrong\"");
    }
}

#[tokio::test]
async fn pages_of_a_large_gateway_are_small() {
    let (gateway, cookie) = admin_fixture().await;
    let admin_api = &gateway.host.admin_api;
    let lane = |n: usize| {
        json!({
            "lane": format!("acme/a-model-with-quite-a-long-name-{n}"), "credential": 0,
            "standing": if n == 299 { "cooling_down" } else { "good" }, "failures": 0, "pending": 0,
            "latency_ms": 1234, "last_failure": null,
        })
    };
    let lanes: Vec<Value> = (0..300).map(lane).collect();
    let provider = |n: usize| {
        json!({
            "id": format!("acme-{n}"), "source": "stored", "speaks": ["chat"], "settings": {},
            "credentials": [], "lanes": lanes,
        })
    };
    let providers: Vec<Value> = (0..10).map(provider).collect();
    admin_api.set_reply("GET /providers", 200, json!({ "data": providers }));
    admin_api.set_reply("GET /providers/acme-0", 200, provider(0));
    let model = |n: usize| {
        let lanes: Vec<String> = (0..3).map(|m| format!("acme-{m}/some-model-name-{n}")).collect();
        json!({
            "id": format!("house/some-model-name-{n}"), "model_type": "chat", "source": "built-in",
            "pricing": { "input": 3.0, "output": 15.0 }, "lanes": lanes,
        })
    };
    let models: Vec<Value> = (0..2_000).map(model).collect();
    admin_api.set_reply("GET /models", 200, json!({ "data": models }));
    for path in ["/console/providers", "/console/providers/acme-0", "/console/models"] {
        let page = gateway.get(path).cookie(&cookie).send().await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.len() < 100_000, "{path}: {} bytes", page.body.len());
    }
    let page = gateway.get("/console/providers").cookie(&cookie).send().await;
    page.assert_contains("288 more lanes");
    page.assert_contains("cooling down");
    let last = gateway.get("/console/models?page=40").cookie(&cookie).send().await;
    last.assert_contains("some-model-name-1999<");
    last.assert_lacks("rel=\"next\"");
}

#[tokio::test]
async fn system_page_shows_unhealthy_parts() {
    let (gateway, cookie) = admin_fixture().await;
    let admin_api = &gateway.host.admin_api;
    let health = json!({
        "version": "9.9", "ready": false, "store": false, "uptime_s": 7_300,
        "database": { "kind": "PostgreSQL" }, "valkey": { "reachable": false },
        "nodes": [
            { "id": "node-a", "this": true, "alive": true, "silent_ms": 2 },
            { "id": "node-b", "this": false, "alive": false, "silent_ms": 90_000 },
        ],
        "journal": { "bytes": 2_048, "unposted": 12 }, "memory_bytes": null, "connections": 3,
        "running": 2, "mail": false, "files": "s3", "lanes": { "all": 5, "good": 4 },
        "troubles": [{ "what": "providers.acme", "why": "it has <no> address" }],
    });
    admin_api.set_reply("GET /health", 200, health);
    admin_api.set_reply("GET /vault", 200, json!({ "keys": [], "trouble": "its key is missing" }));
    let page = gateway.get("/console/system").cookie(&cookie).send().await;
    for seen in [
        "providers.acme: it has &lt;no&gt; address",
        "PostgreSQL",
        "does not answer",
        "2 h 1 min",
        "no heartbeat for 90 s",
        "2.0 KiB, 12 settled calls",
        "a bucket",
        "4 of 5",
        "its key is missing",
    ] {
        page.assert_contains(seen);
    }
    admin_api.set_reply("GET /health", 503, json!({ "message": "the store does not answer" }));
    let away = gateway.get("/console/system").cookie(&cookie).send().await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE);
}
