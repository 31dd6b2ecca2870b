//! Spending of keys against their limits, kept in memory for the headers of answers.
//!
//! No answer waits for the database. A call of a key whose standing is missing or old begins to read it
//! in the background. Its answer uses what is in memory at that moment, with what the key has spent on
//! this node since. A standing that could not be renewed for [`MAX_AGE`] is not used any more.

use access::keys::ApiKey;
use canon::{Money, SharedText};
use ledger::SpendTerms;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::spend_standing::{SpendStanding, standings};
use crate::state::ApiState;

/// Age from which on a standing is read again. It is the time in which spending of other nodes has to be
/// seen.
const RENEW_AGE: Duration = Duration::from_secs(5);
/// Age from which on a standing is not used.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Number of keys with a standing in memory.
const MAX_KEYS: usize = 4_096;

/// Standings of the keys of this node.
#[derive(Default)]
pub struct StandingCache(Mutex<HashMap<SharedText, KeptStanding>>);

/// Standing of a key, as it was read.
struct KeptStanding {
    /// Limits of the key when the reading began. Other limits make the standing useless.
    terms: SpendTerms,
    /// Time at which the last reading began.
    asked: Option<Instant>,
    found: Option<FoundStanding>,
}

struct FoundStanding {
    limits: Vec<SpendStanding>,
    read: Instant,
    /// Spending of the key that the limits include.
    spent: Money,
}

impl StandingCache {
    /// Begins to read the standing of a key, if the one in memory is missing or old.
    pub(crate) fn renew(state: &Arc<ApiState>, key: &Arc<ApiKey>) {
        let terms = key.account.spend_terms(&key.record);
        if terms.is_unlimited() || !state.standings.begin(key, terms) {
            return;
        }
        let (state, key) = (Arc::clone(state), Arc::clone(key));
        let tasks = state.engine.tasks.clone();
        tasks.spawn(async move { Self::read(&state, &key).await });
    }

    /// Reads the standing of a key from the store, and keeps it.
    pub(crate) async fn read(state: &ApiState, key: &ApiKey) -> Vec<SpendStanding> {
        let terms = key.account.spend_terms(&key.record);
        let (limits, is_whole) = standings(state, key).await;
        if is_whole && !limits.is_empty() {
            let (read, spent) = (Instant::now(), key.balance.status().spent);
            let found = FoundStanding { limits: limits.clone(), read, spent };
            state.standings.keep(key, terms, found);
        }
        limits
    }

    /// Returns the limits of a key with what is spent of them; empty if there are none, or if this node
    /// does not know.
    pub(crate) fn known(&self, key: &ApiKey) -> Vec<SpendStanding> {
        let terms = key.account.spend_terms(&key.record);
        let kept = self.0.lock();
        let kept = kept.get(key.balance.key_id()).filter(|kept| kept.terms == terms);
        let found = kept.and_then(|kept| kept.found.as_ref());
        let Some(found) = found.filter(|found| found.read.elapsed() < MAX_AGE) else {
            return Vec::new();
        };
        let spent_since = key.balance.status().spent.saturating_sub(found.spent).max(Money::ZERO);
        let with_own = |standing: &SpendStanding| SpendStanding {
            spent: standing.spent.saturating_add(spent_since),
            ..standing.clone()
        };
        found.limits.iter().map(with_own).collect()
    }

    /// Notes that a standing is read; false if another call does that or the one in memory is new.
    fn begin(&self, key: &ApiKey, terms: SpendTerms) -> bool {
        let mut kept = self.0.lock();
        let Some(own) = place(&mut kept, key, terms) else { return false };
        let is_due = own.asked.is_none_or(|asked| asked.elapsed() >= RENEW_AGE);
        if is_due {
            own.asked = Some(Instant::now());
        }
        is_due
    }

    fn keep(&self, key: &ApiKey, terms: SpendTerms, found: FoundStanding) {
        // Terms that changed during the reading make its result useless.
        if terms == key.account.spend_terms(&key.record)
            && let Some(own) = place(&mut self.0.lock(), key, terms)
        {
            own.asked = own.asked.max(Some(found.read));
            own.found = Some(found);
        }
    }
}

/// Returns the standing of a key with these terms, which is empty if it is new; `None` if there are too
/// many keys. A node with more active keys than that tells the others nothing.
fn place<'a>(
    kept: &'a mut HashMap<SharedText, KeptStanding>,
    key: &ApiKey,
    terms: SpendTerms,
) -> Option<&'a mut KeptStanding> {
    let id = key.balance.key_id();
    if kept.len() >= MAX_KEYS && !kept.contains_key(id) {
        kept.retain(|_, one| one.asked.is_some_and(|asked| asked.elapsed() < RENEW_AGE));
        if kept.len() >= MAX_KEYS {
            return None;
        }
    }
    let empty = || KeptStanding { terms, asked: None, found: None };
    let own = kept.entry(id.clone()).or_insert_with(empty);
    if own.terms != terms {
        *own = empty();
    }
    Some(own)
}
