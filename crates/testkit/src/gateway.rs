//! A gateway for one test, and a client that shows exactly what came back.

use crate::new_key::NewKey;
use bytes::Bytes;
use config::{Config, LoadOptions};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ledger::{Clock, SystemClock};
use portunus::app::App;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::AccountRole;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use transport::{NameResolver, SystemResolver};

use crate::wait::until;
use crate::wire;

/// A running gateway. Dropped, it ends and its folder goes with it.
pub struct TestGateway {
    /// Its address.
    pub url: String,
    /// Its first key, for calls.
    pub key: String,
    /// Its inside.
    pub app: Arc<App>,
    admin: OnceCell<String>,
    client: Client<HttpConnector, Full<Bytes>>,
    serving: Option<JoinHandle<Result<(), portunus::UnstoredCalls>>>,
    folder: TestFolder,
}

/// A temporary folder that goes when it is dropped.
struct TestFolder(PathBuf);

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn new_test_folder() -> TestFolder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("portunus-test-{}-{number}", std::process::id()));
    // A process with the same number may have been killed in the middle of its tests.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a temporary folder");
    TestFolder(path)
}

impl TestGateway {
    /// A gateway with nothing configured.
    pub async fn start() -> Self {
        Self::with_config("").await
    }

    /// A gateway with that configuration.
    pub async fn with_config(config: &str) -> Self {
        Self::with_names(config, Arc::new(SystemResolver::default())).await
    }

    /// A gateway with that configuration, for which only these names have addresses.
    pub async fn with_names(config: &str, names: Arc<dyn NameResolver>) -> Self {
        Self::start_node(config, names, None, new_test_folder(), Arc::new(SystemClock)).await
    }

    /// A gateway with that configuration and that clock.
    pub async fn with_clock(config: &str, clock: Arc<dyn Clock>) -> Self {
        let names = Arc::new(SystemResolver::default());
        Self::start_node(config, names, None, new_test_folder(), clock).await
    }

    /// Another gateway with that configuration on the same store, with the same key.
    pub async fn start_second_node(&self, config: &str) -> Self {
        let store = self.folder.0.join("portunus.db");
        let config = format!("{config}\n[store]\nurl = \"sqlite:{}\"\n", store.display());
        let names = Arc::new(SystemResolver::default());
        let clock = Arc::new(SystemClock);
        Self::start_node(&config, names, Some(&self.key), new_test_folder(), clock).await
    }

    /// Ends the gateway and starts another one in its folder.
    pub async fn restart(mut self, config: &str) -> Self {
        let (key, folder) = (self.key.clone(), self.folder.0.clone());
        self.folder.0 = PathBuf::new();
        self.stop().await;
        let names = Arc::new(SystemResolver::default());
        let clock = Arc::new(SystemClock);
        Self::start_node(config, names, Some(&key), TestFolder(folder), clock).await
    }

    async fn start_node(
        config: &str,
        names: Arc<dyn NameResolver>,
        key: Option<&str>,
        folder: TestFolder,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let given = LoadOptions {
            file: None,
            listen_address: Some(address.to_string()),
            data_folder: folder.0.clone(),
        };
        let mut config = parse_config(config, &given);
        config.media.fetcher = config.media.fetcher.with_resolver(names);
        let (app, first) = App::open_with_clock(config, clock).await.expect("a gateway that opens");
        let key = key.map(str::to_owned);
        let key = key.unwrap_or_else(|| first.expect("a first start").key);
        let serving = tokio::spawn(portunus::run(Arc::clone(&app), listener, given));
        Self {
            url: format!("http://{address}"),
            key,
            app,
            admin: OnceCell::new(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            serving: Some(serving),
            folder,
        }
    }

    /// Puts another configuration in force, as a changed file does.
    pub fn reload(&self, config: &str) {
        let listen = self.url.strip_prefix("http://").map(str::to_owned);
        let given =
            LoadOptions { file: None, listen_address: listen, data_folder: self.folder.0.clone() };
        self.app.reconfigure(parse_config(config, &given));
    }

    /// Its data folder.
    pub fn data_folder(&self) -> &Path {
        &self.folder.0
    }

    /// A POST with the gateway's first key.
    pub fn post(&self, path: &str, body: &Value) -> TestRequest<'_> {
        self.request(Method::POST, path).body(body.to_string())
    }

    /// A GET with the gateway's first key.
    pub fn get(&self, path: &str) -> TestRequest<'_> {
        self.request(Method::GET, path)
    }

    /// An admin key of the first owner, made when it is first needed.
    pub async fn admin_key(&self) -> &str {
        let make = async {
            let accounts = self.app.store.accounts().await.expect("the accounts");
            let owner = accounts.into_iter().find(|one| one.role == AccountRole::Owner);
            self.admin_key_of(&owner.expect("an owner").id).await
        };
        self.admin.get_or_init(|| make).await
    }

    /// A new admin key of that account.
    pub async fn admin_key_of(&self, account_id: &str) -> String {
        let now = self.app.clock.now();
        let name = "administration".to_owned();
        let key = NewKey { name, cap: None, models: Vec::new(), expires: None };
        let (mut record, text) =
            key.into_record(account_id, &self.app.engine.keys, now).expect("a key");
        record.make_admin(now);
        self.app.store.add_key(&record).await.expect("a stored key");
        text
    }

    /// Any request with the gateway's first key, or with its admin key where one is needed.
    pub fn request(&self, method: Method, path: &str) -> TestRequest<'_> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", "application/json")
            .body(Bytes::new())
            .expect("a request");
        let admin = path.starts_with("/api/admin/") || path == "/metrics";
        TestRequest { gateway: self, request, admin }
    }

    /// Waits until no call is open and every settled call is in the store.
    ///
    /// A batch on its way to the store still counts as unposted.
    pub async fn wait_until_settled(&self) {
        let open_calls = &self.app.engine.funds.open_calls;
        until("settled calls are stored", async || {
            open_calls.running_count() == 0 && open_calls.unposted_count() == 0
        })
        .await;
    }

    /// Ends the gateway as a signal would and waits for it.
    pub async fn stop(mut self) {
        self.app.drain();
        self.app.stop.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.expect("an orderly end").expect("every call is stored");
        }
    }
}

