//! Test environment of the console: a store, a host, and requests without a cookie jar.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admin::{AccountAdmin, Admin};
use argon2::password_hash::PasswordHasher;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::{Micros, Money, Usage};
use catalog::{
    Catalog, Lane, Model, ModelCapabilities, ModelCounts, ModelDirectory, ModelKind, ModelPrices,
};
use console::{ConsoleHost, HostError, HostFuture, IdentityProvider, MailMessage};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use ledger::{CallOutcome, Clock, LedgerEntry, TestClock};
use parking_lot::Mutex;
use store::{Account, AccountRole, KeyRecord, KeyScope, RateLimits, Store, Vault};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower::ServiceExt;

use crate::admin_parts::open_admin;
use crate::fake_identity_provider::FakeIdentityProvider;

pub(crate) const PASSWORD: &str = "three harbour lights";
pub(crate) const SECOND: Micros = Micros::from_secs(1);
pub(crate) const DAY: Micros = Micros::from_days(1);
pub(crate) const START: Micros = Micros::from_secs(1_800_000_000);
pub(crate) const ODD: &str = "acme/<script>alert(1)</script>'\"&:x";

pub(crate) struct FakeHost {
    catalog: Catalog,
    url: &'static str,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) admin: Arc<Admin>,
    /// Mail switch, and the channel mails go through.
    pub(crate) mail: AtomicBool,
    outgoing: UnboundedSender<MailMessage>,
    incoming: tokio::sync::Mutex<UnboundedReceiver<MailMessage>>,
    /// Fake identity provider, if configured.
    pub(crate) provider: Mutex<Option<Arc<FakeIdentityProvider>>>,
}

impl FakeHost {
    /// A key in the key cache.
    pub(crate) async fn known(&self, id: &str) -> Option<KeyRecord> {
        self.admin.accounts.keys.by_id(id).await.ok().map(|key| key.record.clone())
    }

    /// Waits for the next mail.
    pub(crate) async fn mail(&self) -> MailMessage {
        self.incoming.lock().await.recv().await.unwrap()
    }

    /// Returns true if no mail is waiting.
    pub(crate) async fn no_mail(&self) -> bool {
        self.incoming.lock().await.try_recv().is_err()
    }

    /// Path of the link in the next mail, and the recipient.
    pub(crate) async fn link(&self) -> (String, String) {
        let mail = self.mail().await;
        let line = mail.text.lines().find(|line| line.contains("/link/")).unwrap();
        assert!(mail.html.contains(line), "{}", mail.html);
        (line.strip_prefix(self.url).unwrap().to_owned(), mail.to)
    }
}

impl ConsoleHost for FakeHost {
    fn with_catalog(&self, look: &mut dyn FnMut(&Catalog)) {
        look(&self.catalog);
    }

    fn public_url(&self) -> String {
        self.url.to_owned()
    }

    fn formats(&self) -> Vec<&'static str> {
        vec!["chat", "messages", "images", "embeddings"]
    }

    fn converses(&self, model: &str) -> bool {
        self.catalog.get(model).is_some_and(|model| model.kind == ModelKind::Chat)
    }

    fn openapi(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::Map::new()
    }

    fn call_api(
        self: Arc<Self>,
        key: String,
        _: SocketAddr,
        request: Request<Body>,
    ) -> HostFuture<Response> {
        let said = format!("{key} asked for {}", request.uri());
        Box::pin(async move { Response::new(Body::from(said)) })
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn admin(&self) -> &Arc<Admin> {
        &self.admin
    }

    fn accounts(&self) -> &AccountAdmin {
        &self.admin.accounts
    }

    fn vault(&self) -> &Vault {
        &self.admin.vault
    }

    fn alert_secret(&self, account_id: &str) -> String {
        format!("whsec_{account_id}")
    }

    fn can_mail(&self) -> bool {
        self.mail.load(Ordering::Relaxed)
    }

    fn send_mail(&self, mail: MailMessage) -> HostFuture<Result<(), HostError>> {
        let sent = self.outgoing.send(mail).map_err(|e| HostError(e.to_string()));
        Box::pin(async move { sent })
    }

    fn identity_providers(&self) -> Vec<IdentityProvider> {
        self.provider.lock().iter().flat_map(|provider| provider.known()).collect()
    }

    fn fetch(
        &self,
        request: Request<Vec<u8>>,
    ) -> HostFuture<Result<http::Response<Vec<u8>>, HostError>> {
        let provider = self.provider.lock().clone();
        Box::pin(
            async move { provider.ok_or(HostError("nobody there".to_owned()))?.answer(&request) },
        )
    }
}

