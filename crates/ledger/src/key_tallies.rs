//! Counts of the settled calls of each key since start, for metrics.
//!
//! The first [`MAX_COUNTED_KEYS`] keys that make a call on this node are counted apart, all others
//! together, so that the number of counts has a bound.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{CallOutcome, KeyBalance, LedgerEntry};

/// Keys that are counted apart.
pub const MAX_COUNTED_KEYS: usize = 1_000;

/// Settled calls of one key, or of all that are not counted apart.
#[derive(Debug, Default)]
pub(crate) struct KeyTally {
    /// True once the key has a place of its own, or was found to have none.
    is_placed: AtomicBool,
    is_other: AtomicBool,
    calls: AtomicU64,
    failed: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
    cost: AtomicU64,
}

/// Counts of a key at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// Id of the key; `None` for all keys that are not counted apart.
    pub key_id: Option<String>,
    /// Account of the key: a person or a team.
    pub account_id: String,
    /// Settled calls.
    pub calls: u64,
    /// Calls that failed or broke off.
    pub failed: u64,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens that models made.
    pub output_tokens: u64,
    /// Nanodollars charged.
    pub cost: u64,
}

impl KeyTally {
    fn add(&self, entry: &LedgerEntry) {
        let has_failed = match entry.outcome {
            CallOutcome::Done | CallOutcome::CallerLeft => 0,
            CallOutcome::BrokeOff | CallOutcome::Failed | CallOutcome::Recovered => 1,
        };
        let cost = u64::try_from(entry.cost.as_nanos()).unwrap_or(0);
        for (count, more) in [
            (&self.calls, 1),
            (&self.failed, has_failed),
            (&self.input_tokens, entry.usage.input),
            (&self.output_tokens, entry.usage.output),
            (&self.cost, cost),
        ] {
            if more > 0 {
                count.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    fn read(&self, key_id: Option<String>, account_id: String) -> KeyUse {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        KeyUse {
            key_id,
            account_id,
            calls: load(&self.calls),
            failed: load(&self.failed),
            input_tokens: load(&self.input_tokens),
            output_tokens: load(&self.output_tokens),
            cost: load(&self.cost),
        }
    }
}

/// Tallies of all keys of this node.
#[derive(Debug, Default)]
pub(crate) struct KeyTallies {
    /// Keys that are counted apart. Locked by the first call of a key only.
    keys: Mutex<Vec<Arc<KeyBalance>>>,
    others: KeyTally,
}

impl KeyTallies {
    /// Counts a settled call.
    pub(crate) fn add(&self, balance: &Arc<KeyBalance>, entry: &LedgerEntry) {
        let tally = &balance.tally;
        if !tally.is_placed.load(Ordering::Acquire) {
            self.place(balance);
        }
        let tally = if tally.is_other.load(Ordering::Relaxed) { &self.others } else { tally };
        tally.add(entry);
    }

    fn place(&self, balance: &Arc<KeyBalance>) {
        let mut keys = self.keys.lock();
        if balance.tally.is_placed.load(Ordering::Relaxed) {
            return;
        }
        if keys.len() < MAX_COUNTED_KEYS {
            keys.push(Arc::clone(balance));
        } else {
            balance.tally.is_other.store(true, Ordering::Relaxed);
        }
        balance.tally.is_placed.store(true, Ordering::Release);
    }

    /// Returns the counts of the keys that are counted apart, and then those of all others.
    pub(crate) fn read(&self) -> Vec<KeyUse> {
        let keys = self.keys.lock();
        let mut used: Vec<KeyUse> = keys
            .iter()
            .map(|balance| {
                let account = balance.account_id.get().map(ToString::to_string);
                balance.tally.read(Some(balance.key_id().to_string()), account.unwrap_or_default())
            })
            .collect();
        drop(keys);
        let others = self.others.read(None, String::new());
        used.extend((others.calls > 0).then_some(others));
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Money, Usage};

    #[test]
    fn keys_beyond_the_bound_are_counted_together() {
        let tallies = KeyTallies::default();
        let usage = Usage { input: 2, output: 3, ..Usage::default() };
        let cost = Money::from_nanos(7);
        let entry =
            LedgerEntry { outcome: CallOutcome::Done, usage, cost, ..LedgerEntry::default() };
        for number in 0..MAX_COUNTED_KEYS + 5 {
            let key = KeyBalance::new(&format!("k{number}"), None, Money::ZERO);
            tallies.add(&key, &entry);
            tallies.add(&key, &LedgerEntry { outcome: CallOutcome::Failed, ..entry.clone() });
        }
        let used = tallies.read();
        assert_eq!(used.len(), MAX_COUNTED_KEYS + 1);
        let first = used.first().unwrap();
        assert_eq!((first.key_id.as_deref(), first.calls, first.failed), (Some("k0"), 2, 1));
        assert_eq!((first.input_tokens, first.output_tokens, first.cost), (4, 6, 14));
        let others = used.last().unwrap();
        assert_eq!((others.key_id.as_deref(), others.calls, others.cost), (None, 10, 70));
    }
}
