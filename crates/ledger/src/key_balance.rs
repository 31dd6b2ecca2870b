//! Money of one key on this node: its lease, the holds of running calls, unposted costs.

use canon::{Micros, Money, SharedText};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

use crate::key_tallies::KeyTally;
use crate::lease_store::LEASE_DURATION;
use crate::{
    BoundState, BudgetStatus, HoldRefusal, KeySpending, KeyStatus, LeaseGrant, LeaseState,
    LeaseToken, MoneyBounds, SpendStatus, SpendTerms,
};

/// Time for which a refusal by the lease store is remembered instead of requesting again.
const REFUSAL_TTL: Micros = Micros::from_millis(500);
/// The same if money is only reserved or leased, and may become free.
const SHORT_REFUSAL_TTL: Micros = Micros::from_millis(100);

/// Number of holds in a lease below which nothing is stated ahead for a quiet key.
const FEW_HOLDS: i64 = 8;
/// Time after its last hold from which on a key is quiet.
const QUIET_TIME: Micros = Micros::from_secs(2);

/// Money of one key on this node.
#[derive(Debug)]
pub struct KeyBalance {
    key_id: SharedText,
    /// Account of the key, known from its first call.
    pub(crate) account_id: OnceLock<SharedText>,
    state: Mutex<BalanceState>,
    /// Held during a lease request. There is one request per key at a time.
    pub(crate) request_lock: tokio::sync::Mutex<()>,
    /// Wakes one of the calls that wait for money.
    freed: tokio::sync::Notify,
    /// Settled calls since start.
    pub(crate) tally: KeyTally,
}

#[derive(Debug, Default)]
struct BalanceState {
    terms: SpendTerms,
    /// Number of the last announcement before the terms changed.
    terms_seq: i64,
    /// Number of the last announcement.
    last_seq: i64,
    /// Set while the lease may exceed the terms, to the number of the last announcement before that
    /// was known. Nothing of the lease is used then: money that running calls release goes back to
    /// the lease store, because the terms may not cover it. An answer to a later message ends the
    /// recall, because the lease store has compared all its leases with the terms since.
    recalled: Option<i64>,
    /// Spending as the lease store last reported it, without unposted costs.
    spent: Money,
    /// Holds on this node, from any lease.
    held: Money,
    /// Cost of calls settled on this node that the lease store has not confirmed.
    unposted: Money,
    lease: Option<Lease>,
    /// Decaying sum of recent holds.
    recent: Money,
    /// When the last hold was made, by the steady clock.
    last_hold_at: Micros,
    last_hold: Money,
    /// Time of the last attempt to hold money, by the steady clock.
    last_use_at: Option<Micros>,
    refusal: Option<RecentRefusal>,
    /// Decaying maximum of unreported spending.
    peak: Money,
    /// Decaying sum of the cost of recent calls.
    recent_cost: Money,
    /// The last statement that the lease store has not confirmed.
    pending: Option<PendingStatement>,
}

/// A bound of unreported spending that applies once the lease store confirms it.
#[derive(Clone, Copy, Debug)]
struct PendingStatement {
    seq: i64,
    /// The lease it belongs to; `None` for a lease that is only requested.
    token: Option<LeaseToken>,
    amount: Money,
}

/// This node's slice of the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    token: LeaseToken,
    version: i64,
    free: Money,
    held: Money,
    unposted: Money,
    /// The part of `held` of running calls that the lease store knows.
    reported: Money,
    /// The stated bound of unreported spending: the smallest one that the lease store may have.
    stated: Money,
    /// When this node stops using it, by the steady clock.
    until: Micros,
}

impl BalanceState {
    /// Stops the use of the lease until the lease store has compared it with the terms.
    fn recall(&mut self) {
        self.recalled = Some(self.last_seq);
        if let Some(lease) = &mut self.lease {
            lease.free = Money::ZERO;
        }
    }

    /// Ends the recall if the lease store found the terms kept after it began.
    fn confirm_terms(&mut self, seq: i64) {
        self.recalled.take_if(|since| *since < seq);
    }
}

impl Lease {
    const fn new(token: LeaseToken, until: Micros) -> Self {
        let zero = Money::ZERO;
        let (free, held, unposted, reported, stated) = (zero, zero, zero, zero, zero);
        Self { token, version: 0, free, held, unposted, reported, stated, until }
    }

