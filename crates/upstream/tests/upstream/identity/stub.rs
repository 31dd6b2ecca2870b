//! Stub services that issue credentials. Each counts and keeps what it was asked.

use bytes::Bytes;
use canon::{Micros, WireFormat};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use transport::{HeaderFields, HttpClient, Outbound, ProxySettings, SentMark};
use upstream::{ClockFn, Credential, HostIdentity, Provider, SendOptions, SentSecrets, Timeouts};

use crate::support::install_crypto;

/// A request that a stub received.
#[derive(Clone, Debug)]
pub(crate) struct StubRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl StubRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The fields of a form or of the query, decoded.
    pub(crate) fn fields(&self) -> BTreeMap<String, String> {
        let text = match self.method.as_str() {
            "POST" => String::from_utf8(self.body.clone()).unwrap(),
            _ => self.target.split_once('?').map(|(_, query)| query.to_owned()).unwrap_or_default(),
        };
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }
}

type Answer = dyn Fn(&StubRequest) -> (u16, String) + Send + Sync;

/// A service on a port of this machine.
pub(crate) struct Stub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<StubRequest>>>,
    answer: Arc<Mutex<Arc<Answer>>>,
}

impl Stub {
    pub(crate) async fn start<A>(answer: A) -> Self
    where
        A: Fn(&StubRequest) -> (u16, String) + Send + Sync + 'static,
    {
        let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self::start_gated(open, answer).await
    }

    /// Starts a stub in which every answer takes a permit of the gate.
    pub(crate) async fn start_gated<A>(gate: Arc<Semaphore>, answer: A) -> Self
    where
        A: Fn(&StubRequest) -> (u16, String) + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<StubRequest>>> = Arc::default();
        let answer = Arc::new(Mutex::new(Arc::new(answer) as Arc<Answer>));
        let stub = Self { url, requests, answer };
        let (seen, answers) = (Arc::clone(&stub.requests), Arc::clone(&stub.answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answers, gate) =
                    (Arc::clone(&seen), Arc::clone(&answers), Arc::clone(&gate));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (seen, answers, gate) =
                        (Arc::clone(&seen), Arc::clone(&answers), Arc::clone(&gate));
                    async move {
                        let request = read(request).await;
                        seen.lock().unwrap().push(request.clone());
                        gate.acquire().await.unwrap().forget();
                        let answer = Arc::clone(&answers.lock().unwrap());
                        let (status, body) = answer(&request);
                        let body = Full::new(Bytes::from(body));
                        let answer = Response::builder().status(status).body(body).unwrap();
                        Ok::<_, Infallible>(answer)
                    }
                });
                tokio::spawn(async move {
                    let io = TokioIo::new(stream);
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                });
            }
        });
        stub
    }

    /// Replaces the answers.
    pub(crate) fn answer_with<A>(&self, answer: A)
    where
        A: Fn(&StubRequest) -> (u16, String) + Send + Sync + 'static,
    {
        *self.answer.lock().unwrap() = Arc::new(answer);
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<StubRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(crate) fn last(&self) -> StubRequest {
        self.requests().pop().expect("a request")
    }
}

async fn read(request: Request<Incoming>) -> StubRequest {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), value.to_str().unwrap_or_default().to_owned())
    });
    StubRequest {
        method: head.method.to_string(),
        target: head.uri.path_and_query().map(|target| target.to_string()).unwrap_or_default(),
        headers: headers.collect(),
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

/// A clock that a test sets. It starts in 2026.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_790_000_000)))
    }

    pub(crate) fn function(&self) -> ClockFn {
        let seconds = Arc::clone(&self.0);
        Arc::new(move || Micros::from_secs(seconds.load(Ordering::SeqCst)))
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    /// A moment from now, as AWS and Google write it.
    pub(crate) fn text_in(&self, seconds: i64) -> String {
        jiff::Timestamp::from_second(self.now() + seconds).unwrap().to_string()
    }
}

/// The identity of a machine with these variables.
pub(crate) fn host(variables: &[(&str, &str)]) -> HostIdentity {
    install_crypto();
    // A proxy must not see requests to metadata services.
    let proxies =
        ProxySettings { http: Some("http://127.0.0.1:1".to_owned()), https: None, no_proxy: None };
    let outbound = Outbound::new(&proxies, &[]).unwrap();
    let find = |name: &str| {
        variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
    };
    HostIdentity::new(&outbound, &find)
}

pub(crate) const TIME: Duration = Duration::from_secs(20);

/// A provider at the address of a stub.
pub(crate) fn provider(at: &Stub, credential: Credential) -> Provider {
    install_crypto();
    let outbound = Outbound::new(&ProxySettings::default(), &[]).unwrap();
    let client = HttpClient::network(TIME, &outbound);
    let times = Timeouts { connect: TIME, first_byte: TIME, gap: TIME, total: TIME };
    Provider::new("cloud", vec![WireFormat::Chat], &at.url, credential, times, client).unwrap()
}

/// Posts a body and returns the status, or the error.
pub(crate) async fn call_within(
    provider: &Provider,
    first_byte: Duration,
) -> Result<u16, canon::ApiError> {
    call_with(provider, first_byte, &SentSecrets::default()).await
}

/// Posts a body and notes the secrets that it was sent with.
pub(crate) async fn call_with(
    provider: &Provider,
    first_byte: Duration,
    secrets: &SentSecrets,
) -> Result<u16, canon::ApiError> {
    let options = SendOptions {
        credential: 0,
        new_connection: false,
        connect: TIME,
        first_byte,
        sent: &SentMark::default(),
        secrets,
    };
    let path = "/model/a.claude-v1%3A0/invoke?b=2&a=1";
    let body = vec!["{\"a\":".into(), "1}".into()];
    let answer = provider.send(path, HeaderFields::default(), body, &options).await?;
    let status = answer.status;
    answer.body.collect().await.unwrap();
    Ok(status)
}

pub(crate) async fn call(provider: &Provider) -> Result<u16, canon::ApiError> {
    call_within(provider, TIME).await
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within 30 s: {what}");
}

/// A file of one test, removed at its end.
pub(crate) struct TokenFile(pub(crate) PathBuf);

impl TokenFile {
    pub(crate) fn new(content: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portunus-token-{}-{number}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(content);
        file
    }

    pub(crate) fn write(&self, content: &str) {
        std::fs::write(&self.0, content).unwrap();
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
