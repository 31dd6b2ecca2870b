//! The limits that apply to a key's money, as the lease store sees them, and the refusals that
//! follow from them.

use canon::{Micros, Money};

/// A limit of spending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyBound {
    /// The cap of the key.
    KeyCap,
    /// The cap of all keys of its account together.
    AccountCap,
    /// The budget of the key.
    KeyBudget,
    /// The budget of all keys of its account together.
    AccountBudget,
}

/// A limit, and the money that counts against it on all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundState {
    /// The limit.
    pub limit: Money,
    /// Money booked as spent.
    pub spent: Money,
    /// Money leased to nodes.
    pub leased: Money,
    /// The begin of the next period of a budget.
    pub resets: Option<Micros>,
}

impl BoundState {
    /// Money that is neither spent nor leased; negative after the limit was lowered.
    pub fn left(&self) -> Money {
        self.unspent().saturating_sub(self.leased)
    }

    /// Money that is not spent; negative after the limit was lowered.
    pub fn unspent(&self) -> Money {
        self.limit.saturating_sub(self.spent)
    }
}

/// Cost that calls without a lease may still have: they began before the money of their key was limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnleasedCost {
    /// Of the calls of the key.
    pub key: Money,
    /// Of the calls of all keys of its account.
    pub account: Money,
}

impl UnleasedCost {
    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            key: self.key.saturating_add(other.key),
            account: self.account.saturating_add(other.account),
        }
    }
}

/// All limits of a key's money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoneyBounds {
    /// The key's own cap.
    pub key_cap: Option<BoundState>,
    /// The cap of its account.
    pub account_cap: Option<BoundState>,
    /// The key's own budget.
    pub key_budget: Option<BoundState>,
    /// The budget of its account.
    pub account_budget: Option<BoundState>,
}

impl MoneyBounds {
    /// Returns every limit with its state.
    pub fn all(&self) -> impl Iterator<Item = (MoneyBound, BoundState)> {
        let bounds = [
            (MoneyBound::KeyCap, self.key_cap),
            (MoneyBound::AccountCap, self.account_cap),
            (MoneyBound::KeyBudget, self.key_budget),
            (MoneyBound::AccountBudget, self.account_budget),
        ];
        bounds.into_iter().filter_map(|(bound, state)| Some((bound, state?)))
    }

    /// Returns the money that no limit has spent or leased; `None` without limits. It is negative
    /// after a limit was lowered.
    pub fn left(&self) -> Option<Money> {
        self.all().map(|(_, state)| state.left()).min()
    }

    /// Returns the money that may be leased: what is left, without the cost of calls that have no lease.
    /// They are posted later and find it unleased.
    pub fn left_to_lease(&self, unleased: &UnleasedCost) -> Option<Money> {
        let left = self.left()?;
        let after = |(bound, state): (MoneyBound, BoundState)| {
            state.left().saturating_sub(match bound {
                MoneyBound::KeyCap | MoneyBound::KeyBudget => unleased.key,
                MoneyBound::AccountCap | MoneyBound::AccountBudget => unleased.account,
            })
        };
        // A negative amount says that terms are exceeded.
        Some(self.all().map(after).min().unwrap_or(left).max(left.min(Money::ZERO)))
    }

    /// Returns true if more is spent and leased than a limit allows.
    pub fn is_exceeded(&self) -> bool {
        self.left().is_some_and(|left| left < Money::ZERO)
    }

    /// Returns the reason a call that needs `least` gets no money on a node with so much unposted
    /// cost and free money: a limit is used up, or money below it is reserved for other calls.
    pub(crate) fn refusal(&self, least: Money, unposted: Money, free: Money) -> HoldShortage {
        let unspent = |state: &BoundState| state.unspent().saturating_sub(unposted);
        let used_up = self.all().filter(|(_, state)| unspent(state) < least);
        let used_up = used_up.min_by_key(|(_, state)| unspent(state));
        let is_spent = used_up.is_some();
        let tightest = || self.all().min_by_key(|(_, state)| state.left());
        let nothing = (MoneyBound::KeyCap, BoundState::default());
        let (bound, state) = used_up.or_else(tightest).unwrap_or(nothing);
        let spent = state.spent.saturating_add(unposted);
        let left = if is_spent {
            unspent(&state)
        } else {
            state.left().max(Money::ZERO).saturating_add(free)
        };
        let (left, BoundState { limit, resets, .. }) = (left.max(Money::ZERO), state);
        HoldShortage { bound, limit, spent, left, resets, is_spent }
    }
}

/// A limit does not cover a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldShortage {
    /// The limit.
    pub bound: MoneyBound,
    /// Its amount.
    pub limit: Money,
    /// Money spent of it, unposted costs of this node included.
    pub spent: Money,
    /// Money that this node could reserve now, or that is not spent if the limit is used up.
    pub left: Money,
    /// The begin of the next period of a budget.
    pub resets: Option<Micros>,
    /// True if the limit is used up, false if money below it is only reserved for other calls.
    pub is_spent: bool,
}

impl HoldShortage {
    /// Money that is reserved for other calls.
    pub fn reserved(&self) -> Money {
        self.limit.saturating_sub(self.spent).saturating_sub(self.left).max(Money::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(limit: i64, spent: i64, leased: i64) -> Option<BoundState> {
        let [limit, spent, leased] = [limit, spent, leased].map(Money::from_nanos);
        Some(BoundState { limit, spent, leased, resets: None })
    }

    #[test]
    fn money_that_is_only_reserved_is_not_spent() {
        let nanos = Money::from_nanos;
        let key_cap = state(500, 4, 490);
        let bounds = MoneyBounds { key_cap, ..MoneyBounds::default() };
        let held = bounds.refusal(nanos(50), nanos(10), nanos(3));
        assert_eq!((held.is_spent, held.bound), (false, MoneyBound::KeyCap));
        assert_eq!((held.spent, held.left, held.reserved()), (nanos(14), nanos(9), nanos(477)));
        let spent = bounds.refusal(nanos(490), nanos(10), nanos(3));
        assert_eq!((spent.is_spent, spent.left), (true, nanos(486)));
        // The account is the limit that is used up, although the key has less left.
        let bounds = MoneyBounds { account_cap: state(1_000, 990, 0), ..bounds };
        let spent = bounds.refusal(nanos(50), Money::ZERO, Money::ZERO);
        assert_eq!((spent.is_spent, spent.bound), (true, MoneyBound::AccountCap));
        assert!(!bounds.is_exceeded());
        let bounds = MoneyBounds { key_budget: state(100, 99, 2), ..bounds };
        assert!(bounds.is_exceeded());
    }
}
