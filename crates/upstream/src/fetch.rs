//! Gets what callers name by address, and nothing else.
//!
//! Every hop is looked at by the [`AddressGuard`], its name is resolved here, and the connection is opened
//! to the very address that was judged: a name that changes its mind in between changes nothing.
//! Nothing is sent along that could prove who we are, and no connection is used twice.

use bytes::Bytes;
use canon::MediaKind;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName,
    LOCATION, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use url::{Host, Position};

use crate::media_type;
use transport::Outbound;
use transport::{AddressGuard, FetchTarget, NotPublic};
use transport::{NameResolver, SystemResolver};

/// How often a server may send us on.
const MAX_REDIRECTS: usize = 3;
/// How many addresses of a name are tried.
const MAX_ADDRESSES_TRIED: usize = 4;
/// How long one of them may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How much is being fetched at once, by all calls together.
const MAX_CONCURRENT_FETCHES: usize = 32;

/// How much is fetched, and how long that may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// The largest thing that is fetched, in bytes.
    pub max_bytes: usize,
    /// How long fetching it may take, with everything.
    pub timeout: Duration,
}

/// What may still be fetched for one call, in bytes.
#[derive(Debug)]
pub struct FetchAllowance(AtomicUsize);

impl FetchAllowance {
    /// That many bytes.
    pub const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMedia {
    /// Its media type, by its own bytes.
    pub mime: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Why nothing was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The address is none that may be named.
    NotPublic,
    /// Too much is being fetched at this moment.
    Busy,
    /// It could not be fetched. The reason is for our log alone: it could tell a caller what there
    /// is in networks it cannot see.
    Failed(String),
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublic => NotPublic.fmt(f),
            Self::Busy => f.write_str("too much is being fetched at this moment"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for FetchError {}

fn failed(why: impl fmt::Display) -> FetchError {
    FetchError::Failed(why.to_string())
}

/// Gets what callers name by address.
#[derive(Clone)]
pub struct MediaFetcher {
    guard: AddressGuard,
    resolver: Arc<dyn NameResolver>,
    outbound: Outbound,
    tls: TlsConnector,
    limits: FetchLimits,
    permits: Arc<Semaphore>,
}

impl MediaFetcher {
    /// A fetcher behind that guard.
    pub fn new(guard: AddressGuard, way: &Outbound, limits: FetchLimits) -> Self {
        let mut tls = way.tls();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            guard,
            resolver: Arc::new(SystemResolver::default()),
            outbound: way.clone(),
            tls: TlsConnector::from(Arc::new(tls)),
            limits,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_FETCHES)),
        }
    }

    /// The same fetcher, asking someone else for the addresses of names.
    #[must_use]
    pub fn with_resolver(self, names: Arc<dyn NameResolver>) -> Self {
        Self { resolver: names, ..self }
    }

    /// Who may be asked.
    pub const fn guard(&self) -> &AddressGuard {
        &self.guard
    }

    /// How much is fetched.
    pub const fn limits(&self) -> &FetchLimits {
        &self.limits
    }

    /// Fetches something of that kind, within what the call is still allowed.
    pub async fn fetch(
        &self,
        address: &str,
        wanted: MediaKind,
        allowance: &FetchAllowance,
    ) -> Result<FetchedMedia, FetchError> {
        let target = self.guard.check(address).map_err(|NotPublic| FetchError::NotPublic)?;
        let whole = async {
            let waiting = tokio::time::timeout(self.limits.timeout / 2, self.permits.acquire());
            let _permit = waiting.await.map_err(|_| FetchError::Busy)?.map_err(failed)?;
            self.fetch_following(target, wanted, allowance).await
        };
        match tokio::time::timeout(self.limits.timeout, whole).await {
            Ok(fetched) => fetched,
            Err(_) => Err(failed("it took too long")),
        }
    }

