//! Requests that mean harm, and many at once.

use super::*;
use std::sync::Arc;
use tokio::task::JoinSet;

#[tokio::test]
async fn one_provider_does_not_reach_the_people_of_another() {
    let provider = ScimStage::open().await;
    let foreign = new_token(&provider.gateway, "other").await;
    let anna = provider.person("anna").await;
    let staff = provider.group("staff", &[&anna]).await;
    let owner = provider.gateway.app.store.accounts().await.unwrap().remove(0).id;
    let off = json!({ "Operations": [{ "op": "replace", "path": "active", "value": false }] });
    let gateway = &provider.gateway;
    for path in [
        format!("/Users/{anna}"),
        format!("/Users/{owner}"),
        format!("/Groups/{staff}"),
        "/Users/%00".to_owned(),
        "/Users/..%2F..%2Fadmin".to_owned(),
        "/Users/'%20OR%20'1'='1".to_owned(),
    ] {
        for (method, body) in [
            (Method::GET, Value::Null),
            (Method::PUT, user("mallory")),
            (Method::PATCH, off.clone()),
            (Method::DELETE, Value::Null),
        ] {
            let body = if method == Method::PUT && path.starts_with("/Groups") {
                json!({ "displayName": "x" })
            } else {
                body
            };
            let got = ask(gateway, &foreign, method.clone(), &path, body).await;
            let is_patched_group = method == Method::PATCH && path.starts_with("/Groups");
            is_refusal(&got, 404, "", &format!("{method} {path} {is_patched_group}"));
        }
    }
    let list = ask(gateway, &foreign, Method::GET, "/Users", Value::Null).await.json();
    assert_eq!(list["totalResults"], 0);
    let group = json!({ "displayName": "mine", "members": [{ "value": anna }] });
    let got = ask(gateway, &foreign, Method::POST, "/Groups", group).await;
    is_refusal(&got, 400, "invalidValue", "a member of another provider");
    // Not even the own token reaches an account that SCIM does not manage.
    provider.refuses(Method::DELETE, &format!("/Users/{owner}"), Value::Null, 404, "").await;
}

#[tokio::test]
async fn nobody_gets_rights_by_an_attribute() {
    let provider = ScimStage::open().await;
    let mut body = user("mallory");
    for (name, value) in [
        ("roles", json!([{ "value": "owner", "primary": true }])),
        ("role", json!("owner")),
        ("entitlements", json!([{ "value": "admin" }])),
        ("groups", json!([{ "value": "leads", "display": "leads" }])),
        ("id", json!("account-owner")),
        ("meta", json!({ "resourceType": "Owner" })),
        ("disabled", json!(false)),
        ("userType", json!("owner")),
    ] {
        body[name] = value;
    }
    let made = provider.send(Method::POST, "/Users", body.clone()).await.json();
    let id = made["id"].as_str().unwrap();
    assert_ne!(id, "account-owner");
    assert_eq!((made["groups"].clone(), provider.role(id).await), (Value::Null, "viewer"));
    let path = format!("/Users/{id}");
    assert_eq!(provider.send(Method::PUT, &path, body).await.json()["id"], id);
    for (path_of, value, kind) in [
        ("id", json!("x"), "mutability"),
        ("meta.version", json!("x"), "mutability"),
        ("groups", json!([{ "value": "leads" }]), "mutability"),
        ("role", json!("owner"), "invalidPath"),
        ("account.role", json!("owner"), "invalidPath"),
        ("urn:portunus:Account:role", json!("owner"), "invalidPath"),
    ] {
        let operations = json!([{ "op": "replace", "path": path_of, "value": value }]);
        is_refusal(&provider.patch(&path, operations).await, 400, kind, path_of);
    }
    let ignored = json!([{ "op": "add", "path": "roles", "value": [{ "value": "owner" }] }]);
    assert_eq!(provider.patch(&path, ignored).await.status, 200);
    assert_eq!(provider.role(id).await, "viewer");
}

