//! Certificates of the listener from an authority that speaks ACME (RFC 8555).
//!
//! Account, certificates and answers to challenges are in the store, so that nodes share them. One node
//! orders ([`order`]), every node answers challenges ([`challenges`]) and serves what is in the store.

mod authority;
mod challenges;
mod order;
mod schedule;

pub(crate) use challenges::ChallengeStore;

use canon::Micros;
use config::{AcmeSettings, AcmeState, ListenerCertificate, ListenerTls};
use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use store::{AcmeCertificate, Store, StoreError};

use crate::app::App;
use order::CertificateOrderError;
use schedule::OrderFailure;

/// Period of looking for a new certificate in the store.
pub(crate) const POLL_PERIOD: Duration = Duration::from_secs(2);
/// Time for which a node claims an order, and period of extending the claim.
const CLAIM_TIME: Micros = Micros::from_secs(60);
const CLAIM_PERIOD: Duration = Duration::from_secs(15);
/// Longest time of an order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(300);
/// Time after which another node may try again if the node that ordered has vanished.
const VANISHED_DELAY: Micros = Micros::from_secs(120);
/// Longest reason that is kept.
const MAX_REASON_CHARS: usize = 600;

/// Certificate of the store that this node serves or has failed to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeenCertificate {
    id: String,
    version: i64,
    trouble: Option<String>,
}

/// Certificates of one node.
pub(crate) struct AcmeNode {
    app: Arc<App>,
    /// Name by which this process claims orders.
    holder: String,
    seen: Option<SeenCertificate>,
    /// True after the notice that there is no certificate.
    has_told: bool,
    logged: Option<String>,
}

impl AcmeNode {
    pub(crate) fn new(app: Arc<App>) -> Self {
        let holder = uuid::Uuid::now_v7().to_string();
        Self { app, holder, seen: None, has_told: false, logged: None }
    }

    /// Takes a new certificate from the store, and orders one if it is time. Does nothing without ACME.
    pub(crate) async fn poll(&mut self) {
        let config = self.app.config();
        let Some(tls) = &config.tls else { return };
        let Some(settings) = tls.acme() else { return };
        if let Err(e) = self.refresh_and_order(tls, settings).await {
            let state = AcmeState { trouble: Some(e.to_string()), ..tls.acme_state() };
            tls.set_acme_state(state);
            self.log_once(&format!("the certificate in the database cannot be looked at: {e}"));
        }
    }

    async fn refresh_and_order(
        &mut self,
        tls: &ListenerTls,
        settings: &Arc<AcmeSettings>,
    ) -> Result<(), StoreError> {
        let app = Arc::clone(&self.app);
        let (row, next) = self.refresh(tls, settings).await?;
        if next > app.clock.now() || row.is_held {
            return Ok(());
        }
        if let Some(why) = app.admin.vault.unavailable_reason() {
            let trouble =
                format!("no certificate is ordered, because its key cannot be sealed: {why}");
            self.log_once(&trouble);
            let state = tls.acme_state();
            tls.set_acme_state(AcmeState { trouble: Some(trouble), ..state });
            return Ok(());
        }
        let (id, version, holder) = (&row.id, row.version, &self.holder);
        let claim = app.store.claim_acme_order(id, version, holder, CLAIM_TIME, VANISHED_DELAY);
        if claim.await? {
            self.order(settings, &row).await?;
            self.refresh(tls, settings).await?;
        }
        Ok(())
    }

    /// Serves the certificate of the store and notes the state of its orders. Returns the row, and the time
    /// of the next order.
    async fn refresh(
        &mut self,
        tls: &ListenerTls,
        settings: &AcmeSettings,
    ) -> Result<(AcmeCertificate, Micros), StoreError> {
        let app = Arc::clone(&self.app);
        let id = settings.certificate_id();
        let row = app.store.acme_certificate(&id).await?;
        let served = match row.issued.is_some() {
            true => Some(row.clone()),
            // Until the first one of these domains is there, one of earlier domains is better than none.
            false => app.store.other_acme_certificate(&id).await?,
        };
        let unusable = match &served {
            Some(found) => self.serve(tls, settings, found, found.id == id),
            None => None,
        };
        let due = row
            .issued
            .as_ref()
            .map_or(Micros::ZERO, |issued| schedule::renewal_time(issued.begins, issued.ends));
        let next = due.max(row.next_attempt);
        let is_unusable = unusable.is_some() && tls.certificate().is_none();
        let trouble = unusable.or_else(|| row.last_error.clone());
        // A claim moves the next attempt, so that its time says nothing while an order is under way.
        let next_order = Some(if row.is_held { Micros::ZERO } else { next });
        tls.set_acme_state(AcmeState { trouble, next_order, is_unusable });
        if served.is_none() && !self.has_told {
            self.has_told = true;
            tracing::warn!(
                domains = %settings.domains.join(","),
                "there is no certificate yet: no connection can be served until {} has issued one",
                settings.directory
            );
        }
        Ok((row, next))
    }

