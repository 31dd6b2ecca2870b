//! The money all keys of an account share, as far as a call has to know of it.
//!
//! What may be spent in all is part of every key's lease, so there is no purse here; a budget has a
//! pot of its own.

use canon::Money;
use ledger::{Budget, Micros};
use parking_lot::Mutex;
use std::sync::Arc;
use store::AccountTerms;

/// The money of an account.
#[derive(Debug, Default)]
pub struct AccountFunds(Mutex<FundsState>);

#[derive(Debug, Default)]
struct FundsState {
    cap: Option<Money>,
    budget: Option<Arc<Budget>>,
}

impl AccountFunds {
    /// What all keys together may spend; `None` for no limit.
    pub fn cap(&self) -> Option<Money> {
        self.0.lock().cap
    }

    /// What they may spend in a period.
    pub fn budget(&self) -> Option<Arc<Budget>> {
        self.0.lock().budget.clone()
    }

    /// Whether what was spent of that budget has to be known before it can be set.
    pub fn needs_spent(&self, terms: AccountTerms) -> bool {
        let state = self.0.lock();
        terms.budget.is_some_and(|wanted| {
            state.budget.as_ref().is_none_or(|budget| budget.period() != wanted.period)
        })
    }

    /// Changes the terms, of whose budget so much was spent if it is a new one. True when the cap is
    /// another one.
    pub fn set_terms(&self, terms: AccountTerms, spent: Money, now: Micros) -> bool {
        let mut state = self.0.lock();
        let AccountTerms { cap, budget } = terms;
        state.budget = budget.map(|wanted| match state.budget.take() {
            Some(budget) if budget.period() == wanted.period => {
                budget.set_limit(wanted.limit);
                budget
            }
            Some(_) | None => Budget::new(wanted.limit, wanted.period, spent, now),
        });
        std::mem::replace(&mut state.cap, cap) != cap
    }
}
