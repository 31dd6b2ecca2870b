//! Mark of requests that were given to a connection.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of requests that were given to a connection: a server may have read them, at least in part.
/// The caller of a client shares it, because a future that is dropped returns no error.
#[derive(Debug, Default)]
pub struct SentMark(AtomicU32);

impl SentMark {
    /// Notes that a request is given to a connection now.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the connection took nothing of a request.
    pub(crate) fn take_back(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if any request was given to a connection.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Forgets the requests so far. None of them may be running.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
