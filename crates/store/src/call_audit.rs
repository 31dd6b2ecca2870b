//! Sums over all posted calls, and those calls that violate an invariant of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use canon::{Money, SharedText};
use ledger::{CallOutcome, FailedAttempt, LedgerEntry};

use crate::call_writes::owners;
use crate::rollup::counted;
use crate::row::row;
use crate::session_audit::SessionAudit;
use crate::sums::UsageTotals;

/// Maximum number of violations listed per invariant.
pub(crate) const MAX_VIOLATIONS: usize = 20;

/// Sums that the calls of an owner and its usage must agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallSums {
    pub(crate) calls: i64,
    pub(crate) cost: Money,
    pub(crate) absorbed: Money,
    pub(crate) input: i64,
    pub(crate) output: i64,
}

impl CallSums {
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            cost: self.cost.saturating_add(other.cost),
            absorbed: self.absorbed.saturating_add(other.absorbed),
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }

    /// Returns the sums of one call, capped as in the table of usage.
    pub(crate) fn of(call: &LedgerEntry) -> Self {
        let UsageTotals { calls, cost, absorbed, input, output, .. } = counted(call);
        Self { calls, cost, absorbed, input, output }
    }
}

pub(crate) type SumsByOwner = BTreeMap<String, CallSums>;

row! {
    /// Sums that the calls of an owner and its usage must agree on.
    pub(crate) struct SumRow {
        owner: String,
        calls: i64,
        cost: Money,
        borne: Money,
        input: i64,
        output: i64,
    }
}

macro_rules! sums_of_archived {
    ($owner:literal) => {
        concat!(
            "SELECT ",
            $owner,
            " AS owner, CAST(SUM(calls) AS BIGINT) AS calls, CAST(SUM(cost) AS BIGINT) AS cost, \
             CAST(SUM(borne) AS BIGINT) AS borne, CAST(SUM(input) AS BIGINT) AS input, \
             CAST(SUM(output) AS BIGINT) AS output FROM archived_calls GROUP BY 1"
        )
    };
}
/// Sums of the calls that left the database.
pub(crate) const ARCHIVED_BY_KEY: &str = sums_of_archived!("key_id");
pub(crate) const ARCHIVED_BY_ACCOUNT: &str = sums_of_archived!("account_id");

/// Adds rows to the sums of their owners.
pub(crate) fn plus_rows(mut sums: SumsByOwner, rows: Vec<SumRow>) -> SumsByOwner {
    for SumRow { owner, calls, cost, borne, input, output } in rows {
        let sum = sums.entry(owner).or_default();
        *sum = sum.plus(CallSums { calls, cost, absorbed: borne, input, output });
    }
    sums
}

/// Violations of one invariant, as text. Not more than enough are kept.
#[derive(Default)]
pub(crate) struct Violations(pub(crate) Vec<String>);

impl Violations {
    fn add(&mut self, is_violated: bool, text: impl FnOnce() -> String) {
        if is_violated && self.0.len() < MAX_VIOLATIONS {
            self.0.push(text());
        }
    }
}

/// Findings about the first postings of all calls.
#[derive(Default)]
pub(crate) struct CallAudit {
    pub(crate) by_key: SumsByOwner,
    pub(crate) by_account: SumsByOwner,
    pub(crate) by_session: SessionAudit,
    /// Number of calls, and of owners of blocks.
    pub(crate) calls: i64,
    pub(crate) owners: i64,
    /// Calls that pay more than their hold.
    pub(crate) unbounded: Violations,
    /// Calls whose attempts are not all listed, or that are charged without a lane.
    pub(crate) unattributed: Violations,
    /// Calls that pay without output.
    pub(crate) for_nothing: Violations,
    /// Calls that name no price list.
    pub(crate) unpriced: Violations,
    /// Price lists under which a plain reply was paid.
    paid_versions: BTreeSet<SharedText>,
    /// Replies that cost nothing, by their price list.
    free: BTreeMap<SharedText, Violations>,
}

fn add_sums(sums: &mut SumsByOwner, owner: &str, call: CallSums) {
    match sums.get_mut(owner) {
        Some(sum) => *sum = sum.plus(call),
        None => {
            sums.insert(owner.to_owned(), call);
        }
    }
}

