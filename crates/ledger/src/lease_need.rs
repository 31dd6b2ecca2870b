//! Money that is requested from the lease store, and the last request that it failed on.

use canon::{Micros, Money};
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

/// A failure of the store to lease money, though it may answer everything else. On a full disk only some
/// statements fail.
#[derive(Clone)]
pub struct LeaseFailure {
    /// Steady time of the first failure since the last success.
    pub since: Micros,
    /// Reason of the last failure.
    pub why: String,
    pub(crate) balance: Arc<KeyBalance>,
}

/// The failure to lease money, until money is leased again.
#[derive(Default)]
pub(crate) struct FailedRequest(Mutex<Option<LeaseFailure>>);

impl FailedRequest {
    pub(crate) fn get(&self) -> Option<LeaseFailure> {
        self.0.lock().clone()
    }

    /// Notes the result of a request.
    pub(crate) fn note(
        &self,
        balance: &Arc<KeyBalance>,
        granted: &Result<LeaseGrant, LeaseStoreError>,
        now: Micros,
    ) {
        let mut failed = self.0.lock();
        let is_same = failed.as_ref().is_some_and(|failed| Arc::ptr_eq(&failed.balance, balance));
        match granted {
            Err(LeaseStoreError::Unreachable(why)) => {
                let since = failed.as_ref().map_or(now, |failed| failed.since);
                *failed =
                    Some(LeaseFailure { since, why: why.clone(), balance: Arc::clone(balance) });
            }
            // A request that leases nothing to another key may need less of the store.
            Ok(LeaseGrant::Lease { amount, .. }) if is_same || *amount > Money::ZERO => {
                *failed = None
            }
            Ok(LeaseGrant::Unlimited | LeaseGrant::Short(_)) if is_same => *failed = None,
            Ok(LeaseGrant::Lease { .. } | LeaseGrant::Unlimited | LeaseGrant::Short(_)) => {}
            Err(LeaseStoreError::Rejected(_)) if !is_same => {}
            Err(LeaseStoreError::Rejected(_) | LeaseStoreError::Fenced) => *failed = None,
        }
    }
}
