//! Tests of the media fetcher. Servers, certificates and canaries are real. Only name resolution is
//! scripted.

use crate::support::{
    CanaryServer, INNER_ADDRESSES, PNG, ProxyServer, ScriptedResolver, TestAuthority, TestServer,
    forbidden_urls, png_response,
};
use bytes::Bytes;
use canon::MediaKind;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use transport::{AddressGuard, Outbound, ProxySettings};
use upstream::{FetchAllowance, FetchError, FetchLimits, FetchedMedia, MediaFetcher};

const LIMITS: FetchLimits = FetchLimits { max_bytes: 4_096, timeout: Duration::from_secs(10) };

fn fetcher(
    guard: AddressGuard,
    authority: &TestAuthority,
    names: &Arc<ScriptedResolver>,
) -> MediaFetcher {
    let way = Outbound::new(&ProxySettings::default(), &authority.pem).unwrap();
    MediaFetcher::new(guard, &way, LIMITS).with_resolver(Arc::clone(names) as _)
}

async fn get(fetcher: &MediaFetcher, url: &str) -> Result<FetchedMedia, FetchError> {
    fetcher.fetch(url, MediaKind::Image, &FetchAllowance::new(1 << 20)).await
}

fn is_failure(got: &Result<FetchedMedia, FetchError>) -> bool {
    matches!(got, Err(FetchError::Failed(_)))
}

fn go_to(status: u16, location: &str) -> Response<Full<Bytes>> {
    let head = Response::builder().status(status).header("location", location);
    head.body(Full::new(Bytes::new())).unwrap()
}

#[tokio::test]
async fn fetches_an_image_without_credentials() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    names.set_answers("media.example.com", &[&["127.0.0.1"]]);
    let config = authority.server("media.example.com", false, &["h2", "http/1.1"]);
    let server = TestServer::start("127.0.0.1", Some(config), |_| {
        let mut picture = png_response();
        picture.headers_mut().insert("set-cookie", "a=b".parse().unwrap());
        picture
    })
    .await;
    let guard = AddressGuard::new(["media.example.com"]).unwrap();
    let fetcher = fetcher(guard, &authority, &names);
    let url = format!("https://media.example.com:{}/a%20b?c=d#e", server.at.port());
    for _ in 0..2 {
        let got = get(&fetcher, &url).await.unwrap();
        assert_eq!((got.mime.as_str(), got.bytes.as_slice()), ("image/png", PNG));
    }
    for asked in server.requests() {
        assert!(asked.starts_with("HTTP/1.1 /a%20b?c=d {"), "{asked}");
        assert!(!asked.contains("cookie") && !asked.contains("authorization"), "{asked}");
        assert!(asked.contains(r#""accept-encoding": "identity""#), "{asked}");
    }
}

#[tokio::test]
async fn never_dials_forbidden_urls_or_redirects() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    let canary = CanaryServer::start().await;
    names.set_answers("media.test", &[&["127.0.0.1"]]);
    let list = forbidden_urls(canary.port);
    let places = list.clone();
    let server = TestServer::start("127.0.0.1", None, move |request: &Request<Incoming>| {
        let (status, place) = request.uri().path().trim_start_matches('/').split_once('/').unwrap();
        let status = status.parse().unwrap_or(404);
        // Some entries are valid relative URLs, which lead back here and get 404.
        let place = place.parse().ok().and_then(|place: usize| places.get(place));
        // A server cannot send a value that is not valid in a header.
        match place.filter(|place| place.parse::<http::HeaderValue>().is_ok()) {
            Some(place) => go_to(status, place),
            None => go_to(404, "/"),
        }
    })
    .await;
    let guard = AddressGuard::new(["media.test"]).unwrap().with_ports(vec![443, canary.port]);
    let fetcher = fetcher(guard, &authority, &names);
    for (place, url) in list.iter().enumerate() {
        let got = get(&fetcher, url).await;
        let public = url.starts_with("https://public.example.com");
        assert!(
            got == Err(FetchError::NotPublic) || (public && is_failure(&got)),
            "{url}: {got:?}"
        );
        for status in [301, 302, 303, 307, 308] {
            let url = format!("http://media.test:{}/{status}/{place}", server.at.port());
            let got = get(&fetcher, &url).await;
            assert!(is_failure(&got), "{status} to {}: {got:?}", list[place]);
        }
    }
    assert_eq!(canary.connection_count().await, 0);
    assert!(server.requests().len() >= 5 * list.len());
}

