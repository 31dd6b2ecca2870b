//! Tests of outgoing connections: certificates, proxies, protocols, and redirects that are not
//! followed. Servers, proxies and certificates are real.

use crate::support::{
    self, CanaryServer, ProxyServer, SocksServer, TestAuthority, TestServer, png_response,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use std::time::Duration;
use transport::{ClientResponse, HttpClient, Outbound, ProxySettings, RequestBody};

const CONNECT: Duration = Duration::from_secs(5);

fn direct(authority: &TestAuthority) -> HttpClient {
    HttpClient::network(CONNECT, &Outbound::new(&ProxySettings::default(), &authority.pem).unwrap())
}

fn through(proxy: &str, except: &str, authority: &TestAuthority) -> HttpClient {
    let proxies = ProxySettings {
        http: Some(proxy.to_owned()),
        https: Some(proxy.to_owned()),
        no_proxy: Some(except.to_owned()),
    };
    HttpClient::network(CONNECT, &Outbound::new(&proxies, &authority.pem).unwrap())
}

async fn get(client: &HttpClient, url: &str) -> Result<ClientResponse, String> {
    let request = Request::get(url).header("authorization", "Bearer our-key");
    let request = request.body(RequestBody::default()).unwrap();
    client.send(request, false).await.map_err(|e| format!("{e:?}"))
}

#[tokio::test]
async fn accepts_only_valid_certificates_of_trusted_authorities() {
    let (ours, theirs) = (TestAuthority::new(), TestAuthority::new());
    for (config, good) in [
        (ours.server("localhost", false, &["h2", "http/1.1"]), true),
        (theirs.server("localhost", false, &[]), false),
        (ours.server("other.example.com", false, &[]), false),
        (ours.server("localhost", true, &[]), false),
    ] {
        let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
        let url = format!("https://localhost:{}/", server.at.port());
        let answer = get(&direct(&ours), &url).await;
        assert_eq!(answer.is_ok(), good, "{answer:?}");
        assert_eq!(server.requests().len(), usize::from(good), "no request before the certificate");
    }
}

#[tokio::test]
async fn platform_does_not_trust_an_unknown_authority() {
    let authority = TestAuthority::new();
    let config = authority.server("localhost", false, &[]);
    let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
    // A machine without root certificates trusts no server, which passes too.
    let way = Outbound::new(&ProxySettings::default(), &[]).unwrap();
    let url = format!("https://localhost:{}/", server.at.port());
    assert!(get(&HttpClient::network(CONNECT, &way), &url).await.is_err());
}

/// The variables of the environment must be those of a process that reads its certificates for the
/// first time, so the test runs itself again in one.
#[test]
fn root_certificates_are_read_at_the_first_handshake() {
    const IS_INNER: &str = "PORTUNUS_TEST_WITHOUT_ROOTS";
    if std::env::var_os(IS_INNER).is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(connects_without_root_certificates());
    }
    let folder = std::env::temp_dir().join(format!("portunus-no-roots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "outbound::root_certificates_are_read_at_the_first_handshake"])
        .env(IS_INNER, "1")
        .env_remove("SSL_CERT_FILE")
        .env("SSL_CERT_DIR", &folder)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

async fn connects_without_root_certificates() {
    let authority = TestAuthority::new();
    // Nothing is read before the first handshake, and plain HTTP needs no certificate.
    let way = Outbound::new(&ProxySettings::default(), &[]).unwrap();
    let client = HttpClient::network(CONNECT, &way);
    let plain = TestServer::start("127.0.0.1", None, |_| png_response()).await;
    let url = format!("http://localhost:{}/", plain.at.port());
    assert_eq!(get(&client, &url).await.unwrap().status, 200);
    // The handshake fails with the cure, each time.
    let config = authority.server("localhost", false, &[]);
    let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
    let url = format!("https://localhost:{}/", server.at.port());
    for _ in 0..2 {
        let refused = get(&client, &url).await.unwrap_err();
        assert!(refused.contains("ca-certificates"), "{refused}");
        assert!(refused.contains("outbound.ca"), "{refused}");
    }
    assert!(way.check_certificates().unwrap_err().to_string().contains("ca-certificates"));
    // An authority of the configuration suffices.
    assert_eq!(get(&direct(&authority), &url).await.unwrap().status, 200);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn negotiates_the_protocol_with_alpn() {
    let authority = TestAuthority::new();
    for (offered, spoken) in
        [(&["h2", "http/1.1"][..], "HTTP/2.0"), (&["http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
    {
        let config = authority.server("localhost", false, offered);
        let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
        let url = format!("https://localhost:{}/", server.at.port());
        assert_eq!(get(&direct(&authority), &url).await.unwrap().status, 200);
        assert!(server.requests()[0].starts_with(spoken), "{:?}", server.requests());
    }
}

#[tokio::test]
async fn tls_is_tunnelled_through_an_http_proxy() {
    let authority = TestAuthority::new();
    let config = authority.server("models.example.com", false, &["h2", "http/1.1"]);
    let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
    let proxy = ProxyServer::start(server.at, "200 Connection established").await;
    let client = through(&format!("http://me:pass@{}", proxy.at), "", &authority);
    let answer = get(&client, "https://models.example.com/v1/models").await.unwrap();
    let body = answer.body.collect().await.unwrap().to_bytes();
    assert_eq!(body, support::PNG);
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with("CONNECT models.example.com:443 HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("Proxy-Authorization: Basic bWU6cGFzcw=="), "{heads:?}");
    assert!(!heads[0].contains("our-key"));
    let asked = server.requests();
    assert!(asked[0].starts_with("HTTP/2.0") && !asked[0].contains("proxy-auth"), "{asked:?}");
}

#[tokio::test]
async fn plain_request_sends_a_proxy_the_absolute_url() {
    let authority = TestAuthority::new();
    let canary = CanaryServer::start().await;
    let to = ([127, 0, 0, 1], canary.port).into();
    let proxy = ProxyServer::start(to, "200 OK").await;
    let client = through(&format!("http://me:pass@{}", proxy.at), "", &authority);
    assert_eq!(get(&client, "http://models.example.com/v1/x?y=1").await.unwrap().status, 200);
    let heads = proxy.heads();
    assert!(heads[0].starts_with("GET http://models.example.com/v1/x?y=1 HTTP/1.1\r\n"));
    assert!(heads[0].contains("proxy-authorization: Basic bWU6cGFzcw=="), "{heads:?}");
}

#[tokio::test]
async fn everything_is_tunnelled_through_a_socks_proxy() {
    let authority = TestAuthority::new();
    let config = authority.server("models.example.com", false, &["h2", "http/1.1"]);
    let secured = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
    let proxy = SocksServer::start(secured.at, Some("me:p@ss")).await;
    let client = through(&format!("socks5://me:p%40ss@{}", proxy.at), "", &authority);
    assert_eq!(get(&client, "https://models.example.com/v1/x").await.unwrap().status, 200);
    // The proxy resolves the name, which may be valid only in its network.
    assert_eq!(proxy.targets(), ["models.example.com:443"]);
    assert!(secured.requests()[0].starts_with("HTTP/2.0"), "{:?}", secured.requests());
    let wrong = through(&format!("socks5://me:other@{}", proxy.at), "", &authority);
    assert!(get(&wrong, "https://models.example.com/").await.is_err());

    let plain = TestServer::start("127.0.0.1", None, |_| png_response()).await;
    let proxy = SocksServer::start(plain.at, None).await;
    let client = through(&format!("socks5h://{}", proxy.at), "", &authority);
    assert_eq!(get(&client, "http://models.example.com:81/v1/x?y=1").await.unwrap().status, 200);
    assert_eq!(proxy.targets(), ["models.example.com:81"]);
    assert!(plain.requests()[0].contains("HTTP/1.1 /v1/x?y=1 "), "{:?}", plain.requests());
}

#[tokio::test]
async fn no_proxy_and_loopback_are_reached_directly() {
    let authority = TestAuthority::new();
    let server = TestServer::start("127.0.0.1", None, |_| png_response()).await;
    let proxy = ProxyServer::start(server.at, "200 OK").await;
    let client = through(&format!("http://{}", proxy.at), "", &authority);
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", server.at.port());
        assert_eq!(get(&client, &url).await.unwrap().status, 200);
    }
    assert!(proxy.heads().is_empty() && server.requests().len() == 2);
    assert!(server.requests()[0].contains("HTTP/1.1 / "), "{:?}", server.requests());
    // The name has no address, so only the proxy could have answered.
    let client = through(&format!("http://{}", proxy.at), "corp.invalid", &authority);
    assert!(get(&client, "http://models.corp.invalid/").await.is_err());
    assert!(proxy.heads().is_empty());
}

#[tokio::test]
async fn refusing_proxy_is_not_bypassed() {
    let authority = TestAuthority::new();
    let config = authority.server("localhost", false, &[]);
    let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
    for status in ["407 Who are you", "403 No", "502 Bad Gateway"] {
        let proxy = ProxyServer::start(server.at, status).await;
        let client = through(&format!("http://{}", proxy.at), "", &authority);
        assert!(get(&client, "https://models.example.com/").await.is_err());
        assert_eq!(proxy.heads().len(), 1);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn refuses_invalid_proxies_and_certificates() {
    support::install_crypto();
    for proxy in
        ["socks4://x:1", "socks5://x", "https://x:1", "http://", "", "::", "http://u:secret@"]
    {
        let proxies = ProxySettings { https: Some(proxy.to_owned()), ..ProxySettings::default() };
        let refused = Outbound::new(&proxies, &[]).unwrap_err().to_string();
        assert!(refused.contains("a proxy must be") && !refused.contains("secret"), "{refused}");
    }
    for pem in [&b""[..], b"no pem", b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----"]
    {
        assert!(Outbound::new(&ProxySettings::default(), &[pem.to_vec()]).is_err());
    }
}

#[tokio::test]
async fn follows_no_redirect() {
    let authority = TestAuthority::new();
    let canary = CanaryServer::start().await;
    let port = canary.port;
    for status in [301, 302, 303, 307, 308] {
        let server = TestServer::start("127.0.0.1", None, move |_| {
            Response::builder()
                .status(status)
                .header("location", format!("http://127.0.0.1:{port}/"))
                .body(Full::new(Bytes::new()))
                .unwrap()
        })
        .await;
        let answer = get(&direct(&authority), &format!("http://{}/", server.at)).await.unwrap();
        assert_eq!(answer.status, status);
    }
    assert_eq!(canary.connection_count().await, 0);
}
