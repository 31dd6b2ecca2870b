//! State shared by all pages.

use std::sync::Arc;

use canon::Micros;
use catalog::Catalog;
use store::Store;

use crate::ConsoleHost;
use crate::discovery::DiscoveryCache;
use crate::password::PasswordWorkers;
use crate::snippet::ApiFormat;
use crate::throttle::{self, Throttle};

/// The console's own state, the store and the gateway around it.
pub(crate) struct ConsoleState {
    pub(crate) store: Store,
    pub(crate) host: Arc<dyn ConsoleHost>,
    pub(crate) passwords: PasswordWorkers,
    /// Limits sign-in attempts.
    pub(crate) sign_in_throttle: Throttle,
    /// Limits mails that anybody may request.
    pub(crate) mail_throttle: Throttle,
    /// Limits attempts at second-factor codes.
    pub(crate) code_throttle: Throttle,
    /// Limits proofs of people who are signed in.
    pub(crate) proof_throttle: Throttle,
    /// Limits audit lines of refused passkeys and identities.
    pub(crate) refusal_throttle: Throttle,
    /// Limits account lookups by team managers.
    pub(crate) lookup_throttle: Throttle,
    /// Limits guesses of the codes of agents.
    pub(crate) device_throttle: Throttle,
    /// Cached discovery documents of the identity providers.
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
            proof_throttle: Throttle(throttle::PROOF_LIMITS),
            refusal_throttle: Throttle(throttle::REFUSAL_LIMITS),
            lookup_throttle: Throttle(throttle::LOOKUP_LIMITS),
            device_throttle: Throttle(throttle::DEVICE_LIMITS),
            discovery: DiscoveryCache::default(),
        }
    }

    /// Calls `look` with the current catalog and returns its result.
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

    /// Public URL of the gateway, without a slash at the end.
    pub(crate) fn base_url(&self) -> String {
        self.host.public_url().trim_end_matches('/').to_owned()
    }

    /// Returns true if the model can be called in the formats of conversations.
    pub(crate) fn converses(&self, model: &str) -> bool {
        self.host.converses(model)
    }

    /// Served request formats, in display order.
    pub(crate) fn formats(&self) -> Vec<ApiFormat> {
        let served = self.host.formats();
        ApiFormat::ALL.into_iter().filter(|format| served.contains(&format.as_str())).collect()
    }
}
