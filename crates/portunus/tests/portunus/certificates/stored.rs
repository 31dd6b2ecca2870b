//! Certificates of the database that a node cannot open, and a database that does not answer.

use canon::Micros;
use rcgen::{CertificateParams, KeyPair};
use sqlx::Connection as _;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use store::{AcmeAccount, AcmeCertificate, IssuedCertificate, Store, Vault, VaultKeys};
use testkit::until;

use super::{Site, VAULT_KEY, certificate_check, connect, get};
use crate::restart::free_address;

const NAME: &str = "gateway.test";
/// Another key of the vault.
const WRONG_KEY: &str = "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk=";

/// A database with a certificate, and an authority that does not answer.
struct StoredCertificate {
    site: Site,
    store: Store,
    directory: String,
    cert: String,
}

impl StoredCertificate {
    /// Stores a certificate that ends in that many days, of sixty.
    async fn new(days: i64) -> Self {
        let site = Site::new();
        let directory = format!("https://{}/dir", free_address());
        let keys = VaultKeys::read(VAULT_KEY).unwrap();
        let vault = Arc::new(Vault::new(site.folder.join("unused"), Some(keys), true));
        let url = format!("sqlite:{}", site.folder.join("shared.db").display());
        let store = Store::open(&url).await.unwrap().with_vault(vault);
        let now = Micros::new(jiff::Timestamp::now().as_microsecond());
        let (begins, ends) = (now - Micros::from_days(60 - days), now + Micros::from_days(days));
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.not_before = (UNIX_EPOCH + begins.to_duration()).into();
        params.not_after = (UNIX_EPOCH + ends.to_duration()).into();
        let cert = params.self_signed(&key).unwrap().pem();
        site.write("ca.pem", &cert);
        let issued =
            IssuedCertificate { chain: cert.clone(), key: key.serialize_pem(), begins, ends };
        let one = Self { site, store, directory, cert };
        let id = one.id();
        one.row().await;
        let (time, none) = (Micros::from_secs(60), Micros::ZERO);
        assert!(one.store.claim_acme_order(&id, 0, "test", time, none).await.unwrap());
        assert!(one.store.put_acme_certificate(&id, "test", &issued, none).await.unwrap());
        one
    }

    fn id(&self) -> String {
        format!("{} {NAME}", self.directory)
    }

    async fn row(&self) -> AcmeCertificate {
        self.store.acme_certificate(&self.id()).await.unwrap()
    }

    fn configure(&self, node: &str, metrics: &str, vault_key: &str) {
        self.site.write(
            &format!("{node}.toml"),
            &format!(
                "[server]\nmetrics = \"{metrics}\"\nvault = {{ text = \"{vault_key}\" }}\n\
                 [server.acme]\ndomains = [\"{NAME}\"]\nterms_agreed = true\n\
                 directory = \"{}\"\nca = \"ca.pem\"\n[store]\nurl = \"sqlite:shared.db\"\n",
                self.directory
            ),
        );
    }

    /// Changes the database.
    async fn execute(&self, sql: &'static str) {
        let url = format!("sqlite:{}", self.site.folder.join("shared.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_vault_key_is_not_ready_and_orders_nothing() {
    // The certificate is due.
    let stored = StoredCertificate::new(10).await;
    let (wrong, right) = (free_address(), free_address());
    stored.configure("wrong", &wrong, WRONG_KEY);
    stored.configure("right", &right, VAULT_KEY);
    let _wrong = stored.site.start("wrong", &free_address());
    until("both forms say that it is not ready", async || {
        let verbose = certificate_check(&wrong).await;
        let plain = get(&wrong, "/readyz").await;
        verbose.is_some_and(|(status, check)| status == 503 && check["state"] == "failing")
            && plain.is_some_and(|(status, body)| status == 503 && body.contains("certificates"))
    })
    .await;
    until("it tells why it orders nothing", async || {
        stored.site.log("wrong").contains("because the key of the last one cannot be opened")
    })
    .await;
    let row = stored.row().await;
    assert_eq!((row.failures, row.is_held, row.last_error), (0, false, None));
    let log = stored.site.log("wrong");
    assert_eq!(log.matches("is ordered from").count(), 0, "{log}");
    // It leaves the order to the other one.
    let listen = free_address();
    let _right = stored.site.start("right", &listen);
    until("the other one orders", async || stored.row().await.failures == 1).await;
    assert!(connect(&listen, NAME, &stored.cert, None).await.is_ok());
    assert_eq!(get(&right, "/readyz").await.unwrap().0, 200);
    assert_eq!(stored.site.log("wrong").matches("is ordered from").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_open_the_account_leaves_the_order_to_others() {
    let stored = StoredCertificate::new(10).await;
    // The certificate is of other domains, so that only the account tells of the wrong key.
    stored.execute("DELETE FROM acme_certificates").await;
    let account = AcmeAccount { contacts: String::new(), secret: "{}".to_owned() };
    stored.store.put_acme_account(&format!("{} ", stored.directory), &account).await.unwrap();
    let metrics = free_address();
    stored.configure("wrong", &metrics, WRONG_KEY);
    let _wrong = stored.site.start("wrong", &free_address());
    until("it tells why it orders nothing", async || {
        certificate_check(&metrics).await.is_some_and(|(status, check)| {
            let message = check["message"].as_str().unwrap_or_default();
            status == 200
                && message.contains("because the account at the authority cannot be opened")
        })
    })
    .await;
    let row = stored.row().await;
    assert_eq!((row.failures, row.is_held, row.next_attempt), (0, false, Micros::ZERO));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_answer_makes_no_certificate_bad() {
    // It is not due.
    let stored = StoredCertificate::new(50).await;
    let (listen, metrics) = (free_address(), free_address());
    stored.configure("one", &metrics, VAULT_KEY);
    let _node = stored.site.start("one", &listen);
    let is_good = async || {
        let (_, text) = get(&metrics, "/metrics").await.unwrap_or_default();
        text.contains("portunus_certificate_good 1")
    };
    until("it serves", is_good).await;
    for count in 1..=2 {
        stored.execute("ALTER TABLE acme_certificates RENAME TO elsewhere").await;
        until("the trouble is logged, each time", async || {
            stored.site.log("one").matches("cannot be looked at").count() == count
        })
        .await;
        assert!(is_good().await);
        assert!(connect(&listen, NAME, &stored.cert, None).await.is_ok());
        stored.execute("ALTER TABLE elsewhere RENAME TO acme_certificates").await;
        // The first look without the trouble ends it; a late one would be the same again.
        let before = stored.row().await;
        stored.execute("UPDATE acme_certificates SET last_error = 'seen'").await;
        until("it is looked at again", async || {
            let told = certificate_check(&metrics).await;
            told.is_some_and(|(_, check)| {
                check["message"].as_str().unwrap_or_default().contains("seen")
            })
        })
        .await;
        stored.execute("UPDATE acme_certificates SET last_error = NULL").await;
        until("all is good again", is_good).await;
        assert_eq!(before.failures, 0);
    }
}
