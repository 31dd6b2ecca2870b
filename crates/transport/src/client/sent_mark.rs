//! Mark of requests that were given to a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of requests that were given to a connection: a server may have read them, at least in part.
/// The caller of a client shares it, because a future that is dropped returns no error.
#[derive(Debug, Default)]
pub struct SentMark {
    given: AtomicU32,
    whole: AtomicBool,
}

impl SentMark {
    /// Notes that a request is given to a connection now.
    pub(crate) fn add(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the connection took nothing of a request.
    pub(crate) fn take_back(&self) {
        self.given.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a request is written in full.
    pub(crate) fn set_whole(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    /// Returns true if any request was given to a connection.
    pub fn is_set(&self) -> bool {
        self.given.load(Ordering::Relaxed) > 0
    }

    /// Returns true if any request was written in full.
    pub fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed)
    }

    /// Forgets the requests so far. None of them may be running.
    pub fn clear(&self) {
        self.given.store(0, Ordering::Relaxed);
        self.whole.store(false, Ordering::Relaxed);
    }
}

/// Marks a request on a shared connection as written in full when it ends, however it ends.
pub(crate) struct BodyEnd<'a> {
    pub(crate) has_ended: Arc<AtomicBool>,
    pub(crate) sent: &'a SentMark,
}

impl Drop for BodyEnd<'_> {
    fn drop(&mut self) {
        if self.has_ended.load(Ordering::Relaxed) {
            self.sent.set_whole();
        }
    }
}
