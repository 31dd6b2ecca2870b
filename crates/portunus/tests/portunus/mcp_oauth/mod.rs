//! MCP servers that people connect in the console: sign-in, renewal, isolation and the guard of addresses.

mod authority;

use admin::NewPassword;
use authority::{McpWorld, escape};
use canon::Micros;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use store::{Account, AccountRole, KeyRecord, Team, TeamRole};
use testkit::{NewKey, TestGateway, TestResponse, until};

const PASSWORD: &str = "three harbour lights";
/// The same vault on both nodes.
const VAULT: &str =
    "[server]\nvault = { text = \"one:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\" }\n";

fn config(world: &McpWorld, per: &str) -> String {
    format!(
        "{VAULT}[mcp.servers.docs]\nurl = \"{}/mcp\"\noauth = {{ per = \"{per}\" }}\n\
         [media]\nallow = [\"127.0.0.1\"]\n",
        world.server
    )
}

/// Somebody with a browser and a key.
struct Person<'a> {
    gateway: &'a TestGateway,
    id: String,
    session: String,
    key: String,
}

async fn key_of(gateway: &TestGateway, owner: &str) -> (KeyRecord, String) {
    let name = "calls".to_owned();
    let key = NewKey { name, cap: None, models: Vec::new(), expires: None };
    let engine = &gateway.app.engine;
    let (record, text) = key.into_record(owner, &engine.keys, gateway.app.clock.now()).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    (record, text)
}

fn cookie(got: &TestResponse) -> String {
    got.header("set-cookie").split(';').next().unwrap().to_owned()
}

impl<'a> Person<'a> {
    async fn new(gateway: &'a TestGateway, name: &str, role: AccountRole) -> Self {
        let owner = gateway.app.store.accounts().await.unwrap().remove(0);
        let hash = NewPassword::check(PASSWORD, &[name]).unwrap().hash().unwrap();
        let account = Account {
            id: format!("id-of-{name}"),
            username: name.to_owned(),
            password_hash: Some(hash.as_str().to_owned()),
            role,
            ..owner
        };
        gateway.app.store.add_account(&account).await.unwrap();
        let (_, key) = key_of(gateway, &account.id).await;
        let id = account.id;
        let mut person = Self { gateway, id, session: "a=b".to_owned(), key };
        let form = format!("login={name}&password={}", escape(PASSWORD));
        let got = person.sends("/login", &form).await;
        assert_eq!(got.status, 303, "{}", got.text());
        person.session = cookie(&got);
        person
    }

    async fn sends(&self, path: &str, form: &str) -> TestResponse {
        let ask = self.gateway.request(Method::POST, path).without_key();
        ask.header("cookie", &self.session)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.to_owned())
            .send()
            .await
    }

    async fn looks(&self, path: &str, more: &str) -> TestResponse {
        let cookies = format!("{}; {more}", self.session);
        self.gateway.get(path).without_key().header("cookie", &cookies).send().await
    }

    /// Presses the button and signs in at the authorization server under that name.
    async fn connects(&self, world: &McpWorld, team: &str, name: &str) -> TestResponse {
        let (query, flow) = self.returns(world, team, name).await;
        self.looks(&format!("/console/mcp/callback?{query}"), &flow).await
    }

    /// Does the same up to the return of the browser, and returns its query and cookie.
    async fn returns(&self, world: &McpWorld, team: &str, name: &str) -> (String, String) {
        let got = self.sends(&format!("/console/mcp/docs/connect{team}"), "").await;
        assert_eq!(got.status, 200, "{}", got.text());
        let page = got.header("refresh").strip_prefix("0; url=").unwrap().to_owned();
        (world.approve(&page, name), cookie(&got))
    }

    async fn asks(&self) -> Value {
        ask(self.gateway, &self.key).await
    }
}

async fn ask(gateway: &TestGateway, key: &str) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": { "name": "docs__who_am_i", "arguments": {} } });
    let got = gateway.post("/mcp", &call).key(key).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()
}

