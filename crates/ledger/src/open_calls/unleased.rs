//! Calls without a lease. They are those of keys whose money is not limited, or was not when they began.

use canon::{Money, SharedText};

use super::OpenCalls;
use crate::{KeyBalance, UnleasedCost};

impl OpenCalls {
    /// Returns the cost that the calls without a lease may have, of this key and of its account.
    pub(crate) fn unleased(&self, balance: &KeyBalance) -> UnleasedCost {
        let account_id = balance.account_id.get().map_or("", SharedText::as_str);
        let mut sums = UnleasedCost::default();
        let mut add = |key_id: &str, of_account: &str, amount: Money| {
            if key_id == balance.key_id().as_str() {
                sums.key = sums.key.saturating_add(amount);
            }
            if of_account == account_id {
                sums.account = sums.account.saturating_add(amount);
            }
        };
        let state = self.state.lock();
        for open in state.open.values().filter(|open| open.held.lease.is_none()) {
            add(&open.held.key_id, &open.held.account_id, open.held.amount);
        }
        for unposted in state.settled.iter().filter(|unposted| unposted.settled.lease.is_none()) {
            let entry = &unposted.settled.entry;
            add(&entry.key_id, &entry.account_id, entry.cost);
        }
        sums
    }
}