pub(crate) fn key(
    id: &str,
    account_id: &str,
    name: &str,
    cap: Option<Money>,
    models: Vec<String>,
    expires: Option<Micros>,
) -> KeyRecord {
    KeyRecord {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        created_by: Some(account_id.to_owned()),
        name: name.to_owned(),
        scope: KeyScope::Call,
        grants: store::KeyGrants::default(),
        hash: vec![7; 32],
        old_hash: None,
        surface: None,
        old_until: None,
        cap,
        spent: Money::ZERO,
        budget: None,
        models,
        expires,
        revoked: None,
        limits: RateLimits::default(),
        ips: Vec::new(),
        bounds: store::KeyBounds::default(),
        created: START,
        changed: START,
        last_used: None,
    }
}

pub(crate) fn entry(key: &KeyRecord, id: &str, model: &str, cost: i64) -> LedgerEntry {
    LedgerEntry {
        request_id: id.into(),
        key_id: key.id.clone().into(),
        account_id: key.account_id.clone().into(),
        started: START,
        ended: START,
        first_byte_us: None,
        dialect: "chat".into(),
        model: model.into(),
        lane: "demo/demo-chat".into(),
        attempts: 1,
        failed: Vec::new(),
        stream: false,
        status: 200,
        outcome: CallOutcome::Done,
        usage: Usage { input: 1_200, output: 34, ..Usage::default() },
        estimated: false,
        cost: Money::from_nanos(cost),
        held: None,
        absorbed: Money::ZERO,
        price_version: "1".into(),
        losses: Vec::new(),
        ..LedgerEntry::default()
    }
}

/// A gateway with the console only.
pub(crate) struct ConsoleGateway {
    pub(crate) store: Store,
    pub(crate) host: Arc<FakeHost>,
    router: Router,
    folder: PathBuf,
}

impl Drop for ConsoleGateway {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Reply to a request.
pub(crate) struct PageReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl PageReply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// Cookie as a browser sends it back.
    pub(crate) fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap().to_owned()
    }

    /// Cookie with that name as a browser sends it back; empty if the reply does not set it.
    pub(crate) fn cookie_named(&self, name: &str) -> String {
        let set = self.headers.get_all("set-cookie").iter().filter_map(|set| set.to_str().ok());
        let mut pairs = set.filter_map(|set| set.split(';').next());
        let named = pairs.find(|pair| pair.split('=').next() == Some(name));
        named.unwrap_or_default().to_owned()
    }

    pub(crate) fn assert_redirect(&self, path: &str) {
        assert_eq!((self.status, self.header("location")), (StatusCode::SEE_OTHER, path));
    }

    pub(crate) fn assert_contains(&self, text: &str) {
        assert!(self.body.contains(text), "{text:?} is not in {}", self.body);
    }

    pub(crate) fn assert_lacks(&self, text: &str) {
        assert!(!self.body.contains(text), "{text:?} is in {}", self.body);
    }
}

/// Builder of a request.
pub(crate) struct PageRequest<'a> {
    gateway: &'a ConsoleGateway,
    request: Request<Body>,
}

impl PageRequest<'_> {
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().append(name, value.parse().unwrap());
        self
    }

    pub(crate) fn from(mut self, address: [u8; 4]) -> Self {
        let info: SocketAddr = (address, 1234).into();
        self.request.extensions_mut().insert(ConnectInfo(info));
        self
    }

    pub(crate) fn cookie(self, cookie: &str) -> Self {
        self.with("cookie", cookie)
    }

    pub(crate) async fn send(self) -> PageReply {
        let response = self.gateway.router.clone().oneshot(self.request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        PageReply { status: parts.status, headers: parts.headers, body }
    }
}

impl ConsoleGateway {
    pub(crate) async fn new() -> Self {
        Self::at("http://gw.example:8080").await
    }

    pub(crate) async fn at(url: &'static str) -> Self {
        Self::start(url, "").await
    }

    /// A gateway with that configuration file.
    pub(crate) async fn with_config(config: &str) -> Self {
        Self::start("http://gw.example:8080", config).await
    }

