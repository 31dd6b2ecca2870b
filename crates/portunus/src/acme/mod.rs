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
use config::{AcmeSettings, AcmeState, CertificateValidity, ListenerCertificate, ListenerTls};
use futures_util::FutureExt as _;
use jiff::Timestamp;
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
/// Period of looking if the configuration names other domains during an order.
const SETTINGS_PERIOD: Duration = Duration::from_secs(1);
/// Longest reason that is kept.
const MAX_REASON_CHARS: usize = 600;

/// Certificate of the store that this node serves or has failed to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeenCertificate {
    id: String,
    version: i64,
    trouble: Option<String>,
}

/// Trouble of this node that keeps it from ordering, such as a wrong key of the vault. Other nodes can order,
/// so it is not in the database.
#[derive(Debug, Default)]
struct LocalTrouble {
    reason: Option<String>,
    /// Number of orders in a row that failed for it.
    failures: u32,
    /// Time since the start before which this node orders nothing.
    retry_at: Micros,
}

/// Troubles that are logged and last.
#[derive(Debug, Default)]
struct LoggedTroubles {
    /// Of the database.
    outage: Option<String>,
    /// Of the certificate in it.
    unusable: Option<String>,
    /// Of this node.
    local: Option<String>,
}

/// Certificates of one node.
pub(crate) struct AcmeNode {
    app: Arc<App>,
    /// Name by which this process claims orders.
    holder: String,
    seen: Option<SeenCertificate>,
    /// True after the notice that there is no certificate.
    has_told: bool,
    local: LocalTrouble,
    logged: LoggedTroubles,
}

impl AcmeNode {
    pub(crate) fn new(app: Arc<App>) -> Self {
        let holder = uuid::Uuid::now_v7().to_string();
        Self {
            app,
            holder,
            seen: None,
            has_told: false,
            local: LocalTrouble::default(),
            logged: LoggedTroubles::default(),
        }
    }

    /// Takes a new certificate from the store, and orders one if it is time. Does nothing without ACME.
    pub(crate) async fn poll(&mut self) {
        let config = self.app.config();
        let Some(tls) = &config.tls else { return };
        let Some(settings) = tls.acme() else { return };
        match self.refresh_and_order(tls, settings).await {
            Ok(()) => self.logged.outage = None,
            Err(e) => {
                let trouble = format!("the certificate in the database cannot be looked at: {e}");
                // Otherwise the certificate is as good as before, and the check of the store tells of it.
                if tls.certificate().is_none() {
                    let state = tls.acme_state();
                    tls.set_acme_state(AcmeState { trouble: Some(trouble.clone()), ..state });
                }
                log_once(&mut self.logged.outage, &trouble);
            }
        }
    }