fn answer(got: &Value) -> &str {
    got["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{got}"))
}

fn error(got: &Value) -> &str {
    got["error"]["message"].as_str().unwrap_or_else(|| panic!("{got}"))
}

#[tokio::test]
async fn every_person_uses_a_server_with_their_own_sign_in() {
    let world = McpWorld::start().await;
    let gateway = TestGateway::with_config(&config(&world, "person")).await;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    let bob = Person::new(&gateway, "bob", AccountRole::Admin).await;
    let page = mia.looks("/console/mcp", "").await.text();
    assert!(page.contains("Not connected") && page.contains(">Connect<"), "{page}");

    let got = mia.connects(&world, "", "mia").await;
    assert_eq!((got.status.as_u16(), got.header("location")), (303, "/console/mcp"));
    let page = mia.looks("/console/mcp", "").await.text();
    assert!(page.contains(">Connected") && page.contains(">Disconnect<"), "{page}");
    assert_eq!(answer(&mia.asks().await), "you are mia");

    // An administrator gets no token of another person either.
    let refused = bob.asks().await;
    let place = format!("{}/console/mcp", gateway.app.config().public_url);
    assert!(error(&refused).contains("`docs`") && error(&refused).contains(&place), "{refused}");
    assert_eq!(refused["error"]["data"]["connect_url"], place);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let listed = gateway.post("/mcp", &list).key(&bob.key).send().await.json();
    assert_eq!(listed["result"]["_meta"]["portunus/connect"]["docs"], place, "{listed}");
    let alone = gateway.post("/mcp/docs", &list).key(&bob.key).send().await.json();
    assert!(error(&alone).contains(&place), "{alone}");
    let request = json!({
        "model": "demo-chat", "input": "Who am I?",
        "tools": [{ "type": "mcp", "server_label": "wx", "connector_id": "docs",
                    "require_approval": "never" }],
    });
    let got = gateway.post("/v1/responses", &request).key(&bob.key).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(got.json()["error"]["param"], "tools[0].connector_id");
    assert!(got.text().contains("`docs`") && got.text().contains(&place), "{}", got.text());

    assert_eq!(bob.connects(&world, "", "bob").await.status, 303);
    assert_eq!(answer(&bob.asks().await), "you are bob");
    assert_eq!(answer(&mia.asks().await), "you are mia");
    assert_eq!(world.state.lock().asked.iter().filter(|path| *path == "/register").count(), 1);

    // The store has no token in plain text.
    let given = world.state.lock().given.clone();
    for file in std::fs::read_dir(gateway.data_folder()).unwrap() {
        let Ok(bytes) = std::fs::read(file.unwrap().path()) else { continue };
        for token in &given {
            let found = bytes.windows(token.len()).any(|part| part == token.as_bytes());
            assert!(!found, "{token}");
        }
    }

    let got = mia.sends("/console/mcp/docs/disconnect", "").await;
    assert_eq!(got.status, 303, "{}", got.text());
    assert!(error(&mia.asks().await).contains(&place));
    assert_eq!(answer(&bob.asks().await), "you are bob");
    until("the token is revoked", async || world.state.lock().revoked == 1).await;
}

