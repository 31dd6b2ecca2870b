//! The console with demo data, to look at: `cargo run -p console --example preview -- 127.0.0.1:8099`
//!
//! Prints the set-up address; the account `anna` with the password `three harbour lights` is there
//! already. The address to listen on and the public address may be given.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a tool for developers, on data of its own"
)]

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;

use canon::{Money, Usage};
use catalog::{Catalog, Directory};
use console::{Host, IdentityProvider, KeyAsk, Later, Mail};
use http::Request;
use ledger::{Clock, Entry, Micros, Outcome, SystemClock};
use store::{Account, KeyRecord, Limits, Role, Store, Vault};

const HOUR: Micros = 3_600 * 1_000_000;

struct Preview {
    catalog: Catalog,
    url: String,
    vault: Vault,
}

impl Host for Preview {
    fn with_catalog(&self, look: &mut dyn FnMut(&Catalog)) {
        look(&self.catalog);
    }

    fn public_url(&self) -> String {
        self.url.clone()
    }

    fn formats(&self) -> Vec<&'static str> {
        vec!["chat", "responses", "messages", "native", "images", "embeddings"]
    }

    fn description(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::Map::new()
    }

    fn call(
        self: Arc<Self>,
        key: String,
        _: SocketAddr,
        request: Request<Body>,
    ) -> Later<Response> {
        let said = format!("{key} asked for {}", request.uri());
        Box::pin(async move { Response::new(Body::from(said)) })
    }

    fn administer(self: Arc<Self>, _: Account, _: Request<Body>) -> Later<Response> {
        let nothing = r#"{"success":true,"data":[]}"#;
        Box::pin(async move { Response::new(Body::from(nothing)) })
    }

    fn now(&self) -> Micros {
        SystemClock.now()
    }

    fn new_key(&self, account_id: &str, ask: KeyAsk) -> Result<(KeyRecord, String), String> {
        let secret = uuid::Uuid::now_v7().simple().to_string();
        let id: String = secret.chars().skip(24).collect();
        let text = format!("sk-pt-{id}-{secret}preview");
        Ok((key(&id, account_id, ask, self.now()), text))
    }

    fn new_value(&self, key_id: &str) -> Result<(Vec<u8>, String), String> {
        Ok((vec![1; 32], format!("sk-pt-{key_id}-{}preview", uuid::Uuid::now_v7().simple())))
    }

    fn check_network(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn vault(&self) -> &Vault {
        &self.vault
    }

    fn can_mail(&self) -> bool {
        true
    }

    fn send_mail(&self, mail: Mail) -> Later<Result<(), String>> {
        println!("to {}: {}\n\n{}", mail.to, mail.subject, mail.text);
        Box::pin(async { Ok(()) })
    }

    fn identities(&self) -> Vec<IdentityProvider> {
        Vec::new()
    }

    fn fetch(&self, _: Request<Vec<u8>>) -> Later<Result<http::Response<Vec<u8>>, String>> {
        Box::pin(async { Err("nobody there".to_owned()) })
    }

    fn key_changed(&self, _: KeyRecord) {}
}

fn key(id: &str, account_id: &str, ask: KeyAsk, now: Micros) -> KeyRecord {
    KeyRecord {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        made_by: Some(account_id.to_owned()),
        name: ask.name,
        scope: store::KeyScope::Call,
        hash: vec![0; 32],
        old_hash: None,
        old_until: None,
        cap: ask.cap,
        spent: Money::ZERO,
        budget: None,
        models: ask.models,
        expires: ask.expires,
        revoked: None,
        limits: Limits::default(),
        ips: Vec::new(),
        created: now,
        changed: now,
        last_used: None,
    }
}

fn account(name: &str, role: Role, password: Option<&str>, now: Micros) -> Account {
    use argon2::password_hash::PasswordHasher;
    let hash = |p: &str| argon2::Argon2::default().hash_password(p.as_bytes()).unwrap().to_string();
    Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: name.to_owned(),
        email: None,
        role,
        password_hash: password.map(hash),
        disabled: false,
        created: now,
        changed: now,
    }
}

