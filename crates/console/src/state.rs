//! What every page may use.

use std::sync::Arc;

use catalog::Catalog;
use ledger::Micros;
use store::Store;

use crate::ConsoleHost;
use crate::oidc::DiscoveryCache;
use crate::password::PasswordWorkers;
use crate::snippet::ApiFormat;
use crate::throttle::{self, Throttle};

/// The console's own state and its ways to the store and the gateway.
pub(crate) struct ConsoleState {
    pub(crate) store: Store,
    pub(crate) host: Arc<dyn ConsoleHost>,
    pub(crate) passwords: PasswordWorkers,
    /// Tries to sign in.
    pub(crate) sign_in_throttle: Throttle,
    /// Mails asked for.
    pub(crate) mail_throttle: Throttle,
    /// Codes of second factors.
    pub(crate) code_throttle: Throttle,
    /// Names somebody looked up who may not see everyone's.
    pub(crate) lookup_throttle: Throttle,
    /// The providers of identities, as they described themselves.
    pub(crate) discovery: DiscoveryCache,
}

impl ConsoleState {
    pub(crate) fn new(store: Store, host: Arc<dyn ConsoleHost>) -> Self {
        Self {
            store,
            host,
            passwords: PasswordWorkers::default(),
            sign_in_throttle: Throttle(throttle::SIGN_IN_LIMITS),
            mail_throttle: Throttle(throttle::MAIL_LIMITS),
            code_throttle: Throttle(throttle::CODE_LIMITS),
            lookup_throttle: Throttle(throttle::LOOKUP_LIMITS),
            discovery: DiscoveryCache::default(),
        }
    }

    /// What `look` sees in the catalog in force.
    pub(crate) fn with_catalog<T: Default>(&self, look: impl FnOnce(&Catalog) -> T) -> T {
        let (mut look, mut seen) = (Some(look), T::default());
        self.host.with_catalog(&mut |catalog| {
            if let Some(look) = look.take() {
                seen = look(catalog);
            }
        });
        seen
    }

    pub(crate) fn now(&self) -> Micros {
        self.host.now()
    }

    /// The gateway's address, ready to be continued with a path.
    pub(crate) fn base_url(&self) -> String {
        self.host.public_url().trim_end_matches('/').to_owned()
    }

    /// The formats served, in the order they are shown.
    pub(crate) fn formats(&self) -> Vec<ApiFormat> {
        let served = self.host.formats();
        ApiFormat::ALL.into_iter().filter(|format| served.contains(&format.as_str())).collect()
    }

    /// Notes who did what. The deed is done: that it could not be noted is told to the log only.
    pub(crate) async fn audit(&self, actor: &str, action: &str, subject: &str, detail: &str) {
        if let Err(error) = self.store.add_audit(self.now(), actor, action, subject, detail).await {
            tracing::error!(action, subject, "the audit log could not be written: {error}");
        }
    }
}
