//! Route of outgoing connections: direct or through a proxy, with the trusted root certificates.
//! Certificates are always verified.

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service as _;

use crate::client::certificate_verifier::CertificateVerifier;
use crate::client::dialler::Dialler;
use crate::client::guard::AddressGuard;
use crate::client::resolver::{NameResolver, SystemResolver};

/// ALPN name of HTTP/2 (RFC 9113, section 3.2).
const ALPN_H2: &[u8] = b"h2";

/// Proxies of the configuration or of the proxy variables.
#[derive(Clone, Default)]
pub struct ProxySettings {
    /// Proxy for plain HTTP.
    pub http: Option<String>,
    /// Proxy for HTTPS.
    pub https: Option<String>,
    /// Comma-separated hosts and ranges that are reached directly.
    pub no_proxy: Option<String>,
}

/// Invalid settings of outgoing connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundError(pub String);

impl fmt::Display for OutboundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OutboundError {}

/// URL schemes of SOCKS proxies.
const SOCKS_SCHEMES: [&str; 2] = ["socks5", "socks5h"];

/// Proxies, certificates and name resolution of outgoing connections.
#[derive(Clone)]
pub struct Outbound {
    tls: ClientConfig,
    verifier: Arc<CertificateVerifier>,
    matcher: Option<Arc<Matcher>>,
    /// Resolver; `None` uses that of the machine.
    resolver: Option<Arc<dyn NameResolver>>,
}

impl Outbound {
    /// Creates the settings from proxies and additional root certificates in PEM. The root
    /// certificates of the platform are always trusted. They are read at the first handshake.
    pub fn new(proxies: &ProxySettings, trusted: &[Vec<u8>]) -> Result<Self, OutboundError> {
        let ProxySettings { http, https, no_proxy } = proxies;
        for proxy in [http, https].into_iter().flatten() {
            check_proxy(proxy)?;
        }
        let matcher = (http.is_some() || https.is_some()).then(|| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let builder = Matcher::builder().http(text(http)).https(text(https)).no(text(no_proxy));
            Arc::new(builder.build())
        });
        let mut roots = Vec::new();
        for pem in trusted {
            roots.extend(read_pem(pem)?);
        }
        let (verifier, tls) = verifying_tls(roots)?;
        Ok(Self { tls, verifier, matcher, resolver: None })
    }

    /// Restricts name resolution to addresses the guard allows. Behind a proxy this has no effect:
    /// the proxy resolves the target, and the guard must not refuse the proxy itself.
    #[must_use]
    pub fn guarded(&self, guard: &AddressGuard) -> Self {
        let resolver = self
            .matcher
            .is_none()
            .then(|| guard.guard_resolver(Arc::new(SystemResolver::default())));
        Self { resolver, ..self.clone() }
    }

    /// Returns the same settings with further root certificates in PEM.
    pub fn trusting(&self, pem: &[u8]) -> Result<Self, OutboundError> {
        let mut roots = self.verifier.additional_certificates().to_vec();
        roots.extend(read_pem(pem)?);
        let (verifier, tls) = verifying_tls(roots)?;
        Ok(Self { tls, verifier, ..self.clone() })
    }

    /// Returns the same settings without proxies and without a guard, for services of this machine.
    /// Their addresses mean something only here, so a proxy must not be asked for them.
    #[must_use]
    pub fn direct(&self) -> Self {
        Self { matcher: None, resolver: None, ..self.clone() }
    }

    /// Reads the root certificates now, which otherwise the first handshake does. The error tells why
    /// no server can be verified.
    pub fn check_certificates(&self) -> Result<(), OutboundError> {
        self.verifier.read_roots().map_err(|e| match e {
            rustls::Error::General(why) => OutboundError(why),
            other => OutboundError(other.to_string()),
        })
    }

    /// Returns a notice for the operator of a machine without root certificates, on which the list
    /// that is part of the program is used.
    pub fn certificate_notice(&self) -> Option<&'static str> {
        self.verifier.built_in_notice()
    }

    /// Returns the TLS settings without ALPN protocols.
    pub fn tls(&self) -> ClientConfig {
        self.tls.clone()
    }

    /// Returns the proxy for a target. A loopback target has none.
    pub(crate) fn proxy(&self, target: &Uri) -> Option<Intercept> {
        let matcher = self.matcher.as_ref()?;
        let host = target.host()?.trim_matches(['[', ']']);
        let is_loopback = host.eq_ignore_ascii_case("localhost")
            || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if is_loopback { None } else { matcher.intercept(target) }
    }

    /// Returns the `Proxy-Authorization` header of a plain HTTP request (RFC 9110, section 11.7.2).
    /// For HTTPS the tunnel request carries it.
    pub fn proxy_authorization(&self, target: &Uri) -> Option<HeaderValue> {
        self.matcher.as_ref()?;
        let plain = target.scheme_str() == Some("http");
        let proxy = self.proxy(target).filter(|proxy| plain && !is_socks(proxy))?;
        proxy.basic_auth().cloned()
    }

    /// Returns a connector that offers HTTP/2 within TLS.
    pub(crate) fn connector(&self, connect: Duration) -> OutboundConnector {
        let mut tls = self.tls();
        tls.alpn_protocols = vec![ALPN_H2.to_vec(), b"http/1.1".to_vec()];
        let tls = TlsConnector::from(Arc::new(tls));
        OutboundConnector {
            dialler: Dialler::new(connect, self.resolver.clone()),
            tls,
            outbound: self.clone(),
        }
    }

    /// Connects to this address of the target. A proxy receives the address instead of the name, so
    /// that it cannot resolve another one.
    pub async fn dial(
        &self,
        target: &Uri,
        to: SocketAddr,
        connect: Duration,
    ) -> Result<TcpStream, ConnectError> {
        match self.proxy(target) {
            None => Ok(TcpStream::connect(to).await?),
            Some(proxy) => {
                let to: Uri = format!("https://{to}/").parse()?;
                let dialler = Dialler::new(connect, None);
                Ok(open_tunnel(&proxy, dialler, to).await?.into_inner())
            }
        }
    }
}

