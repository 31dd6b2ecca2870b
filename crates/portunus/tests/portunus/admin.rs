//! Administration in JSON: who may, what changes, and that no change undoes another.

use http::Method;
use serde_json::{Value, json};
use store::Role;
use testkit::{Gateway, Got};

async fn ask(gateway: &Gateway, method: Method, path: &str, body: Value, key: &str) -> Got {
    let ask = gateway.ask(method, &format!("/api/admin{path}")).key(key);
    ask.header("content-type", "application/json").raw(body.to_string()).send().await
}

/// A key of an account with that role.
async fn key_with(gateway: &Gateway, name: &str, role: Role) -> (String, String) {
    let now = gateway.app.clock.now();
    let owner = gateway.app.store.accounts().await.unwrap().remove(0);
    let id = format!("account-{name}");
    let account = store::Account { id, username: name.to_owned(), role, ..owner };
    gateway.app.store.add_account(&account).await.unwrap();
    let new = admin::NewKey { name: name.to_owned(), cap: None, models: Vec::new(), expires: None };
    let (record, text) = new.make(&account.id, &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    (account.id, text)
}

#[tokio::test]
async fn administration_is_for_administrators_and_nobody_reaches_above_themselves() {
    let gateway = Gateway::start().await;
    let owner = gateway.key.clone();
    let (_, member) = key_with(&gateway, "member", Role::Member).await;
    let (_, viewer) = key_with(&gateway, "viewer", Role::Viewer).await;
    let (admin_id, admin) = key_with(&gateway, "admin", Role::Admin).await;
    let (other_id, _) = key_with(&gateway, "other", Role::Admin).await;
    for (method, path, keyed) in portunus::addresses() {
        let Some(rest) = path.strip_prefix("/api/admin") else { continue };
        assert!(keyed, "{path}");
        for key in [&member, &viewer] {
            let names = [("{id}", "x"), ("{cid}", "y"), ("{account_id}", "y"), ("{*rest}", "m")];
            let filled = |rest: String, (name, word): (&str, &str)| rest.replace(name, word);
            let rest = names.into_iter().fold(rest.to_owned(), filled);
            let got = ask(&gateway, method.clone(), &rest, json!({}), key).await;
            assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
            assert_eq!(got.json()["success"], false);
        }
    }
    let accounts = gateway.app.store.accounts().await.unwrap();
    let top = accounts.iter().find(|one| one.role == Role::Owner).unwrap().id.clone();
    for id in [&top, &other_id] {
        let path = format!("/users/{id}");
        let got = ask(&gateway, Method::PATCH, &path, json!({ "disabled": true }), &admin).await;
        assert_eq!(got.status, 403, "{}", got.text());
        let reset = ask(&gateway, Method::POST, &format!("{path}/reset"), json!({}), &admin).await;
        assert_eq!(reset.status, 403);
    }
    let path = format!("/users/{admin_id}");
    let up = ask(&gateway, Method::PATCH, &path, json!({ "role": "owner" }), &admin).await;
    assert_eq!(up.status, 403, "nobody makes themselves an owner");
    let alone = format!("/users/{top}");
    let got = ask(&gateway, Method::PATCH, &alone, json!({ "role": "member" }), &owner).await;
    assert_eq!(got.status, 403, "the only owner stays one");
}

#[tokio::test]
async fn a_key_is_made_changed_rotated_and_revoked() {
    let gateway = Gateway::start().await;
    let admin = gateway.key.clone();
    let wish = json!({
        "name": "ci", "cap_usd": "5.00", "models": ["demo-chat"], "expires_in": "30d",
        "limits": { "rpm": 60 }, "ips": ["127.0.0.0/8"],
        "budget": { "most_usd": "1.00", "per": "day" },
    });
    let made = ask(&gateway, Method::POST, "/keys", wish, &admin).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let (id, text) = (made.json()["id"].clone(), made.json()["key"].clone());
    let (id, text) = (id.as_str().unwrap(), text.as_str().unwrap());
    let works = gateway.get("/v1/key").key(text).send().await;
    assert_eq!(works.json()["cap_usd"], "5.000000000", "the gateway knows it at once");
    let path = format!("/keys/{id}");
    let seen = ask(&gateway, Method::GET, &path, Value::Null, &admin).await;
    assert!(seen.json().get("key").is_none(), "the value is shown only once");
    let tag = seen.header("etag").to_owned();
    let change = json!({ "cap_usd": null, "name": "ci two" });
    let change = |tag: &str| {
        let ask = gateway.ask(Method::PATCH, &format!("/api/admin{path}")).key(&admin);
        ask.header("if-match", tag).raw(change.to_string()).send()
    };
    let changed = change(&tag).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(changed.json()["cap_usd"], Value::Null);
    assert_eq!(changed.json()["limits"]["rpm"], 60, "what is left out stays");
    let late = change(&tag).await;
    assert_eq!(late.status, 412, "somebody else was quicker");
    for (wrong, field) in [
        (json!({ "cap_usd": "-1" }), "cap_usd"),
        (json!({ "cap_usd": 5 }), "cap_usd"),
        (json!({ "spent_usd": "0" }), "spent_usd"),
        (json!({ "limits": { "rpm": 0 } }), "limits.rpm"),
        (json!({ "ips": ["nowhere"] }), "ips"),
        (json!({ "budget": { "most_usd": "1", "per": "year" } }), "budget.per"),
    ] {
        let got = ask(&gateway, Method::PATCH, &path, wrong, &admin).await;
        assert_eq!(got.status, 400, "{field}");
        assert!(got.text().contains(field.rsplit('.').next().unwrap()), "{}", got.text());
    }
    let rotated =
        ask(&gateway, Method::POST, &format!("{path}/rotate"), json!({ "overlap": "1h" }), &admin)
            .await;
    let new = rotated.json()["key"].as_str().unwrap().to_owned();
    for value in [text, new.as_str()] {
        assert_eq!(gateway.get("/v1/key").key(value).send().await.status, 200);
    }
    let gone = ask(&gateway, Method::DELETE, &path, Value::Null, &admin).await;
    assert_eq!(gone.json()["state"], "revoked");
    assert_eq!(gateway.get("/v1/key").key(&new).send().await.status, 401);
    let audit = ask(&gateway, Method::GET, "/audit", Value::Null, &admin).await.json();
    let actions: Vec<_> = audit["data"].as_array().unwrap().iter().map(|a| &a["action"]).collect();
    assert_eq!(actions, ["key.revoke", "key.rotate", "key.change", "key.create"]);
    assert!(!audit.to_string().contains(text), "no secret in the log");
}

#[tokio::test]
async fn accounts_settings_and_what_there_is_to_see() {
    let gateway = Gateway::start().await;
    let admin = gateway.key.clone();
    let new = json!({ "name": "anna", "email": "anna@example.com", "role": "viewer" });
    let made = ask(&gateway, Method::POST, "/users", new.clone(), &admin).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let link = made.json()["link"].as_str().unwrap().to_owned();
    assert!(link.starts_with(&gateway.app.config().public_url), "{link}");
    let twice = ask(&gateway, Method::POST, "/users", new, &admin).await;
    assert_eq!(twice.status, 400, "{}", twice.text());
    let path = format!("/users/{}", made.json()["id"].as_str().unwrap());
    let changed =
        ask(&gateway, Method::PATCH, &path, json!({ "role": "member", "disabled": true }), &admin)
            .await
            .json();
    assert_eq!((&changed["role"], &changed["disabled"]), (&json!("member"), &json!(true)));
    let wrong =
        ask(&gateway, Method::PATCH, "/settings", json!({ "signup": "maybe" }), &admin).await;
    assert_eq!(wrong.status, 400);
    let set = ask(&gateway, Method::PATCH, "/settings", json!({ "signup": "open" }), &admin).await;
    assert_eq!(set.json()["signup"], "open");
    let hello =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] });
    assert_eq!(gateway.post("/v1/chat/completions", &hello).send().await.status, 200);
    let mut calls = 0;
    for _ in 0..100 {
        let used = ask(&gateway, Method::GET, "/usage?days=1&step=hour", Value::Null, &admin).await;
        calls = used.json()["total"]["calls"].as_i64().unwrap();
        if calls == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(calls, 1);
    for path in ["/providers", "/models"] {
        let got = ask(&gateway, Method::GET, path, Value::Null, &admin).await.json();
        assert!(got["total"].as_u64().unwrap() > 0, "{path}");
    }
    let health = ask(&gateway, Method::GET, "/health", Value::Null, &admin).await.json();
    assert_eq!((&health["ready"], &health["store"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn the_keys_of_an_account_that_is_locked_out_stop_until_it_is_let_in_again() {
    let gateway = Gateway::start().await;
    let admin = gateway.key.clone();
    let (id, key) = key_with(&gateway, "anna", Role::Member).await;
    assert_eq!(gateway.get("/v1/key").key(&key).send().await.status, 200);
    let path = format!("/users/{id}");
    for (disabled, status) in [(true, 401), (false, 200)] {
        let body = json!({ "disabled": disabled });
        assert_eq!(ask(&gateway, Method::PATCH, &path, body, &admin).await.status, 200);
        let mut seen = 0;
        for _ in 0..100 {
            seen = gateway.get("/v1/key").key(&key).send().await.status.as_u16();
            if seen == status {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(seen, status, "disabled: {disabled}");
    }
}
