//! Money that is requested from the lease store, and the last request that it failed on.

use canon::Money;
use parking_lot::Mutex;
use std::sync::Arc;

use crate::{KeyBalance, LeaseGrant, LeaseStoreError};

/// Money to request for a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeaseNeed {
    pub(crate) full: Money,
    pub(crate) least: Money,
    /// Size of the whole hold.
    pub(crate) hold: Money,
}

/// The last request for money, if the store failed on it. A store on a full disk may fail on some requests only.
#[derive(Default)]
pub(crate) struct FailedRequest(Mutex<Option<(Arc<KeyBalance>, LeaseNeed)>>);

impl FailedRequest {
    pub(crate) fn get(&self) -> Option<(Arc<KeyBalance>, LeaseNeed)> {
        self.0.lock().clone()
    }

    pub(crate) fn note(
        &self,
        balance: &Arc<KeyBalance>,
        need: LeaseNeed,
        granted: &Result<LeaseGrant, LeaseStoreError>,
    ) {
        *self.0.lock() = match granted {
            Err(LeaseStoreError::Unreachable(_)) => Some((Arc::clone(balance), need)),
            Ok(_) | Err(LeaseStoreError::Fenced) => None,
        };
    }
}