#[tokio::test]
async fn a_sign_in_returns_to_the_browser_and_person_that_began_it() {
    let world = McpWorld::start().await;
    let gateway = TestGateway::with_config(&config(&world, "person")).await;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    let eve = Person::new(&gateway, "eve", AccountRole::Member).await;
    let (query, flow) = eve.returns(&world, "", "eve").await;
    let path = format!("/console/mcp/callback?{query}");
    // Neither the state nor the cookie connects another account to the sign-in of eve.
    assert_eq!(mia.looks(&path, "").await.status, 400);
    assert_eq!(mia.looks(&path, &flow).await.status, 400);
    let (query, flow) = eve.returns(&world, "", "eve").await;
    let other = query.replace("&iss=", "&iss=x");
    let got = eve.looks(&format!("/console/mcp/callback?{other}"), &flow).await;
    assert_eq!(got.status, 400, "{}", got.text());
    let (query, flow) = eve.returns(&world, "", "eve").await;
    let path = format!("/console/mcp/callback?{query}");
    assert_eq!(eve.looks(&path, &flow).await.status, 303);
    assert_eq!(eve.looks(&path, &flow).await.status, 400, "a return works once");
    assert!(error(&mia.asks().await).contains("not connected"));
    let viewer = Person::new(&gateway, "vic", AccountRole::Viewer).await;
    assert_eq!(viewer.sends("/console/mcp/docs/connect", "").await.status, 403);
    assert_eq!(mia.sends("/console/mcp/nothing/connect", "").await.status, 404);
}

