//! HTTPS: both versions of HTTP with one certificate, and clients that do not speak TLS.

use super::raw_client::Caller;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use testkit::TestGateway;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate of `gateway.test` and its key, good for a hundred years and for nothing else.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/portunus/transport/data");

async fn secured() -> TestGateway {
    let tls = format!("tls = {{ cert = \"{FILES}/cert.pem\", key = \"{FILES}/key.pem\" }}");
    TestGateway::with_config(&format!("[server]\n{tls}\n")).await
}

fn address(gateway: &TestGateway) -> &str {
    gateway.url.trim_start_matches("http://")
}

async fn connect(
    gateway: &TestGateway,
    protocol: &[u8],
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(format!("{FILES}/cert.pem")).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address(gateway)).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn both_versions_are_agreed_on_and_served() {
    let gateway = secured().await;
    let request = || Request::get("https://gateway.test/healthz").header("host", "gateway.test");
    let stream = connect(&gateway, b"h2", "gateway.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let executor = TokioExecutor::new();
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    let body = Empty::<Bytes>::new();
    let answer = sender.send_request(request().body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 18);
    let stream = connect(&gateway, b"http/1.1", "gateway.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let answer = sender.send_request(request().body(Empty::<Bytes>::new()).unwrap()).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 18);
        sender.ready().await.unwrap();
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_counted() {
    let tls = format!("tls = {{ cert = \"{FILES}/cert.pem\", key = \"{FILES}/key.pem\" }}");
    let gateway =
        TestGateway::with_config(&format!("[server]\n{tls}\n[limits]\nconnections = 2\n")).await;
    let held = [
        connect(&gateway, b"h2", "gateway.test").await.unwrap(),
        connect(&gateway, b"h2", "gateway.test").await.unwrap(),
    ];
    for refused in 1..=3 {
        assert!(connect(&gateway, b"h2", "gateway.test").await.is_err());
        assert_eq!(gateway.app.engine.connections.refused(), refused);
    }
    let refused_connections = gateway.app.engine.connections.refused();
    let scraped = telemetry::ScrapedValues { refused_connections, ..Default::default() };
    let format = telemetry::MetricsFormat::Prometheus;
    let text = gateway.app.engine.metrics.encode(&scraped, format);
    assert!(text.contains("portunus_refused_connections_total 3\n"), "{text}");
    drop(held);
}

#[tokio::test]
async fn plain_http_and_wrong_server_names_are_not_served() {
    let gateway = secured().await;
    let mut plain = Caller::at(address(&gateway)).await;
    plain.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let said = plain.rest().await;
    assert!(!said.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&said));
    assert!(connect(&gateway, b"h2", "another.test").await.is_err(), "its name is not ours");
    assert!(connect(&gateway, b"h2", "gateway.test").await.is_ok(), "others are still served");
}