fn parse_config(text: &str, given: &LoadOptions) -> Config {
    let config = Config::parse(text, Path::new("test.toml"), given, &|_| None);
    let mut config = config.expect("a good configuration");
    // No load balancer stands before a test.
    if !text.contains("linger") {
        config.linger = std::time::Duration::ZERO;
    }
    // Tests ask for a state far more often than callers do.
    if !text.contains("free_rpm") {
        config.gate.free_rpm = u32::MAX;
    }
    if !text.contains("public_rpm") {
        config.gate.public_rpm = u32::MAX;
    }
    config
}

/// A request to be sent.
pub struct TestRequest<'a> {
    gateway: &'a TestGateway,
    request: Request<Bytes>,
    /// True while it is to go with the gateway's admin key.
    admin: bool,
}

impl TestRequest<'_> {
    /// With these bytes.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        *self.request.body_mut() = body.into();
        self
    }

    /// With that header, in place of one of the same name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.admin &= name != "authorization";
        let name = HeaderName::try_from(name).expect("a header name");
        self.request.headers_mut().insert(name, value.parse().expect("a header"));
        self
    }

    /// Without that header.
    #[must_use]
    pub fn without_header(mut self, name: &str) -> Self {
        self.admin &= name != "authorization";
        self.request.headers_mut().remove(name);
        self
    }

    /// Without a key.
    #[must_use]
    pub fn without_key(self) -> Self {
        self.without_header("authorization")
    }

    /// With that key instead.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        let value = format!("Bearer {key}");
        self.header("authorization", &value)
    }

    /// Sends the request and returns the request line, its body and the complete answer as text,
    /// for a snapshot.
    pub async fn wire_text(self) -> String {
        self.wire_exchange().await.0
    }

    /// Sends it. Returns request and answer as text, and the answer.
    pub async fn wire_exchange(self) -> (String, TestResponse) {
        let request = wire::request_text(&self.request);
        let got = self.send().await;
        (format!("{request}\n\n{}", wire::answer_text(&got)), got)
    }

    /// Its method.
    pub fn method(&self) -> &Method {
        self.request.method()
    }

    /// Its path, without the query.
    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// Its body.
    pub fn sent_body(&self) -> &Bytes {
        self.request.body()
    }

    /// Sends it and reads the whole answer. `is_truncated` says that the body ended abnormally.
    pub async fn send(self) -> TestResponse {
        self.read_until(|_| false).await.rest().await
    }

    /// Sends it and reads the body until what came is enough, or the body ends.
    pub async fn read_until(mut self, enough: impl Fn(&[u8]) -> bool) -> OpenResponse {
        if self.admin {
            let key = self.gateway.admin_key().await.to_owned();
            self = self.key(&key);
        }
        let response =
            self.gateway.client.request(self.request.map(Full::new)).await.expect("an answer");
        let (head, body) = response.into_parts();
        let mut open = OpenResponse { head, body, read: Vec::new(), is_truncated: false };
        while !enough(&open.read) && open.read_frame().await {}
        open
    }

    /// Sends it and leaves after that many bytes of the body.
    pub async fn disconnect_after(self, bytes: usize) {
        drop(self.read_until(|body| body.len() >= bytes).await);
    }

    /// Sends it and disconnects after that many events.
    pub async fn disconnect_after_events(self, events: usize) {
        let count = |body: &[u8]| body.windows(2).filter(|end| end == b"\n\n").count();
        drop(self.read_until(|body| count(body) >= events).await);
    }
}

/// An answer whose body may go on. Dropped, its caller leaves.
#[derive(Debug)]
pub struct OpenResponse {
    head: http::response::Parts,
    body: Incoming,
    read: Vec<u8>,
    is_truncated: bool,
}

impl OpenResponse {
    /// The status.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Reads a frame; false at the end of the body.
    async fn read_frame(&mut self) -> bool {
        match self.body.frame().await {
            Some(Ok(frame)) => {
                self.read.extend_from_slice(&frame.into_data().unwrap_or_default());
                true
            }
            Some(Err(_)) => {
                self.is_truncated = true;
                false
            }
            None => false,
        }
    }

    /// Reads the rest and returns the whole answer.
    pub async fn rest(mut self) -> TestResponse {
        while !self.is_truncated && self.read_frame().await {}
        let Self { head, body: _, read, is_truncated } = self;
        TestResponse { status: head.status, headers: head.headers, body: read, is_truncated }
    }
}

/// An answer.
#[derive(Debug)]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// True if the body ended abnormally.
    pub is_truncated: bool,
}

impl TestResponse {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| Value::String(format!("not JSON ({e}): {}", self.text())))
    }

    /// A header as text; empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The data of the events of a stream.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}
