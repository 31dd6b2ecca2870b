//! Sign-in of agents: the device grant, the authorization code, renewal, sign-out, and the end of a
//! person's rights.

mod authorize;
mod device;
mod refresh;
mod settings;
mod usage;

use canon::Micros;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use store::{Account, AccountRole, KeyRecord, TeamRole};
use testkit::{ShiftedClock, TestGateway, TestResponse};

const PASSWORD: &str = "three harbour lights";
const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const REDIRECT: &str = "http://127.0.0.1:8765/callback";
const SECOND: Micros = Micros::from_secs(1);

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = fields.iter().map(|(n, v)| format!("{n}={}", escape(v))).collect();
    pairs.join("&")
}

/// A form of a program, which has neither a key nor a cookie.
async fn send(gateway: &TestGateway, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    let ask = gateway.request(Method::POST, path).without_key();
    let ask = ask.header("content-type", "application/x-www-form-urlencoded");
    ask.header("user-agent", "claude-code/2.1.325").body(form(fields)).send().await
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}")).to_owned()
}

/// A gateway whose time the test moves.
struct Harbour {
    gateway: TestGateway,
    clock: Arc<ShiftedClock>,
}

/// Somebody with a browser.
struct Person<'a> {
    gateway: &'a TestGateway,
    account: Account,
    cookie: String,
}

/// Tokens of an agent.
#[derive(Clone, Debug)]
struct Tokens {
    access: String,
    refresh: String,
}

impl Tokens {
    fn of(got: &TestResponse) -> Self {
        assert_eq!(got.status, 200, "{}", got.text());
        let told = got.json();
        assert_eq!(told["token_type"], "Bearer");
        Self { access: text(&told, "access_token"), refresh: text(&told, "refresh_token") }
    }
}

impl Harbour {
    async fn open() -> Self {
        Self::with_config("").await
    }

    async fn with_config(config: &str) -> Self {
        let clock = Arc::new(ShiftedClock::default());
        let gateway = TestGateway::with_clock(config, Arc::clone(&clock) as _).await;
        Self { gateway, clock }
    }

    async fn person(&self, name: &str, role: AccountRole) -> Person<'_> {
        let gateway = &self.gateway;
        let owner = gateway.app.store.accounts().await.unwrap().remove(0);
        let hash = admin::NewPassword::check(PASSWORD, &[name]).unwrap().hash().unwrap();
        let account = Account {
            id: format!("id-of-{name}"),
            username: name.to_owned(),
            email: Some(format!("{name}@example.com")),
            password_hash: Some(hash.as_str().to_owned()),
            role,
            ..owner
        };
        gateway.app.store.add_account(&account).await.unwrap();
        let mut person = Person { gateway, account, cookie: "a=b".to_owned() };
        let got = person.submit("/login", &[("login", name), ("password", PASSWORD)]).await;
        assert_eq!(got.status, 303, "{}", got.text());
        person.cookie = got.header("set-cookie").split(';').next().unwrap().to_owned();
        person
    }

    async fn begin(&self) -> Value {
        self.begin_with("claude_code").await
    }

    async fn begin_with(&self, surface: &str) -> Value {
        let fields = [("surface", surface)];
        let got = send(&self.gateway, "/oauth/device_authorization", &fields).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.header("cache-control"), "no-store");
        got.json()
    }

    async fn poll(&self, device_code: &str) -> TestResponse {
        let fields = [("grant_type", DEVICE), ("device_code", device_code)];
        send(&self.gateway, "/oauth/token", &fields).await
    }

    /// Polls and returns the status and the word of the error.
    async fn refused_poll(&self, device_code: &str) -> (u16, String) {
        let got = self.poll(device_code).await;
        (got.status.as_u16(), text(&got.json(), "error"))
    }

    /// Signs an agent in for a person, with that owner of the key.
    async fn sign_in(&self, person: &Person<'_>, owner: &str) -> Tokens {
        self.sign_in_with("claude_code", person, owner).await
    }

    async fn sign_in_with(&self, surface: &str, person: &Person<'_>, owner: &str) -> Tokens {
        let begun = self.begin_with(surface).await;
        let got = person.decide(&text(&begun, "user_code"), owner, "approve").await;
        assert_eq!(got.status, 200, "{}", got.text());
        Tokens::of(&self.poll(&text(&begun, "device_code")).await)
    }

    async fn refresh(&self, token: &str) -> TestResponse {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        send(&self.gateway, "/oauth/token", &fields).await
    }

    async fn is_signed_out(&self, refresh: &str) {
        let got = self.refresh(refresh).await;
        assert_eq!(
            (got.status.as_u16(), text(&got.json(), "error")),
            (401, "invalid_grant".into())
        );
    }

    async fn call(&self, token: &str) -> TestResponse {
        let body = json!({
            "model": "demo-messages", "max_tokens": 20,
            "messages": [{ "role": "user", "content": "hello" }],
        });
        let ask = self.gateway.post("/v1/messages?beta=true", &body).key(token);
        ask.header("anthropic-version", "2023-06-01").send().await
    }

    async fn key_of(&self, token: &str) -> KeyRecord {
        let id = token.split('-').nth(2).unwrap();
        self.gateway.app.store.key(id).await.unwrap().unwrap()
    }
}

impl Person<'_> {
    async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> TestResponse {
        let ask = self.gateway.request(Method::POST, path).without_key();
        let ask = ask.header("cookie", &self.cookie).header("sec-fetch-site", "same-origin");
        ask.header("content-type", "application/x-www-form-urlencoded")
            .body(form(fields))
            .send()
            .await
    }

    async fn look(&self, path: &str) -> TestResponse {
        self.gateway.get(path).without_key().header("cookie", &self.cookie).send().await
    }

    async fn decide(&self, user_code: &str, owner: &str, answer: &str) -> TestResponse {
        let fields =
            [("user_code", user_code), ("owner", owner), ("name", "laptop"), ("answer", answer)];
        self.submit("/console/device", &fields).await
    }
}
