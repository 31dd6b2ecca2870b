//! Loops that keep the certificate of the listener current: changed files, and orders of ACME.

use config::TlsLook;
use std::sync::Arc;
use std::time::Duration;

use crate::acme::{AcmeNode, POLL_PERIOD};
use crate::app::App;

/// Period of looking at the files. A change is used after two looks.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// Time for which the loop waits for a look. A disk that hangs must not keep a new configuration from being
/// looked at.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

impl App {
    /// Starts the loops. Without TLS they do nothing.
    pub(crate) fn start_certificates(self: &Arc<Self>) {
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                app.look_at_certificates().await;
                tokio::time::sleep(LOOK_PERIOD).await;
            }
        });
        let mut node = AcmeNode::new(Arc::clone(self));
        self.spawn_loop(async move {
            loop {
                node.poll().await;
                tokio::time::sleep(POLL_PERIOD).await;
            }
        });
    }

    /// Reads certificates again if their files have changed. It runs on a schedule; tests call it
    /// directly.
    pub async fn look_at_certificates(&self) {
        let config = self.config();
        let metrics = &self.engine.metrics.certificate;
        let Some(tls) = &config.tls else {
            metrics.expires.set(0);
            metrics.is_good.set(1);
            return;
        };
        let now = self.clock.now();
        // One thread at most waits for a disk that hangs.
        if !tls.is_looking() {
            let files = Arc::clone(tls);
            let looking = tokio::task::spawn_blocking(move || {
                files.look(now).iter().for_each(log_look);
            });
            match tokio::time::timeout(LOOK_TIMEOUT, looking).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => tracing::error!("the certificate files could not be looked at: {e}"),
                Err(_) => tracing::error!(
                    "the disk of the certificate files does not answer; what was read last stays in use"
                ),
            }
        }
        let certificate = tls.certificate();
        let validity = certificate.as_ref().and_then(|one| one.validity);
        metrics.expires.set(validity.map_or(0, |validity| validity.ends.as_secs()));
        let is_good = certificate.is_some_and(|one| one.is_valid(now))
            && tls.trouble().is_none()
            && tls.acme_state().trouble.is_none();
        metrics.is_good.set(i64::from(is_good));
    }
}

fn log_look(look: &TlsLook) {
    match look {
        TlsLook::Reloaded => tracing::info!("the changed certificate files are used from now on"),
        TlsLook::Refused(why) => {
            tracing::error!("the changed certificate files are not used: {why}");
        }
    }
}