    async fn start(url: &'static str, config: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("console-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = Store::open(&format!("sqlite:{}/t.db", folder.display())).await.unwrap();
        let demo = ModelDirectory::embedded().models();
        let mut models: Vec<Model> = demo.filter_map(|entry| entry.served_by(|_| true)).collect();
        models.push(Model {
            id: ODD.to_owned(),
            provider: "<b>acme</b>".to_owned(),
            provider_name: "<b>acme</b>".to_owned(),
            kind: ModelKind::Chat,
            features: vec!["tools".to_owned()],
            capabilities: ModelCapabilities {
                context_window: Some(200_000),
                ..ModelCapabilities::default()
            },
            counts: ModelCounts::default(),
            prices: Arc::new(ModelPrices::default()),
            about: "<img src=x onerror=alert(1)>".to_owned(),
            as_of: String::new(),
            released: None,
            retires: None,
            aliases: Vec::new(),
            lanes: vec![Lane::new("secret-upstream", "x")],
        });
        let (outgoing, incoming) = unbounded_channel();
        let clock = Arc::new(TestClock::at(START));
        let admin = open_admin(store.clone(), Arc::clone(&clock) as _, &folder, config).await;
        let host = Arc::new(FakeHost {
            catalog: Catalog::new(models),
            url,
            clock,
            admin,
            mail: AtomicBool::new(false),
            outgoing,
            incoming: tokio::sync::Mutex::new(incoming),
            provider: Mutex::default(),
        });
        let router = console::router(store.clone(), Arc::clone(&host) as Arc<dyn ConsoleHost>)
            .fallback(|| async { console::not_found() });
        Self { store, host, router, folder }
    }

    /// Another node on the same database.
    pub(crate) async fn beside(&self) -> Self {
        let store = Store::open(&format!("sqlite:{}/t.db", self.folder.display())).await.unwrap();
        let host = Arc::clone(&self.host);
        let router = console::router(store.clone(), Arc::clone(&host) as Arc<dyn ConsoleHost>)
            .fallback(|| async { console::not_found() });
        Self { store, host, router, folder: self.folder.clone() }
    }

    /// A gateway with mail.
    pub(crate) async fn with_mail() -> Self {
        let gateway = Self::new().await;
        gateway.host.mail.store(true, Ordering::Relaxed);
        gateway
    }

    /// Opens a link and returns the cookie.
    pub(crate) async fn open(&self, link: &str, page: &str) -> String {
        let got = self.get(link).send().await;
        got.assert_redirect(page);
        assert_eq!(got.header("referrer-policy"), "no-referrer");
        got.cookie()
    }

    pub(crate) async fn account(&self, name: &str, role: AccountRole) -> Account {
        let hash = argon2::Argon2::default().hash_password(PASSWORD.as_bytes()).unwrap();
        let account = Account {
            id: uuid::Uuid::now_v7().to_string(),
            username: name.to_owned(),
            email: Some(format!("{name}@example.com")),
            role,
            password_hash: Some(hash.to_string()),
            disabled: false,
            created: START,
            changed: START,
        };
        self.store.add_account(&account).await.unwrap();
        account
    }

    pub(crate) async fn key_of(&self, account: &Account, id: &str, name: &str) -> KeyRecord {
        let cap = Some(Money::from_nanos(5_000_000_000));
        let key = key(id, &account.id, name, cap, Vec::new(), None);
        self.store.add_key(&key).await.unwrap();
        key
    }

    pub(crate) fn get(&self, path: &str) -> PageRequest<'_> {
        self.ask(Method::GET, path)
    }

    pub(crate) fn ask(&self, method: Method, path: &str) -> PageRequest<'_> {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        PageRequest { gateway: self, request }
    }

    /// A form sent from our own page.
    pub(crate) fn post(&self, path: &str, fields: &[(&str, &str)]) -> PageRequest<'_> {
        self.foreign_post(path, fields).with("sec-fetch-site", "same-origin")
    }

    /// A form without headers that name its origin.
    pub(crate) fn foreign_post(&self, path: &str, fields: &[(&str, &str)]) -> PageRequest<'_> {
        let body = fields.iter().map(|(name, value)| format!("{name}={}", escape(value)));
        let body = body.collect::<Vec<_>>().join("&");
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(body))
            .unwrap();
        PageRequest { gateway: self, request }
    }

    /// Signs in and returns the cookie.
    pub(crate) async fn sign_in(&self, login: &str) -> String {
        let got = self.post("/login", &[("login", login), ("password", PASSWORD)]).send().await;
        got.assert_redirect("/console");
        got.cookie()
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