    /// Serves a certificate of the store, unless this node does so already. Returns why it cannot.
    fn serve(
        &mut self,
        tls: &ListenerTls,
        settings: &AcmeSettings,
        row: &AcmeCertificate,
        is_own: bool,
    ) -> Option<String> {
        let (id, version) = (row.id.clone(), row.version);
        let is_known = self.seen.as_ref().is_some_and(|seen| {
            (&seen.id, seen.version) == (&id, version) && seen.trouble.is_none()
        });
        let served = tls.certificate().and_then(|one| one.validity);
        let issued = row.issued.as_ref().map(|one| (one.begins, one.ends));
        if is_known && served.is_some() {
            return None;
        }
        if self.seen.is_none() && served.map(|one| (one.begins, one.ends)) == issued {
            // It was installed at the start.
            self.seen = Some(SeenCertificate { id, version, trouble: None });
            return None;
        }
        let names: &[String] = if is_own { &settings.domains } else { &[] };
        let trouble = match install(&self.app.store, tls, row, names) {
            Ok(()) => {
                let origin = settings.domains.join(", ");
                tracing::info!(version, "the certificate of {origin} is served");
                None
            }
            Err(why) => {
                let why = format!("the certificate in the database cannot be used: {why}");
                self.log_once(&why);
                Some(why)
            }
        };
        self.seen = Some(SeenCertificate { id, version, trouble: trouble.clone() });
        trouble
    }

    /// Orders a certificate while the claim is held, and stores it or the failure.
    async fn order(
        &mut self,
        settings: &Arc<AcmeSettings>,
        row: &AcmeCertificate,
    ) -> Result<(), StoreError> {
        let app = Arc::clone(&self.app);
        let store = &app.store;
        let names = settings.domains.join(", ");
        tracing::info!("a certificate for {names} is ordered from {}", settings.directory);
        let holder = self.holder.clone();
        let ordering = AssertUnwindSafe(order::place(store, settings)).catch_unwind();
        let ordering = tokio::time::timeout(ORDER_TIMEOUT, ordering);
        let ended = tokio::select! {
            ended = ordering => ended,
            () = keep_claim(store, &row.id, &holder) => {
                tracing::warn!("another node orders the certificate for {names} now");
                return Ok(());
            }
        };
        let failure = match ended {
            Ok(Ok(Ok(issued))) => {
                if store.put_acme_certificate(&row.id, &holder, &issued).await? {
                    tracing::info!("a certificate for {names} was issued");
                }
                return Ok(());
            }
            Ok(Ok(Err(failure))) => failure,
            Ok(Err(_)) => {
                CertificateOrderError::other("the answers of the authority cannot be understood")
            }
            Err(_) => {
                CertificateOrderError::other("the authority did not finish the order in time")
            }
        };
        let attempt = OrderFailure {
            failures: row.failures,
            has_certificate: row.issued.as_ref().is_some_and(|one| one.ends > app.clock.now()),
            is_rate_limited: failure.is_rate_limited,
        };
        let delay = attempt.delay(schedule::random_part());
        let why = one_line(&failure.reason);
        tracing::error!(
            "no certificate for {names} was issued: {why}; the next order is in {} s",
            delay.as_secs()
        );
        store.fail_acme_order(&row.id, &holder, delay, &why).await
    }

    /// Logs a trouble unless it is the last one that was logged.
    fn log_once(&mut self, trouble: &str) {
        if self.logged.as_deref() != Some(trouble) {
            tracing::error!("{trouble}");
            self.logged = Some(trouble.to_owned());
        }
    }
}

/// Serves the certificate that the store has, if it has one, before the first connection.
pub(crate) async fn serve_stored_certificate(app: &Arc<App>) {
    let config = app.config();
    let Some(tls) = &config.tls else { return };
    let Some(settings) = tls.acme() else { return };
    // The loop tells of a missing certificate, and of a database that does not answer.
    let mut node = AcmeNode { has_told: true, ..AcmeNode::new(Arc::clone(app)) };
    let _ = node.refresh(tls, settings).await;
}

/// Extends a claim until it is lost.
async fn keep_claim(store: &Store, id: &str, holder: &str) {
    loop {
        tokio::time::sleep(CLAIM_PERIOD).await;
        match store.keep_acme_claim(id, holder, CLAIM_TIME).await {
            Ok(true) => {}
            Ok(false) => return,
            // The claim may last until the database answers again.
            Err(e) => tracing::warn!("the claim of the order cannot be extended: {e}"),
        }
    }
}

fn install(
    store: &Store,
    tls: &ListenerTls,
    row: &AcmeCertificate,
    names: &[String],
) -> anyhow::Result<()> {
    let Some(issued) = &row.issued else { anyhow::bail!("there is none") };
    let key = store.open_acme_key(&row.id, issued)?;
    let (key, validity) = config::certified_key(&issued.chain, &key, names)?;
    // The id ends with the domains.
    let domains = row.id.rsplit(' ').next().unwrap_or_default();
    let certificate =
        ListenerCertificate { origin: format!("of {domains}"), validity: Some(validity) };
    Ok(tls.install(key, certificate)?)
}

/// Returns a text of an authority as one short line.
fn one_line(text: &str) -> String {
    let text: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON_CHARS).collect();
    text.trim().to_owned()
}
