//! The keys this gateway knows, in memory: a call never waits for the database.
//!
//! Changes made elsewhere (another node, the command line) are fetched every second. A key nobody
//! here has heard of is looked up once; how often that happens is limited, so that guessing keys
//! cannot become a load on the database.

use aws_lc_rs::hmac;
use canon::{Fault, Trouble};
use ledger::{Clock, Micros, Purse};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use store::{KeyRecord, Store, StoreError};

use super::token::Token;

/// How many unknown keys are looked up per second.
const LOOKUPS: u32 = 50;
/// How far back changes are fetched again, for clocks that differ.
const OVERLAP: Micros = 10_000_000;

/// A known key.
#[derive(Debug)]
pub struct Key {
    /// What the store says of it.
    pub record: KeyRecord,
    /// Its money.
    pub purse: Arc<Purse>,
}

impl Key {
    /// Whether it may be used at that time.
    pub fn is_live(&self, now: Micros) -> bool {
        self.record.revoked.is_none() && self.record.expires.is_none_or(|expires| now < expires)
    }

    /// Whether it may use that model.
    pub fn may_use(&self, model: &str) -> bool {
        self.record.models.is_empty() || self.record.models.iter().any(|allowed| allowed == model)
    }
}

/// The ring.
pub struct KeyRing {
    store: Store,
    clock: Arc<dyn Clock>,
    pepper: hmac::Key,
    known: papaya::HashMap<String, Arc<Key>>,
    /// Held while a key is taken in: two purses for one key would each have its lease.
    taking_in: Mutex<()>,
    lookups: Mutex<Lookups>,
    seen: Mutex<Micros>,
}

#[derive(Default)]
struct Lookups {
    second: i64,
    count: u32,
    /// Ids that were not found, and until when that is believed.
    missing: HashMap<String, Micros>,
}

impl KeyRing {
    /// A ring with every key of the store.
    pub async fn load(
        store: Store,
        clock: Arc<dyn Clock>,
        pepper: &str,
    ) -> Result<Self, StoreError> {
        let now = clock.now();
        let ring = Self {
            clock,
            pepper: hmac::Key::new(hmac::HMAC_SHA256, pepper.as_bytes()),
            known: papaya::HashMap::new(),
            taking_in: Mutex::new(()),
            lookups: Mutex::new(Lookups::default()),
            seen: Mutex::new(now),
            store,
        };
        for record in ring.store.keys().await? {
            ring.put(record);
        }
        Ok(ring)
    }

    /// What keys are hashed with.
    pub const fn pepper(&self) -> &hmac::Key {
        &self.pepper
    }

    /// The key behind a text; a fault that says nothing of why it is not good.
    pub async fn find(&self, text: &str) -> Result<Arc<Key>, Fault> {
        let token = Token::read(text).ok_or_else(bad_key)?;
        let key = match self.get(token.id()) {
            Some(key) => key,
            None => self.look_up(token.id()).await?,
        };
        let now = self.clock.now();
        let record = &key.record;
        let old = record.old_hash.as_deref().filter(|_| record.old_until.is_some_and(|t| now < t));
        let matches = token.matches(&self.pepper, &record.hash)
            || old.is_some_and(|old| token.matches(&self.pepper, old));
        if matches && key.is_live(now) { Ok(key) } else { Err(bad_key()) }
    }

    /// A key by its public id, if this gateway has heard of it.
    pub fn get(&self, id: &str) -> Option<Arc<Key>> {
        self.known.pin().get(id).cloned()
    }

    /// Fetches what changed elsewhere.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let since = *self.seen.lock();
        let now = self.clock.now();
        for record in self.store.keys_changed_since(since.saturating_sub(OVERLAP)).await? {
            self.put(record);
        }
        *self.seen.lock() = now;
        Ok(())
    }

    /// Takes a key in, or its change. Its purse stays the same one: money runs on.
    pub fn put(&self, record: KeyRecord) -> Arc<Key> {
        let _alone = self.taking_in.lock();
        let known = self.known.pin();
        let purse = match known.get(&record.id) {
            Some(key) if key.record == record => return Arc::clone(key),
            Some(key) => {
                key.purse.set_cap(record.cap);
                Arc::clone(&key.purse)
            }
            None => Purse::new(&record.id, record.cap, record.spent),
        };
        let key = Arc::new(Key { purse, record });
        known.insert(key.record.id.clone(), Arc::clone(&key));
        key
    }

    async fn look_up(&self, id: &str) -> Result<Arc<Key>, Fault> {
        let now = self.clock.now();
        {
            let mut lookups = self.lookups.lock();
            if lookups.missing.get(id).is_some_and(|until| now < *until) {
                return Err(bad_key());
            }
            let second = now / 1_000_000;
            if lookups.second != second {
                lookups.second = second;
                lookups.count = 0;
                lookups.missing.retain(|_, until| now < *until);
            }
            lookups.count += 1;
            if lookups.count > LOOKUPS {
                return Err(bad_key().note("too many unknown keys in this second to look them up"));
            }
        }
        match self.store.key(id).await {
            Ok(Some(record)) => Ok(self.put(record)),
            Ok(None) => {
                let until = now.saturating_add(2_000_000);
                self.lookups.lock().missing.insert(id.to_owned(), until);
                Err(bad_key())
            }
            Err(e) => {
                Err(Fault::new(Trouble::Overload, "the key cannot be checked, retry shortly")
                    .note(format!("the store failed to look up a key: {e}")))
            }
        }
    }
}

fn bad_key() -> Fault {
    Fault::new(
        Trouble::NoKey,
        "the API key is not valid; check that it was copied whole and has not expired or been revoked",
    )
}
