//! Payment of calls that are posted late, twice, or by a settlement that knows more.

use std::borrow::Cow;
use std::collections::BTreeMap;

use canon::Money;
use ledger::{ChargeReason, LeaseToken, LedgerEntry};

use crate::corrections::{CallCorrection, PostedCall};
use crate::db::clean;

/// Money that pays for the calls of one transaction.
#[derive(Default)]
pub(crate) struct LateCharges {
    /// Money below the cap of each capped key that is not leased.
    pub(crate) room: BTreeMap<String, Money>,
    /// The same for each capped account, and the account of each of its keys.
    pub(crate) account_room: BTreeMap<String, Money>,
    pub(crate) account_of: BTreeMap<String, String>,
    /// Existing leases and their amounts.
    pub(crate) leases: BTreeMap<LeaseToken, Money>,
    /// Amount taken from each lease.
    pub(crate) taken: BTreeMap<LeaseToken, Money>,
    /// Amount that leases paid for each key.
    pub(crate) paid: BTreeMap<String, Money>,
}

impl LateCharges {
    /// Pays an amount: from the lease if it has all of it, else as far as the caps have room. Returns
    /// the amount that is paid.
    fn pay(&mut self, key_id: &str, amount: Money, lease: Option<LeaseToken>) -> Money {
        let key_id = clean(key_id).into_owned();
        if let Some(token) = lease
            && let Some(left) = self.leases.get_mut(&token)
            && *left >= amount
        {
            *left = left.saturating_sub(amount);
            let taken = self.taken.entry(token).or_default();
            *taken = taken.saturating_add(amount);
            let paid = self.paid.entry(key_id).or_default();
            *paid = paid.saturating_add(amount);
            return amount;
        }
        let above = self.account_of.get(&key_id);
        let above = above.and_then(|account| self.account_room.get_mut(account));
        let rooms = [self.room.get_mut(&key_id), above];
        let least = rooms.iter().flatten().map(|room| **room).min();
        let Some(least) = least else { return amount };
        let pays = amount.min(least);
        for room in rooms.into_iter().flatten() {
            *room = room.saturating_sub(pays);
        }
        pays
    }

    /// Returns the entry with the amount that can be paid.
    pub(crate) fn charge<'a>(
        &mut self,
        entry: &'a LedgerEntry,
        lease: Option<LeaseToken>,
    ) -> Cow<'a, LedgerEntry> {
        let cost = entry.cost;
        let pays = self.pay(&entry.key_id, cost, lease);
        if pays == cost {
            return Cow::Borrowed(entry);
        }
        let mut entry = entry.clone();
        entry.absorbed = entry.absorbed.saturating_add(cost.saturating_sub(pays));
        entry.cost = pays;
        entry.explain(ChargeReason::BeyondCap);
        Cow::Owned(entry)
    }

    /// Returns the correction of a posted call by a settlement of it, unless that knows no more. A
    /// call that turns out to be cheaper is refunded; one that turns out to be dearer pays the
    /// difference as far as the caps have room. Its lease is closed, and the rest of that lease is
    /// for calls that were not reported.
    pub(crate) fn correct(
        &mut self,
        posted: PostedCall,
        better: &LedgerEntry,
    ) -> Option<CallCorrection> {
        let PostedCall { entry: before, corrections } = posted;
        if better.knowledge <= before.knowledge || better.key_id != before.key_id {
            report_conflict(&before, better);
            return None;
        }
        let due = better.cost.saturating_sub(before.cost);
        let change = if due > Money::ZERO { self.pay(&before.key_id, due, None) } else { due };
        let cost = before.cost.saturating_add(change);
        let rest = better.cost.saturating_sub(cost);
        let mut after = LedgerEntry {
            cost,
            absorbed: better.absorbed.saturating_add(rest),
            started: before.started,
            // Pages are in the order of the first postings.
            ended: before.ended,
            ..better.clone()
        };
        if rest > Money::ZERO {
            after.explain(ChargeReason::BeyondCap);
        }
        Some(CallCorrection { before, after, number: corrections + 1 })
    }
}

/// Logs two settlements that claim to know all and differ. One of them is wrong.
fn report_conflict(posted: &LedgerEntry, other: &LedgerEntry) {
    let total = |entry: &LedgerEntry| entry.cost.saturating_add(entry.absorbed);
    if other.knowledge.is_final()
        && (total(posted) != total(other) || posted.key_id != other.key_id)
    {
        tracing::error!(
            request.id = posted.request_id,
            "two settlements of one call differ: {} USD are recorded, {} USD are ignored",
            total(posted),
            total(other)
        );
    }
}