    fn total(&self) -> Money {
        self.free.saturating_add(self.held).saturating_add(self.unposted)
    }

    /// Money in use of which the lease store does not know: holds of calls that are not reported, and
    /// the cost of calls that are not posted. It is lost together with the journal.
    fn unreported(&self) -> Money {
        self.held.saturating_add(self.unposted).saturating_sub(self.reported)
    }
}

/// The last refusal by the lease store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentRefusal {
    until: Micros,
    pub(crate) bounds: MoneyBounds,
}

/// The lease does not cover a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortfall {
    pub(crate) free: Money,
}

/// A reserved amount and the lease it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) amount: Money,
    pub(crate) lease: Option<LeaseToken>,
}

/// A lease as this node uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseUse {
    /// Its token.
    pub token: LeaseToken,
    /// Money free for holds.
    pub free: Money,
    /// Money reserved for running calls.
    pub held: Money,
    /// Cost of settled calls that are not posted.
    pub unposted: Money,
    /// When this node stops using it, by the steady clock.
    pub until: Micros,
}

impl KeyBalance {
    /// Creates the balance of a key. It requests its lease with the first hold.
    pub fn new(key_id: &str, terms: impl Into<SpendTerms>, spent: Money) -> Arc<Self> {
        let terms = terms.into();
        Arc::new(Self {
            key_id: key_id.into(),
            account_id: OnceLock::new(),
            state: Mutex::new(BalanceState { terms, spent, ..BalanceState::default() }),
            request_lock: tokio::sync::Mutex::new(()),
            freed: tokio::sync::Notify::new(),
            tally: KeyTally::default(),
        })
    }

    /// The key.
    pub const fn key_id(&self) -> &SharedText {
        &self.key_id
    }

    /// Returns the id of the key's account as records of its calls share it.
    pub fn share_account(&self, account_id: &str) -> SharedText {
        let known = self.account_id.get_or_init(|| account_id.into());
        if *known == *account_id { known.clone() } else { account_id.into() }
    }

    /// Returns cap, spending and holds as far as this node knows them.
    pub fn status(&self) -> SpendStatus {
        let state = self.state.lock();
        SpendStatus {
            cap: state.terms.cap(),
            spent: state.spent.saturating_add(state.unposted),
            held: state.held,
        }
    }

    /// Returns the lease in use.
    pub fn lease(&self) -> Option<LeaseUse> {
        let Lease { token, free, held, unposted, until, .. } = self.state.lock().lease?;
        Some(LeaseUse { token, free, held, unposted, until })
    }

    /// Returns true if nothing limits the spending of the key.
    pub fn is_unlimited(&self) -> bool {
        self.state.lock().terms.is_unlimited()
    }

    /// Changes the terms. Running calls keep their holds. The lease is recalled, because only the
    /// lease store knows how much the new terms allow.
    pub fn set_terms(&self, terms: impl Into<SpendTerms>) {
        let terms = terms.into();
        let mut state = self.state.lock();
        if state.terms != terms {
            state.terms = terms;
            state.terms_seq = state.last_seq;
            state.refusal = None;
            state.recall();
        }
    }

    /// Reserves all of `full`, or what is free if that is at least `least`.
    pub(crate) fn take(
        &self,
        full: Money,
        least: Money,
        steady: Micros,
    ) -> Result<Taken, Shortfall> {
        let mut state = self.state.lock();
        state.last_use_at = Some(steady);
        let is_recalled = state.recalled.is_some();
        let taken = if state.terms.is_unlimited() || full <= Money::ZERO {
            Taken { amount: full.max(Money::ZERO), lease: None }
        } else {
            match &mut state.lease {
                Some(lease) if steady < lease.until && !is_recalled => {
                    let room = lease.stated.saturating_sub(lease.unreported());
                    let amount = full.min(lease.free).min(room);
                    if amount < full && (amount < least || amount <= Money::ZERO) {
                        return Err(Shortfall { free: lease.free });
                    }
                    lease.free = lease.free.saturating_sub(amount);
                    lease.held = lease.held.saturating_add(amount);
                    let unreported = lease.unreported();
                    let taken = Taken { amount, lease: Some(lease.token) };
                    state.peak = state.peak.max(unreported);
                    taken
                }
                Some(_) | None => return Err(Shortfall { free: Money::ZERO }),
            }
        };
        state.held = state.held.saturating_add(taken.amount);
        state.recent = state.recent.saturating_add(taken.amount);
        state.last_hold_at = steady;
        state.last_hold = taken.amount;
        Ok(taken)
    }

