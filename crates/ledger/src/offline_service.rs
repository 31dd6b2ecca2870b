//! Service of a node whose lease store does not answer.

use canon::Micros;
use std::sync::Arc;

use crate::{KeyBalance, LeaseClient, LeaseStore};

/// Time for which the last call of a key, served or refused, makes the key one that is in use.
const RECENT_USE: Micros = Micros::from_secs(300);

/// Keys that this node can and cannot serve without the lease store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfflineService {
    /// Keys whose next call is served.
    pub served: usize,
    /// Keys whose next call is refused.
    pub refused: usize,
}

impl<S: LeaseStore> LeaseClient<S> {
    /// Counts the keys that this node serves without the lease store: those used within the last minutes,
    /// or all of them if none was used. A key that nobody uses must not make a node ready that refuses
    /// every caller it has.
    pub fn offline_service(&self, balances: &[Arc<KeyBalance>]) -> OfflineService {
        let now = self.steady();
        let serves_unlimited = self.time_since_contact() <= self.outage_limit();
        let is_recent = |balance: &KeyBalance| {
            balance.last_use_at().is_some_and(|at| now.saturating_sub(at) < RECENT_USE)
        };
        let any_recent = balances.iter().any(|balance| is_recent(balance));
        let mut service = OfflineService::default();
        for balance in balances.iter().filter(|balance| !any_recent || is_recent(balance)) {
            if balance.pays_alone(now, serves_unlimited) {
                service.served += 1;
            } else {
                service.refused += 1;
            }
        }
        service
    }
}
