//! Spending to date: the limits that keep what is left, and the place of earlier spending in time.
//!
//! Another gateway may have spent more than its limit. Here that would be a violation, so a cap is raised
//! to the spending, and spending beyond a budget is counted before the current period. Nothing is left in
//! either case.

use admin::OpeningSpend;
use canon::Money;
use store::BudgetTerms;

use super::source_data::SourceTerms;

/// Limits of a key or an account, and its spending to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpendSplit {
    pub(super) cap: Option<Money>,
    pub(super) budget: Option<BudgetTerms>,
    pub(super) spend: OpeningSpend,
}

/// Returns what is left of an amount; never below zero.
fn rest(amount: Money, taken: Money) -> Money {
    amount.saturating_sub(taken).max(Money::ZERO)
}

impl SpendSplit {
    /// Splits the spending of a key.
    pub(super) fn of_key(terms: &SourceTerms) -> Self {
        let SourceTerms { limit, period, spent, is_current } = *terms;
        let earlier = |earlier| OpeningSpend { earlier, current: Money::ZERO };
        match (limit, period) {
            (None, _) => Self { spend: earlier(spent), ..Self::default() },
            (Some(limit), None) => {
                Self { cap: Some(limit.max(spent)), budget: None, spend: earlier(spent) }
            }
            (Some(limit), Some(period)) => {
                let current = if is_current { spent.min(limit) } else { Money::ZERO };
                let spend = OpeningSpend { earlier: rest(spent, current), current };
                Self { cap: None, budget: Some(BudgetTerms { limit, period }), spend }
            }
        }
    }

    /// Splits the spending of an account with these keys. The returned spending is the part that its
    /// keys do not have, such as that of deleted ones.
    ///
    /// The money that is left is what was left before: a cap counts the spending of all keys, so it is
    /// raised by what they have spent beyond the account.
    pub(super) fn of_account(terms: &SourceTerms, keys: &mut [&mut Self]) -> Self {
        let SourceTerms { limit, period, spent, is_current } = *terms;
        if let (Some(limit), Some(period)) = (limit, period) {
            let mut room = limit;
            for key in keys.iter_mut() {
                let OpeningSpend { earlier, current } = key.spend;
                let kept = current.min(room);
                room = room.saturating_sub(kept);
                let earlier = earlier.saturating_add(rest(current, kept));
                key.spend = OpeningSpend { earlier, current: kept };
            }
            let of_keys: Money = keys.iter().map(|key| key.spend.current).sum();
            let window = if is_current { spent.min(limit) } else { Money::ZERO };
            let spend = OpeningSpend { earlier: Money::ZERO, current: rest(window, of_keys) };
            return Self { cap: None, budget: Some(BudgetTerms { limit, period }), spend };
        }
        let of_keys: Money = keys.iter().map(|key| key.spend.total()).sum();
        let spend = OpeningSpend { earlier: rest(spent, of_keys), current: Money::ZERO };
        let cap = limit.map(|limit| limit.max(spent).saturating_add(rest(of_keys, spent)));
        Self { cap, budget: None, spend }
    }

    /// Takes the spending away. A cap becomes what is left of it.
    pub(super) fn forget_spend(&mut self) {
        let spent = self.spend.total();
        self.cap = self.cap.map(|cap| rest(cap, spent));
        self.spend = OpeningSpend::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::BudgetPeriod;

    fn terms(limit: Option<i64>, period: Option<BudgetPeriod>, spent: i64) -> SourceTerms {
        let limit = limit.map(Money::from_nanos);
        SourceTerms { limit, period, spent: Money::from_nanos(spent), is_current: true }
    }

    fn nanos(split: &SpendSplit) -> (Option<i64>, Option<i64>, i64, i64) {
        let OpeningSpend { earlier, current } = split.spend;
        let budget = split.budget.map(|budget| budget.limit.as_nanos());
        (split.cap.map(Money::as_nanos), budget, earlier.as_nanos(), current.as_nanos())
    }

    #[test]
    fn spending_of_a_key_leaves_what_was_left() {
        let day = Some(BudgetPeriod::Day);
        for (given, expected) in [
            (terms(None, None, 5), (None, None, 5, 0)),
            (terms(Some(10), None, 4), (Some(10), None, 4, 0)),
            (terms(Some(10), None, 12), (Some(12), None, 12, 0)),
            (terms(Some(10), day, 4), (None, Some(10), 0, 4)),
            (terms(Some(10), day, 12), (None, Some(10), 2, 10)),
        ] {
            assert_eq!(nanos(&SpendSplit::of_key(&given)), expected, "{given:?}");
        }
        let reset = SourceTerms { is_current: false, ..terms(Some(10), day, 4) };
        assert_eq!(nanos(&SpendSplit::of_key(&reset)), (None, Some(10), 4, 0));
    }

    /// Law: an account keeps what was left of its limit, whatever its keys have spent, and neither its
    /// limit nor that of a key is passed.
    #[test]
    fn spending_of_an_account_leaves_what_was_left() {
        let periods = [None, Some(BudgetPeriod::Month)];
        for (own, of_key) in periods.into_iter().flat_map(|own| periods.map(|key| (own, key))) {
            for (limit, spent, first, second) in
                [(10, 4, 1, 2), (10, 4, 4, 0), (10, 4, 3, 9), (10, 12, 5, 6), (10, 0, 20, 20)]
            {
                let mut keys =
                    [first, second].map(|spent| SpendSplit::of_key(&terms(Some(8), of_key, spent)));
                let [a, b] = &mut keys;
                let own_terms = terms(Some(limit), own, spent);
                let account = SpendSplit::of_account(&own_terms, &mut [a, b]);
                let case = format!("{own:?} {of_key:?} {limit} {spent} {first} {second}: {keys:?}");
                let counted = |spend: OpeningSpend| match own {
                    None => spend.total(),
                    Some(_) => spend.current,
                };
                let all = keys.iter().map(|key| counted(key.spend)).sum::<Money>();
                let all = all.saturating_add(counted(account.spend));
                let cap = account.cap.or(account.budget.map(|budget| budget.limit)).unwrap();
                assert!(all <= cap, "{case}");
                let left = rest(Money::from_nanos(limit), Money::from_nanos(spent));
                let is_strict = own.is_some() && of_key.is_some();
                let kept = rest(cap, all);
                assert!(kept == left || (is_strict && kept < left), "{case}: {kept} of {left}");
                for (key, spent) in keys.iter().zip([first, second]) {
                    assert_eq!(key.spend.total().as_nanos(), spent, "{case}");
                    assert!(key.cap.is_none_or(|cap| key.spend.total() <= cap), "{case}");
                }
            }
        }
    }
}
