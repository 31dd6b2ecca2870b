//! Scopes of keys: each word opens exactly its part of the route table.

use http::Method;
use serde_json::{Value, json};
use store::{AdminPart, KeyScope};
use testkit::TestGateway;

use crate::money::{CHAT, key};

/// A key of the owner with that scope, as users write it.
async fn scoped(gateway: &TestGateway, text: &str) -> String {
    let (scope, grants) = KeyScope::parse(text).unwrap();
    let now = gateway.app.clock.now();
    key(gateway, |record| {
        if scope == KeyScope::Admin {
            record.make_admin(now);
        }
        record.grants = grants;
    })
    .await
}

/// The part of administration that a path belongs to.
fn part_of(path: &str) -> Option<&str> {
    match path.strip_prefix("/api/admin/") {
        Some("health") => Some("metrics"),
        Some("directory") => Some("models"),
        Some("alerts" | "statements/{month}") => Some("usage"),
        Some(rest) if rest.starts_with("scim/") => Some("users"),
        Some(rest) => rest.split('/').next(),
        None => (path == "/metrics").then_some("metrics"),
    }
}

#[tokio::test]
async fn every_scope_opens_exactly_its_part_of_the_route_table() {
    let gateway = TestGateway::start().await;
    let parts = AdminPart::ALL.map(|part| format!("admin:{}", part.word()));
    let whole = ["call", "read", "admin", "admin:keys admin:usage"].map(str::to_owned);
    for scope in whole.into_iter().chain(parts) {
        let key = scoped(&gateway, &scope).await;
        let told = gateway.get("/v1/key").key(&key).send().await;
        assert_eq!((told.status.as_u16(), &told.json()["scope"]), (200, &json!(scope)));
        for (method, pattern, keyed) in portunus::route_summaries() {
            if !keyed || pattern == "/v1/key" {
                continue;
            }
            let path = pattern.replace("{*rest}", "none").replace("{id}", "none");
            let path = path.replace("{request_id}", "none").replace("{account_id}", "none");
            let path = path.replace("{cid}", "none").replace("{item}", "none");
            let path = path.replace("{month}", "2026-03");
            let part = part_of(pattern);
            let opens = match (scope.as_str(), part) {
                ("call", part) => part.is_none(),
                // A WebSocket makes calls.
                ("read", part) => {
                    part.is_none()
                        && method == Method::GET
                        && !["/v1/webhooks/secret", "/v1/responses"].contains(&pattern)
                }
                ("admin", part) => part.is_some(),
                (scope, Some(part)) => scope.split(' ').any(|word| word == format!("admin:{part}")),
                (_, None) => false,
            };
            // A body that no handler takes: nothing is changed, and no key can be created.
            let got = gateway.request(method.clone(), &path).key(&key).body("[]").send().await;
            let denied = got.status == 403 && got.text().contains("this key has the scope");
            assert_eq!(!denied, opens, "{scope}: {method} {path}: {}", got.text());
        }
    }
}

#[tokio::test]
async fn a_key_that_reads_cannot_spend_and_sees_what_its_account_shares() {
    let gateway = TestGateway::start().await;
    let reader = scoped(&gateway, "read").await;
    let ask = json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hi" }] });
    let made = gateway.post(CHAT, &ask).send().await;
    gateway.wait_until_settled().await;
    let receipt = format!("/v1/usage/{}", made.header("x-request-id"));
    assert_eq!(gateway.post(CHAT, &ask).key(&reader).send().await.status, 403);
    assert_eq!(gateway.get("/v1/models").key(&reader).send().await.status, 200);
    assert_eq!(gateway.get(&receipt).key(&reader).send().await.status, 404);
    crate::key_objects::share(&gateway).await;
    assert_eq!(gateway.get(&receipt).key(&reader).send().await.status, 200);
}

#[tokio::test]
async fn a_key_for_a_part_of_administration_does_not_reach_the_rest() {
    let gateway = TestGateway::start().await;
    let whole = gateway.admin_key().await.to_owned();
    let (keys, users) =
        (scoped(&gateway, "admin:keys").await, scoped(&gateway, "admin:users").await);
    let ask = async |method: Method, path: &str, body: Value, key: &str| {
        let path = format!("/api/admin{path}");
        let request = gateway.request(method, &path).key(key);
        request.header("content-type", "application/json").body(body.to_string()).send().await
    };
    let made = async |scope: &str, key: &str| {
        let body = json!({ "name": "robot", "scope": scope, "expires_in": "1d" });
        ask(Method::POST, "/keys", body, key).await
    };
    for (scope, status) in [
        ("admin", 403),
        ("admin:users", 403),
        ("admin:keys admin:users", 403),
        ("admin:keys", 201),
        ("read", 201),
        ("admin:root", 400),
    ] {
        let got = made(scope, &keys).await;
        assert_eq!(got.status, status, "{scope}: {}", got.text());
    }
    let got = made("admin:users", &whole).await;
    assert_eq!(got.status, 201, "{}", got.text());
    let text = got.json()["key"].as_str().unwrap().to_owned();
    assert!(text.starts_with("sk-pt-admin-"), "{text}");
    let told = gateway.get("/v1/key").key(&text).send().await.json();
    assert_eq!(told["scope"], "admin:users");
    // The value of a key that may do more is not given out, and its addresses are not widened.
    let id = whole.split('-').nth(2).unwrap();
    let rotated = ask(Method::POST, &format!("/keys/{id}/rotate"), json!({}), &keys).await;
    assert_eq!(rotated.status, 403, "{}", rotated.text());
    let widened = ask(Method::PATCH, &format!("/keys/{id}"), json!({ "ips": [] }), &keys).await;
    assert_eq!(widened.status, 403, "{}", widened.text());
    // Neither is an administrator made or taken over.
    for role in ["owner", "admin"] {
        let body = json!({ "name": "mallory", "role": role });
        let got = ask(Method::POST, "/users", body, &users).await;
        assert_eq!(got.status, 403, "{role}: {}", got.text());
    }
    let owner = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let body = json!({ "disabled": true });
    let got = ask(Method::PATCH, &format!("/users/{owner}"), body, &users).await;
    assert_eq!(got.status, 403, "{}", got.text());
    let body = json!({ "name": "mia", "role": "member" });
    assert_eq!(ask(Method::POST, "/users", body, &users).await.status, 201);
}
