//! Limits of a key's spending, and its spending within them.

use canon::Money;

use crate::{BudgetStatus, BudgetTerms};

/// Limits of a key's spending. Every lease of its money respects all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendTerms {
    /// Cap of the key.
    pub key_cap: Option<Money>,
    /// Cap of all keys of its account together.
    pub account_cap: Option<Money>,
    /// Budget of the key.
    pub key_budget: Option<BudgetTerms>,
    /// Budget of all keys of its account together.
    pub account_budget: Option<BudgetTerms>,
}

impl SpendTerms {
    /// Returns the cap to show: the key's own, or else the account's.
    pub fn cap(&self) -> Option<Money> {
        self.key_cap.or(self.account_cap)
    }

    /// Returns true if nothing limits the spending.
    pub const fn is_unlimited(&self) -> bool {
        let Self { key_cap, account_cap, key_budget, account_budget } = self;
        key_cap.is_none()
            && account_cap.is_none()
            && key_budget.is_none()
            && account_budget.is_none()
    }
}

/// A cap of the key alone.
impl From<Option<Money>> for SpendTerms {
    fn from(key_cap: Option<Money>) -> Self {
        Self { key_cap, ..Self::default() }
    }
}

/// Cap, spending and holds of a key or a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendStatus {
    /// Limit of the spending; `None` for no limit.
    pub cap: Option<Money>,
    /// Money spent.
    pub spent: Money,
    /// Money reserved for running calls.
    pub held: Money,
}

/// Spending of a key on all nodes, in total and in the periods of its budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySpending {
    /// The key's own cap, and its spending and holds.
    pub own: SpendStatus,
    /// The key's budget; `None` also if the store cannot be reached.
    pub budget: Option<BudgetStatus>,
    /// The budget of its account; `None` also if the store cannot be reached.
    pub account_budget: Option<BudgetStatus>,
}

impl SpendStatus {
    /// Returns the money that is neither spent nor reserved; `None` for no limit.
    pub fn remaining(&self) -> Option<Money> {
        let used = self.spent.saturating_add(self.held);
        self.cap.map(|cap| cap.saturating_sub(used).max(Money::ZERO))
    }
}
