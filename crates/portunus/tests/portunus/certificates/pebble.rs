//! Certificates of a real ACME server, shared by nodes on one store.

use rustls::pki_types::CertificateDer;
use sqlx::Connection as _;
use std::sync::Arc;
use testkit::until;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::authority::Authority;
use super::{Node, Site, VAULT_KEY, ask, certificate, certificate_check, connect};
use crate::restart::free_address;

const NAME: &str = "gateway.example.com";
/// Ninety days, as Let's Encrypt.
const USUAL_VALIDITY: u32 = 90 * 86_400;
const NODES: [&str; 2] = ["one", "two"];
const ORDERED: &str = "is ordered from";
const ISSUED: &str = "was issued";

/// Two nodes on one store, before one authority.
struct TwoNodes {
    site: Arc<Site>,
    _authority: Authority,
    listen: [String; 2],
    metrics: [String; 2],
    root: String,
}

impl TwoNodes {
    /// Prepares nodes for that challenge. The authority reaches the node that did not place the order.
    async fn new(challenge: &str, validity: u32) -> Self {
        let site = Arc::new(Site::new());
        let (listen, metrics) =
            ([free_address(), free_address()], [free_address(), free_address()]);
        let plain = [free_address(), free_address()];
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = front.local_addr().unwrap().port();
        let authority = Authority::start(&site, port, validity).await;
        for (number, node) in NODES.iter().enumerate() {
            let (metrics, plain) = (&metrics[number], &plain[number]);
            site.write(
                &format!("{node}.toml"),
                &format!(
                    "[server]\nmetrics = \"{metrics}\"\nhttp_listen = \"{plain}\"\n\
                     vault = {{ text = \"{VAULT_KEY}\" }}\n\
                     [server.acme]\ndomains = [\"{NAME}\", \"b.{NAME}\"]\nterms_agreed = true\n\
                     contact = \"ops@example.com\"\nchallenge = \"{challenge}\"\n\
                     directory = \"{}\"\nca = \"ca.pem\"\n\
                     [store]\nurl = \"sqlite:shared.db\"\n",
                    authority.directory()
                ),
            );
        }
        let targets = if challenge == "http-01" { plain } else { listen.clone() };
        tokio::spawn(forward(front, Arc::clone(&site), targets));
        let root = authority.root().await;
        Self { site, _authority: authority, listen, metrics, root }
    }

    fn start(&self, number: usize) -> Node {
        self.site.start(NODES[number], &self.listen[number])
    }

    fn logs(&self) -> String {
        NODES.map(|node| self.site.log(node)).concat()
    }

    /// Returns the certificate that a node serves for the name, if that is a valid one.
    async fn served(&self, number: usize) -> Option<Vec<u8>> {
        let stream = connect(&self.listen[number], NAME, &self.root, None).await.ok()?;
        Some(certificate(&stream))
    }
}

/// Forwards connections to the node that has not placed the order.
async fn forward(front: TcpListener, site: Arc<Site>, targets: [String; 2]) {
    loop {
        let (mut caller, _) = front.accept().await.unwrap();
        let has_ordered = NODES.map(|node| site.log(node).contains(ORDERED));
        let target = targets[usize::from(has_ordered[0])].clone();
        tokio::spawn(async move {
            let Ok(mut node) = TcpStream::connect(target).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut caller, &mut node).await;
            let _ = caller.shutdown().await;
        });
    }
}

async fn nodes_share_a_certificate(challenge: &str) {
    let nodes = TwoNodes::new(challenge, USUAL_VALIDITY).await;
    let running = [nodes.start(0), nodes.start(1)];
    for number in 0..2 {
        until("a certificate is served", async || nodes.served(number).await.is_some()).await;
        until("it is told", async || {
            let told = certificate_check(&nodes.metrics[number]).await;
            told.is_some_and(|(status, check)| (status, &check["state"]) == (200, &"good".into()))
        })
        .await;
    }
    assert_eq!(nodes.served(0).await, nodes.served(1).await);
    let logs = nodes.logs();
    assert_eq!(logs.matches(ORDERED).count(), 1, "{logs}");
    assert_eq!(logs.matches(ISSUED).count(), 1, "{logs}");
    let second = format!("b.{NAME}");
    let mut stream = connect(&nodes.listen[1], &second, &nodes.root, None).await.unwrap();
    let answer = ask(&mut stream, &second, "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A node that starts again has the certificate at once, and orders none.
    let before = nodes.served(0).await;
    let [one, two] = running;
    drop(one);
    let _one = nodes.start(0);
    until("it serves again", async || nodes.served(0).await.is_some()).await;
    assert_eq!(nodes.served(0).await, before);
    assert_eq!(nodes.logs().matches(ORDERED).count(), 1);
    drop(two);
    for file in ["shared.db", "shared.db-wal"] {
        let bytes = std::fs::read(nodes.site.folder.join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("PRIVATE KEY") && !text.contains("key_pkcs8"), "{file}");
    }
    assert!(!nodes.logs().contains("PRIVATE KEY"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_a_certificate_by_a_challenge_within_tls() {
    nodes_share_a_certificate("tls-alpn-01").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_a_certificate_by_a_challenge_over_http() {
    nodes_share_a_certificate("http-01").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_before_it_ends() {
    let nodes = TwoNodes::new("tls-alpn-01", 15).await;
    let _running = [nodes.start(0), nodes.start(1)];
    for number in 0..2 {
        until("a certificate is served", async || nodes.served(number).await.is_some()).await;
    }
    let first = nodes.served(0).await;
    // A pause follows each order. The test does not wait for its end.
    let url = format!("sqlite:{}", nodes.site.folder.join("shared.db").display());
    let mut database = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("UPDATE acme_certificates SET next_attempt = 0")
        .execute(&mut database)
        .await
        .unwrap();
    database.close().await.unwrap();
    for number in 0..2 {
        until("another one is served", async || {
            let now = nodes.served(number).await;
            now.is_some() && now != first
        })
        .await;
    }
    // The second one is due soon as well, and another order is not placed.
    assert_eq!(nodes.logs().matches(ISSUED).count(), 2, "{}", nodes.logs());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_cannot_reach_the_gateway_is_not_asked_again_at_once() {
    let site = Site::new();
    let closed: u16 = free_address().rsplit(':').next().unwrap().parse().unwrap();
    let authority = Authority::start(&site, closed, USUAL_VALIDITY).await;
    let (listen, metrics) = (free_address(), free_address());
    site.write(
        "one.toml",
        &format!(
            "[server]\nmetrics = \"{metrics}\"\n[server.acme]\ndomains = [\"{NAME}\"]\n\
             terms_agreed = true\ndirectory = \"{}\"\nca = \"ca.pem\"\n",
            authority.directory()
        ),
    );
    let _node = site.start("one", &listen);
    until("the refusal is told", async || {
        certificate_check(&metrics).await.is_some_and(|(status, check)| {
            let message = check["message"].as_str().unwrap_or_default();
            let is_told = message.contains(&format!("{NAME}: the authority says"))
                && message.contains("the next order is at");
            status == 200 && check["state"] == "warning" && is_told
        })
    })
    .await;
    // The handshake of a challenge that nobody asked for gets no answer.
    let root = authority.root().await;
    let asked = ask_challenge(&listen, &root, NAME).await;
    assert!(asked.is_err());
    assert_eq!(site.log("one").matches(ORDERED).count(), 1);
}

/// Shakes hands as an authority does.
async fn ask_challenge(address: &str, root: &str, name: &str) -> std::io::Result<()> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop)
}