    /// Notes a call that is refused before it could hold money.
    pub(crate) fn note_use(&self, steady: Micros) {
        self.state.lock().last_use_at = Some(steady);
    }

    /// Returns the time of the last call by the steady clock, refused ones included; `None` if there was none.
    pub(crate) fn last_use_at(&self) -> Option<Micros> {
        self.state.lock().last_use_at
    }

    /// Returns true if a call like the last one can be paid without the lease store. Keys without a
    /// limit may go on only while `serves_unlimited`.
    pub(crate) fn pays_alone(&self, steady: Micros, serves_unlimited: bool) -> bool {
        let state = self.state.lock();
        if state.terms.is_unlimited() {
            return serves_unlimited;
        }
        if state.last_hold_at > Micros::ZERO && state.last_hold <= Money::ZERO {
            return true;
        }
        let lease = state.lease.filter(|lease| steady < lease.until && state.recalled.is_none());
        lease.is_some_and(|lease| {
            let usable = lease.free.min(lease.stated.saturating_sub(lease.unreported()));
            usable > Money::ZERO && usable >= state.last_hold
        })
    }

    /// Waits until a call releases money or the lease grows. One waiting call wakes at a time.
    pub async fn money_freed(&self) {
        self.freed.notified().await;
    }

    /// Returns the reason a call that needs `least` gets no money although this much is free here.
    pub(crate) fn refusal(&self, bounds: &MoneyBounds, least: Money, free: Money) -> HoldRefusal {
        let BalanceState { unposted, spent, held, terms, .. } = *self.state.lock();
        let known = |limit| BoundState { limit, spent, leased: held, resets: None };
        // Without an answer of the lease store, as far as this node knows.
        let bounds = match bounds.left() {
            Some(_) => *bounds,
            None => MoneyBounds { key_cap: terms.cap().map(known), ..MoneyBounds::default() },
        };
        let shortage = bounds.refusal(least.max(Money::from_nanos(1)), unposted, free);
        if shortage.is_spent { HoldRefusal::Spent(shortage) } else { HoldRefusal::Held(shortage) }
    }

    /// Releases a hold: its cost is spent, the rest is free again if the lease is still in use. A call
    /// that the lease store knows as running has a cost that it does not know.
    pub(crate) fn give_back(
        &self,
        held: Money,
        lease: Option<LeaseToken>,
        spent: Money,
        is_reported: bool,
    ) {
        let mut state = self.state.lock();
        state.held = state.held.saturating_sub(held);
        state.unposted = state.unposted.saturating_add(spent);
        state.recent_cost = state.recent_cost.saturating_add(spent);
        let is_recalled = state.recalled.is_some();
        if let Some(mine) = state.lease.as_mut().filter(|mine| Some(mine.token) == lease) {
            mine.held = mine.held.saturating_sub(held);
            mine.unposted = mine.unposted.saturating_add(spent);
            if is_reported {
                mine.reported = mine.reported.saturating_sub(held);
            }
            if !is_recalled {
                mine.free = mine.free.saturating_add(held.saturating_sub(spent));
                // Money became free, so an earlier refusal no longer applies.
                state.refusal = None;
            }
        }
        drop(state);
        self.freed.notify_one();
    }

    /// Notes that the lease store has confirmed a settled call.
    pub(crate) fn posted(&self, lease: Option<LeaseToken>, spent: Money) {
        let mut state = self.state.lock();
        state.unposted = state.unposted.saturating_sub(spent);
        state.spent = state.spent.saturating_add(spent);
        // It was made of the sums before.
        state.refusal = None;
        if let Some(mine) = state.lease.as_mut().filter(|mine| Some(mine.token) == lease) {
            mine.unposted = mine.unposted.saturating_sub(spent);
        }
    }

    /// Returns the last refusal by the lease store, while it is remembered.
    pub(crate) fn recent_refusal(&self, steady: Micros) -> Option<RecentRefusal> {
        self.state.lock().refusal.filter(|refusal| steady < refusal.until)
    }

