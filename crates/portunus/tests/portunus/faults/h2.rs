//! Faults of HTTP/2 only, and a provider that allows one stream at a time.

use demo::{SimulatorOptions, simulate};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use testkit::TestGateway;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::faults::expectations;
use crate::faults::fault_table::H2_ROWS;
use crate::faults::formats::ask;
use crate::faults::matrix::{cells, provider, run};

/// HTTP/2 is agreed on within TLS, so the simulated provider stands behind doors that speak it. What
/// happens to the connections through one of them is no matter of the others.
struct Doors {
    /// Their addresses.
    bases: Vec<String>,
    /// The file with their certificate, which goes with them.
    ca: PathBuf,
}

impl Doors {
    async fn before(address: &str, count: usize) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsAcceptor::from(Arc::new(config));
        let mut ports = Vec::new();
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ports.push(listener.local_addr().unwrap().port());
            tokio::spawn(open(listener, tls.clone(), address.to_owned()));
        }
        let name = format!("portunus-h2-{}-{}.pem", std::process::id(), ports[0]);
        let ca = std::env::temp_dir().join(name);
        std::fs::write(&ca, certificate.pem()).unwrap();
        let bases = ports.iter().map(|port| format!("https://localhost:{port}")).collect();
        Self { bases, ca }
    }

    /// The configuration of a gateway that goes through it.
    fn trust(&self) -> String {
        format!("[outbound]\nca = \"{}\"\n", self.ca.display())
    }

    /// A gateway with one model behind it.
    async fn gateway(&self, times: &str) -> TestGateway {
        TestGateway::with_config(&format!(
            "{}[providers.p]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\ntimeouts = {{ {times} }}\n\
             [models.m]\nlanes = [\"p/x\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
            self.trust(),
            self.bases[0]
        ))
        .await
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.ca);
    }
}

async fn open(listener: TcpListener, tls: TlsAcceptor, address: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, address) = (tls.clone(), address.clone());
        tokio::spawn(async move {
            stream.set_nodelay(true)?;
            let mut outside = tls.accept(stream).await?;
            let mut inside = TcpStream::connect(address).await?;
            inside.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut outside, &mut inside).await
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_http2_has_its_one_right_outcome_in_every_format() {
    let address = provider("").await;
    let cells = cells(H2_ROWS);
    let doors = Doors::before(&address, cells.len()).await;
    run(cells, &address, &doors.bases, &doors.trust()).await;
}

#[tokio::test]
async fn refused_and_goaway_streams_are_sent_again_and_charged_once() {
    for fault in ["h2-refused", "h2-goaway last=below"] {
        let address = provider(&format!("[[rule]]\ntimes = 1\nfault = \"{fault}\"\n")).await;
        let doors = Doors::before(&address, 1).await;
        let gateway = doors.gateway("connect = \"5s\"").await;
        for stream in [false, true] {
            let (path, body) = ask(canon::WireFormat::Chat, "m", "", stream);
            let got = gateway.post(&path, &body).send().await;
            expectations::complete(canon::WireFormat::Chat, &got, stream, true)
                .unwrap_or_else(|why| panic!("{fault} {stream}: {why}"));
        }
        gateway.wait_until_settled().await;
        let rows = gateway.app.store.export(None, 10).await.unwrap();
        assert!(
            rows.iter().all(|row| row.absorbed.as_nanos() == 0),
            "{fault}: nobody worked on it"
        );
        assert_eq!(rows.iter().map(|row| row.attempts).sum::<u32>(), 3, "{fault}: once more");
    }
}

#[tokio::test]
async fn a_provider_that_takes_no_more_of_a_request_is_given_up_in_time() {
    let address = provider("").await;
    let doors = Doors::before(&address, 1).await;
    let gateway = doors.gateway("first_byte = \"2s\"").await;
    let (path, mut body) = ask(canon::WireFormat::Chat, "m", "[[fault: stall-request]]", false);
    // More than its flow-control window.
    let long = json!({ "role": "user", "content": "x".repeat(4 << 20) });
    body["messages"].as_array_mut().unwrap().push(long);
    let got = gateway.post(&path, &body).send().await;
    expectations::refused(canon::WireFormat::Chat, &got, expectations::Refusal::Late).unwrap();
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 10).await.unwrap();
    assert_eq!((rows.len(), rows[0].cost.as_nanos()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_does_one_thing_at_a_time_does_one_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let options =
        SimulatorOptions { max_concurrent_streams: Some(1), ..SimulatorOptions::default() };
    tokio::spawn(simulate(listener, options, std::future::pending::<()>()));
    let doors = Doors::before(&address, 1).await;
    let gateway = doors.gateway("connect = \"5s\"").await;
    let calls = (0..12).map(|at| {
        let gateway = &gateway;
        async move {
            let stream = at % 2 == 0;
            let (path, body) =
                ask(canon::WireFormat::Chat, "m", "[[fault: slow wait=5ms]]", stream);
            let got = gateway.post(&path, &body).send().await;
            expectations::complete(canon::WireFormat::Chat, &got, stream, true).unwrap();
        }
    });
    futures_util::future::join_all(calls).await;
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 100).await.unwrap();
    assert_eq!(rows.len(), 12);
    // Streams it refused before its limit was known were sent again, free of charge.
    assert!(rows.iter().all(|row| !row.estimated && row.absorbed.as_nanos() == 0), "{rows:?}");
}
