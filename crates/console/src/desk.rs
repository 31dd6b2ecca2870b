//! What every page may use.

use std::sync::Arc;

use catalog::Catalog;
use ledger::Micros;
use store::Store;

use crate::Host;
use crate::oidc::Described;
use crate::password::Passwords;
use crate::snippet::Format;
use crate::throttle::{self, Throttle};

/// The console's own state and its ways to the store and the gateway.
pub(crate) struct Desk {
    pub(crate) store: Store,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) passwords: Passwords,
    /// Tries to sign in.
    pub(crate) throttle: Throttle,
    /// Mails asked for.
    pub(crate) mails: Throttle,
    /// Codes of second factors.
    pub(crate) codes: Throttle,
    /// Names somebody looked up who may not see everyone's.
    pub(crate) lookups: Throttle,
    /// The providers of identities, as they described themselves.
    pub(crate) described: Described,
}

impl Desk {
    pub(crate) fn new(store: Store, host: Arc<dyn Host>) -> Self {
        Self {
            store,
            host,
            passwords: Passwords::default(),
            throttle: Throttle(throttle::SIGN_IN),
            mails: Throttle(throttle::MAILS),
            codes: Throttle(throttle::CODES),
            lookups: Throttle(throttle::LOOKUPS),
            described: Described::default(),
        }
    }

    /// What `look` sees in the catalog in force.
    pub(crate) fn catalog<T: Default>(&self, look: impl FnOnce(&Catalog) -> T) -> T {
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
    pub(crate) fn url(&self) -> String {
        self.host.public_url().trim_end_matches('/').to_owned()
    }

    /// The formats served, in the order they are shown.
    pub(crate) fn formats(&self) -> Vec<Format> {
        let served = self.host.formats();
        Format::ALL.into_iter().filter(|format| served.contains(&format.word())).collect()
    }

    /// Notes who did what. The deed is done: that it could not be noted is told to the log only.
    pub(crate) async fn note(&self, actor: &str, action: &str, subject: &str, detail: &str) {
        if let Err(error) = self.store.add_audit(self.now(), actor, action, subject, detail).await {
            tracing::error!(action, subject, "the audit log could not be written: {error}");
        }
    }
}