    /// Returns the amount that would last for a while: twice the recent holds.
    pub(crate) fn wish(&self) -> Money {
        let state = self.state.lock();
        state.recent.saturating_add(state.recent)
    }

    /// Notes that the lease store knows running calls with holds of that sum from this lease.
    pub(crate) fn reported(&self, token: LeaseToken, holds: Money) {
        let mut state = self.state.lock();
        if let Some(mine) = state.lease.as_mut().filter(|mine| mine.token == token) {
            mine.reported = mine.reported.saturating_add(holds);
        }
    }

    /// Returns the bound of unreported spending to state to the lease store. From now on holds stay
    /// within it. If this node is lost with its journal, so much stays reserved, because it may be
    /// spent; so the bound follows the use closely.
    ///
    /// It covers the most that was unreported lately, a hold of that size (or the last one) or half as
    /// much again, and about twelve seconds of costs, which wait here while the lease store is away, but
    /// of these no more than an eighth of the lease. Nothing is stated for the next call if it may take
    /// a large part of the lease and the last one was a while ago; it then states its hold itself.
    pub(crate) fn announce(
        &self,
        seq: i64,
        hold: Option<Money>,
        steady: Micros,
    ) -> (Option<LeaseToken>, Money) {
        let mut state = self.state.lock();
        state.last_seq = state.last_seq.max(seq);
        let half = |money: Money| Money::from_nanos(money.as_nanos() / 2);
        let unreported = state.lease.map_or(Money::ZERO, |lease| lease.unreported());
        let next = hold.unwrap_or(state.last_hold);
        // A call that waits is followed by others like it.
        let lately = unreported.max(state.peak).max(hold.unwrap_or_default());
        let total = state.lease.map_or(Money::ZERO, |lease| lease.total());
        let part = Money::from_nanos(total.as_nanos() / FEW_HOLDS);
        let is_quiet = hold.is_none() && steady - state.last_hold_at > QUIET_TIME;
        let amount = if is_quiet && next > part {
            unreported
        } else {
            let costs = Money::from_nanos(state.recent_cost.as_nanos() / 4 * 3).min(part);
            lately.saturating_add(next.max(half(state.peak))).saturating_add(costs)
        };
        let token = state.lease.map(|lease| lease.token);
        state.pending = Some(PendingStatement { seq, token, amount });
        if let Some(lease) = &mut state.lease {
            // A lower bound applies at once, because the lease store may already have it. A higher one
            // applies when it is confirmed.
            lease.stated = lease.stated.min(amount);
        }
        (token, amount)
    }

    /// Notes that the lease store has confirmed the statement with that number.
    pub(crate) fn announced(&self, seq: i64) {
        let mut state = self.state.lock();
        if let Some(pending) = state.pending.take_if(|pending| pending.seq == seq)
            && let Some(lease) = &mut state.lease
            && pending.token == Some(lease.token)
        {
            lease.stated = pending.amount;
        }
    }

    /// Returns the money the next call will probably lack, if the free money does not last.
    pub(crate) fn runs_low(&self, steady: Micros) -> Option<Money> {
        let state = self.state.lock();
        let lease = state.lease.filter(|_| steady - state.last_hold_at < LEASE_DURATION)?;
        let soon = state.last_hold.max(Money::from_nanos(state.recent.as_nanos() / 8));
        (lease.free < soon).then(|| soon.saturating_sub(lease.free))
    }

    /// Applies the answer to a lease request. The granted money may be used until `until`.
    pub(crate) fn apply(&self, granted: LeaseGrant, seq: i64, until: Micros, steady: Micros) {
        let mut state = self.state.lock();
        match granted {
            // An answer from before a change of the terms says nothing about the new ones.
            LeaseGrant::Unlimited if seq <= state.terms_seq => {}
            LeaseGrant::Unlimited => state.terms = SpendTerms::default(),
            LeaseGrant::Short(bounds) => {
                let unposted = state.unposted;
                let is_spent = bounds.all().any(|(_, bound)| bound.unspent() <= unposted);
                let ttl = if is_spent { REFUSAL_TTL } else { SHORT_REFUSAL_TTL };
                state.refusal = Some(RecentRefusal { until: steady + ttl, bounds });
                if bounds.is_exceeded() {
                    state.recall();
                }
            }
            LeaseGrant::Lease { token, version, amount } => {
                state.refusal = None;
                state.confirm_terms(seq);
                let known = state.lease.filter(|known| known.token == token);
                // Another token means that the lease before was closed. Its holds settle against
                // the cap.
                let pending = state.pending.take_if(|pending| pending.seq == seq);
                let mut lease = known.unwrap_or(Lease::new(token, until));
                if let Some(PendingStatement { amount, .. }) = pending {
                    lease.stated = amount;
                }
                lease.version = version;
                if state.recalled.is_none() {
                    lease.free = lease.free.saturating_add(amount);
                }
                lease.until = lease.until.max(until);
                state.lease = Some(lease);
            }
        }
    }

