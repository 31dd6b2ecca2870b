//! Use of an HTTP/2 connection.
//!
//! A provider may close an idle connection at the moment it is taken from the pool. It has not read
//! the request then, so a retry is safe. Only a connection that has answered before can have been
//! idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag that is set once a connection has answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionUse(Arc<AtomicBool>);

impl ConnectionUse {
    /// Records a response.
    pub(crate) fn mark_answered(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if the connection has answered before.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
