//! Fetched secrets that the requests of a call were sent with.
//!
//! A secret can be replaced while a call runs: it was renewed, or the provider refused it to another call.
//! The provider may still repeat the one that this call sent.

use http::HeaderValue;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::secret_filter::header_secrets;
use crate::sigv4::AwsKeys;

/// A fetched secret of one request.
#[derive(Clone)]
pub(crate) enum SentSecret {
    /// Value of the `Authorization` header.
    Token(Arc<HeaderValue>),
    /// Keys that signed it.
    Keys(Arc<AwsKeys>),
}

impl SentSecret {
    fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(own), Self::Token(other)) => own == other,
            (Self::Keys(own), Self::Keys(other)) => own.matches(other),
            (Self::Token(_), Self::Keys(_)) | (Self::Keys(_), Self::Token(_)) => false,
        }
    }

    fn texts(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Token(value) => header_secrets(value),
            Self::Keys(keys) => keys.secrets(),
        }
    }
}

/// Fetched secrets that the requests of a call were sent with. Empty, and without cost, where a provider has
/// a fixed credential. Never printed.
#[derive(Default)]
pub struct SentSecrets {
    is_used: AtomicBool,
    list: Mutex<Vec<SentSecret>>,
}

impl SentSecrets {
    /// Adds the secret of a request. Each is kept once, however often a task is polled with it.
    pub(crate) fn add(&self, secret: SentSecret) {
        let mut list = self.list.lock();
        if !list.iter().any(|known| known.matches(&secret)) {
            list.push(secret);
        }
        self.is_used.store(true, Ordering::Release);
    }

    /// Returns the secret texts.
    pub(crate) fn texts(&self) -> Vec<Vec<u8>> {
        match self.is_used.load(Ordering::Acquire) {
            true => self.list.lock().iter().flat_map(SentSecret::texts).collect(),
            false => Vec::new(),
        }
    }
}

/// A copy with the secrets that were sent so far.
impl Clone for SentSecrets {
    fn clone(&self) -> Self {
        if !self.is_used.load(Ordering::Acquire) {
            return Self::default();
        }
        let list = self.list.lock().clone();
        Self { is_used: AtomicBool::new(!list.is_empty()), list: Mutex::new(list) }
    }
}

impl fmt::Debug for SentSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SentSecrets(…)")
    }
}
