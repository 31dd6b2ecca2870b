//! Goodwill: the amount that the operator absorbs for an account before its calls without delivery cost it
//! money.

use canon::Money;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Goodwill that the accounts of this node have used up.
#[derive(Debug, Default)]
pub(crate) struct GoodwillBook {
    /// By account. One whose goodwill is whole has no entry.
    used: Mutex<HashMap<String, Money>>,
    /// False while `used` is empty, so that most settlements take no lock.
    is_used: AtomicBool,
}

impl GoodwillBook {
    /// Uses up goodwill of an account, which has `most` at the start. Returns false, and uses nothing, if
    /// less than the amount is left.
    pub(crate) fn take(&self, account_id: &str, amount: Money, most: Money) -> bool {
        let mut used = self.used.lock();
        let before = used.get(account_id).copied().unwrap_or(Money::ZERO);
        let after = before.saturating_add(amount.max(Money::ZERO));
        if after > most {
            return false;
        }
        if after > Money::ZERO {
            used.insert(account_id.to_owned(), after);
            self.is_used.store(true, Ordering::Relaxed);
        }
        true
    }

    /// Refills the goodwill of an account by what it pays.
    pub(crate) fn refill(&self, account_id: &str, paid: Money) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let mut used = self.used.lock();
        if let Some(left) = used.get_mut(account_id) {
            *left = left.saturating_sub(paid);
            if *left <= Money::ZERO {
                used.remove(account_id);
                self.is_used.store(!used.is_empty(), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodwill_belongs_to_its_account_and_is_refilled_by_what_it_pays() {
        let (book, nanos) = (GoodwillBook::default(), Money::from_nanos);
        assert!(book.take("a", nanos(60), nanos(100)));
        assert!(!book.take("a", nanos(60), nanos(100)), "40 are left");
        assert!(book.take("b", nanos(60), nanos(100)), "another account has its own");
        book.refill("a", nanos(20));
        assert!(book.take("a", nanos(60), nanos(100)));
        book.refill("a", nanos(1_000));
        assert!(book.take("a", nanos(100), nanos(100)), "no more than at the start");
        assert!(!book.take("a", nanos(1), nanos(100)));
        assert!(book.take("a", Money::ZERO, nanos(100)));
    }
}
