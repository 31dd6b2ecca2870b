//! Attacks that succeeded against other gateways: forged keys, identity headers, privileged fields.

use access::keys::{KeyToken, NewKeyToken};
use http::Method;
use serde_json::{Value, json};
use store::{Account, AccountRole, KeyRecord};
use testkit::NewKey;
use testkit::{ScriptedProvider, TestGateway, reply};

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({ "model": "demo-chat", "max_tokens": 9,
            "messages": [{ "role": "user", "content": "Hello." }] })
}

/// Another key of the first account.
async fn second_key(gateway: &TestGateway) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask = NewKey { name: "second".to_owned(), cap: None, models: vec![], expires: None };
    let (record, text) =
        ask.into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_keys_that_almost_fit_open_nothing() {
    const CARRIERS: [&str; 4] =
        ["authorization", "x-api-key", "x-vendor-api-key", "x-goog-api-key"];
    let gateway = TestGateway::start().await;
    let keys = [gateway.key.clone(), second_key(&gateway).await];
    for key in &keys {
        assert_eq!(gateway.post(CHAT, &hello()).key(key).send().await.status, 200);
    }
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.totals().await.unwrap();
    let records = gateway.app.store.keys().await.unwrap();
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').chain('0'..='9').collect();
    let mut tried = 0;
    for number in 0..10_000_usize {
        let (real, other) = (&keys[number % 2], &keys[(number + 1) % 2]);
        let draw = |at: usize| letters[(number * 31 + at * 17 + number / 62) % letters.len()];
        let with_rest = |kept: usize| -> String {
            real[..kept].chars().chain((kept..real.len()).map(draw)).collect()
        };
        let forged = match number % 6 {
            0 => with_rest(8),
            1 => with_rest(20),
            2 => with_rest(40),
            3 => with_rest(real.len() - 1),
            // The public id with another secret and a valid checksum.
            4 => {
                let id = KeyToken::parse(real).unwrap().id().to_owned();
                NewKeyToken::with_id(id, store::KeyScope::Call).unwrap().text
            }
            // The first half of one key and the second half of the other.
            _ => format!("{}{}", &real[..real.len() / 2], &other[real.len() / 2..]),
        };
        if forged == *real {
            continue;
        }
        let carrier = CARRIERS[(number / 6) % CARRIERS.len()];
        let value = if carrier == "authorization" { format!("Bearer {forged}") } else { forged };
        let got = gateway.get("/v1/key").without_key().header(carrier, &value).send().await;
        assert_eq!(got.status, 401, "{carrier}: {}", got.text());
        tried += 1;
    }
    assert!(tried > 9_900, "{tried}");
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.totals().await.unwrap(), rows, "nothing is on the books");
    let after = gateway.app.store.keys().await.unwrap();
    assert_eq!(after, records, "and no key was touched");
}

/// Headers by which proxies tell who or where a caller is, and by which they rewrite addresses.
const CLAIMS: [(&str, &str); 20] = [
    ("host", "evil.example"),
    ("x-forwarded-host", "evil.example"),
    ("forwarded", "for=127.0.0.1;host=evil.example"),
    ("x-forwarded-prefix", "/healthz"),
    ("x-forwarded-user", "owner"),
    ("x-forwarded-email", "owner@example.com"),
    ("x-forwarded-preferred-username", "owner"),
    ("x-forwarded-groups", "admin"),
    ("x-auth-request-user", "owner"),
    ("x-authenticated-user", "owner"),
    ("x-remote-user", "owner"),
    ("remote-user", "owner"),
    ("x-user-id", "1"),
    ("x-user-role", "owner"),
    ("cf-access-authenticated-user-email", "owner@example.com"),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-real-ip", "127.0.0.1"),
    ("x-original-url", "/healthz"),
    ("x-rewrite-url", "/healthz"),
    ("x-http-method-override", "GET"),
];

