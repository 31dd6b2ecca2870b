//! Sums over the leases of this node, for metrics.

use canon::Money;

use crate::{LeaseClient, LeaseStore, LeaseUse};

/// Sums over the leases of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseTotals {
    /// Number of leases.
    pub leases: usize,
    /// Money free for holds.
    pub free: Money,
    /// Money reserved for running calls.
    pub held: Money,
    /// Cost of settled calls that are not posted.
    pub unposted: Money,
}

impl<S: LeaseStore> LeaseClient<S> {
    /// Returns the sums over the leases that this node uses.
    pub fn lease_totals(&self) -> LeaseTotals {
        let balances = self.balances().lock();
        let leases = balances.values().filter_map(|balance| balance.lease());
        leases.fold(LeaseTotals::default(), |sums, lease| {
            let LeaseUse { free, held, unposted, .. } = lease;
            LeaseTotals {
                leases: sums.leases + 1,
                free: sums.free.saturating_add(free),
                held: sums.held.saturating_add(held),
                unposted: sums.unposted.saturating_add(unposted),
            }
        })
    }
}