/// Returns TLS settings that trust these certificates besides those of the platform.
fn verifying_tls(
    roots: Vec<CertificateDer<'static>>,
) -> Result<(Arc<CertificateVerifier>, ClientConfig), OutboundError> {
    let provider = Arc::clone(ClientConfig::builder().crypto_provider());
    let verifier = CertificateVerifier::new(roots, provider).map_err(|e| {
        OutboundError(format!("TLS of outgoing connections could not be set up: {e}"))
    })?;
    let verifier = Arc::new(verifier);
    // `dangerous` warns of verifiers that skip checks; this one asks the platform's.
    let tls = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as _)
        .with_no_client_auth();
    Ok((verifier, tls))
}

/// Error while a connection is opened.
type ConnectError = Box<dyn std::error::Error + Send + Sync>;

/// Returns true for a SOCKS proxy, which forwards bytes unread.
fn is_socks(proxy: &Intercept) -> bool {
    proxy.uri().scheme_str().is_some_and(|scheme| SOCKS_SCHEMES.contains(&scheme))
}

/// Opens a tunnel through a proxy (`CONNECT`, or SOCKS 5 of RFC 1928).
async fn open_tunnel(
    proxy: &Intercept,
    dialler: Dialler,
    target: Uri,
) -> Result<TokioIo<TcpStream>, ConnectError> {
    let at = proxy.uri().clone();
    if is_socks(proxy) {
        // With both schemes the proxy resolves the name, as an HTTP proxy does.
        let socks = SocksV5::new(at, dialler);
        let mut socks = match proxy.raw_auth() {
            Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
            None => socks,
        };
        return Ok(socks.call(target).await?);
    }
    let tunnel = Tunnel::new(at, dialler);
    let mut tunnel = match proxy.basic_auth() {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    };
    Ok(tunnel.call(target).await?)
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.matcher.is_some() { "Outbound(proxy)" } else { "Outbound(direct)" })
    }
}

/// Checks the URL of a proxy, which speaks plain HTTP or SOCKS. Tunnelled traffic is still TLS. The
/// error does not repeat the URL, because it may hold a password.
fn check_proxy(proxy: &str) -> Result<(), OutboundError> {
    let uri = proxy.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).is_some_and(|host| !host.is_empty());
    let scheme = uri.as_ref().and_then(Uri::scheme_str);
    let socks = scheme.is_some_and(|scheme| SOCKS_SCHEMES.contains(&scheme));
    // Without a port the connector would use 80 and not 1080.
    let port = uri.as_ref().is_some_and(|uri| uri.port().is_some());
    if host && (matches!(scheme, None | Some("http")) || (socks && port)) {
        return Ok(());
    }
    let why = "a proxy must be an http or socks5 address such as \"http://proxy.example.com:3128\" \
               or \"socks5://127.0.0.1:1080\"";
    Err(OutboundError(why.to_owned()))
}

fn read_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, OutboundError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(OutboundError("holds no certificate in PEM".to_owned())),
        Err(e) => Err(OutboundError(format!("is not PEM: {e}"))),
    }
}

/// Opens connections, directly or through a proxy.
pub(crate) struct OutboundConnector {
    dialler: Dialler,
    tls: TlsConnector,
    outbound: Outbound,
}

/// An open connection.
pub(crate) struct OpenedConnection {
    pub(crate) stream: ClientStream,
    /// True if a proxy reads the requests.
    pub(crate) is_proxied: bool,
    /// True if ALPN selected HTTP/2.
    pub(crate) is_http2: bool,
}

impl OutboundConnector {
    /// Opens a connection to the host of a URL.
    pub(crate) async fn open(&self, target: &Uri) -> Result<OpenedConnection, ConnectError> {
        let is_tls = target.scheme_str() == Some("https");
        let mut dialler = self.dialler.clone();
        let (stream, is_proxied) = match self.outbound.proxy(target) {
            None => (dialler.call(target.clone()).await?, false),
            Some(proxy) if is_tls || is_socks(&proxy) => {
                (open_tunnel(&proxy, dialler, target.clone()).await?, false)
            }
            Some(proxy) => (dialler.call(proxy.uri().clone()).await?, true),
        };
        let stream = stream.into_inner();
        if !is_tls {
            return Ok(OpenedConnection {
                stream: ClientStream::Plain(stream),
                is_proxied,
                is_http2: false,
            });
        }
        let host = target.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())?;
        let stream = self.tls.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_H2);
        Ok(OpenedConnection { stream: ClientStream::Tls(Box::new(stream)), is_proxied, is_http2 })
    }

    /// Returns true if a proxy reads the requests to this URL.
    pub(crate) fn is_read_by_proxy(&self, target: &Uri) -> bool {
        let is_tls = target.scheme_str() == Some("https");
        !is_tls && self.outbound.proxy(target).is_some_and(|proxy| !is_socks(&proxy))
    }

    /// Returns the `Proxy-Authorization` header of a request to this URL.
    pub(crate) fn proxy_authorization(&self, target: &Uri) -> Option<HeaderValue> {
        self.outbound.proxy_authorization(target)
    }
}

/// A connection over TCP, with or without TLS.
pub(crate) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
