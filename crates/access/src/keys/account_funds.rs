//! Terms shared by all keys of an account.
//!
//! The account's cap is part of every key's lease, so no balance is kept here. The account's budget
//! has a counter of its own.

use canon::{Micros, Money};
use ledger::Budget;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{AccountTerms, ObjectSharing};

/// Cap, budget, sharing and models of an account.
#[derive(Debug, Default)]
pub struct AccountFunds {
    state: Mutex<FundsState>,
    /// True if the account has a list of models. Most have none, and their calls take no lock.
    lists_models: AtomicBool,
}

#[derive(Debug, Default)]
struct FundsState {
    cap: Option<Money>,
    budget: Option<Arc<Budget>>,
    share: ObjectSharing,
    models: Vec<String>,
}

impl AccountFunds {
    /// Cap on the spending of all keys together; `None` for no limit.
    pub fn cap(&self) -> Option<Money> {
        self.state.lock().cap
    }

    /// Budget per period of all keys together.
    pub fn budget(&self) -> Option<Arc<Budget>> {
        self.state.lock().budget.clone()
    }

    /// Sharing of objects between the keys.
    pub fn share(&self) -> ObjectSharing {
        self.state.lock().share
    }

    /// Returns true if the keys may use the model.
    pub fn permits(&self, model: &str) -> bool {
        !self.lists_models.load(Ordering::Acquire)
            || self.state.lock().models.iter().any(|listed| listed == model)
    }

    /// Returns true if [`Self::set_terms`] needs the amount already spent, because the budget is
    /// new or has another period.
    pub fn needs_spent(&self, terms: &AccountTerms) -> bool {
        let state = self.state.lock();
        terms.budget.is_some_and(|wanted| {
            state.budget.as_ref().is_none_or(|budget| budget.period() != wanted.period)
        })
    }

    /// Sets all terms. `spent` counts only for a new budget. Returns true if the cap changed.
    pub fn set_terms(&self, terms: &AccountTerms, spent: Money, now: Micros) -> bool {
        let mut state = self.state.lock();
        let AccountTerms { cap, budget, share, models } = terms;
        state.share = *share;
        state.models.clone_from(models);
        self.lists_models.store(!models.is_empty(), Ordering::Release);
        state.budget = budget.map(|wanted| match state.budget.take() {
            Some(budget) if budget.period() == wanted.period => {
                budget.set_limit(wanted.limit);
                budget
            }
            Some(_) | None => Budget::new(wanted.limit, wanted.period, spent, now),
        });
        std::mem::replace(&mut state.cap, *cap) != *cap
    }
}