#[tokio::test]
async fn headers_that_claim_to_be_somebody_change_nothing() {
    let gateway = TestGateway::start().await;
    let mut doors = 0;
    for (method, path, keyed) in portunus::route_summaries() {
        let path = path.replace("{id}", "x").replace("{name}", "x").replace("{*rest}", "m:x");
        let plain = gateway.request(method.clone(), &path).without_key().send().await;
        if keyed {
            assert_eq!(plain.status, 401, "{method} {path}");
        }
        for (name, value) in CLAIMS {
            let ask = gateway.request(method.clone(), &path).without_key();
            let got = ask.header(name, value).send().await;
            assert_eq!(got.status, plain.status, "{method} {path} {name}");
            assert_eq!(got.header("location"), plain.header("location"), "{method} {path} {name}");
            assert_eq!(got.header("set-cookie"), "", "{method} {path} {name}");
        }
        doors += 1;
    }
    assert!(doors > 40, "{doors}");
    // They do not change the identity of a caller with a key either.
    let own = gateway.get("/v1/key").send().await.json();
    for (name, value) in CLAIMS {
        let got = gateway.get("/v1/key").header(name, value).send().await;
        assert_eq!((got.status.as_u16(), got.json()), (200, own.clone()), "{name}");
    }
}

/// A member's key, and the account that has it.
async fn member(gateway: &TestGateway) -> (Account, String) {
    let owner = gateway.app.store.accounts().await.unwrap().remove(0);
    let account = Account {
        id: "account-member".to_owned(),
        username: "member".to_owned(),
        email: None,
        role: AccountRole::Member,
        ..owner
    };
    gateway.app.store.add_account(&account).await.unwrap();
    let ask = NewKey { name: "theirs".to_owned(), cap: None, models: vec![], expires: None };
    let (record, _) =
        ask.into_record(&account.id, &gateway.app.engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    (account, record.id)
}

async fn everything(gateway: &TestGateway) -> (Vec<Account>, Vec<KeyRecord>, String) {
    let store = &gateway.app.store;
    let (accounts, keys) = (store.accounts().await.unwrap(), store.keys().await.unwrap());
    let settings = store.setting("signup").await.unwrap();
    let configured = store.configured_revision().await.unwrap();
    let (teams, terms) = (store.teams().await.unwrap(), store.account_terms().await.unwrap());
    (accounts, keys, format!("{settings:?} {configured} {teams:?} {terms:?}"))
}

#[tokio::test]
async fn fields_that_nobody_may_set_are_refused_by_name_and_set_nothing() {
    let gateway = TestGateway::start().await;
    let (account, key_id) = member(&gateway).await;
    let users = format!("/api/admin/users/{}", account.id);
    let keys = format!("/api/admin/keys/{key_id}");
    let (reset, rotate) = (format!("{users}/reset"), format!("{keys}/rotate"));
    let (terms, out) = (format!("{users}/terms"), format!("{users}/sign-out"));
    let made = gateway.post("/api/admin/teams", &json!({ "name": "Team" })).send().await;
    let team = format!("/api/admin/teams/{}", made.json()["id"].as_str().unwrap());
    let seat = format!("{team}/members/{}", account.id);
    let (user_alerts, team_alerts) = (format!("{users}/alerts"), format!("{team}/alerts"));
    let made = gateway.post("/api/admin/users", &json!({ "name": "leaving" })).send().await;
    let leaving = format!("/api/admin/users/{}", made.json()["id"].as_str().unwrap());
    let provider = "/api/admin/providers/mistral";
    let given = json!({ "credentials": [{ "name": "one", "value": "sk-one" }] });
    let made = gateway.request(Method::PUT, provider).body(given.to_string()).send().await;
    assert_eq!(made.status, 201, "{}", made.text());
    let credential = made.json()["credentials"][0]["id"].as_str().unwrap().to_owned();
    let credential = format!("{provider}/credentials/{credential}");
    let model = json!({ "lanes": ["demo/demo-chat"], "price": { "input": "1" } });
    // Every address that changes something, with a valid body. Deletions come last.
    let writes: [(&str, Method, &str, Value); 29] = [
        ("/api/admin/keys", Method::POST, "/api/admin/keys", json!({ "name": "new" })),
        ("/api/admin/keys/{id}", Method::PATCH, &keys, json!({ "name": "other" })),
        ("/api/admin/keys/{id}/rotate", Method::POST, &rotate, json!({ "overlap": "1h" })),
        ("/api/admin/users", Method::POST, "/api/admin/users", json!({ "name": "newone" })),
        ("/api/admin/users/{id}", Method::PATCH, &users, json!({ "disabled": true })),
        ("/api/admin/users/{id}/reset", Method::POST, &reset, json!({})),
        ("/api/admin/users/{id}/terms", Method::PUT, &terms, json!({ "cap_usd": "5" })),
        ("/api/admin/users/{id}/sign-out", Method::POST, &out, json!({})),
        ("/api/admin/users/{id}/alerts", Method::PATCH, &user_alerts, json!({ "mail": false })),
        ("/api/admin/teams/{id}/alerts", Method::PATCH, &team_alerts, json!({ "mail": false })),
        ("/api/admin/settings", Method::PATCH, "/api/admin/settings", json!({ "signup": "open" })),
        (
            "/api/admin/settings/alerts",
            Method::PATCH,
            "/api/admin/settings/alerts",
            json!({ "mail": false }),
        ),
        ("/api/admin/teams", Method::POST, "/api/admin/teams", json!({ "name": "Other" })),
        ("/api/admin/teams/{id}", Method::PATCH, &team, json!({ "name": "Third" })),
        (
            "/api/admin/teams/{id}/members/{account_id}",
            Method::PUT,
            &seat,
            json!({ "role": "viewer" }),
        ),
        ("/api/admin/providers/{id}", Method::PUT, provider, json!({ "max_in_flight": 3 })),
        (
            "/api/admin/providers/{id}/credentials",
            Method::POST,
            "/api/admin/providers/mistral/credentials",
            json!({ "value": "sk-two" }),
        ),
        (
            "/api/admin/providers/{id}/check",
            Method::POST,
            "/api/admin/providers/demo/check",
            json!({}),
        ),
        ("/api/admin/models/{*rest}", Method::PUT, "/api/admin/models/own", model),
        ("/api/admin/vault/rekey", Method::POST, "/api/admin/vault/rekey", json!({})),
        (
            "/api/admin/scim/tokens",
            Method::POST,
            "/api/admin/scim/tokens",
            json!({ "identity": "corp" }),
        ),
        ("/api/admin/scim/tokens/{id}", Method::DELETE, "/api/admin/scim/tokens/x", json!({})),
        ("/api/admin/models/{*rest}", Method::DELETE, "/api/admin/models/own", json!({})),
        ("/api/admin/providers/{id}/credentials/{cid}", Method::DELETE, &credential, json!({})),
        ("/api/admin/providers/{id}", Method::DELETE, provider, json!({})),
        ("/api/admin/teams/{id}/members/{account_id}", Method::DELETE, &seat, json!({})),
        ("/api/admin/teams/{id}", Method::DELETE, &team, json!({})),
        ("/api/admin/keys/{id}", Method::DELETE, &keys, json!({})),
        ("/api/admin/users/{id}", Method::DELETE, &leaving, json!({})),
    ];
    for (method, path, _) in portunus::route_summaries() {
        let listed = writes.iter().any(|(own, with, ..)| *own == path && *with == method);
        let reads = method == Method::GET || !path.starts_with("/api/admin");
        // Settings of agents are any object.
        let is_free = path.ends_with("/managed") || path.ends_with("/managed-settings");
        assert!(reads || listed || is_free, "{method} {path} is not tried here");
    }
    let extras = [
        "is_admin",
        "owner",
        "owner_id",
        "user_role",
        "unlimited",
        "spent",
        "spent_usd",
        "balance",
        "cap",
        "leased",
        "id",
        "hash",
        "password",
        "password_hash",
        "created",
        "created_at",
        "allowed_routes",
        "permissions",
        "__proto__",
        "constructor",
        "Name",
        "NAME",
    ];
    for (_, method, path, body) in &writes {
        let takes_none = *method == Method::DELETE
            || ["/reset", "/sign-out", "/check", "/rekey"].iter().any(|end| path.ends_with(end));
        for extra in extras {
            let before = everything(&gateway).await;
            let mut body = body.clone();
            body[extra] = json!("owner");
            let ask = gateway.request(method.clone(), path).body(body.to_string());
            if takes_none {
                continue;
            }
            let got = ask.send().await;
            let case = format!("{method} {path} {extra}: {}", got.text());
            assert_eq!(got.status, 400, "{case}");
            assert!(got.text().contains(extra), "{case}");
            assert_eq!(everything(&gateway).await, before, "{case}");
        }
        if takes_none {
            // The body is ignored, so the action is the same.
            let body = extras.iter().map(|extra| ((*extra).to_owned(), json!("owner")));
            let body = Value::Object(body.collect());
            let got = gateway.request(method.clone(), path).body(body.to_string()).send().await;
            assert!(got.status.as_u16() < 500, "{method} {path}: {}", got.text());
            let (accounts, records, _) = everything(&gateway).await;
            let now = accounts.iter().find(|one| one.id == account.id).unwrap();
            assert_eq!((now.role, &now.username), (AccountRole::Member, &account.username));
            let key = records.iter().find(|one| one.id == key_id).unwrap();
            assert_eq!((&key.account_id, key.cap), (&account.id, None));
        }
    }
}

/// Pieces of SQL, each in several coats.
fn injections() -> Vec<String> {
    let pieces = [
        "' OR '1'='1",
        "' OR 1=1 --",
        "'; DROP TABLE keys; --",
        "'; UPDATE accounts SET role='owner'; --",
        "' UNION SELECT hash FROM keys --",
        "1; SELECT pg_sleep(5)",
        "' || pg_sleep(5) || '",
        "' AND randomblob(500000000) --",
        "\\'; DELETE FROM sessions; --",
        "$1",
        "?1",
        "%' ESCAPE '!",
        "%%%%____",
        "x' AND (SELECT COUNT(*) FROM keys) > 0 --",
        "');INSERT INTO settings VALUES('signup','open')--",
    ];
    let coats = |piece: &str| {
        [piece.to_owned(), format!("sk-pt-{piece}"), format!("demo-chat{piece}"), piece.repeat(40)]
    };
    pieces.into_iter().flat_map(coats).collect()
}

#[tokio::test]
async fn sql_is_a_text_like_any_other_wherever_it_stands() {
    let gateway = TestGateway::start().await;
    gateway.admin_key().await;
    let before = everything(&gateway).await;
    let all = injections();
    assert!(all.len() >= 60, "{}", all.len());
    for sql in all {
        for carrier in ["authorization", "x-api-key", "x-vendor-api-key", "x-goog-api-key"] {
            let value =
                if carrier == "authorization" { format!("Bearer {sql}") } else { sql.clone() };
            let got = gateway.get("/v1/key").without_key().header(carrier, &value).send().await;
            assert_eq!(got.status, 401, "{carrier} {sql}");
        }
        let path: String = sql.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut wrong = hello();
        wrong["model"] = sql.as_str().into();
        for (ask, allowed) in [
            (gateway.post(CHAT, &wrong), [404, 400]),
            (gateway.get(&format!("/v1/models/{path}")), [404, 400]),
            (
                gateway.post(&format!("/v1beta/models/{path}:generateContent"), &json!({})),
                [404, 400],
            ),
            (gateway.get(&format!("/v1/usage/{path}")), [404, 400]),
            (gateway.get(&format!("/v1/responses/{path}")), [404, 400]),
            (gateway.get(&format!("/v1/tasks/{path}")), [404, 400]),
            (gateway.get(&format!("/api/models?page={path}")), [200, 400]),
            (gateway.get(&format!("/api/models?q={path}")), [200, 400]),
            (gateway.get(&format!("/api/admin/keys/{path}")), [404, 400]),
            (gateway.get(&format!("/api/admin/users/{path}")), [404, 400]),
            (gateway.get(&format!("/api/admin/usage?key_id={path}&model={path}")), [200, 400]),
        ] {
            let got = ask.send().await;
            // An address may also be too long.
            let fine = allowed.contains(&got.status.as_u16()) || got.status == 431;
            assert!(fine, "{} {}: {sql}", got.status, got.text());
        }
    }
    assert_eq!(everything(&gateway).await, before);
}

/// Texts in texts, each of which the JSON library would read with a depth limit of its own.
pub(crate) fn nested_texts(levels: usize) -> String {
    (0..levels).fold("[]".to_owned(), |inner, _| {
        let quoted = inner.replace('\\', "\\u005c").replace('"', "\\u0022");
        format!("{{\"$serde_json::private::RawValue\":\"{quoted}\"}}")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_is_read_as_another_text_is_refused() {
    let evil = nested_texts(9);
    let error = reply(400, "application/json", &format!("{{\"error\":{evil}}}"));
    for format in ["chat", "messages", "responses", "native"] {
        let provider = ScriptedProvider::start(vec![error.clone()]).await;
        let gateway = TestGateway::with_config(&provider.config(format)).await;
        let hi = r#""messages":[{"role":"user","content":"Hi"}]"#;
        for (path, body) in [
            (
                "/v1/chat/completions",
                format!(
                    r#"{{"model":"m",{hi},"tools":[{{"type":"function","function":{{"name":"f","parameters":{evil}}}}}]}}"#
                ),
            ),
            (
                "/v1/messages",
                format!(
                    r#"{{"model":"m","max_tokens":9,{hi},"tools":[{{"name":"f","input_schema":{evil}}}]}}"#
                ),
            ),
            (
                "/v1/responses",
                format!(
                    r#"{{"model":"m","input":"Hi","tools":[{{"type":"function","name":"f","parameters":{evil}}}]}}"#
                ),
            ),
            (
                "/v1beta/models/m:generateContent",
                format!(
                    r#"{{"contents":[{{"parts":[{{"text":"Hi"}}]}}],"tools":[{{"functionDeclarations":[{{"name":"f","parametersJsonSchema":{evil}}}]}}]}}"#
                ),
            ),
        ] {
            let got = gateway.post(path, &json!({})).body(body).send().await;
            assert_eq!(got.status, 400, "{path} to {format}: {}", got.text());
            assert!(got.text().contains("RawValue"), "{path} to {format}: {}", got.text());
        }
        assert_eq!(provider.requests().len(), 0, "{format}");
        let put = gateway.request(Method::PUT, "/api/admin/providers/x");
        let got = put.body(format!("{{\"speaks\":{evil}}}")).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(got.text().contains("RawValue"), "{}", got.text());
        // A provider's answer is no better.
        let mut ask = hello();
        ask["model"] = json!("m");
        let got = gateway.post(CHAT, &ask).send().await;
        assert!(!got.status.is_success(), "{format}: {}", got.text());
        assert_eq!(gateway.get("/healthz").send().await.status, 200);
    }
}

/// A letter of a field's name may be escaped. The gateway's own fields never reach a provider so.
#[tokio::test]
async fn an_escaped_thread_is_a_thread() {
    let provider = ScriptedProvider::start(vec![testkit::chat_reply("no", 1, 1)]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let body = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],
        "\u0074hread":{"type":"continue","previous_message_id":"msg_1"}}"#;
    let asking = gateway.request(Method::POST, "/v1/messages").body(body);
    let got = asking.header("content-type", "application/json").send().await;
    assert_eq!(got.status, 404, "{}", got.text());
    assert!(provider.requests().is_empty());
}

/// Names of the operator's things are hidden in the field of a provider's error too.
#[tokio::test]
async fn the_field_of_a_providers_error_is_scrubbed() {
    let refusal = r#"{"error":{"message":"no","type":"invalid_request_error","code":null,
        "param":"sk-proj-OTHERSECRET123"}}"#;
    let answer = reply(400, "application/json", refusal);
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    let got = gateway.post("/v1/chat/completions", &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(!got.text().contains("OTHERSECRET"), "{}", got.text());
}
