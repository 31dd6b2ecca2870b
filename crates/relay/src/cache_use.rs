//! The use of a provider's cache in a call.

use canon::{ApiError, Micros, UpstreamProgress};
use dialects::json::BodySegments;
use dialects::native::{self, CachedPrefix};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A cache that ends sooner is not named: the request may wait before it is sent.
const LEAST_LIFETIME: Micros = Micros::from_secs(30);

/// A copy of cached content at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderCache {
    /// The lane and the credential that made it, as a hash.
    pub slot: u64,
    /// Its name at the provider.
    pub name: String,
    /// Time at which the provider deletes it.
    pub expires: Micros,
}

/// Cached content of a call that has a copy at a provider.
#[derive(Debug)]
pub struct CacheUse {
    cache: ProviderCache,
    prefix: CachedPrefix,
    tokens: u64,
    is_gone: AtomicBool,
}

impl CacheUse {
    /// Returns the use of a copy in a request with that content in it; `None` if the copy ends soon.
    pub fn new(
        cache: ProviderCache,
        prefix: CachedPrefix,
        tokens: u64,
        now: Micros,
    ) -> Option<Arc<Self>> {
        let is_gone = AtomicBool::new(false);
        (cache.expires >= now + LEAST_LIFETIME)
            .then(|| Arc::new(Self { cache, prefix, tokens, is_gone }))
    }

    /// Returns the name of the copy at the provider.
    pub fn name(&self) -> &str {
        &self.cache.name
    }

    /// Returns true if the provider did not take the name of the copy.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Returns true if a lane with this credential has the copy.
    pub(super) fn is_at(&self, slot_hash: Option<u64>) -> bool {
        !self.is_gone() && slot_hash == Some(self.cache.slot)
    }

    /// Returns a body with the name of the copy in the place of the content; `None` if it cannot be cut.
    pub(super) fn name_in(&self, body: &BodySegments) -> Option<BodySegments> {
        let named = native::name_provider_cache(&body.to_vec(), self.prefix, self.name());
        named.map(BodySegments::single)
    }

    /// Returns true if an error may be that of a copy that is gone. Any answer about the request counts, because
    /// its text may name the copy.
    pub(super) fn may_be_gone(error: &ApiError) -> bool {
        let Some(UpstreamProgress::Answered(status)) = error.progress() else { return false };
        (400..500).contains(&status) && !matches!(status, 401 | 408 | 409 | 425 | 429)
    }

    /// Records that the provider answers the request without the name of the copy.
    pub(super) fn mark_gone(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Returns the size of the content.
    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }
}
