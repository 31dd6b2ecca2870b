//! Files of certificates that change while a gateway runs, and callers with certificates.

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{CallerPair, Site, ask, certificate, certificate_check, connect, get};
use crate::restart::free_address;

const NAME: &str = "gateway.test";

/// Writes a pair for the gateway and returns its certificate.
fn write_pair(site: &Site) -> String {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let cert = params.self_signed(&key).unwrap().pem();
    site.write("cert.pem", &cert);
    site.write("key.pem", &key.serialize_pem());
    cert
}

/// Makes a request whose answer has no body, on a connection that stays open.
async fn exchange(stream: &mut TlsStream<TcpStream>) {
    let head = format!("HEAD /healthz HTTP/1.1\r\nhost: {NAME}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_uses_changed_files_and_keeps_its_connections() {
    let (site, listen, metrics) = (Site::new(), free_address(), free_address());
    let first = write_pair(&site);
    let tls = "[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    site.write("one.toml", &format!("[server]\nmetrics = \"{metrics}\"\n{tls}"));
    let node = site.start("one", &listen);
    until("it serves", async || connect(&node.address, NAME, &first, None).await.is_ok()).await;
    let mut old = connect(&node.address, NAME, &first, None).await.unwrap();
    exchange(&mut old).await;
    // A certificate without its key is not used, and told.
    let other = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let other = other.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    site.write("cert.pem", &other);
    until("the trouble is told", async || {
        certificate_check(&metrics).await.is_some_and(|(status, check)| {
            let message = check["message"].as_str().unwrap_or_default();
            status == 200 && check["state"] == "warning" && message.contains("do not match")
        })
    })
    .await;
    assert!(connect(&node.address, NAME, &first, None).await.is_ok());
    let second = write_pair(&site);
    until("the new one is served", async || {
        connect(&node.address, NAME, &second, None).await.is_ok()
    })
    .await;
    assert!(connect(&node.address, NAME, &first, None).await.is_err());
    until("all is good again", async || {
        certificate_check(&metrics).await.is_some_and(|(_, check)| check["state"] == "good")
    })
    .await;
    // The connection of before still works.
    exchange(&mut old).await;
    let log = site.log("one");
    assert_eq!(log.matches("are not used").count(), 1, "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_without_a_certificate_are_refused_and_probes_are_not() {
    let (site, listen, metrics) = (Site::new(), free_address(), free_address());
    let own = write_pair(&site);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    site.write("ca.pem", &params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["caller.test".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap().der().clone();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let caller = CallerPair { cert, key };
    let tls = "[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\nclient_ca = \"ca.pem\"\n";
    site.write("one.toml", &format!("[server]\nmetrics = \"{metrics}\"\n{tls}"));
    let node = site.start("one", &listen);
    until("it is ready", async || certificate_check(&metrics).await.is_some()).await;
    let mut stream = connect(&node.address, NAME, &own, Some(&caller)).await.unwrap();
    assert_eq!(certificate(&stream), der_of(&own));
    let answer = ask(&mut stream, NAME, "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The certificate takes the place of no key.
    let mut stream = connect(&node.address, NAME, &own, Some(&caller)).await.unwrap();
    let answer = ask(&mut stream, NAME, "/v1/models").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    // With TLS 1.3 a caller learns of the refusal when it reads.
    let refused = match connect(&node.address, NAME, &own, None).await {
        Ok(mut stream) => ask(&mut stream, NAME, "/healthz").await.unwrap_or_default(),
        Err(_) => String::new(),
    };
    assert_eq!(refused, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_cannot_be_read_to_its_end_stops_nothing() {
    let (site, listen, metrics) = (Site::new(), free_address(), free_address());
    let cert = write_pair(&site);
    let tls = "[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    let config = format!("[server]\nmetrics = \"{metrics}\"\n{tls}");
    site.write("one.toml", &config);
    // One that waits on this thread would stop everything.
    let mut node = site.start_with("one", &listen, &[("TOKIO_WORKER_THREADS", "1")]);
    until("it serves", async || connect(&node.address, NAME, &cert, None).await.is_ok()).await;
    // A pipe with a writer that writes nothing stands for a disk that hangs.
    let path = site.folder.join("one.toml");
    let pipe = site.folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut writer = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    std::fs::rename(&pipe, &path).unwrap();
    node.signal("-HUP");
    let files = format!("/proc/{}/fd", node.child.id());
    until("the pipe is read", async || {
        std::fs::read_dir(&files)
            .unwrap()
            .any(|one| std::fs::read_link(one.unwrap().path()).is_ok_and(|to| to == path))
    })
    .await;
    node.signal("-HUP");
    for _ in 0..3 {
        let mut stream = connect(&node.address, NAME, &cert, None).await.unwrap();
        exchange(&mut stream).await;
        assert_eq!(get(&metrics, "/readyz").await.unwrap().0, 200);
    }
    // It is read once there is something to read.
    std::io::Write::write_all(&mut writer, config.as_bytes()).unwrap();
    site.write("plain", &config);
    std::fs::rename(site.folder.join("plain"), &path).unwrap();
    drop(writer);
    until("it is read", async || site.log("one").contains("configuration reloaded")).await;
    node.signal("-TERM");
    until("it ends", async || node.child.try_wait().unwrap().is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_configuration_is_tried_until_its_files_are_whole() {
    let (site, listen, metrics) = (Site::new(), free_address(), free_address());
    let first = write_pair(&site);
    let config = |cert: &str| {
        format!(
            "[server]\nmetrics = \"{metrics}\"\n[server.tls]\ncert = \"{cert}\"\nkey = \"key.pem\"\n"
        )
    };
    site.write("one.toml", &config("cert.pem"));
    let node = site.start("one", &listen);
    until("it serves", async || connect(&node.address, NAME, &first, None).await.is_ok()).await;
    // The configuration changes while one of two files is exchanged.
    let key = KeyPair::generate().unwrap();
    let second = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let second = second.self_signed(&key).unwrap().pem();
    site.write("other.pem", &second);
    site.write("one.toml", &config("other.pem"));
    until("it is refused", async || site.log("one").contains("configuration is refused")).await;
    site.write("key.pem", &key.serialize_pem());
    until("it is used", async || connect(&node.address, NAME, &second, None).await.is_ok()).await;
    let log = site.log("one");
    assert_eq!(log.matches("configuration is refused").count(), 1, "{log}");
    assert_eq!(log.matches("configuration reloaded").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_valid_is_told() {
    let (site, listen, metrics) = (Site::new(), free_address(), free_address());
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2100, 1, 1);
    params.not_after = rcgen::date_time_ymd(2101, 1, 1);
    site.write("cert.pem", &params.self_signed(&key).unwrap().pem());
    site.write("key.pem", &key.serialize_pem());
    let tls = "[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    site.write("one.toml", &format!("[server]\nmetrics = \"{metrics}\"\n{tls}"));
    let _node = site.start("one", &listen);
    until("it is told", async || {
        certificate_check(&metrics).await.is_some_and(|(status, check)| {
            let message = check["message"].as_str().unwrap_or_default();
            status == 200 && message.contains("not valid before 2100-01-01")
        })
    })
    .await;
    let (_, text) = get(&metrics, "/metrics").await.unwrap();
    assert!(text.contains("portunus_certificate_good 0"), "{text}");
}

fn der_of(pem: &str) -> Vec<u8> {
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}