#[tokio::test]
async fn one_forbidden_address_forbids_the_name() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    let canary = CanaryServer::start().await;
    let guard = AddressGuard::default().with_ports(vec![canary.port]);
    let fetcher = fetcher(guard, &authority, &names);
    let url = format!("https://wild.example.com:{}/", canary.port);
    let mut asked = 0;
    for inner in INNER_ADDRESSES {
        let many: Vec<&str> = std::iter::repeat_n("8.8.8.8", 1_200).chain([inner]).collect();
        for answer in [&[inner][..], &["8.8.8.8", inner], &["2606:4700::1", inner], &many] {
            names.set_answers("wild.example.com", &[answer]);
            let got = get(&fetcher, &url).await;
            assert!(is_failure(&got), "{inner}: {got:?}");
            asked += 1;
            assert_eq!(names.lookups(), asked, "one lookup per fetch");
        }
    }
    assert_eq!(canary.connection_count().await, 0);
    // A missing host and a forbidden one are reported alike, except in the log.
    assert!(is_failure(
        &get(&fetcher, &format!("https://none.example.com:{}/", canary.port)).await
    ));
    names.set_answers("none.example.com", &[&[]]);
    assert!(is_failure(
        &get(&fetcher, &format!("https://none.example.com:{}/", canary.port)).await
    ));
}

#[tokio::test]
async fn checks_the_name_again_at_every_redirect() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    let config = authority.server("flip.example.com", false, &[]);
    let canary = CanaryServer::start().await;
    let on = format!("https://flip.example.com:{}/", canary.port);
    let server = TestServer::start("127.0.0.2", Some(config), move |_| go_to(302, &on)).await;
    // The first lookup returns an allowed address, every later one the canary.
    let ports = vec![server.at.port(), canary.port];
    let guard = AddressGuard::new(["127.0.0.2/32"]).unwrap().with_ports(ports);
    let fetcher = fetcher(guard, &authority, &names);
    names.set_answers("flip.example.com", &[&["127.0.0.2"], &["127.0.0.1"]]);
    let got = get(&fetcher, &format!("https://flip.example.com:{}/", server.at.port())).await;
    assert!(is_failure(&got), "{got:?}");
    assert_eq!(names.lookups(), 2);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(canary.connection_count().await, 0);
}

#[tokio::test]
async fn redirects_are_limited_and_never_leave_tls() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    names.set_answers("media.example.com", &[&["127.0.0.1"]]);
    let config = authority.server("media.example.com", false, &[]);
    let plain = TestServer::start("127.0.0.1", None, |_| png_response()).await;
    let down = format!("http://media.example.com:{}/", plain.at.port());
    let server =
        TestServer::start("127.0.0.1", Some(config), move |request: &Request<Incoming>| {
            match request.uri().path() {
                "/0" => png_response(),
                "/loop" => go_to(302, "/loop"),
                "/down" => go_to(302, &down),
                "/nowhere" => Response::builder().status(302).body(Full::default()).unwrap(),
                path => {
                    let left: usize = path.trim_start_matches('/').parse().unwrap();
                    go_to(307, &format!("./{}", left - 1))
                }
            }
        })
        .await;
    let guard = AddressGuard::new(["media.example.com"]).unwrap();
    let fetcher = fetcher(guard, &authority, &names);
    let url = |path: &str| format!("https://media.example.com:{}/{path}", server.at.port());
    for (path, good) in [
        ("3", true),
        ("4", false),
        ("20", false),
        ("loop", false),
        ("down", false),
        ("nowhere", false),
    ] {
        let got = get(&fetcher, &url(path)).await;
        assert_eq!(got.is_ok(), good, "{path}: {got:?}");
    }
    assert!(plain.requests().is_empty());
}

#[tokio::test]
async fn refuses_servers_without_a_valid_certificate() {
    let (ours, theirs) = (TestAuthority::new(), TestAuthority::new());
    let names = Arc::new(ScriptedResolver::default());
    names.set_answers("media.example.com", &[&["127.0.0.1"]]);
    let guard = AddressGuard::new(["media.example.com"]).unwrap();
    let fetcher = fetcher(guard, &ours, &names);
    for config in [
        theirs.server("media.example.com", false, &[]),
        ours.server("other.example.com", false, &[]),
        ours.server("media.example.com", true, &[]),
    ] {
        let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
        let url = format!("https://media.example.com:{}/", server.at.port());
        assert!(is_failure(&get(&fetcher, &url).await));
        assert!(server.requests().is_empty());
    }
}

