//! No call waits for the database: with a lease in hand the path of a call has no statement at all,
//! in no format, whole or streamed. What is posted beside the calls is posted in a few.
//!
//! A binary of its own: the driver reports every statement of the process to one listener.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops when its setup fails"
)]

use admin::{Actor, TeamChange};
use bytes::Bytes;
use canon::Micros;
use config::{Config, LoadOptions};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use portunus::app::App;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::{Account, AccountRole, AccountTerms, ScimUser};
use testkit::NewKey;
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Rounds of calls in every format, whole and streamed, until a key's lease is as large as its use.
const WARM: usize = 10;
/// Rounds in which nothing is asked of the store.
const ROUNDS: usize = 10;

/// The first words of the statement that reads the spending of a key.
const STANDING: &str = "SELECT k.cap, k.spent,";

/// Every statement the driver reported, by its first words.
#[derive(Clone, Default)]
struct Statements(Arc<Mutex<Vec<String>>>);

impl Statements {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl<S: tracing::Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::query" {
            event.record(&mut Words(self));
        }
    }
}

struct Words<'a>(&'a Statements);

impl Visit for Words<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "summary" {
            self.0.0.lock().unwrap().push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// A gateway that serves calls and does nothing beside them.
struct Alone {
    app: Arc<App>,
    url: String,
    given: LoadOptions,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Alone {
    async fn start(config: &str, folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let given = || LoadOptions {
            file: None,
            listen_address: Some(address.to_string()),
            data_folder: folder.to_owned(),
        };
        let config = Config::parse(config, Path::new("test.toml"), &given(), &|_| None).unwrap();
        let (app, _) = App::open(config).await.unwrap();
        tokio::spawn(portunus::serve(Arc::clone(&app), listener));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { app, url: format!("http://{address}"), given: given(), client }
    }

    async fn key(&self, cap: Option<&str>, surface: Option<&str>) -> String {
        let account = self.app.store.accounts().await.unwrap().remove(0);
        let cap = cap.map(|cap| cap.parse().unwrap());
        let ask = NewKey { name: "a test's own".to_owned(), cap, models: vec![], expires: None };
        let (mut record, text) =
            ask.into_record(&account.id, &self.app.engine.keys, self.app.clock.now()).unwrap();
        record.surface = surface.map(str::to_owned);
        self.app.store.add_key(&record).await.unwrap();
        self.app.engine.keys.refresh().await.unwrap();
        text
    }

    async fn call(&self, path: &str, body: &Value, key: &str) {
        self.send("POST", path, body, key).await;
    }

    async fn send(&self, method: &str, path: &str, body: &Value, key: &str) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status();
        let said = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&said));
    }

    /// Calls in every format, whole and streamed; how many.
    async fn calls(&self, key: &str) -> usize {
        let talk = json!([{ "role": "user", "content": "Tell me of the harbour." }]);
        let parts = json!([{ "role": "user", "parts": [{ "text": "Tell me." }] }]);
        let mut count = 0;
        for stream in [false, true] {
            let native = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            let native = format!("/v1beta/models/demo-native:{native}");
            for (path, body) in [
                (
                    "/v1/chat/completions",
                    json!({ "model": "demo-chat", "max_tokens": 40, "stream": stream,
                            "messages": talk }),
                ),
                (
                    "/v1/messages",
                    json!({ "model": "demo-messages", "max_tokens": 40, "stream": stream,
                            "messages": talk }),
                ),
                (
                    "/v1/responses",
                    json!({ "model": "demo-responses", "max_output_tokens": 40,
                            "stream": stream, "store": false, "input": talk }),
                ),
                (
                    native.as_str(),
                    json!({ "contents": parts,
                            "generationConfig": { "maxOutputTokens": 40 } }),
                ),
            ] {
                self.call(path, &body, key).await;
                count += 1;
            }
        }
        count
    }
}

async fn no_call_waits_for(store: &str, statements: &Statements, folder: &Path) {
    let gateway = Alone::start(store, folder).await;
    assert!(!statements.take().is_empty(), "opening a store takes statements");
    let mut calls = 0;
    let (begun, mut standings) = (std::time::Instant::now(), 0);
    let kinds = [(None, None), (Some("1000"), None), (Some("1000"), Some("claude_code"))];
    for (cap, surface) in kinds {
        let key = gateway.key(cap, surface).await;
        for round in 0..WARM + ROUNDS {
            // The heartbeat, which refills leases.
            gateway.app.heartbeat().await;
            statements.take();
            calls += gateway.calls(&key).await;
            let mut told = statements.take();
            if surface.is_some() {
                // The standing of an agent's key, which is read beside its calls.
                let all = told.len();
                told.retain(|told| !told.starts_with(STANDING));
                standings += all - told.len();
            }
            assert!(round < WARM || told.is_empty(), "cap {cap:?}, round {round}: {told:?}");
        }
    }
    let at_most = 1 + usize::try_from(begun.elapsed().as_secs()).unwrap() / 5;
    assert!((1..=at_most).contains(&standings), "{standings} readings");
    assert_eq!(calls, kinds.len() * (WARM + ROUNDS) * 8);
    assert_eq!(
        gateway.app.engine.funds.open_calls.unposted_count(),
        calls,
        "all are settled, none is posted"
    );

    gateway.app.start_background(gateway.given.clone());
    testkit::until("every call is posted", async || {
        let posted = gateway.app.store.totals().await.unwrap();
        posted.iter().map(|total| total.rows).sum::<i64>() == i64::try_from(calls).unwrap()
    })
    .await;
    let told = statements.take();
    let posts = told.iter().filter(|told| told.starts_with("INSERT INTO call_ids")).count();
    assert!(posts > 0 && posts * 10 < calls, "{posts} statements for {calls} calls");
}

