//! Comparison of the calls with the sums of their sessions.
//!
//! There may be millions of sessions, so the audit keeps a few numbers per key: the sums over all its
//! sessions, and a fingerprint of how they are divided. The fingerprint is linear: a row of the table adds the
//! same to it as the calls that the row sums up.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use canon::Money;
use ledger::LedgerEntry;

use crate::call_audit::MAX_VIOLATIONS;
use crate::call_sessions::{SessionPart, SessionTotals};
use crate::db::clean;

/// Sums of the sessions of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KeySessions {
    calls: i64,
    cost: Money,
    fingerprint: u128,
}

/// Sums of the sessions of all keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionAudit(BTreeMap<String, KeySessions>);

impl SessionAudit {
    /// Adds a call, if it has a session.
    pub(crate) fn add_call(&mut self, call: &LedgerEntry) {
        self.add_entry(call, SessionTotals::of_call(call));
    }

    /// Takes a call away that was corrected.
    pub(crate) fn remove_call(&mut self, call: &LedgerEntry) {
        self.add_entry(call, SessionTotals::of_call(call).negated());
    }

    fn add_entry(&mut self, call: &LedgerEntry, totals: SessionTotals) {
        let LedgerEntry { session, key_id, model, lane, .. } = call;
        if !session.is_empty() {
            let [session, key_id, model, lane] =
                [session, key_id, model, lane].map(|text| clean(text));
            self.add([&session, &key_id, &model, &lane], &totals);
        }
    }

    /// Adds a row of the table.
    pub(crate) fn add_part(&mut self, part: &SessionPart) {
        let SessionPart { session, key_id, model, lane, totals } = part;
        self.add([session, key_id, model, lane], totals);
    }

    fn add(&mut self, names: [&str; 4], totals: &SessionTotals) {
        let SessionTotals { calls, input, cache_read, output, thinking, cost, absorbed, .. } =
            *totals;
        let numbers =
            [calls, input, cache_read, output, thinking, cost.as_nanos(), absorbed.as_nanos()];
        let [_, key_id, ..] = names;
        let own = match self.0.get_mut(key_id) {
            Some(own) => own,
            None => self.0.entry(key_id.to_owned()).or_default(),
        };
        own.calls = own.calls.saturating_add(calls);
        own.cost = own.cost.saturating_add(cost);
        for (place, number) in numbers.into_iter().enumerate() {
            let weight = weight(names, place);
            let addition = weight.wrapping_mul(i128::from(number) as u128);
            own.fingerprint = own.fingerprint.wrapping_add(addition);
        }
    }

    /// Returns the keys whose sessions, as they are stored, are not the sums of these calls.
    pub(crate) fn differences(&self, stored: &Self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.keys().chain(stored.0.keys()).collect();
        let differences = keys.into_iter().filter_map(|key| {
            let calls = self.0.get(key).copied().unwrap_or_default();
            let sums = stored.0.get(key).copied().unwrap_or_default();
            (calls != sums).then(|| {
                format!(
                    "sessions of key {key}: {} calls for {} USD are recorded, but the sums have {} for {} \
                     USD, or differ by session, model, lane or tokens",
                    calls.calls, calls.cost, sums.calls, sums.cost
                )
            })
        });
        differences.take(MAX_VIOLATIONS).collect()
    }
}

/// Returns the weight of a number of these calls in the fingerprint.
fn weight(names: [&str; 4], place: usize) -> u128 {
    let half = |number: u8| {
        let mut hasher = DefaultHasher::new();
        (number, place, names).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(session: &str, calls: i64, input: i64) -> SessionPart {
        let totals = SessionTotals { calls, input, ..SessionTotals::default() };
        SessionPart { session: session.to_owned(), totals, ..SessionPart::default() }
    }

    fn audit(parts: &[SessionPart]) -> SessionAudit {
        let mut audit = SessionAudit::default();
        parts.iter().for_each(|part| audit.add_part(part));
        audit
    }

    #[test]
    fn rows_that_are_divided_otherwise_are_found() {
        let stored = audit(&[part("a", 2, 10), part("b", 1, 5)]);
        let same = audit(&[part("b", 1, 5), part("a", 1, 3), part("a", 1, 7)]);
        assert_eq!(same.differences(&stored), Vec::<String>::new());
        for other in [
            [part("a", 1, 10), part("b", 2, 5)],
            [part("a", 2, 5), part("b", 1, 10)],
            [part("a", 2, 10), part("c", 1, 5)],
            [part("a", 2, 10), part("b", 1, 6)],
        ] {
            assert_eq!(audit(&other).differences(&stored).len(), 1, "{other:?}");
        }
        // A row whose calls were all corrected away counts for nothing.
        let mut emptied = audit(&[part("a", 2, 10), part("b", 1, 5), part("c", 1, 1)]);
        emptied.add_part(&part("c", -1, -1));
        assert_eq!(emptied.differences(&stored), Vec::<String>::new());
    }
}
