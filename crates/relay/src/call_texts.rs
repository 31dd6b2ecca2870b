//! Owners of the words in a provider's text about one call.

use bytes::Bytes;
use canon::TextOwners;
use http::HeaderMap;
use memchr::memmem;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use upstream::Provider;

use super::Call;

/// Texts that the caller sent.
pub(super) struct RequestTexts {
    body: Bytes,
    model: Option<String>,
    headers: HeaderMap,
    /// The body without escapes, once it is needed.
    unescaped: OnceLock<String>,
}

impl RequestTexts {
    pub(super) fn of(call: &Call) -> Self {
        Self {
            body: call.body.clone(),
            model: call.target.model.clone(),
            headers: call.forwarded_headers.clone(),
            unescaped: OnceLock::new(),
        }
    }

    /// Returns true if the caller sent this text, whatever way it is written in JSON.
    pub(super) fn contains(&self, text: &[u8]) -> bool {
        let has = |place: &[u8]| memmem::find(place, text).is_some();
        let unescaped = || {
            self.unescaped.get_or_init(|| {
                let body: Value = dialects::json::read_bytes(&self.body).unwrap_or_default();
                body.to_string()
            })
        };
        has(&self.body)
            || has(self.model.as_deref().unwrap_or_default().as_bytes())
            || self.headers.values().any(|value| has(value.as_bytes()))
            || (memmem::find(&self.body, b"\\u").is_some() && has(unescaped().as_bytes()))
    }
}

/// Words of an answer that are looked for in the request at most, and the largest request in which they
/// are. The rest is hidden.
const MAX_SEARCHES: u32 = 16;
const MAX_SEARCHED_BYTES: usize = 256 << 10;

/// Texts of one call and of the provider that answers it.
struct CallTexts {
    request: RequestTexts,
    searches: AtomicU32,
    provider: Arc<Provider>,
}

/// Returns the owners of the words in a text of the provider.
pub(super) fn text_owners(call: &Call, provider: &Arc<Provider>) -> Arc<dyn TextOwners> {
    let (request, searches) = (RequestTexts::of(call), AtomicU32::new(0));
    Arc::new(CallTexts { request, searches, provider: Arc::clone(provider) })
}

impl TextOwners for CallTexts {
    fn hide_credentials(&self, text: &str) -> Option<String> {
        self.provider.hide_in_text(text, &|piece| self.request.contains(piece))
    }

    fn is_providers_host(&self, host: &str) -> bool {
        self.provider.has_host(host)
    }

    fn is_in_request(&self, word: &str) -> bool {
        self.request.body.len() <= MAX_SEARCHED_BYTES
            && self.searches.fetch_add(1, Ordering::Relaxed) < MAX_SEARCHES
            && self.request.contains(word.as_bytes())
    }
}