    /// Notes that the lease store has renewed this lease in answer to the heartbeat with that number.
    pub(crate) fn renewed(&self, now: &LeaseState, seq: i64, until: Micros) {
        let mut state = self.state.lock();
        if let Some(lease) = state.lease.as_mut().filter(|lease| lease.token == now.token) {
            lease.until = lease.until.max(until);
            // A grant whose answer was lost has increased the version.
            lease.version = lease.version.max(now.version);
            if now.above {
                state.recall();
            } else {
                state.confirm_terms(seq);
            }
        }
    }

    /// Drops the lease, which the lease store no longer has.
    pub(crate) fn forget_lease(&self) {
        self.state.lock().lease = None;
    }

    /// Lets recent holds and costs count less. To be called once a second.
    pub(crate) fn decay(&self) {
        let less = |money: Money, part: i64| {
            let nanos = money.as_nanos();
            Money::from_nanos(nanos - nanos / part - i64::from(nanos > 0))
        };
        let mut state = self.state.lock();
        state.recent = less(state.recent, 32);
        state.recent_cost = less(state.recent_cost, 16);
        state.peak = less(state.peak, 8);
    }

    /// Removes free money that this node does not need and returns version and total of the lease
    /// afterwards; `None` when another lease is in use.
    ///
    /// All free money goes when other nodes want it or this key is idle. Money beyond twice the
    /// wish goes when there are other nodes.
    pub(crate) fn trim(
        &self,
        now: &LeaseState,
        alone: bool,
        steady: Micros,
    ) -> Option<(i64, Money)> {
        let mut state = self.state.lock();
        let idle = steady - state.last_hold_at > LEASE_DURATION;
        let wish = state.recent.saturating_add(state.recent);
        let lease = state.lease.as_mut().filter(|lease| lease.token == now.token)?;
        if now.wanted || idle {
            lease.free = Money::ZERO;
        } else if !alone && lease.free > wish.saturating_add(wish) {
            lease.free = wish;
        }
        let (version, total) = (lease.version, lease.total());
        let goes_on = now.amount == Money::ZERO && !now.wanted && !idle;
        if total == Money::ZERO && !goes_on {
            // The lease store closes a lease that keeps nothing.
            state.lease = None;
        }
        Some((version, total))
    }

    /// Takes over the state of the key on all nodes and returns it with this node's included.
    pub(crate) fn merge_totals(&self, found: KeyStatus) -> KeySpending {
        let KeyStatus { cap, spent, held_elsewhere, budget, account_budget } = found;
        let mut state = self.state.lock();
        state.spent = spent;
        let (unposted, held) = (state.unposted, state.held.saturating_add(held_elsewhere));
        // This node's costs and holds on top. Those of the account's other keys on this node are
        // known once they are posted or reported.
        let with_own = |budget: BudgetStatus, held| BudgetStatus {
            money: SpendStatus {
                spent: budget.money.spent.saturating_add(unposted),
                held: budget.money.held.saturating_add(held),
                ..budget.money
            },
            ..budget
        };
        KeySpending {
            own: SpendStatus { cap, spent: spent.saturating_add(unposted), held },
            budget: budget.map(|budget| with_own(budget, held)),
            account_budget: account_budget.map(|budget| with_own(budget, state.held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_shared_and_never_taken_for_another() {
        let balance = KeyBalance::new("k", None, Money::ZERO);
        assert_eq!(balance.share_account("a"), "a");
        assert_eq!(balance.share_account("b"), "b");
        assert_eq!(balance.share_account("a"), "a");
    }
}
