//! Teams in JSON: create, change, close, join and leave, for administrators only.

use canon::Micros;
use http::Method;
use serde_json::{Value, json};
use store::{Account, AccountRole};
use testkit::{TestGateway, TestResponse};

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

async fn person(gateway: &TestGateway, name: &str, role: AccountRole) -> Account {
    let owner = gateway.app.store.accounts().await.unwrap().remove(0);
    let id = format!("account-{name}");
    let account = Account { id, username: name.to_owned(), role, ..owner };
    gateway.app.store.add_account(&account).await.unwrap();
    account
}

/// A key of that account, made through the API.
async fn key_of(gateway: &TestGateway, account_id: &str) -> (String, String) {
    let wish = json!({ "name": "k", "cap_usd": null, "account_id": account_id });
    let made = ask(gateway, Method::POST, "/keys", wish, gateway.admin_key().await).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let told = made.json();
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

async fn team(gateway: &TestGateway, wish: Value) -> String {
    let made = ask(gateway, Method::POST, "/teams", wish, gateway.admin_key().await).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_team_is_made_changed_and_closed() {
    let gateway = TestGateway::start().await;
    let admin = gateway.admin_key().await.to_owned();
    let wish = json!({
        "name": "Night shift", "cap_usd": "5.00", "limits": { "rpm": 60 },
        "budget": { "most_usd": "1.00", "per": "week" },
    });
    let made = ask(&gateway, Method::POST, "/teams", wish.clone(), &admin).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let path = format!("/teams/{}", made.json()["id"].as_str().unwrap());
    let told = made.json();
    assert_eq!(told["cap_usd"], "5.000000000");
    assert_eq!(told["budget"], json!({ "most_usd": "1.000000000", "per": "week" }));
    assert_eq!((&told["spent_usd"], &told["members"]), (&json!("0.000000000"), &json!([])));
    let twice = ask(&gateway, Method::POST, "/teams", wish, &admin).await;
    assert_eq!(twice.status, 400, "{}", twice.text());
    for (wrong, field) in [
        (json!({ "name": "a@b" }), "name"),
        (json!({ "cap_usd": "-1" }), "cap_usd"),
        (json!({ "spent_usd": "0" }), "spent_usd"),
        (json!({ "role": "owner" }), "role"),
        (json!({ "limits": { "rpm": 0 } }), "limits.rpm"),
        (json!({ "budget": { "most_usd": "1", "per": "year" } }), "budget.per"),
    ] {
        let got = ask(&gateway, Method::PATCH, &path, wrong, &admin).await;
        assert_eq!(got.status, 400, "{field}");
        assert!(got.text().contains(field.rsplit('.').next().unwrap()), "{}", got.text());
    }
    let seen = ask(&gateway, Method::GET, &path, Value::Null, &admin).await;
    let tag = seen.header("etag").to_owned();
    let change = |tag: &str, body: Value| {
        let ask = gateway.request(Method::PATCH, &format!("/api/admin{path}")).key(&admin);
        ask.header("if-match", tag).body(body.to_string()).send()
    };
    // The cost of a call changes the team's figures, but is not an edit of the team.
    let (_, key) = key_of(&gateway, told["id"].as_str().unwrap()).await;
    let hello =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] });
    assert_eq!(gateway.post("/v1/chat/completions", &hello).key(&key).send().await.status, 200);
    gateway.wait_until_settled().await;
    let spent = ask(&gateway, Method::GET, &path, Value::Null, &admin).await;
    assert_ne!(spent.json()["spent_usd"], "0.000000000");
    assert_eq!(spent.header("etag"), tag);
    let changed = change(&tag, json!({ "name": "Day shift", "cap_usd": null })).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let told = changed.json();
    assert_eq!((&told["name"], &told["cap_usd"]), (&json!("Day shift"), &Value::Null));
    assert_eq!(told["limits"]["rpm"], 60, "what is left out stays");
    assert_eq!(change(&tag, json!({ "name": "Late shift" })).await.status, 412);
    assert_eq!(gateway.get("/v1/key").key(&key).send().await.status, 200);
    let closed = ask(&gateway, Method::DELETE, &path, Value::Null, &admin).await;
    assert_eq!(closed.json()["disabled"], true);
    assert_eq!(gateway.get("/v1/key").key(&key).send().await.status, 401, "at once");
    let opened = ask(&gateway, Method::PATCH, &path, json!({ "disabled": false }), &admin).await;
    assert_eq!(opened.json()["disabled"], false);
    assert_eq!(gateway.get("/v1/key").key(&key).send().await.status, 200);
    let audit = ask(&gateway, Method::GET, "/audit", Value::Null, &admin).await.json();
    let actions: Vec<_> = audit["data"].as_array().unwrap().iter().map(|a| &a["action"]).collect();
    let expected = [
        "team.enable",
        "team.disable",
        "team.terms",
        "team.rename",
        "key.create",
        "team.terms",
        "team.create",
    ];
    assert_eq!(actions, expected);
    let list = ask(&gateway, Method::GET, "/teams", Value::Null, &admin).await.json();
    assert_eq!((&list["total"], &list["data"][0]["name"]), (&json!(1), &json!("Day shift")));
    let users = ask(&gateway, Method::GET, "/users", Value::Null, &admin).await.json();
    assert!(!users.to_string().contains("Day shift"), "a team is nobody");
    for rest in ["", "/reset"] {
        let id = told["id"].as_str().unwrap();
        let method = if rest.is_empty() { Method::GET } else { Method::POST };
        let got = ask(&gateway, method, &format!("/users/{id}{rest}"), json!({}), &admin).await;
        assert_eq!(got.status, 404, "nobody gets a link into a team");
    }
}

