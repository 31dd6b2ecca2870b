//! Fetches media that callers name by URL.
//!
//! The [`AddressGuard`] checks every redirect. The name is resolved here, and the connection goes
//! to the checked address, so that a second lookup cannot return another one (DNS rebinding). No
//! credential or cookie is sent, and no connection is reused.

use bytes::Bytes;
use canon::MediaKind;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName,
    LOCATION, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use url::{Host, Position};

use crate::media_type;
use transport::Outbound;
use transport::{AddressGuard, FetchTarget, NotPublic};
use transport::{NameResolver, SystemResolver};

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 3;
/// Addresses of a name that are tried.
const MAX_ADDRESSES_TRIED: usize = 4;
/// Time for one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Concurrent fetches of all calls.
const MAX_CONCURRENT_FETCHES: usize = 32;

/// Limits of one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Largest media in bytes.
    pub max_bytes: usize,
    /// Time for the complete fetch.
    pub timeout: Duration,
}

/// Bytes that may still be fetched for one call.
#[derive(Debug)]
pub struct FetchAllowance(AtomicUsize);

impl FetchAllowance {
    /// Creates an allowance of this many bytes.
    pub const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Fetched media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMedia {
    /// Media type, detected from the bytes.
    pub mime: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Error of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The URL must not be named.
    NotPublic,
    /// Too many fetches are running.
    Busy,
    /// The fetch failed. The reason is for the log only, because it could describe networks that
    /// the caller cannot see.
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

/// Fetches media that callers name by URL.
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
    /// Creates a fetcher with this guard.
    pub fn new(guard: AddressGuard, outbound: &Outbound, limits: FetchLimits) -> Self {
        let mut tls = outbound.tls();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            guard,
            resolver: Arc::new(SystemResolver::default()),
            outbound: outbound.clone(),
            tls: TlsConnector::from(Arc::new(tls)),
            limits,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_FETCHES)),
        }
    }

    /// Replaces the resolver.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn NameResolver>) -> Self {
        Self { resolver, ..self }
    }

    /// Replaces the number of concurrent fetches.
    #[must_use]
    pub fn with_places(self, places: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(places)), ..self }
    }

    /// Returns the guard.
    pub const fn guard(&self) -> &AddressGuard {
        &self.guard
    }

    /// Returns the limits.
    pub const fn limits(&self) -> &FetchLimits {
        &self.limits
    }

    /// Fetches media of this kind within the allowance of the call.
    pub async fn fetch(
        &self,
        address: &str,
        wanted: MediaKind,
        allowance: &FetchAllowance,
    ) -> Result<FetchedMedia, FetchError> {
        let target = self.guard.check(address).map_err(|NotPublic| FetchError::NotPublic)?;
        let fetching = async {
            let waiting = tokio::time::timeout(self.limits.timeout / 2, self.permits.acquire());
            let _permit = waiting.await.map_err(|_| FetchError::Busy)?.map_err(failed)?;
            self.fetch_following(target, wanted, allowance).await
        };
        match tokio::time::timeout(self.limits.timeout, fetching).await {
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
            // Reported as a failure like any other, so that a caller cannot distinguish a forbidden
            // host from a missing one.
            let mut reply = self.send(&target, request).await.map_err(failed)?;
            let status = reply.response.status().as_u16();
            match status {
                200 => return self.read_media(&mut reply.response, wanted, allowance).await,
                301 | 302 | 303 | 307 | 308 => {
                    let location = header_text(reply.response.headers(), LOCATION);
                    let location =
                        location.ok_or_else(|| failed("a redirect without a location"))?;
                    target = self.guard.check_redirect(&target, location).map_err(failed)?;
                }
                _ => return Err(failed(format_args!("it answered {status}"))),
            }
        }
        Err(failed("too many redirects"))
    }

    /// Posts JSON to a URL that a caller named and returns the status. Redirects are not followed,
    /// because the content is meant for this URL only.
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
            Ok(reply) => Ok(reply?.response.status().as_u16()),
            Err(_) => Err(failed("it took too long")),
        }
    }

    /// Posts JSON and returns the answer as it arrives. Redirects that keep the method are followed within
    /// one origin, because headers may hold credentials for it. The time is limited by the caller.
    pub async fn open_post(
        &self,
        address: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<FetchReply, FetchError> {
        self.open(Method::POST, address, headers, body).await
    }

    /// Sends a request with JSON, or with the type that the headers name, and returns the answer as it
    /// arrives, by the rules of [`Self::open_post`].
    pub async fn open(
        &self,
        method: Method,
        address: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<FetchReply, FetchError> {
        let mut target = self.guard.check(address).map_err(|NotPublic| FetchError::NotPublic)?;
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| FetchError::Busy)?;
        for _ in 0..=MAX_REDIRECTS {
            let started = Request::builder().method(&method).uri(path_and_query(&target));
            let mut request = with_target_headers(started, &target)
                .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
                .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
                .body(Full::new(body.clone()))
                .map_err(failed)?;
            request.headers_mut().extend(headers.clone());
            let reply = self.send(&target, request).await?;
            if !matches!(reply.response.status().as_u16(), 307 | 308) {
                return Ok(FetchReply { reply, _permit: permit });
            }
            let location = header_text(reply.response.headers(), LOCATION);
            let location = location.ok_or_else(|| failed("a redirect without a location"))?;
            let next = self.guard.check_redirect(&target, location).map_err(failed)?;
            if next.url.origin() != target.url.origin() {
                return Err(failed("a redirect to another server"));
            }
            target = next;
        }
        Err(failed("too many redirects"))
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

    /// Connects to a checked address. If one address of a name is forbidden, none is dialled,
    /// because the name may be part of an attack.
    async fn dial(&self, target: &FetchTarget) -> Result<TcpStream, FetchError> {
        let addresses = match &target.host {
            Host::Domain(name) => self.resolver.resolve(name).await.map_err(failed)?,
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
        };
        if let Some(address) = addresses.iter().find(|to| !self.guard.may_dial(target, **to)) {
            tracing::debug!("{} resolves to {address}, which is not public", target.host());
            return Err(FetchError::NotPublic);
        }
        let named: Uri = target.url.as_str().parse().map_err(failed)?;
        let mut last = failed("the name has no address");
        for address in addresses.into_iter().take(MAX_ADDRESSES_TRIED) {
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
        response: &mut Response<Incoming>,
        wanted: MediaKind,
        allowance: &FetchAllowance,
    ) -> Result<FetchedMedia, FetchError> {
        let headers = response.headers();
        // No compression was requested, and a compressed body could expand to any size.
        if header_text(headers, CONTENT_ENCODING).is_some_and(|word| word != "identity") {
            return Err(failed("the body is compressed"));
        }
        let length = header_text(headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let too_large = || failed("it is too large");
        if length.is_some_and(|length: usize| length > self.limits.max_bytes) {
            return Err(too_large());
        }
        let kind = header_text(headers, CONTENT_TYPE).map(str::to_owned);
        let mut bytes = Vec::with_capacity(length.unwrap_or(0));
        while let Some(frame) = response.body_mut().frame().await {
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
        f.debug_struct("MediaFetcher")
            .field("guard", &self.guard)
            .field("limits", &self.limits)
            .finish()
    }
}

/// Answer to a post, read piece by piece. Its connection ends with it.
pub struct FetchReply {
    reply: FetchResponse,
    _permit: OwnedSemaphorePermit,
}

impl FetchReply {
    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.reply.response.status().as_u16()
    }

    /// Returns a header that is plain text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.reply.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the next piece of the body.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, FetchError> {
        while let Some(frame) = self.reply.response.body_mut().frame().await {
            if let Ok(data) = frame.map_err(failed)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// A response and the task of its connection, which ends with it.
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
        // The reader of the response sees the error.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(FetchResponse { response, _connection: running })
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