/// A server that sends these bytes, repeatedly if `endless`, and then nothing more.
async fn raw(head: &'static str, body: &'static [u8], endless: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4_096]).await;
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(body).await.is_ok() && endless {}
                // Stays open until the fetcher closes it.
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn gives_up_invalid_and_endless_bodies() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    let guard = AddressGuard::new(["127.0.0.1"]).unwrap();
    let way = Outbound::new(&ProxySettings::default(), &authority.pem).unwrap();
    let limits = FetchLimits { timeout: Duration::from_millis(800), ..LIMITS };
    let fetcher = MediaFetcher::new(guard, &way, limits).with_resolver(names);
    let picture = "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n";
    let head = |more: &str| -> &'static str { format!("{picture}{more}\r\n").leak() };
    let cases: [(&str, &'static str, &'static [u8], bool, bool); 14] = [
        ("a good one", head("content-length: 70\r\n"), PNG, false, true),
        ("a bad length", head("content-length: 99999999999\r\n"), PNG, false, false),
        ("longer than allowed", head("content-length: 4097\r\n"), &[0; 4_097], false, false),
        ("no end", head("transfer-encoding: chunked\r\n"), b"4\r\nPNG!\r\n", true, false),
        ("cut short", head("content-length: 500\r\n"), PNG, false, false),
        ("nothing", head("content-length: 0\r\n"), b"", false, false),
        (
            "packed",
            head("content-encoding: gzip\r\ncontent-length: 3\r\n"),
            b"\x1f\x8b\x08",
            false,
            false,
        ),
        ("no picture", head("content-length: 6\r\n"), b"<html>", false, false),
        ("silence", "", b"", false, false),
        ("no HTTP", "SSH-2.0-OpenSSH_9.9\r\n", b"", false, false),
        ("not there", "HTTP/1.1 404 Not Found\r\ncontent-length: 70\r\n\r\n", PNG, false, false),
        ("not for us", "HTTP/1.1 401 No\r\ncontent-length: 70\r\n\r\n", PNG, false, false),
        ("broken", "HTTP/1.1 500 No\r\ncontent-length: 70\r\n\r\n", PNG, false, false),
        ("a part", "HTTP/1.1 206 Some\r\ncontent-length: 70\r\n\r\n", PNG, false, false),
    ];
    assert_eq!(PNG.len(), 70);
    for (name, head, body, endless, good) in cases {
        let port = raw(head, body, endless).await;
        let got = get(&fetcher, &format!("http://127.0.0.1:{port}/")).await;
        assert_eq!(got.is_ok(), good, "{name}: {got:?}");
        assert!(good || is_failure(&got), "{name}: {got:?}");
    }
}

#[tokio::test]
async fn allowance_limits_all_fetches_of_a_call() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    let server = TestServer::start("127.0.0.1", None, |_| png_response()).await;
    let fetcher = fetcher(AddressGuard::new(["127.0.0.1"]).unwrap(), &authority, &names);
    let url = format!("http://{}/", server.at);
    let allowance = FetchAllowance::new(2 * PNG.len() + 1);
    for good in [true, true, false] {
        let got = fetcher.fetch(&url, MediaKind::Image, &allowance).await;
        assert_eq!(got.is_ok(), good, "{got:?}");
    }
}

#[tokio::test]
async fn proxy_receives_the_checked_address_instead_of_the_name() {
    let (authority, names) = (TestAuthority::new(), Arc::new(ScriptedResolver::default()));
    let config = authority.server("media.example.com", false, &[]);
    let server = TestServer::start("127.0.0.1", Some(config), |_| png_response()).await;
    let proxy = ProxyServer::start(server.at, "200 OK").await;
    let address = Some(format!("http://{}", proxy.at));
    let proxies = ProxySettings { http: address.clone(), https: address, no_proxy: None };
    let way = Outbound::new(&proxies, &authority.pem).unwrap();
    let fetcher = MediaFetcher::new(AddressGuard::default(), &way, LIMITS)
        .with_resolver(Arc::clone(&names) as _);
    names.set_answers("media.example.com", &[&["8.8.8.8"]]);
    assert_eq!(get(&fetcher, "https://media.example.com/").await.unwrap().bytes, PNG);
    assert!(
        proxy.heads()[0].starts_with("CONNECT 8.8.8.8:443 HTTP/1.1\r\n"),
        "{:?}",
        proxy.heads()
    );
    for inner in INNER_ADDRESSES {
        names.set_answers("media.example.com", &[&[inner]]);
        assert!(is_failure(&get(&fetcher, "https://media.example.com/").await), "{inner}");
    }
    assert_eq!(proxy.heads().len(), 1);
}
