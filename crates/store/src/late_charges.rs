//! Payment of calls that are posted late, twice, or by a settlement that knows more.

use std::borrow::Cow;
use std::collections::BTreeMap;

use canon::{Micros, Money};
use ledger::{BudgetTerms, ChargeReason, LeaseToken, LedgerEntry};

use crate::account_caps::{AccountSums, LockedAccount};
use crate::corrections::{CallCorrection, PostedCall};
use crate::db::clean;
use crate::lease_bounds::LockedKey;
use crate::rollup::Scope;

/// A key or an account.
type Owner = (Scope, String);

/// A period of a budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpendPeriod {
    pub(crate) scope: Scope,
    pub(crate) owner: String,
    pub(crate) begin: Micros,
    pub(crate) end: Micros,
}

/// A budget and the money leased to its keys.
struct LeasedBudget {
    terms: BudgetTerms,
    leased: Money,
}

/// Money that pays for the calls of one transaction. Those without a lease pay as far as every limit
/// has room.
#[derive(Default)]
pub(crate) struct LateCharges {
    /// Money below each cap that is neither spent nor leased.
    room: BTreeMap<Owner, Money>,
    /// Budgets, and the money that each of their periods has left.
    budgets: BTreeMap<Owner, LeasedBudget>,
    period_room: BTreeMap<SpendPeriod, Money>,
    /// The account of each key whose account has limits.
    account_of: BTreeMap<String, String>,
    /// Existing leases and their amounts.
    pub(crate) leases: BTreeMap<LeaseToken, Money>,
    /// Amount taken from each lease.
    pub(crate) taken: BTreeMap<LeaseToken, Money>,
    /// Amount that leases paid for each key.
    pub(crate) paid: BTreeMap<String, Money>,
}

impl LateCharges {
    /// Adds the limits of a locked key.
    pub(crate) fn add_key(&mut self, key_id: &str, key: &LockedKey) -> Result<(), sqlx::Error> {
        let owner = (Scope::KeySum, key_id.to_owned());
        if let Some(cap) = key.cap_state() {
            self.room.insert(owner.clone(), cap.left().max(Money::ZERO));
        }
        if let Some(terms) = key.budget()? {
            self.budgets.insert(owner, LeasedBudget { terms, leased: key.leased });
        }
        Ok(())
    }

    /// Adds the limits of the locked account of these keys.
    pub(crate) fn add_account(
        &mut self,
        keys: Vec<String>,
        account: &LockedAccount,
        sums: &AccountSums,
    ) -> Result<(), sqlx::Error> {
        let owner = (Scope::AccountSum, account.account_id.clone());
        if let Some(cap) = account.cap {
            self.room.insert(owner.clone(), sums.room(cap).max(Money::ZERO));
        }
        if let Some(terms) = account.budget()? {
            self.budgets.insert(owner, LeasedBudget { terms, leased: sums.leased });
        }
        self.account_of.extend(keys.into_iter().map(|key| (key, account.account_id.clone())));
        Ok(())
    }

    /// Returns the owners whose limits apply to a call.
    fn owners(&self, entry: &LedgerEntry) -> Vec<Owner> {
        let key_id = clean(&entry.key_id).into_owned();
        let account = self.account_of.get(&key_id);
        let account = account.map(|account| (Scope::AccountSum, account.clone()));
        [(Scope::KeySum, key_id)].into_iter().chain(account).collect()
    }

    /// Returns the periods of budgets in which a call was admitted.
    fn periods_of(&self, entry: &LedgerEntry) -> Vec<SpendPeriod> {
        let periods = self.owners(entry).into_iter().filter_map(|owner| {
            let LeasedBudget { terms, .. } = self.budgets.get(&owner)?;
            let (begin, end) = terms.period.bounds(entry.started);
            Some(SpendPeriod { scope: owner.0, owner: owner.1, begin, end })
        });
        periods.collect()
    }

    /// Returns the periods of budgets in which these calls were admitted, each once.
    pub(crate) fn periods<'a>(
        &self,
        entries: impl Iterator<Item = &'a LedgerEntry>,
    ) -> Vec<SpendPeriod> {
        let mut periods: Vec<_> = entries.flat_map(|entry| self.periods_of(entry)).collect();
        periods.sort();
        periods.dedup();
        periods
    }

    /// Adds the money that was spent in a period of a budget.
    pub(crate) fn add_period(&mut self, period: SpendPeriod, spent: Money) {
        let owner = (period.scope, period.owner.clone());
        if let Some(LeasedBudget { terms, leased }) = self.budgets.get(&owner) {
            let room = terms.limit.saturating_sub(spent).saturating_sub(*leased);
            self.period_room.insert(period, room.max(Money::ZERO));
        }
    }

    /// Pays an amount for a call: from the lease as far as it goes, and the rest as far as every limit has
    /// room. Returns the amount that is paid.
    fn pay(&mut self, entry: &LedgerEntry, amount: Money, lease: Option<LeaseToken>) -> Money {
        let leased = lease.map_or(Money::ZERO, |token| self.pay_from_lease(entry, amount, token));
        leased.saturating_add(self.pay_from_room(entry, amount.saturating_sub(leased)))
    }

    fn pay_from_lease(&mut self, entry: &LedgerEntry, amount: Money, token: LeaseToken) -> Money {
        let Some(left) = self.leases.get_mut(&token) else { return Money::ZERO };
        let pays = amount.min(*left).max(Money::ZERO);
        *left = left.saturating_sub(pays);
        let taken = self.taken.entry(token).or_default();
        *taken = taken.saturating_add(pays);
        let paid = self.paid.entry(clean(&entry.key_id).into_owned()).or_default();
        *paid = paid.saturating_add(pays);
        pays
    }

    fn pay_from_room(&mut self, entry: &LedgerEntry, amount: Money) -> Money {
        let (owners, periods) = (self.owners(entry), self.periods_of(entry));
        let caps = owners.iter().filter_map(|owner| self.room.get(owner));
        let budgets = periods.iter().filter_map(|period| self.period_room.get(period));
        let Some(least) = caps.chain(budgets).copied().min() else { return amount };
        let pays = amount.min(least);
        for owner in &owners {
            if let Some(room) = self.room.get_mut(owner) {
                *room = room.saturating_sub(pays);
            }
        }
        for period in &periods {
            if let Some(room) = self.period_room.get_mut(period) {
                *room = room.saturating_sub(pays);
            }
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
        let pays = self.pay(entry, cost, lease);
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
    /// difference as far as every limit has room, in the period in which it was admitted. Its lease is closed, and the rest of that lease is
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
        let change = if due > Money::ZERO { self.pay(&before, due, None) } else { due };
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
            request.id = &*posted.request_id,
            "two settlements of one call differ: {} USD are recorded, {} USD are ignored",
            total(posted),
            total(other)
        );
    }
}