    async fn fetch_following(
        &self,
        mut target: FetchTarget,
        wanted: MediaKind,
        allowance: &FetchAllowance,
    ) -> Result<FetchedMedia, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let request = media_request(&target, wanted).map_err(failed)?;
            let mut asked = self.send(&target, request).await?;
            let status = asked.response.status().as_u16();
            match status {
                200 => return self.read_media(&mut asked.response, wanted, allowance).await,
                301 | 302 | 303 | 307 | 308 => {
                    let location = header_text(asked.response.headers(), LOCATION);
                    let location = location.ok_or_else(|| failed("a redirect to nowhere"))?;
                    // Told as a failure and not as a refusal: whoever may not be asked is not told
                    // from whoever is not there.
                    target = self.guard.check_redirect(&target, location).map_err(failed)?;
                }
                _ => return Err(failed(format_args!("it answered {status}"))),
            }
        }
        Err(failed("too many redirects"))
    }

    /// Posts a JSON text to an address a caller named and tells the status of the answer. Nobody is
    /// followed elsewhere: what is told is meant for that address alone.
    pub async fn post(
        &self,
        address: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<u16, FetchError> {
        let target = self.guard.check(address).map_err(|NotPublic| FetchError::NotPublic)?;
        let mut request = with_target_headers(Request::post(path_and_query(&target)), &target)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Full::new(body))
            .map_err(failed)?;
        request.headers_mut().extend(headers);
        match tokio::time::timeout(self.limits.timeout, self.send(&target, request)).await {
            Ok(asked) => Ok(asked?.response.status().as_u16()),
            Err(_) => Err(failed("it took too long")),
        }
    }

    async fn send(
        &self,
        target: &FetchTarget,
        request: Request<Full<Bytes>>,
    ) -> Result<FetchResponse, FetchError> {
        let stream = self.dial(target).await?;
        if !target.is_tls() {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(target.host()).map_err(failed)?;
        let stream = self.tls.connect(name, stream).await.map_err(failed)?;
        exchange(stream, request).await
    }

    /// Opens a connection to an address that was judged. A name one of whose addresses may not be
    /// dialled is not dialled at all: it is not for us to pick the harmless one.
    async fn dial(&self, target: &FetchTarget) -> Result<TcpStream, FetchError> {
        let found = match &target.host {
            Host::Domain(name) => self.resolver.resolve(name).await.map_err(failed)?,
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
        };
        if let Some(address) = found.iter().find(|to| !self.guard.may_dial(target, **to)) {
            return Err(failed(format_args!("{address} is not public")));
        }
        let named: Uri = target.url.as_str().parse().map_err(failed)?;
        let mut last = failed("the name has no address");
        for address in found.into_iter().take(MAX_ADDRESSES_TRIED) {
            let to = SocketAddr::new(address, target.port);
            match tokio::time::timeout(
                CONNECT_TIMEOUT,
                self.outbound.dial(&named, to, CONNECT_TIMEOUT),
            )
            .await
            {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(e)) => last = failed(e),
                Err(_) => last = failed("no connection in time"),
            }
        }
        Err(last)
    }

    async fn read_media(
        &self,
        answer: &mut Response<Incoming>,
        wanted: MediaKind,
        allowance: &FetchAllowance,
    ) -> Result<FetchedMedia, FetchError> {
        let headers = answer.headers();
        // We asked for none; what is packed regardless could unpack to anything.
        if header_text(headers, CONTENT_ENCODING).is_some_and(|word| word != "identity") {
            return Err(failed("it is packed"));
        }
        let told = header_text(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let too_large = || failed("it is too large");
        if told.is_some_and(|length: usize| length > self.limits.max_bytes) {
            return Err(too_large());
        }
        let kind = header_text(headers, CONTENT_TYPE).map(str::to_owned);
        let mut bytes = Vec::with_capacity(told.unwrap_or(0));
        while let Some(frame) = answer.body_mut().frame().await {
            let Ok(data) = frame.map_err(failed)?.into_data() else { continue };
            if bytes.len() + data.len() > self.limits.max_bytes || !allowance.take(data.len()) {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        match media_type::checked_media_type(wanted, kind.as_deref(), &bytes) {
            Some(mime) => Ok(FetchedMedia { mime, bytes }),
            None => Err(failed(format_args!("{kind:?} is not what was asked for"))),
        }
    }
}

impl fmt::Debug for MediaFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("guard", &self.guard).field("limits", &self.limits).finish()
    }
}

/// An answer, and the connection it is read from; it ends with it.
struct FetchResponse {
    response: Response<Incoming>,
    _connection: JoinSet<()>,
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<FetchResponse, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut running = JoinSet::new();
    running.spawn(async move {
        // What goes wrong here is told where the answer is read.
        let _ = connection.await;
    });
    let answer = sender.send_request(request).await.map_err(failed)?;
    Ok(FetchResponse { response: answer, _connection: running })
}

fn media_request(
    target: &FetchTarget,
    wanted: MediaKind,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let accept = match wanted {
        MediaKind::Image => "image/*",
        MediaKind::Audio => "audio/*",
        MediaKind::Video => "video/*",
        MediaKind::Document => "*/*",
    };
    with_target_headers(Request::get(path_and_query(target)), target)
        .header(ACCEPT, HeaderValue::from_static(accept))
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
        .body(Full::default())
}

fn path_and_query(target: &FetchTarget) -> &str {
    &target.url[Position::BeforePath..Position::AfterQuery]
}

fn with_target_headers(
    request: http::request::Builder,
    target: &FetchTarget,
) -> http::request::Builder {
    let agent = concat!("portunus/", env!("CARGO_PKG_VERSION"));
    request
        .header(HOST, &target.url[Position::BeforeHost..Position::AfterPort])
        .header(USER_AGENT, HeaderValue::from_static(agent))
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