/// Returns true if the listed attempts agree with their number.
fn attempts_listed(attempts: u32, lane: &str, answered: bool, failed: &[FailedAttempt]) -> bool {
    let attempts = u64::from(attempts);
    let failed = failed.len() as u64;
    if answered {
        attempts == failed.saturating_add(1) && !lane.is_empty()
    } else {
        failed <= attempts && attempts <= failed.saturating_add(1)
    }
}

impl CallAudit {
    /// Adds the calls of a block.
    pub(crate) fn add_block(&mut self, calls: &[LedgerEntry]) {
        self.calls += calls.len() as i64;
        self.owners += owners(calls.iter()).len() as i64;
        calls.iter().for_each(|call| self.add(call));
    }

    fn add(&mut self, call: &LedgerEntry) {
        let LedgerEntry { request_id, key_id, account_id, cost, held, attempts, lane, .. } = call;
        let LedgerEntry { outcome, usage, price_version, failed, .. } = call;
        let sums = CallSums::of(call);
        add_sums(&mut self.by_key, key_id, sums);
        add_sums(&mut self.by_account, account_id, sums);
        self.by_session.add_call(call);
        let is_paid = *cost > Money::ZERO;
        let is_unbounded = *cost < Money::ZERO || held.is_some_and(|held| *cost > held);
        self.unbounded.add(is_unbounded, || {
            let held = held.unwrap_or_default();
            format!("call {request_id}: it pays {cost} USD, but its hold is {held} USD")
        });
        let is_tried = *attempts != 1 || !failed.is_empty();
        let is_listed = || attempts_listed(*attempts, lane, call.first_byte_us.is_some(), failed);
        let is_unlisted = is_tried && *outcome != CallOutcome::Recovered && !is_listed();
        self.unattributed.add(is_unlisted, || {
            let failed = failed.len();
            format!(
                "call {request_id}: {attempts} attempts are counted, {failed} of them listed as failed"
            )
        });
        self.unattributed.add(is_paid && lane.is_empty(), || {
            format!("call {request_id}: it is charged, but no lane is named")
        });
        let is_empty = usage.input == 0 && usage.output == 0 && usage.searches == 0;
        let is_useless = match outcome {
            CallOutcome::Failed => true,
            CallOutcome::Done => false,
            CallOutcome::CallerLeft | CallOutcome::BrokeOff | CallOutcome::Recovered => is_empty,
        };
        self.for_nothing.add(is_paid && is_useless, || {
            format!("call {request_id}: it pays {cost} USD without output")
        });
        let is_priced = is_paid || held.is_some_and(|held| held > Money::ZERO);
        self.unpriced.add(is_priced && price_version.is_empty(), || {
            format!("call {request_id}: it names no price list")
        });
        if usage.output == 0 {
            return;
        }
        let is_plain = usage.searches == 0 && usage.output_image == 0;
        if is_paid && is_plain && !self.paid_versions.contains(price_version) {
            self.paid_versions.insert(price_version.clone());
        }
        if *cost == Money::ZERO && call.absorbed == Money::ZERO {
            let output = usage.output;
            let free = self.free.entry(price_version.clone()).or_default();
            free.add(true, || format!("call {request_id}: {output} output tokens are not charged"));
        }
    }

    /// Returns replies that cost nothing although their price list has a price for them. The same prices
    /// have the same version: if one plain reply was paid under it, all must be.
    pub(crate) fn free_replies(&mut self) -> Vec<String> {
        let free = std::mem::take(&mut self.free).into_iter();
        let free = free.filter(|(version, _)| self.paid_versions.contains(version));
        free.flat_map(|(_, calls)| calls.0).take(MAX_VIOLATIONS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_listed_if_failed_and_answered_ones_are_all() {
        let failed = |count| vec![FailedAttempt::default(); count];
        for (attempts, answered, failures, listed) in [
            (1, true, 0, true),
            (2, true, 1, true),
            (2, true, 0, false),
            (1, true, 1, false),
            (0, false, 0, true),
            (2, false, 2, true),
            (2, false, 1, true),
            (3, false, 1, false),
            (1, false, 2, false),
        ] {
            let found = attempts_listed(attempts, "lane", answered, &failed(failures));
            assert_eq!(found, listed, "{attempts} {answered} {failures}");
        }
        assert!(!attempts_listed(1, "", true, &[]));
    }
}