/// People of the large group.
const PEOPLE: usize = 1_200;

const PROVIDER: &str = r#"
[identity.corp]
issuer = "https://id.example.com"
client_id = "portunus"
client_secret = { text = "x" }
[identity.corp.groups.map.staff]
role = "member"
teams = { ml = "member" }
"#;

/// A change of a group holds up every other change, so its statements do not grow with each person.
async fn a_large_group_takes_few(statements: &Statements, folder: &Path) {
    let gateway = Alone::start(PROVIDER, folder).await;
    let (admin, store) = (&gateway.app.admin.accounts, &gateway.app.store);
    let team = TeamChange { name: Some("ml".to_owned()), ..TeamChange::default() };
    admin.create_team(&Actor::Operator, team).await.unwrap();
    let provider = gateway.app.config().identity_providers[0].clone();
    let token = admin.create_scim_token(&Actor::Operator, &provider, None).await.unwrap().secret;
    let mut change = store.begin_change().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..PEOPLE {
        let id = format!("person-{number}");
        let account = Account {
            id: id.clone(),
            username: id.clone(),
            email: None,
            role: AccountRole::Viewer,
            password_hash: None,
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        change.add_account_with_terms(&account, &AccountTerms::default()).await.unwrap();
        let person = ScimUser {
            account_id: id.clone(),
            identity: "corp".to_owned(),
            user_name: id.clone(),
            external_id: None,
            display_name: None,
            profile: "{}".to_owned(),
            active: true,
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        change.put_scim_user(&person, &[]).await.unwrap();
        ids.push(json!({ "value": id }));
    }
    change.commit_unaudited().await.unwrap();
    let path = "/scim/v2/Groups";
    for (method, path, body, seats) in [
        ("POST", path.to_owned(), json!({ "displayName": "staff", "members": ids }), PEOPLE),
        ("PUT", path.to_owned(), json!({ "displayName": "staff" }), 0),
    ] {
        let path = match method {
            "PUT" => {
                let groups = store.scim_groups("corp", &[], 0, 1).await.unwrap();
                format!("{path}/{}", groups[0].id)
            }
            _ => path,
        };
        statements.take();
        gateway.send(method, &path, &body, &token).await;
        let told = statements.take();
        assert!(told.len() * 10 < PEOPLE, "{method}: {} statements: {told:?}", told.len());
        let person = store.account("person-7").await.unwrap().unwrap();
        let role = if seats > 0 { AccountRole::Member } else { AccountRole::Viewer };
        assert_eq!(person.role, role);
        let team = store.teams().await.unwrap().remove(0);
        assert_eq!(team.members as usize, seats);
    }
}

#[test]
fn calls_take_no_statement_and_large_groups_take_few() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let statements = Statements::default();
    let heard = tracing_subscriber::registry().with(statements.clone());
    tracing::subscriber::set_global_default(heard).unwrap();
    let folder = std::env::temp_dir().join(format!("portunus-statements-{}", std::process::id()));
    // Each in its own runtime, so that its background work ends with it and is not counted
    // with the next gateway.
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let groups = folder.join("groups");
    std::fs::create_dir_all(&groups).unwrap();
    runtime().block_on(no_call_waits_for("", &statements, &folder));
    runtime().block_on(a_large_group_takes_few(&statements, &groups));
    #[cfg(feature = "node-tests")]
    {
        let server = std::env::var("PORTUNUS_TEST_POSTGRES").expect("a PostgreSQL to test with");
        let name = format!("statements_{}", std::process::id());
        runtime().block_on(async {
            let admin = <sqlx::PgConnection as sqlx::Connection>::connect(&server).await;
            let create = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")));
            create.execute(&mut admin.unwrap()).await.unwrap();
        });
        let (server, _) = server.rsplit_once('/').unwrap();
        let store = format!("[store]\nurl = \"{server}/{name}\"\n");
        let folder = folder.join("postgres");
        std::fs::create_dir_all(&folder).unwrap();
        runtime().block_on(no_call_waits_for(&store, &statements, &folder));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