#[tokio::test]
async fn wrong_and_huge_bodies_are_refused() {
    let provider = ScimStage::open().await;
    let id = provider.person("anna").await;
    let path = format!("/Users/{id}");
    let long = "x".repeat(300);
    for (body, kind) in [
        (json!([]), "invalidSyntax"),
        (json!("x"), "invalidSyntax"),
        (json!({}), "invalidValue"),
        (json!({ "userName": "" }), "invalidValue"),
        (json!({ "userName": " " }), "invalidValue"),
        (json!({ "userName": 5 }), "invalidValue"),
        (json!({ "userName": "a\u{0}b" }), "invalidValue"),
        (json!({ "userName": "a\u{202e}b" }), "invalidValue"),
        (json!({ "userName": long }), "invalidValue"),
        (json!({ "userName": "b", "externalId": "a\u{0}" }), "invalidValue"),
        (json!({ "userName": "b", "name": "x" }), "invalidValue"),
        (json!({ "userName": "b", "active": "perhaps" }), "invalidValue"),
        (json!({ "userName": "b", "emails": [{}] }), "invalidValue"),
        (json!({ "userName": "b", "emails": [5] }), "invalidValue"),
        (
            json!({ "userName": "b", "emails": (0..30).map(|n| json!({ "value": n.to_string() })).collect::<Vec<_>>() }),
            "tooMany",
        ),
        (json!({ "schemas": ["urn:x"], "userName": "b" }), "invalidSyntax"),
    ] {
        provider.refuses(Method::POST, "/Users", body.clone(), 400, kind).await;
        provider.refuses(Method::PUT, &path, body, 400, kind).await;
    }
    let raw = async |method: Method, path: &str, kind: &str, body: String| {
        let ask = provider.gateway.request(method, &format!("/scim/v2{path}")).without_key();
        let ask = ask.header("authorization", &format!("Bearer {}", provider.token));
        ask.header("content-type", kind).body(body).send().await
    };
    let scim = "application/scim+json";
    let got = raw(Method::POST, "/Users", scim, "{".to_owned()).await;
    is_refusal(&got, 400, "invalidSyntax", "half a body");
    let got = raw(Method::POST, "/Users", scim, "[".repeat(100_000)).await;
    is_refusal(&got, 400, "invalidSyntax", "a deep body");
    let got = raw(Method::POST, "/Users", "text/plain", "{}".to_owned()).await;
    is_refusal(&got, 415, "", "no JSON");
    let got =
        raw(Method::POST, "/Users", scim, format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20))).await;
    is_refusal(&got, 413, "", "a huge body");
    let members: Vec<Value> = (0..20_000).map(|n| json!({ "value": n.to_string() })).collect();
    let crowd = json!({ "displayName": "crowd", "members": members });
    provider.refuses(Method::POST, "/Groups", crowd, 400, "tooMany").await;
    let search = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"],
        "filter": format!("userName eq \"{}\"", "x".repeat(9_000)),
    });
    provider.refuses(Method::POST, "/Users/.search", search, 400, "invalidFilter").await;
    for (path, condition) in
        [("/Users/.search", "emails eq \"\""), ("/Groups/.search", "members eq \"\"")]
    {
        let search = |count| json!({ "filter": vec![condition; count].join(" and ") });
        provider.refuses(Method::POST, path, search(500), 400, "invalidFilter").await;
        let found = provider.send(Method::POST, path, search(8)).await;
        assert_eq!(found.json()["totalResults"], 0, "{}", found.text());
    }
    let crowd: Vec<Value> = (0..100_000).map(|n| json!({ "value": n.to_string() })).collect();
    for verb in ["add", "replace", "remove"] {
        let step = json!([{ "op": verb, "path": "emails", "value": crowd }]);
        is_refusal(&provider.patch(&path, step).await, 400, "tooMany", verb);
    }
    let deep = format!("/Users?filter={}a%20pr{}", "(".repeat(1_000), ")".repeat(1_000));
    provider.refuses(Method::GET, &deep, Value::Null, 400, "invalidFilter").await;
    let many: Vec<Value> = (0..2_500).map(|_| json!({ "op": "remove", "path": "title" })).collect();
    is_refusal(&provider.patch(&path, json!(many)).await, 400, "tooMany", "operations");
}

#[tokio::test]
async fn changes_at_once_are_all_kept_and_a_name_is_given_once() {
    let provider = Arc::new(ScimStage::open().await);
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(provider.person(&format!("p{number}")).await);
    }
    let staff = provider.group("staff", &[]).await;
    let mut changes = JoinSet::new();
    for id in ids.clone() {
        let (provider, path) = (Arc::clone(&provider), format!("/Groups/{staff}"));
        changes.spawn(async move {
            let add = json!([{ "op": "add", "path": "members", "value": [{ "value": id }] }]);
            provider.patch(&path, add).await.status.as_u16()
        });
    }
    assert!(changes.join_all().await.iter().all(|status| *status == 204));
    let group = provider.get(&format!("/Groups/{staff}")).await;
    assert_eq!(group["members"].as_array().unwrap().len(), ids.len());
    for id in &ids {
        assert_eq!(provider.role(id).await, "member");
    }
    let mut creations = JoinSet::new();
    for number in 0..8 {
        let provider = Arc::clone(&provider);
        let name = if number % 2 == 0 { "twin" } else { "TWIN" };
        creations.spawn(async move {
            provider.send(Method::POST, "/Users", user(name)).await.status.as_u16()
        });
    }
    let mut statuses = creations.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
}