    async fn refresh_and_order(
        &mut self,
        tls: &ListenerTls,
        settings: &Arc<AcmeSettings>,
    ) -> Result<(), StoreError> {
        let app = Arc::clone(&self.app);
        let (row, next) = self.refresh(tls, settings).await?;
        if row.is_held {
            return Ok(());
        }
        if next > app.clock.now() {
            self.local = LocalTrouble::default();
            return Ok(());
        }
        if self.local.retry_at > app.ticks() {
            return Ok(());
        }
        self.local.reason = self.obstacle(settings, &row).await?;
        if let Some(trouble) = self.local.reason.clone() {
            log_once(&mut self.logged.local, &trouble);
            let state = tls.acme_state();
            let trouble = state.trouble.or(Some(trouble));
            tls.set_acme_state(AcmeState { trouble, ..state });
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

    /// Returns the reason why this node must leave the order to others: its vault cannot open what they
    /// sealed, or seal a key.
    async fn obstacle(
        &self,
        settings: &AcmeSettings,
        row: &AcmeCertificate,
    ) -> Result<Option<String>, StoreError> {
        let (store, vault) = (&self.app.store, &self.app.admin.vault);
        if let Some(why) = vault.unavailable_reason() {
            let why = format!("no certificate is ordered, because its key cannot be sealed: {why}");
            return Ok(Some(why));
        }
        let refused = |what: &str, why: &str| {
            Some(format!(
                "no certificate is ordered by this node, because {what} cannot be opened: {why}; give it the \
                 `vault` of the others"
            ))
        };
        if let Some(Err(e)) = row.issued.as_ref().map(|issued| store.open_acme_key(&row.id, issued))
        {
            return Ok(refused("the key of the last one", &e.to_string()));
        }
        match store.acme_account(&settings.account_id()).await {
            Ok(_) => Ok(None),
            Err(StoreError::Sealing(why)) => Ok(refused("the account at the authority", &why)),
            Err(e) => Err(e),
        }
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
        let issued = row.issued.as_ref();
        let issued = issued.map(|one| CertificateValidity { begins: one.begins, ends: one.ends });
        let in_use = tls.certificate().and_then(|one| one.validity);
        let due = schedule::due_time(issued, in_use, app.clock.now());
        let next = due.max(row.next_attempt);
        let is_unusable = unusable.is_some() && tls.certificate().is_none();
        if unusable.is_none() {
            self.logged.unusable = None;
        }
        if self.local.reason.is_none() {
            self.logged.local = None;
        }
        let local = unusable.or_else(|| self.local.reason.clone());
        let trouble = local.or_else(|| row.last_error.clone());
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
        let now = self.app.clock.now();
        let issued = issued.map(|(begins, ends)| CertificateValidity { begins, ends });
        if let Some(issued) = issued.filter(|issued| !issued.contains(now))
            && served.is_some_and(|served| served.contains(now))
        {
            let time = |at: Micros| Timestamp::from_microsecond(at.get()).unwrap_or_default();
            let (begins, ends) = (time(issued.begins), time(issued.ends));
            return Some(format!(
                "the certificate in the database is valid from {begins} until {ends} only, and the one before \
                 stays"
            ));
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
                log_once(&mut self.logged.unusable, &why);
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
        let clock = app.clock.as_ref();
        let ordering = AssertUnwindSafe(order::place(store, settings, clock)).catch_unwind();
        let ordering = tokio::time::timeout(ORDER_TIMEOUT, ordering);
        let ended = tokio::select! {
            ended = ordering => ended,
            () = keep_claim(store, &row.id, &holder) => {
                tracing::warn!("another node orders the certificate for {names} now");
                return Ok(());
            }
            () = other_settings(&app, &row.id) => {
                tracing::info!("the order for {names} is given up: the configuration has changed");
                return store.release_acme_order(&row.id, &holder).await;
            }
        };
        let failure = match ended {
            Ok(Ok(Ok(issued))) => {
                let (begins, ends) = (issued.begins, issued.ends);
                let pause = schedule::order_pause(CertificateValidity { begins, ends });
                match store.put_acme_certificate(&row.id, &holder, &issued, pause).await {
                    Ok(true) => {
                        self.local = LocalTrouble::default();
                        tracing::info!("a certificate for {names} was issued");
                        return Ok(());
                    }
                    Ok(false) => return Ok(()),
                    Err(e) => CertificateOrderError::from(e),
                }
            }
            Ok(Ok(Err(failure))) => failure,
            Ok(Err(_)) => {
                CertificateOrderError::other("the answers of the authority cannot be understood")
            }
            Err(_) => {
                CertificateOrderError::other("the authority did not finish the order in time")
            }
        };
        let is_local = failure.is_local;
        let attempt = OrderFailure {
            failures: if is_local { self.local.failures } else { row.failures },
            has_certificate: row.issued.as_ref().is_some_and(|one| one.ends > app.clock.now()),
            is_rate_limited: failure.is_rate_limited,
        };
        let delay = attempt.delay(schedule::random_part());
        let why = one_line(&failure.reason);
        if is_local {
            tracing::error!(
                "this node could not order a certificate for {names}: {why}; it tries again in {} s",
                delay.as_secs()
            );
            self.local = LocalTrouble {
                reason: Some(format!("this node could not order a certificate: {why}")),
                failures: self.local.failures.saturating_add(1),
                retry_at: app.ticks() + delay,
            };
            return store.release_acme_order(&row.id, &holder).await;
        }
        tracing::error!(
            "no certificate for {names} was issued: {why}; the next order is in {} s",
            delay.as_secs()
        );
        store.fail_acme_order(&row.id, &holder, delay, &why).await
    }
}

/// Logs a trouble unless it is the last one that was logged.
fn log_once(logged: &mut Option<String>, trouble: &str) {
    if logged.as_deref() != Some(trouble) {
        tracing::error!("{trouble}");
        *logged = Some(trouble.to_owned());
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

/// Waits until the configuration has no certificate of this name.
async fn other_settings(app: &App, id: &str) {
    let is_named = || {
        let config = app.config();
        let settings = config.tls.as_ref().and_then(|tls| tls.acme());
        settings.is_some_and(|settings| settings.certificate_id() == id)
    };
    while is_named() {
        tokio::time::sleep(SETTINGS_PERIOD).await;
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

/// Returns a text of an authority as one short line, without characters that cannot be seen or that turn the
/// direction of a line.
fn one_line(text: &str) -> String {
    let is_hidden = |c: char| admin::names::has_hidden_characters(c.encode_utf8(&mut [0; 4]));
    let text: String =
        text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).take(MAX_REASON_CHARS).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_visible_line() {
        let told = "no such\n\u{202e}tsoh\u{2066} \u{200b}— name\u{1b}[2J";
        assert_eq!(one_line(told), "no such  tsoh   — name [2J");
        assert_eq!(one_line(&"x".repeat(2_000)).len(), MAX_REASON_CHARS);
    }
}
