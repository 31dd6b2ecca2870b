//! Administration in JSON: rights, changes, and concurrent edits.

use admin::Actor;
use http::Method;
use serde_json::{Value, json};
use store::AccountRole;
use testkit::{TestGateway, TestResponse, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn ask(
    gateway: &TestGateway,
    method: Method,
    path: &str,
    body: Value,
    key: &str,
) -> TestResponse {
    let ask = gateway.request(method, &format!("/api/admin{path}")).key(key);
    ask.header("content-type", "application/json").body(body.to_string()).send().await
}

/// An admin key of a new account with that role.
async fn key_with(gateway: &TestGateway, name: &str, role: AccountRole) -> (String, String) {
    let owner = gateway.app.store.accounts().await.unwrap().remove(0);
    let id = format!("account-{name}");
    let account = store::Account { id, username: name.to_owned(), role, ..owner };
    gateway.app.store.add_account(&account).await.unwrap();
    let text = gateway.admin_key_of(&account.id).await;
    (account.id, text)
}

#[tokio::test]
async fn administration_is_for_administrators_and_nobody_reaches_above_themselves() {
    let gateway = TestGateway::start().await;
    let owner = gateway.admin_key().await.to_owned();
    let (_, member) = key_with(&gateway, "member", AccountRole::Member).await;
    let (_, viewer) = key_with(&gateway, "viewer", AccountRole::Viewer).await;
    let (admin_id, admin) = key_with(&gateway, "admin", AccountRole::Admin).await;
    let (other_id, _) = key_with(&gateway, "other", AccountRole::Admin).await;
    for (method, path, keyed) in portunus::route_summaries() {
        let Some(rest) = path.strip_prefix("/api/admin") else { continue };
        assert!(keyed, "{path}");
        for key in [&member, &viewer] {
            let names = [("{id}", "x"), ("{cid}", "y"), ("{account_id}", "y"), ("{*rest}", "m")];
            let filled = |rest: String, (name, word): (&str, &str)| rest.replace(name, word);
            let rest = names.into_iter().fold(rest.to_owned(), filled);
            let got = ask(&gateway, method.clone(), &rest, json!({}), key).await;
            assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
            assert_eq!(got.json()["success"], false);
            assert_eq!(got.json()["code"], "permission_denied");
        }
    }
    let accounts = gateway.app.store.accounts().await.unwrap();
    let top = accounts.iter().find(|one| one.role == AccountRole::Owner).unwrap().id.clone();
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
    let gateway = TestGateway::start().await;
    let admin = gateway.admin_key().await.to_owned();
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
    assert_eq!(works.status, 200, "{}", works.text());
    assert_eq!(works.json()["cap_usd"], "5.000000000", "the gateway knows it at once");
    let path = format!("/keys/{id}");
    let seen = ask(&gateway, Method::GET, &path, Value::Null, &admin).await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert!(seen.json().get("key").is_none(), "the value is shown only once");
    let tag = seen.header("etag").to_owned();
    let change = json!({ "cap_usd": null, "name": "ci two" });
    let change = |tag: &str| {
        let ask = gateway.request(Method::PATCH, &format!("/api/admin{path}")).key(&admin);
        ask.header("if-match", tag).body(change.to_string()).send()
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
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    let new = rotated.json()["key"].as_str().unwrap().to_owned();
    for value in [text, new.as_str()] {
        let works = gateway.get("/v1/key").key(value).send().await;
        assert_eq!(works.status, 200, "{}", works.text());
    }
    let gone = ask(&gateway, Method::DELETE, &path, Value::Null, &admin).await;
    assert_eq!(gone.json()["state"], "revoked", "{}", gone.text());
    assert_eq!(gateway.get("/v1/key").key(&new).send().await.status, 401);
    let audit = ask(&gateway, Method::GET, "/audit", Value::Null, &admin).await.json();
    let actions: Vec<_> = audit["data"].as_array().unwrap().iter().map(|a| &a["action"]).collect();
    assert_eq!(actions, ["key.revoke", "key.rotate", "key.change", "key.create"]);
    let acting = json!(admin.split('-').nth(2).unwrap());
    assert!(audit["data"].as_array().unwrap().iter().all(|line| line["key_id"] == acting));
    assert!(audit["data"].as_array().unwrap().iter().all(|line| line["address"] == "127.0.0.1"));
    assert!(!audit.to_string().contains(text), "no secret in the log");
}

#[tokio::test]
async fn accounts_settings_and_what_there_is_to_see() {
    let gateway = TestGateway::start().await;
    let admin = gateway.admin_key().await.to_owned();
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
    gateway.wait_until_settled().await;
    let used = ask(&gateway, Method::GET, "/usage?days=1&step=hour", Value::Null, &admin).await;
    assert_eq!(used.json()["total"]["calls"], 1);
    for path in ["/providers", "/models"] {
        let got = ask(&gateway, Method::GET, path, Value::Null, &admin).await.json();
        assert!(got["total"].as_u64().unwrap() > 0, "{path}");
    }
    let health = ask(&gateway, Method::GET, "/health", Value::Null, &admin).await.json();
    assert_eq!((&health["ready"], &health["store"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn the_keys_of_an_account_that_is_locked_out_stop_until_it_is_let_in_again() {
    let gateway = TestGateway::start().await;
    let admin = gateway.admin_key().await.to_owned();
    let (id, key) = key_with(&gateway, "anna", AccountRole::Member).await;
    assert_eq!(gateway.get("/v1/key").key(&key).send().await.status, 200);
    let path = format!("/users/{id}");
    for (disabled, status) in [(true, 401), (false, 200)] {
        let body = json!({ "disabled": disabled });
        assert_eq!(ask(&gateway, Method::PATCH, &path, body, &admin).await.status, 200);
        until(&format!("a key answers {status}"), async || {
            gateway.get("/v1/key").key(&key).send().await.status == status
        })
        .await;
    }
}

/// The gateway's accounts, keys and configuration, to see that nothing changed.
async fn state(gateway: &TestGateway) -> String {
    let store = &gateway.app.store;
    let (accounts, keys) = (store.accounts().await.unwrap(), store.keys().await.unwrap());
    let (teams, terms) = (store.teams().await.unwrap(), store.account_terms().await.unwrap());
    let settings = store.setting("signup").await.unwrap();
    let configured = store.configured_revision().await.unwrap();
    let audits = store.audits(100).await.unwrap().len();
    format!("{accounts:?} {keys:?} {teams:?} {terms:?} {settings:?} {configured} {audits}")
}

fn id_of(key: &str) -> &str {
    key.split('-').nth(2).unwrap()
}

#[tokio::test]
async fn a_call_key_of_an_owner_administrates_nothing() {
    let gateway = TestGateway::start().await;
    let key = gateway.key.clone();
    let owner = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let (_, other) = key_with(&gateway, "other", AccountRole::Admin).await;
    let before = state(&gateway).await;
    let mut tried = 0;
    for (method, path, _) in portunus::route_summaries() {
        if !path.starts_with("/api/admin/") && path != "/metrics" {
            continue;
        }
        // Ids of things that are there: only the scope is in the way.
        let id = if path.contains("/keys/") { id_of(&other) } else { owner.as_str() };
        let path = path.replace("{id}", id).replace("{account_id}", &owner);
        let path = path.replace("{cid}", "c").replace("{*rest}", "demo-chat");
        let got = gateway.request(method.clone(), &path).key(&key).body("{}").send().await;
        assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
        assert!(got.text().contains("portunus keys create --scope admin"), "{}", got.text());
        tried += 1;
    }
    assert!(tried > 40, "{tried}");
    // The attacks by name, each with a body that would do it.
    for (method, path, body) in [
        (Method::PATCH, format!("/keys/{}", id_of(&key)), json!({ "cap_usd": null })),
        (Method::PATCH, format!("/keys/{}", id_of(&key)), json!({ "expires_in": null })),
        (Method::PATCH, format!("/keys/{}", id_of(&key)), json!({ "scope": "admin" })),
        (Method::POST, format!("/keys/{}/rotate", id_of(&other)), json!({ "overlap": "1h" })),
        (Method::POST, "/keys".to_owned(), json!({ "name": "k", "scope": "admin" })),
        (Method::POST, "/users".to_owned(), json!({ "name": "mallory", "role": "owner" })),
        (Method::PUT, format!("/users/{owner}/terms"), json!({})),
        (Method::POST, format!("/users/{owner}/reset"), json!({})),
    ] {
        let got = ask(&gateway, method.clone(), &path, body, &key).await;
        assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
    }
    assert_eq!(state(&gateway).await, before, "nothing changed");
    assert_eq!(gateway.get("/v1/key").send().await.json()["scope"], "call");
}

#[tokio::test]
async fn an_admin_key_makes_no_calls() {
    let gateway = TestGateway::start().await;
    let key = gateway.admin_key().await.to_owned();
    let mut tried = 0;
    for (method, path, keyed) in portunus::route_summaries() {
        if !keyed || path.starts_with("/api/admin/") || ["/metrics", "/v1/key"].contains(&path) {
            continue;
        }
        let path = path.replace("{*rest}", "demo-chat:generateContent").replace("{id}", "x");
        let path = path.replace("{request_id}", "req_1");
        let got = gateway.request(method.clone(), &path).key(&key).body("{}").send().await;
        assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
        assert!(got.text().contains("cannot make calls"), "{}", got.text());
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
    let told = gateway.get("/v1/key").key(&key).send().await.json();
    assert_eq!((&told["scope"], &told["cap_usd"]), (&json!("admin"), &json!("0.000000000")));
    assert!(told["expires_at"].is_string(), "{told}");
    assert_eq!(gateway.get("/metrics").key(&key).send().await.status, 200);
}

#[tokio::test]
async fn no_key_raises_its_own_cap_changes_its_scope_or_lengthens_its_life() {
    let gateway = TestGateway::start().await;
    let key = gateway.admin_key().await.to_owned();
    let own = format!("/keys/{}", id_of(&key));
    let first = format!("/keys/{}", id_of(&gateway.key));
    let before = state(&gateway).await;
    for change in [
        json!({ "cap_usd": "5" }),
        json!({ "cap_usd": null }),
        json!({ "expires_in": "90d" }),
        json!({ "expires_in": null }),
        json!({ "scope": "call" }),
        json!({ "ips": [] }),
        json!({}),
    ] {
        let got = ask(&gateway, Method::PATCH, &own, change.clone(), &key).await;
        assert_eq!(got.status, 403, "{change}: {}", got.text());
    }
    for (scope, field) in [("admin", "scope"), ("owner", "scope")] {
        let got = ask(&gateway, Method::PATCH, &first, json!({ "scope": scope }), &key).await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert_eq!(got.json()["field"], field);
    }
    assert_eq!(state(&gateway).await, before);
    // Rotating itself changes its value, and nothing it may do.
    let expires = gateway.get("/v1/key").key(&key).send().await.json()["expires_at"].clone();
    let path = format!("{own}/rotate");
    let rotated = ask(&gateway, Method::POST, &path, json!({ "overlap": "1s" }), &key).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    let new = rotated.json()["key"].as_str().unwrap().to_owned();
    let told = gateway.get("/v1/key").key(&new).send().await.json();
    assert_eq!((&told["expires_at"], &told["scope"]), (&expires, &json!("admin")));
}

#[tokio::test]
async fn admin_keys_are_handed_out_by_owners_and_never_outlive_the_key_that_made_them() {
    let gateway = TestGateway::start().await;
    let owner = gateway.admin_key().await.to_owned();
    let (admin_id, admin) = key_with(&gateway, "admin", AccountRole::Admin).await;
    let (member_id, _) = key_with(&gateway, "member", AccountRole::Member).await;
    let make = async |wish: Value, key: &str| ask(&gateway, Method::POST, "/keys", wish, key).await;
    let plain = json!({ "name": "robot", "scope": "admin" });
    let refused = make(plain.clone(), &admin).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    for (wish, status) in [
        (json!({ "name": "x", "scope": "admin", "expires_in": "31d" }), 403),
        (json!({ "name": "x", "scope": "admin", "expires_in": null }), 400),
        (json!({ "name": "x", "scope": "admin", "cap_usd": "5" }), 400),
        (json!({ "name": "x", "scope": "root", "cap_usd": "5" }), 400),
        (json!({ "name": "x", "scope": "admin", "account_id": member_id }), 400),
        (json!({ "name": "x", "scope": "call" }), 400),
    ] {
        let got = make(wish.clone(), &owner).await;
        assert_eq!(got.status, status, "{wish}: {}", got.text());
    }
    let bound = json!({ "name": "x", "scope": "admin", "ips": ["127.0.0.0/8"] });
    let bound = make(bound, &owner).await.json();
    let bound = bound["key"].as_str().unwrap();
    for (ips, status) in [(json!([]), 403), (json!(["10.0.0.1"]), 403), (json!(["127.0.0.1"]), 201)]
    {
        let got = make(json!({ "name": "y", "scope": "admin", "ips": ips }), bound).await;
        assert_eq!(got.status, status, "{ips}: {}", got.text());
    }
    let made = make(plain, &owner).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let (told, own) = (made.json(), gateway.get("/v1/key").key(&owner).send().await.json());
    assert_eq!((&told["scope"], &told["expires_at"]), (&json!("admin"), &own["expires_at"]));
    let text = told["key"].as_str().unwrap();
    assert_eq!(ask(&gateway, Method::GET, "/keys", Value::Null, text).await.status, 200);
    let short = json!({
        "name": "short", "scope": "admin", "expires_in": "1d", "account_id": admin_id,
    });
    let short = make(short, &owner).await.json();
    let (id, short) = (short["id"].as_str().unwrap(), short["key"].as_str().unwrap());
    // Neither by a longer life nor by the value of a key that lives on.
    let longer = json!({ "expires_in": "2d" });
    let got = ask(&gateway, Method::PATCH, &format!("/keys/{id}"), longer, &admin).await;
    assert_eq!(got.status, 403, "{}", got.text());
    let path = format!("/keys/{}/rotate", id_of(&admin));
    let got = ask(&gateway, Method::POST, &path, json!({}), short).await;
    assert_eq!(got.status, 403, "{}", got.text());
    let path = format!("/keys/{id}");
    for (life, status) in [("2d", 200), ("31d", 403), ("1d", 200)] {
        let change = json!({ "expires_in": life });
        let got = ask(&gateway, Method::PATCH, &path, change, &owner).await;
        assert_eq!(got.status, status, "{life}: {}", got.text());
    }
    let got = ask(&gateway, Method::PATCH, &path, json!({ "expires_in": null }), &owner).await;
    assert_eq!(got.status, 400, "{}", got.text());
}

/// Head of a raw request with a body of that length.
fn raw_head(gateway: &TestGateway, path: &str, key: &str, length: usize) -> String {
    let host = host(gateway);
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n"
    )
}

fn host(gateway: &TestGateway) -> &str {
    gateway.url.strip_prefix("http://").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_while_its_body_arrives_does_nothing() {
    let gateway = TestGateway::start().await;
    let (_, admin_key) = key_with(&gateway, "late", AccountRole::Owner).await;
    let call = json!({ "model": "demo-chat", "max_tokens": 9,
                       "messages": [{ "role": "user", "content": "Hello." }] });
    let new_admin = json!({ "name": "intruder", "role": "admin" });
    let call_key = gateway.key.clone();
    for (path, key, body) in [
        ("/api/admin/users", &admin_key, new_admin.to_string()),
        ("/v1/chat/completions", &call_key, call.to_string()),
    ] {
        let (begin, rest) = body.split_at(body.len() / 2);
        let mut socket = TcpStream::connect(host(&gateway)).await.unwrap();
        let head = raw_head(&gateway, path, key, body.len());
        // The gateway asks for the body once it has accepted the key.
        socket.write_all(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).await.unwrap();
        let mut asked = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        socket.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(begin.as_bytes()).await.unwrap();
        let id = access::keys::KeyToken::parse(key).unwrap().id().to_owned();
        gateway.app.admin.accounts.revoke_key(&Actor::Operator, &id, <_>::default()).await.unwrap();
        socket.write_all(rest.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 401", "{path}");
    }
    let accounts = gateway.app.store.accounts().await.unwrap();
    assert!(accounts.iter().all(|account| account.username != "intruder"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_disconnects_cannot_hide_a_change() {
    let gateway = TestGateway::start().await;
    let key = gateway.admin_key().await.to_owned();
    let store = &gateway.app.store;
    for number in 0..10 {
        let name = format!("hidden {number}");
        let body = json!({ "name": name, "cap_usd": null }).to_string();
        let mut socket = TcpStream::connect(host(&gateway)).await.unwrap();
        let head = raw_head(&gateway, "/api/admin/keys", &key, body.len());
        socket.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        // The connection is reset as soon as the key is in the store.
        until("the key is stored", async || {
            store.keys().await.unwrap().iter().any(|key| key.name == name)
        })
        .await;
        socket.set_zero_linger().unwrap();
        drop(socket);
    }
    until("every key has its line in the audit log", async || {
        let audits = store.audits(1_000).await.unwrap();
        let listed =
            |id: &str| audits.iter().any(|one| one.action == "key.create" && one.subject == id);
        let keys = store.keys().await.unwrap();
        let hidden: Vec<_> = keys.iter().filter(|key| key.name.starts_with("hidden")).collect();
        !hidden.is_empty() && hidden.iter().all(|key| listed(&key.id))
    })
    .await;
}

#[tokio::test]
async fn a_body_is_one_object() {
    let gateway = TestGateway::start().await;
    let key = gateway.admin_key().await.to_owned();
    for body in ["[\"x\"]", "\"sk-secret\"", "{\"name\":\"x\"} junk", "{\"name\":\"x\"}{}", ""] {
        let request = gateway.request(Method::POST, "/api/admin/keys").key(&key);
        let request = request.header("content-type", "application/json").body(body.to_owned());
        let got = request.send().await;
        assert_eq!(got.status, 400, "{body}: {}", got.text());
        assert!(!got.text().contains("struct") && !got.text().contains("secret"), "{}", got.text());
    }
}
