//! A gateway whose certificate authority cannot be reached, or is none.

use rcgen::{CertificateParams, KeyPair};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Site, VAULT_KEY, ask, certificate_check, connect};
use crate::restart::free_address;

/// Writes the configuration of a gateway with this directory.
fn configure(site: &Site, node: &str, [metrics, http]: [&str; 2], directory: &str) {
    site.write(
        &format!("{node}.toml"),
        &format!(
            "[server]\nmetrics = \"{metrics}\"\nhttp_listen = \"{http}\"\n\
             public_url = \"https://gateway.test\"\n\
             vault = {{ text = \"{VAULT_KEY}\" }}\n\
             [server.acme]\ndomains = [\"gateway.test\"]\nterms_agreed = true\n\
             challenge = \"http-01\"\ndirectory = \"{directory}\"\nca = \"ca.pem\"\n\
             [store]\nurl = \"sqlite:shared.db\"\n"
        ),
    );
}

/// Writes the certificate of a server on this machine, and returns it with its key.
fn server_pair(site: &Site) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cert = params.self_signed(&key).unwrap().pem();
    site.write("ca.pem", &cert);
    (cert, key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_without_a_certificate_and_tells_why() {
    let (site, listen, metrics, http) =
        (Site::new(), free_address(), free_address(), free_address());
    let (cert, _) = server_pair(&site);
    configure(&site, "one", [&metrics, &http], &format!("https://{}/dir", free_address()));
    let node = site.start("one", &listen);
    until("the failed order is told", async || {
        certificate_check(&metrics).await.is_some_and(|(status, check)| {
            let message = check["message"].as_str().unwrap_or_default();
            let is_told = message.contains("no certificate yet")
                && message.contains("cannot be reached")
                && message.contains("the next order is at");
            status == 200 && check["state"] == "warning" && is_told
        })
    })
    .await;
    assert!(connect(&node.address, "gateway.test", &cert, None).await.is_err());
    let log = site.log("one");
    assert_eq!(log.matches("is ordered from").count(), 1, "{log}");
    assert!(log.contains("there is no certificate yet"), "{log}");
    // The listener without TLS answers nothing but challenges.
    let plain = async |request: &str| {
        let mut stream = TcpStream::connect(&http).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let get = |path: &str, header: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: evil.test\r\n{header}connection: close\r\n\r\n")
    };
    let moved = plain(&get("/docs?a=b", "")).await;
    assert!(moved.starts_with("HTTP/1.1 308"), "{moved}");
    assert!(moved.contains("location: https://gateway.test/docs?a=b\r\n"), "{moved}");
    let refused = plain(&get("/v1/models", "authorization: Bearer x\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let post = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\
                connection: close\r\n\r\n{}";
    assert!(plain(post).await.starts_with("HTTP/1.1 403"));
    for token in ["", "unknown", "../../../etc/passwd", "%2e%2e%2fp.toml", "a/b"] {
        let answer = plain(&get(&format!("/.well-known/acme-challenge/{token}"), "")).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{token}: {answer}");
        let path = format!("/.well-known/acme-challenge/{token}");
        let answer = plain(&get(&path, "x-api-key: x\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{token} with a key: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_lies_is_asked_once_and_harms_nothing() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // Directories that lead nowhere, and one with answers that make programs fail.
    let odd = "{\"newNonce\":\"https://localhost:PORT/nonce\",\"newAccount\":\
               \"https://localhost:PORT/a\",\"newOrder\":\"https://localhost:PORT/o\"}";
    // All that its addresses answer, in one.
    let many = serde_json::json!({
        "newNonce": "https://localhost:PORT/nonce",
        "newAccount": "https://localhost:PORT/a",
        "newOrder": "https://localhost:PORT/o",
        "status": "pending",
        "finalize": "https://localhost:PORT/f",
        "authorizations": vec!["https://localhost:PORT/z"; 50],
    });
    let many = many.to_string();
    for (body, word) in [
        ("<html>", "not the directory"),
        ("{\"newNonce\":\"\\u0000 no address\"}", "no address"),
        (odd, "cannot be understood"),
        (&many, "50 authorizations for 1 names"),
    ] {
        let (site, listen, metrics) = (Site::new(), free_address(), free_address());
        let (cert, key) = server_pair(&site);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicU32::new(0));
        let body = body.replace("PORT", &port.to_string());
        let server = tokio::spawn(lie(listener, cert, key, body, Arc::clone(&asked)));
        let directory = format!("https://localhost:{port}/dir");
        configure(&site, "one", [&metrics, &free_address()], &directory);
        let mut node = site.start("one", &listen);
        until("the failed order is told", async || {
            let told = certificate_check(&metrics).await;
            told.is_some_and(|(_, check)| {
                let message = check["message"].as_str().unwrap_or_default();
                message.contains("the next order is at")
            })
        })
        .await;
        let (_, check) = certificate_check(&metrics).await.unwrap();
        assert!(check["message"].as_str().unwrap().contains(word), "{word}: {check}");
        assert!(asked.load(Ordering::Relaxed) < 20, "{word}");
        assert!(node.child.try_wait().unwrap().is_none(), "{}", site.log("one"));
        assert_eq!(site.log("one").matches("is ordered from").count(), 1);
        server.abort();
    }
}

/// Answers every request with that body, and asks to wait for ages.
async fn lie(
    listener: TcpListener,
    cert: String,
    key: String,
    body: String,
    asked: Arc<AtomicU32>,
) {
    use rustls::pki_types::pem::PemObject as _;
    let cert = rustls::pki_types::CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        asked.fetch_add(1, Ordering::Relaxed);
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut head = vec![0; 16 << 10];
        let Ok(count) = stream.read(&mut head).await else { continue };
        if count == 0 {
            continue;
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nreplay-nonce: abc\r\nretry-after: 18446744073709551615\r\n\
             location: https://localhost/x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_domains_ends_the_order_that_runs() {
    let (site, metrics) = (Site::new(), free_address());
    server_pair(&site);
    // An authority that takes connections and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = format!("https://localhost:{}/dir", listener.local_addr().unwrap().port());
    configure(&site, "one", [&metrics, &free_address()], &directory);
    let _node = site.start("one", &free_address());
    let (_silent, _) = listener.accept().await.unwrap();
    let config = site.read("one.toml").replace("[\"gateway.test\"]", "[\"changed.test\"]");
    site.write("one.toml", &config);
    until("the order is given up", async || site.log("one").contains("is given up")).await;
    until("the other names are ordered", async || {
        site.log("one").contains("a certificate for changed.test is ordered")
    })
    .await;
    let log = site.log("one");
    assert!(!log.contains("was issued:"), "no failure is counted: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_place_one_order() {
    let site = Site::new();
    server_pair(&site);
    let directory = format!("https://{}/dir", free_address());
    let metrics = [free_address(), free_address()];
    let nodes = ["one", "two"];
    for (node, metrics) in nodes.iter().zip(&metrics) {
        configure(&site, node, [metrics, &free_address()], &directory);
    }
    let _running = nodes.map(|node| site.start(node, &free_address()));
    for one in &metrics {
        until("both tell the failed order", async || {
            certificate_check(one).await.is_some_and(|(_, check)| {
                check["message"].as_str().unwrap_or_default().contains("the next order is at")
            })
        })
        .await;
    }
    let logs = format!("{}{}", site.log("one"), site.log("two"));
    assert_eq!(logs.matches("is ordered from").count(), 1, "{logs}");
    let mut stream = TcpStream::connect(&metrics[0]).await.unwrap();
    let text = ask(&mut stream, "x", "/metrics").await.unwrap();
    assert!(text.contains("portunus_certificate_good 0"), "{text}");
}