fn call(key: &KeyRecord, place: usize, now: Micros) -> Entry {
    let models = ["claude-sonnet-5", "gpt-5.2", "demo-chat", "gemini-3-pro", "demo-image"];
    let lanes = ["anthropic/claude-sonnet-5", "openai/gpt-5.2", "demo/demo-chat", "", "demo/image"];
    let outcome = match place % 11 {
        3 => Outcome::Failed,
        5 => Outcome::CallerLeft,
        7 => Outcome::BrokeOff,
        _ => Outcome::Done,
    };
    let failed = outcome == Outcome::Failed;
    let at = now - (place as i64 * place as i64) * HOUR / 12;
    Entry {
        request_id: format!("req_{}", uuid::Uuid::now_v7().simple()),
        key_id: key.id.clone(),
        account_id: key.account_id.clone(),
        started: at - 900_000,
        ended: at,
        first_byte_us: Some(210_000),
        dialect: "chat".to_owned(),
        model: models[place % models.len()].to_owned(),
        lane: if failed { String::new() } else { lanes[place % lanes.len()].to_owned() },
        attempts: 1,
        failed: Vec::new(),
        stream: true,
        status: if failed { 503 } else { 200 },
        outcome,
        usage: Usage {
            input: 812 * (place as u64 + 1),
            output: if failed { 0 } else { 97 * place as u64 + 12 },
            ..Usage::default()
        },
        estimated: outcome == Outcome::CallerLeft,
        cost: Money::nanos(if failed { 0 } else { 134_567 * (place as i64).pow(2) + 41_300 }),
        held: None,
        borne: Money::ZERO,
        price_version: "preview".to_owned(),
        losses: Vec::new(),
        ..Entry::default()
    }
}

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let listen = words.next().unwrap_or_else(|| "127.0.0.1:8099".to_owned());
    let url = words.next().unwrap_or_else(|| format!("http://{listen}"));
    let folder = std::env::temp_dir().join(format!("console-preview-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = Store::open(&format!("sqlite:{}/preview.db", folder.display())).await.unwrap();
    let now = SystemClock.now();
    let anna = account("anna", Role::Owner, Some("three harbour lights"), now);
    let bert = account("bert", Role::Member, Some("three harbour lights"), now);
    for account in [&account("owner", Role::Owner, None, now), &anna, &bert] {
        store.add_account(account).await.unwrap();
    }
    store.put_setting("setup_token", "preview").await.unwrap();
    fill(&store, &anna, &bert, now).await;
    let models = Directory::embedded().models().filter_map(|entry| entry.served_by(|_| true));
    let catalog = Catalog::new(models.collect());
    let vault = Vault::new(std::env::temp_dir().join("portunus-preview-vault.key"), None, false);
    let host = Arc::new(Preview { catalog, url: url.clone(), vault });
    let router = console::router(store, host).fallback(|| async { console::not_found() });
    let listener = tokio::net::TcpListener::bind(&listen).await.unwrap();
    println!("{url}/ · sign in as anna, three harbour lights · {url}/console/setup/preview");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await.unwrap();
}

async fn fill(store: &Store, anna: &Account, bert: &Account, now: Micros) {
    let ask = |name: &str, cap: Option<i64>, models: &[&str], expires: Option<Micros>| KeyAsk {
        name: name.to_owned(),
        cap: cap.map(|dollars| Money::nanos(dollars * 1_000_000_000)),
        models: models.iter().map(|m| (*m).to_owned()).collect(),
        expires,
    };
    let keys = [
        key("q7Rk2mXa", &anna.id, ask("website", Some(5), &[], None), now - 300 * HOUR),
        key(
            "Zt81pLwe",
            &anna.id,
            ask("nightly report", Some(1), &["demo-chat", "demo-echo"], Some(now + 700 * HOUR)),
            now - 200 * HOUR,
        ),
        key("b2Yh5nQc", &anna.id, ask("laptop", None, &[], None), now - 100 * HOUR),
        key("m4Kd9sVb", &bert.id, ask("Bert’s experiments", Some(2), &[], None), now - 90 * HOUR),
        key(
            "x9Gf3tJu",
            &anna.id,
            ask("old trial", Some(1), &[], Some(now - HOUR)),
            now - 900 * HOUR,
        ),
    ];
    for key in &keys {
        store.add_key(key).await.unwrap();
    }
    let calls: Vec<Entry> =
        (0..34).map(|place| call(&keys[[0, 0, 1, 0, 3][place % 5]], place, now)).collect();
    store.post(&calls).await.unwrap();
}