#[tokio::test]
async fn a_team_has_a_sign_in_of_its_own() {
    let world = McpWorld::start().await;
    let gateway = TestGateway::with_config(&config(&world, "team")).await;
    let store = &gateway.app.store;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    let bob = Person::new(&gateway, "bob", AccountRole::Member).await;
    let team = |id: &str| Team {
        id: id.to_owned(),
        name: id.to_owned(),
        disabled: false,
        created: Micros::ZERO,
        changed: Micros::ZERO,
    };
    for id in ["night", "day"] {
        store.add_team(&team(id)).await.unwrap();
    }
    let at = Micros::from_secs(1);
    store.set_member("night", &mia.id, Some(TeamRole::Manager), true, at).await.unwrap();
    store.set_member("night", &bob.id, Some(TeamRole::Member), true, at).await.unwrap();
    let (_, night) = key_of(&gateway, "night").await;
    let (_, day) = key_of(&gateway, "day").await;
    assert_eq!(bob.sends("/console/mcp/docs/connect?for=night", "").await.status, 403);
    assert_eq!(bob.sends("/console/mcp/docs/connect?for=day", "").await.status, 404);
    let got = mia.connects(&world, "?for=night", "night-shift").await;
    assert_eq!((got.status.as_u16(), got.header("location")), (303, "/console/mcp?for=night"));
    assert_eq!(answer(&ask(&gateway, &night).await), "you are night-shift");
    for key in [&day, &mia.key, &bob.key] {
        assert!(error(&ask(&gateway, key).await).contains("not connected"));
    }
    // A sign-in of the team is not one of a person when the operator changes `per`.
    gateway.reload(&config(&world, "person"));
    assert!(error(&ask(&gateway, &night).await).contains("belongs to a team"));
    assert!(error(&mia.asks().await).contains("not connected"));
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_on_all_nodes() {
    let world = McpWorld::start().await;
    let first = TestGateway::with_config(&config(&world, "gateway")).await;
    let second = first.start_second_node(&config(&world, "gateway")).await;
    let mia = Person::new(&first, "mia", AccountRole::Member).await;
    let bob = Person::new(&first, "bob", AccountRole::Admin).await;
    assert_eq!(mia.sends("/console/mcp/docs/connect", "").await.status, 403);
    world.state.lock().first_life = 1;
    assert_eq!(bob.connects(&world, "", "robot").await.status, 303);
    let calls = (0..12).map(|number| {
        let node = if number % 2 == 0 { &first } else { &second };
        ask(node, &first.key)
    });
    for got in join_all(calls).await {
        assert_eq!(answer(&got), "you are robot");
    }
    assert_eq!(world.state.lock().refreshes, 1, "a refresh token is used once");
    // A token that the server ends before its time is renewed too, with the rotated refresh token.
    for expected in [2, 3] {
        world.state.lock().end_access("robot");
        assert_eq!(answer(&ask(&second, &first.key).await), "you are robot");
        assert_eq!(world.state.lock().refreshes, expected);
    }
    assert_eq!(answer(&ask(&first, &first.key).await), "you are robot");
    assert_eq!(world.state.lock().refreshes, 3);
    // Tokens of a short life are used too: a call has two requests, and each renews once.
    world.state.lock().later_life = 5;
    world.state.lock().end_access("robot");
    assert_eq!(answer(&ask(&first, &first.key).await), "you are robot");
    assert!(world.state.lock().refreshes <= 6, "{}", world.state.lock().refreshes);
}

#[tokio::test]
async fn a_revoked_sign_in_is_told_and_repeated() {
    let world = McpWorld::start().await;
    let gateway = TestGateway::with_config(&config(&world, "person")).await;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    world.state.lock().first_life = 1;
    assert_eq!(mia.connects(&world, "", "mia").await.status, 303);
    // An authorization server that is down ends no sign-in, and the token may still be good.
    world.state.lock().failure = Some(503);
    let _ = mia.asks().await;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let got = mia.asks().await;
    assert!(error(&got).contains("could not be reached"), "{got}");
    world.state.lock().failure = None;
    assert_eq!(answer(&mia.asks().await), "you are mia");
    world.state.lock().end_sign_ins("mia");
    let got = mia.asks().await;
    assert!(
        error(&got).contains("sign-in has ended") && error(&got).contains("/console/mcp"),
        "{got}"
    );
    let refreshes = world.state.lock().refreshes;
    let _ = mia.asks().await;
    assert_eq!(world.state.lock().refreshes, refreshes, "a lost sign-in is not tried again");
    let page = mia.looks("/console/mcp", "").await.text();
    assert!(page.contains("Needs signing in again") && page.contains(">Sign in again<"), "{page}");
    assert_eq!(mia.connects(&world, "", "mia").await.status, 303);
    assert_eq!(answer(&mia.asks().await), "you are mia");
    // A new key of the vault opens the same tokens.
    let got = gateway.post("/api/admin/vault/rekey", &json!({})).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(answer(&mia.asks().await), "you are mia");
}

#[tokio::test]
async fn addresses_that_a_server_names_pass_the_guard() {
    let world = McpWorld::start().await;
    // The server is the operator's word. Its authorization server is on another port and is not.
    let closed = config(&world, "person").replace("[media]\nallow = [\"127.0.0.1\"]\n", "");
    let gateway = TestGateway::with_config(&closed).await;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    let got = mia.sends("/console/mcp/docs/connect", "").await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("must be a public HTTPS address"), "{}", got.text());
    assert!(world.state.lock().asked.is_empty(), "nothing is asked");
    // Tokens are not renewed at an address that the operator does not allow any more.
    gateway.reload(&config(&world, "person"));
    world.state.lock().first_life = 1;
    assert_eq!(mia.connects(&world, "", "mia").await.status, 303);
    gateway.reload(&closed);
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let got = mia.asks().await;
    assert!(got["error"].is_object(), "{got}");
    assert_eq!(world.state.lock().refreshes, 0);
}

#[test]
fn wrong_settings_are_named() {
    for (field, line) in [
        ("mcp.servers.docs.oauth.per", "oauth = { per = \"all\" }"),
        ("mcp.servers.docs.oauth.scopes", "oauth = { scopes = [\"a b\"] }"),
        ("mcp.servers.docs.oauth.client_id", "oauth = { client_secret = { text = \"x\" } }"),
        ("mcp.servers.docs.oauth", "oauth = {}\nbearer = { text = \"x\" }"),
        ("mcp.servers.docs.price", "price = \"much\""),
        ("mcp.servers.docs.price", "price = \"-1\""),
    ] {
        let text = format!("[mcp.servers.docs]\nurl = \"https://docs.example.com/mcp\"\n{line}\n");
        let wrong = crate::config::read(&text, &[]).unwrap_err();
        assert!(wrong.contains(field), "{line}: {wrong}");
    }
}
