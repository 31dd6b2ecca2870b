//! Calls that are refused before any provider is asked, counted in memory until the store has them.
//!
//! They cost nothing, so a crash may lose the counts of its last second, and a lost answer of the
//! store may count some twice.

use canon::{ApiError, ErrorKind, Micros};
use parking_lot::Mutex;
use std::collections::HashMap;
use store::{RefusedCalls, UsageStep};

/// Maximum number of separate counts. Beyond it, refused calls are counted without key and model.
const MAX_COUNTS: usize = 10_000;
/// Model of refused calls that are counted without their key.
const OTHER_MODEL: &str = "other";

/// Reason a call was refused before any provider was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RefusalReason {
    /// A cap or budget is used up.
    Spent,
    /// The money is reserved for running calls.
    Reserved,
    /// The journal or the store does not answer.
    Unavailable,
}

impl RefusalReason {
    pub(super) fn of(error: &ApiError) -> Self {
        if error.kind() == ErrorKind::QuotaExceeded {
            Self::Spent
        } else if error.kind() == ErrorKind::RateLimited {
            Self::Reserved
        } else {
            Self::Unavailable
        }
    }

    /// The word in the store and in metrics.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Spent => "spent",
            Self::Reserved => "reserved",
            Self::Unavailable => "unavailable",
        }
    }

    /// The HTTP status of the answer.
    pub(super) const fn status(self) -> u16 {
        match self {
            Self::Spent | Self::Reserved => 429,
            Self::Unavailable => 503,
        }
    }
}

/// Counts of refused calls that the store does not have.
#[derive(Default)]
pub(super) struct RefusalCounts(Mutex<HashMap<RefusalGroup, i64>>);

/// Calls that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RefusalGroup {
    hour: Micros,
    key_id: String,
    account_id: String,
    model: String,
    reason: &'static str,
    status: u16,
}

impl RefusalCounts {
    /// Counts a refused call of a key.
    pub(super) fn add(&self, key_id: &str, account_id: &str, model: &str, refused: RefusedAt) {
        let RefusedAt { at, reason } = refused;
        self.merge(RefusedCalls {
            at,
            key_id: key_id.to_owned(),
            account_id: account_id.to_owned(),
            model: model.to_owned(),
            reason: reason.word(),
            status: reason.status(),
            calls: 1,
        });
    }

    fn merge(&self, refused: RefusedCalls) {
        let RefusedCalls { at, key_id, account_id, model, reason, status, calls } = refused;
        let hour = UsageStep::Hour.begin(at);
        let mut group = RefusalGroup { hour, key_id, account_id, model, reason, status };
        let mut counts = self.0.lock();
        if counts.len() >= MAX_COUNTS && !counts.contains_key(&group) {
            group.key_id.clear();
            group.account_id.clear();
            OTHER_MODEL.clone_into(&mut group.model);
        }
        let count = counts.entry(group).or_default();
        *count = count.saturating_add(calls);
    }

    /// Takes all counts.
    pub(super) fn take(&self) -> Vec<RefusedCalls> {
        let counts = std::mem::take(&mut *self.0.lock());
        let refused = counts.into_iter().map(|(group, calls)| {
            let RefusalGroup { hour: at, key_id, account_id, model, reason, status } = group;
            RefusedCalls { at, key_id, account_id, model, reason, status, calls }
        });
        refused.collect()
    }

    /// Puts counts back that the store did not take.
    pub(super) fn put_back(&self, refused: Vec<RefusedCalls>) {
        for one in refused {
            self.merge(one);
        }
    }
}

/// Time and reason of a refusal.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedAt {
    pub(super) at: Micros,
    pub(super) reason: RefusalReason,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_calls_are_counted_together_and_their_groups_are_bounded() {
        let counts = RefusalCounts::default();
        let refused = RefusedAt { at: Micros::from_secs(5), reason: RefusalReason::Spent };
        for _ in 0..3_000 {
            counts.add("k", "a", "m", refused);
        }
        let taken = counts.take();
        assert_eq!(taken.iter().map(|one| one.calls).collect::<Vec<_>>(), [3_000]);
        counts.put_back(taken);
        for number in 0..2 * MAX_COUNTS {
            counts.add(&number.to_string(), "a", "m", refused);
        }
        let taken = counts.take();
        assert_eq!(taken.len(), MAX_COUNTS + 1);
        let sum: i64 = taken.iter().map(|one| one.calls).sum();
        assert_eq!(sum, 3_000 + 2 * MAX_COUNTS as i64, "none is lost");
        assert!(taken.iter().any(|one| one.model == OTHER_MODEL && one.key_id.is_empty()));
    }
}
