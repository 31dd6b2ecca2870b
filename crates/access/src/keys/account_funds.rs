//! Terms shared by all keys of an account.
//!
//! The account's cap and budget are part of every key's lease, so no balance is kept here.

use canon::{Money, covers_model};
use ledger::{BudgetTerms, SpendTerms};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{AccountTerms, KeyRecord, ObjectSharing};

/// Cap, budget, sharing and models of an account.
#[derive(Debug, Default)]
pub struct AccountFunds {
    terms: Mutex<AccountTerms>,
    /// True if the account has a list of models. Most have none, and their calls take no lock.
    lists_models: AtomicBool,
}

impl AccountFunds {
    /// Cap on the spending of all keys together; `None` for no limit.
    pub fn cap(&self) -> Option<Money> {
        self.terms.lock().cap
    }

    /// Budget per period of all keys together.
    pub fn budget(&self) -> Option<BudgetTerms> {
        self.terms.lock().budget
    }

    /// Sharing of objects between the keys.
    pub fn share(&self) -> ObjectSharing {
        self.terms.lock().share
    }

    /// Returns true if the keys may use the model.
    pub fn permits(&self, model: &str) -> bool {
        !self.lists_models.load(Ordering::Acquire)
            || self.terms.lock().models.iter().any(|listed| covers_model(listed, model))
    }

    /// Returns the limits of a key's spending, its own and those of this account.
    pub fn spend_terms(&self, key: &KeyRecord) -> SpendTerms {
        let terms = self.terms.lock();
        SpendTerms {
            key_cap: key.cap,
            account_cap: terms.cap,
            key_budget: key.budget,
            account_budget: terms.budget,
        }
    }

    /// Sets all terms. Returns true if a limit of the spending changed.
    pub fn set_terms(&self, terms: &AccountTerms) -> bool {
        let mut known = self.terms.lock();
        let is_changed = (known.cap, known.budget) != (terms.cap, terms.budget);
        known.clone_from(terms);
        self.lists_models.store(!terms.models.is_empty(), Ordering::Release);
        is_changed
    }
}
