//! Limits of a key's spending, and its spending within them.

use canon::Money;

/// Limits of a key's spending. Every lease of its money respects all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendTerms {
    /// Cap of the key.
    pub key_cap: Option<Money>,
    /// Cap of all keys of its account together.
    pub account_cap: Option<Money>,
}

impl SpendTerms {
    /// Returns the cap to show: the key's own, or else the account's.
    pub fn cap(&self) -> Option<Money> {
        self.key_cap.or(self.account_cap)
    }

    /// Returns true if nothing limits the spending.
    pub const fn is_unlimited(&self) -> bool {
        self.key_cap.is_none() && self.account_cap.is_none()
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

impl SpendStatus {
    /// Returns the money that is neither spent nor reserved; `None` for no limit.
    pub fn remaining(&self) -> Option<Money> {
        let used = self.spent.saturating_add(self.held);
        self.cap.map(|cap| cap.saturating_sub(used).max(Money::ZERO))
    }
}
