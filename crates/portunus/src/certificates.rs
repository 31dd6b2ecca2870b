//! Loops that keep the certificate of the listener current: changed files, and orders of ACME.

use config::TlsLook;
use std::sync::Arc;
use std::time::Duration;

use crate::acme::{AcmeNode, POLL_PERIOD};
use crate::app::App;

/// Period of looking at the files. A change is used after two looks.
const LOOK_PERIOD: Duration = Duration::from_secs(2);

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
        let files = Arc::clone(tls);
        // A disk that hangs must not stop the runtime.
        match tokio::task::spawn_blocking(move || files.look()).await {
            Ok(TlsLook::Same) => {}
            Ok(TlsLook::Reloaded) => {
                tracing::info!("the changed certificate files are used from now on");
            }
            Ok(TlsLook::Refused(why)) => {
                tracing::error!("the changed certificate files are not used: {why}");
            }
            Err(e) => tracing::error!("the certificate files could not be looked at: {e}"),
        }
        let certificate = tls.certificate();
        let validity = certificate.as_ref().and_then(|one| one.validity);
        metrics.expires.set(validity.map_or(0, |validity| validity.ends.as_secs()));
        let is_good =
            certificate.is_some() && tls.trouble().is_none() && tls.acme_state().trouble.is_none();
        metrics.is_good.set(i64::from(is_good));
    }
}