#[tokio::test]
async fn members_come_and_go_and_their_keys_stay_unless_revoked() {
    let gateway = TestGateway::start().await;
    let admin = gateway.admin_key().await.to_owned();
    let id = team(&gateway, json!({ "name": "Crew" })).await;
    let other = team(&gateway, json!({ "name": "Other crew" })).await;
    let anna = person(&gateway, "anna", AccountRole::Member).await;
    let bert = person(&gateway, "bert", AccountRole::Viewer).await;
    let member = |who: &str| format!("/teams/{id}/members/{who}");
    for (who, role) in [(&anna, "manager"), (&bert, "viewer")] {
        let got =
            ask(&gateway, Method::PUT, &member(&who.id), json!({ "role": role }), &admin).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let seen = ask(&gateway, Method::GET, &format!("/teams/{id}"), Value::Null, &admin).await;
    let roles: Vec<_> = seen.json()["members"].as_array().unwrap().to_vec();
    let roles: Vec<_> = roles.iter().map(|m| (m["name"].as_str(), m["role"].as_str())).collect();
    assert_eq!(roles.len(), 2);
    assert!(roles.contains(&(Some("anna"), Some("manager"))), "{roles:?}");
    let tag = seen.header("etag").to_owned();
    for (path, body, status) in [
        (member(&anna.id), json!({ "role": "owner" }), 400),
        (member(&anna.id), json!({}), 400),
        (member("nobody"), json!({ "role": "member" }), 404),
        (member(&other), json!({ "role": "member" }), 404),
        (format!("/teams/none/members/{}", anna.id), json!({ "role": "member" }), 404),
    ] {
        let got = ask(&gateway, Method::PUT, &path, body, &admin).await;
        assert_eq!(got.status, status, "{path}: {}", got.text());
    }
    // A member has one key in the team and one outside: only the first is revoked with the member.
    let store = &gateway.app.store;
    let (shared, text) = key_of(&gateway, &id).await;
    let maker = store.key(&shared).await.unwrap().unwrap().created_by.unwrap();
    let (elsewhere, _) = key_of(&gateway, &other).await;
    let seat = json!({ "role": "member" });
    let put = ask(&gateway, Method::PUT, &member(&maker), seat, &admin).await;
    assert_eq!(put.status, 200);
    let remove = |path: String, tag: Option<String>| {
        let ask = gateway.request(Method::DELETE, &format!("/api/admin{path}")).key(&admin);
        let ask = match tag {
            Some(tag) => ask.header("if-match", &tag),
            None => ask,
        };
        async move { ask.send().await.status.as_u16() }
    };
    assert_eq!(remove(member(&anna.id), Some(tag)).await, 412);
    assert_eq!(remove(format!("{}?keys=burn", member(&anna.id)), None).await, 400);
    assert_eq!(remove(member(&anna.id), None).await, 200, "an administrator may, though the last");
    assert_eq!(remove(member(&anna.id), None).await, 404);
    assert_eq!(gateway.get("/v1/key").key(&text).send().await.status, 200);
    assert_eq!(remove(format!("{}?keys=revoke", member(&maker)), None).await, 200);
    assert_eq!(gateway.get("/v1/key").key(&text).send().await.status, 401, "at once");
    assert_eq!(store.key(&elsewhere).await.unwrap().unwrap().revoked, None);
}

#[tokio::test]
async fn only_administrators_administer_teams_whatever_their_seat() {
    let gateway = TestGateway::start().await;
    let admin = person(&gateway, "ada", AccountRole::Admin).await;
    let id = team(&gateway, json!({ "name": "Crew" })).await;
    // Keys of the right scope: it is the account that may or may not.
    let mut keys = vec![(gateway.admin_key_of(&id).await, 403, "the team itself")];
    keys.push((gateway.admin_key_of(&admin.id).await, 0, "an administrator"));
    let owner = gateway.admin_key().await.to_owned();
    keys.push((owner.clone(), 0, "the owner"));
    for (name, role, seat) in [
        ("max", AccountRole::Member, Some("manager")),
        ("mia", AccountRole::Member, Some("member")),
        ("vic", AccountRole::Viewer, Some("viewer")),
        ("sam", AccountRole::Member, None),
    ] {
        let account = person(&gateway, name, role).await;
        if let Some(seat) = seat {
            let path = format!("/teams/{id}/members/{}", account.id);
            let got = ask(&gateway, Method::PUT, &path, json!({ "role": seat }), &owner).await;
            assert_eq!(got.status, 200);
        }
        keys.push((gateway.admin_key_of(&account.id).await, 403, name));
    }
    let spare = person(&gateway, "spare", AccountRole::Member).await;
    let member = format!("/members/{}", spare.id);
    let mut tried = 0;
    for (key, refused, who) in &keys {
        for (team, there) in [(id.as_str(), true), ("none", false)] {
            let path = format!("/teams/{team}");
            for (method, path, body) in [
                (Method::GET, path.clone(), Value::Null),
                (Method::PATCH, path.clone(), json!({ "cap_usd": "9" })),
                (Method::PUT, format!("{path}{member}"), json!({ "role": "member" })),
                (Method::DELETE, format!("{path}{member}"), Value::Null),
                (Method::PATCH, path.clone(), json!({ "disabled": false })),
            ] {
                let cell = format!("{who}: {method} {path}");
                let got = ask(&gateway, method, &path, body, key).await;
                let expected = match (*refused, there) {
                    (0, true) => 200,
                    (0, false) => 404,
                    (refused, _) => refused,
                };
                assert_eq!(got.status, expected, "{cell}: {}", got.text());
                tried += 1;
            }
        }
        let wish = json!({ "name": format!("Crew of {who}") });
        let got = ask(&gateway, Method::POST, "/teams", wish, key).await;
        assert_eq!(got.status, if *refused == 0 { 201 } else { *refused }, "{who}");
        let wish = json!({ "name": "k", "cap_usd": null, "account_id": id });
        let got = ask(&gateway, Method::POST, "/keys", wish, key).await;
        assert_eq!(got.status, if *refused == 0 { 201 } else { *refused }, "{who}");
    }
    assert_eq!(tried, keys.len() * 10);
}

#[tokio::test]
async fn the_command_line_knows_teams_where_keys_are_and_nobody_where_people_are() {
    let folder = std::env::temp_dir().join(format!("portunus-teams-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_portunus"));
        command.current_dir(&folder).env_clear().args(arguments).arg("--json").output().unwrap()
    };
    let told = |arguments: &[&str]| -> Value {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let anna = told(&["users", "create", "anna"])["id"].as_str().unwrap().to_owned();
    let place = format!("sqlite:{}/data/portunus.db", folder.display());
    let store = store::Store::open(&place).await.unwrap();
    let night = store::Team {
        id: "team-night".to_owned(),
        name: "Night shift".to_owned(),
        disabled: false,
        created: Micros::new(1),
        changed: Micros::new(1),
    };
    store.add_team(&night).await.unwrap();
    let key = told(&["keys", "create", "--name", "k", "--unlimited", "--account", "night SHIFT"]);
    assert_eq!(key["account_id"], "team-night");
    let mut record = store.key(key["id"].as_str().unwrap()).await.unwrap().unwrap();
    record.id = "made-by-anna".to_owned();
    record.created_by = Some(anna);
    store.add_key(&record).await.unwrap();
    store.close().await;
    let terms = told(&["keys", "account", "Night shift", "--cap", "5"]);
    assert_eq!(
        (&terms["account"], &terms["cap_usd"]),
        (&json!("Night shift"), &json!("5.000000000"))
    );
    let store = store::Store::open(&place).await.unwrap();
    let noted = store.audits(1).await.unwrap().remove(0);
    assert_eq!((noted.action.as_str(), noted.subject), ("team.terms", night.id));
    store.close().await;
    let listed = String::from_utf8(run(&["users", "list"]).stdout).unwrap();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(!listed.contains("Night shift"), "{listed}");
    for command in ["disable", "reset-password"] {
        let refused = run(&["users", command, "Night shift"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    let locked = told(&["users", "disable", "anna"]);
    assert_eq!(locked["keys_made_for_others"], json!(["made-by-anna"]));
    std::fs::remove_dir_all(&folder).unwrap();
}
