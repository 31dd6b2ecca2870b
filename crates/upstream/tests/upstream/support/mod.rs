//! Support for tests of outgoing connections: a certificate authority, servers, proxies and
//! canaries.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use transport::{LookupFuture, NameResolver};

/// A PNG image of one pixel.
pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\xdac\xfc\xcf\xc0P\x0f\0\x04\x85\x01\x80\x84\xa9\x8c!\0\0\0\0IEND\xaeB`\x82";

/// Installs the TLS provider.
pub(crate) fn install_crypto() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A certificate authority.
pub(crate) struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, as a list of one.
    pub(crate) pem: [Vec<u8>; 1],
}

impl TestAuthority {
    pub(crate) fn new() -> Self {
        install_crypto();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = [params.self_signed(&key).unwrap().pem().into_bytes()];
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns the TLS settings of a server with this name and these ALPN protocols.
    pub(crate) fn server(&self, name: &str, expired: bool, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|word| word.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

type Handler = dyn Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync;

/// A server that records its requests.
pub(crate) struct TestServer {
    pub(crate) at: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// Starts a server with this handler, over TLS if `tls` is set.
    pub(crate) async fn start<H>(on: &str, tls: Option<Arc<ServerConfig>>, handler: H) -> Self
    where
        H: Fn(&Request<Incoming>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((on, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, handler) = (Arc::clone(&asked), Arc::new(handler) as Arc<Handler>);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, handler, tls) = (Arc::clone(&seen), Arc::clone(&handler), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, seen, handler).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                serve(stream, seen, handler).await;
                            }
                        }
                    }
                });
            }
        });
        Self { at, asked }
    }

    /// Returns every request so far: version, URL and headers as text.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve<S>(stream: S, seen: Arc<Mutex<Vec<String>>>, handler: Arc<Handler>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(|request: Request<Incoming>| {
        let head = format!("{:?} {} {:?}", request.version(), request.uri(), request.headers());
        seen.lock().unwrap().push(head);
        let answer = handler(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
}

/// Returns a response with a PNG image.
pub(crate) fn png_response() -> Response<Full<Bytes>> {
    let body = Full::new(Bytes::from_static(PNG));
    Response::builder().header("content-type", "image/png").body(body).unwrap()
}

/// A listener on every address of this machine that must never be reached.
pub(crate) struct CanaryServer {
    pub(crate) port: u16,
    connections: Arc<Mutex<Vec<SocketAddr>>>,
    listens: Vec<SocketAddr>,
}

impl CanaryServer {
    pub(crate) async fn start() -> Self {
        let old = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = old.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut listens = vec![SocketAddr::from(([127, 0, 0, 1], port))];
        let new = TcpListener::bind(("::1", port)).await.ok();
        listens.extend(new.as_ref().and_then(|listener| listener.local_addr().ok()));
        for listener in std::iter::once(old).chain(new) {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                while let Ok((_, from)) = listener.accept().await {
                    seen.lock().unwrap().push(from);
                }
            });
        }
        Self { port, connections: seen, listens }
    }

    /// Returns the number of foreign connections. Connections are accepted in order, so that all
    /// earlier ones are counted once our own is seen.
    pub(crate) async fn connection_count(&self) -> usize {
        let mut own = Vec::new();
        for at in &self.listens {
            let stream = TcpStream::connect(at).await.unwrap();
            let from = stream.local_addr().unwrap();
            while !self.connections.lock().unwrap().contains(&from) {
                tokio::task::yield_now().await;
            }
            own.push(from);
        }
        let mut seen = self.connections.lock().unwrap();
        seen.retain(|from| !own.contains(from));
        seen.len()
    }
}

/// URLs that must never be dialled, in every spelling known to have deceived a parser.
pub(crate) fn forbidden_urls(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "127.000.000.001",
        "0.0.0.0",
        "0",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:0:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[2001:0:0:0:0:0:80ff:fffe]",
        "[2606:4700::5efe:127.0.0.1]",
        "[fe80::1%25eth0]",
        "[fe80::1]",
        "[fec0::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[::1",
        "169.254.169.254",
        "metadata.google.internal",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "198.18.0.1",
        "192.0.0.1",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "240.0.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "localhost",
        "LOCALHOST.",
        "localhost.localdomain",
        "foo.local",
        "foo.internal",
        "foo.localhost",
        "intranet",
        "user:pw@public.example.com",
        "public.example.com@127.0.0.1",
        "127.0.0.1\\@public.example.com",
        "public.example.com\\.127.0.0.1",
        "127.0.0.1#@public.example.com",
        "127.0.0.1?@public.example.com",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "ⓛocalhost",
        "xn--localhost-.com",
        "xn--a.example.com",
        "127%2e0%2e0%2e1",
        "%31%32%37.0.0.1",
    ];
    let mut all: Vec<String> =
        hosts.iter().map(|host| format!("https://{host}:{port}/x")).collect();
    all.extend(
        ["http", "HTTP", "ftp", "gopher", "dict", "ws", "unix"]
            .map(|scheme| format!("{scheme}://127.0.0.1:{port}/x")),
    );
    all.extend(
        ["22", "25", "6379", "5432", "0", "65536", "-1", "port"]
            .map(|odd| format!("https://public.example.com:{odd}/")),
    );
    all.extend([
        "http://public.example.com/x".to_owned(),
        format!("https:/\\127.0.0.1:{port}/"),
        format!("https:127.0.0.1:{port}"),
        format!("https:/127.0.0.1:{port}"),
        format!("https:///127.0.0.1:{port}"),
        format!("//127.0.0.1:{port}/"),
        format!(" https://127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}\t/"),
        format!("https://127.0\n.0.1:{port}/"),
        format!("https://public.example.com/{}", "a".repeat(65_536)),
        "file:///etc/passwd".to_owned(),
        "javascript:alert(1)".to_owned(),
        "blob:https://public.example.com/1".to_owned(),
        "https://".to_owned(),
        "https://?".to_owned(),
        "https".to_owned(),
        "   ".to_owned(),
    ]);
    all
}

/// Addresses no name may resolve to.
pub(crate) const INNER_ADDRESSES: [&str; 22] = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.100.100.200",
    "198.18.0.1",
    "192.0.0.1",
    "240.0.0.1",
    "224.0.0.1",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fe80::1",
    "fd00:ec2::254",
    "2001::1",
    "2606:4700::5efe:127.0.0.1",
];

/// A resolver with scripted answers per name, used in order; the last one is repeated.
#[derive(Default)]
pub(crate) struct ScriptedResolver {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    asked: AtomicUsize,
}

impl ScriptedResolver {
    pub(crate) fn set_answers(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers.iter().map(|list| list.iter().map(|a| a.parse().unwrap()).collect());
        self.answers.lock().unwrap().insert(name.to_owned(), answers.collect());
    }

    pub(crate) fn lookups(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl NameResolver for ScriptedResolver {
    fn resolve(&self, name: &str) -> LookupFuture {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut all = self.answers.lock().unwrap();
        let found = all
            .get_mut(name)
            .map(|answers| if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() });
        Box::pin(async move { found.ok_or_else(|| std::io::Error::other("no such name")) })
    }
}

/// A proxy that forwards every tunnel to one server.
pub(crate) struct ProxyServer {
    pub(crate) at: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl ProxyServer {
    pub(crate) async fn start(to: SocketAddr, status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward_http(stream, to, status, Arc::clone(&seen)));
            }
        });
        Self { at, heads }
    }

    /// Returns the heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn forward_http(
    stream: TcpStream,
    to: SocketAddr,
    status: &'static str,
    heads: Arc<Mutex<Vec<String>>>,
) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    heads.lock().unwrap().push(head.clone());
    if head.starts_with("CONNECT ") {
        let answer = format!("HTTP/1.1 {status}\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        if status.starts_with("200")
            && let Ok(mut onward) = TcpStream::connect(to).await
        {
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
        }
    } else {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.read(&mut [0; 1024]).await;
    }
}

/// A SOCKS 5 proxy that forwards everything to one address and records the targets.
pub(crate) struct SocksServer {
    pub(crate) at: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl SocksServer {
    /// Starts the proxy. With `proof` it requires this user and password.
    pub(crate) async fn start(to: SocketAddr, proof: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward_socks(stream, to, proof, Arc::clone(&seen)));
            }
        });
        Self { at, asked }
    }

    /// Returns the recorded targets.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn forward_socks(
    mut stream: TcpStream,
    to: SocketAddr,
    proof: Option<&'static str>,
    asked: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let count = read_bytes(&mut stream, 2).await?[1];
    let offered = read_bytes(&mut stream, count.into()).await?;
    let method = if proof.is_some() { 2 } else { 0 };
    if !offered.contains(&method) {
        stream.write_all(&[5, 255]).await.ok()?;
        return None;
    }
    stream.write_all(&[5, method]).await.ok()?;
    if let Some(proof) = proof {
        let mut words = Vec::new();
        let length = read_bytes(&mut stream, 2).await?[1];
        words.push(String::from_utf8(read_bytes(&mut stream, length.into()).await?).unwrap());
        let length = read_bytes(&mut stream, 1).await?[0];
        words.push(String::from_utf8(read_bytes(&mut stream, length.into()).await?).unwrap());
        let good = words.join(":") == proof;
        stream.write_all(&[1, u8::from(!good)]).await.ok()?;
        if !good {
            return None;
        }
    }
    let kind = read_bytes(&mut stream, 4).await?[3];
    let host = match kind {
        1 => <[u8; 4]>::try_from(read_bytes(&mut stream, 4).await?)
            .ok()
            .map(IpAddr::from)?
            .to_string(),
        3 => {
            let length = read_bytes(&mut stream, 1).await?[0];
            String::from_utf8(read_bytes(&mut stream, length.into()).await?).unwrap()
        }
        _ => return None,
    };
    let port = read_bytes(&mut stream, 2).await?;
    asked.lock().unwrap().push(format!("{host}:{}", u16::from_be_bytes([port[0], port[1]])));
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    let mut onward = TcpStream::connect(to).await.ok()?;
    tokio::io::copy_bidirectional(&mut stream, &mut onward).await.ok()?;
    Some(())
}

async fn read_bytes(stream: &mut TcpStream, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}
