//! Connections that remember whether they have answered before.
//!
//! A provider may close an idle connection at the very moment it is taken from the pool. What is
//! sent on it is lost without anyone having read it, so it can safely be sent again; but only a
//! connection that has answered before can have been idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a connection has answered before.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionUse(Arc<AtomicBool>);

impl ConnectionUse {
    /// It answered.
    pub(crate) fn mark_answered(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it answered before.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
