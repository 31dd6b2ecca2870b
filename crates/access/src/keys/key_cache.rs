//! In-memory cache of API keys, so that a call does not wait for the database.
//!
//! Changes by other nodes and by the CLI are fetched every second. An unknown key is looked up in
//! the store once, and so is a known one whose token does not match: another node may have given it a
//! new one. The rate of those lookups is limited, so that guessed keys put no load on the database.

use aws_lc_rs::hmac;
use canon::{ApiError, ErrorKind, Micros};
use foldhash::fast::RandomState;
use ledger::{Clock, KeyBalance};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{AccountTerms, KeyRecord, KeyScope, Store, StoreError};

use super::account_funds::AccountFunds;
use super::api_key::ApiKey;
use super::foreign_keys::ForeignKeys;
use super::key_token::KeyToken;
use super::lookup_limiter::LookupLimiter;
use super::token_proof::{ProofKey, TokenProof};
use config::IpRange;

use crate::limits::RateWindow;

/// Changes this far back are fetched again, because clocks of nodes differ.
const CHANGE_OVERLAP: Micros = Micros::from_secs(10);

/// A key that was found in the cache.
#[derive(Clone, Debug)]
pub struct FoundKey {
    key: Arc<ApiKey>,
    /// Changes of the cache before the key was found. While there are no more, the key is current.
    changes: u64,
}

impl Deref for FoundKey {
    type Target = Arc<ApiKey>;

    fn deref(&self) -> &Arc<ApiKey> {
        &self.key
    }
}

/// The key that a token in the head of a request is known to name. Empty at first.
///
/// It is kept as long as the head, and its key only as long as the cache has that very record: any
/// change of the key, a new token among them, makes the next request find the key by its token again.
#[derive(Debug, Default)]
pub struct KnownKey(Mutex<Option<FoundKey>>);

impl KnownKey {
    pub(super) fn keep(&self, found: &FoundKey) {
        *self.0.lock() = Some(found.clone());
    }
}

/// Cache of all API keys.
pub struct KeyCache {
    store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pepper: hmac::Key,
    proof_key: Option<ProofKey>,
    pub(super) foreign: ForeignKeys,
    /// By public id. Ids are random, so that nobody can choose ones of equal hash.
    keys: papaya::HashMap<String, Arc<ApiKey>, RandomState>,
    /// Number of keys that were inserted or changed. Counted after the change.
    changes: AtomicU64,
    /// Spending limits by account id.
    accounts: Mutex<HashMap<String, Arc<AccountFunds>>>,
    /// Held while account terms are read and applied, so that an older read never overwrites a
    /// newer one.
    account_refresh: tokio::sync::Mutex<()>,
    /// Held while a key is inserted: two balances for one key would draw two leases.
    insert_lock: Mutex<()>,
    lookup_limiter: Mutex<LookupLimiter>,
    /// Held while a key is looked up, sharded by the last byte of its id. Concurrent first calls of
    /// a new key then cause one query.
    lookup_locks: [tokio::sync::Mutex<()>; 16],
    refreshed_at: Mutex<Micros>,
}

impl KeyCache {
    /// Loads every key of the store.
    pub async fn load(
        store: Store,
        clock: Arc<dyn Clock>,
        pepper: &str,
    ) -> Result<Self, StoreError> {
        let now = clock.now();
        let cache = Self {
            clock,
            pepper: hmac::Key::new(hmac::HMAC_SHA256, pepper.as_bytes()),
            // Without randomness every call computes the HMAC.
            proof_key: ProofKey::generate().ok(),
            foreign: ForeignKeys::default(),
            keys: papaya::HashMap::default(),
            changes: AtomicU64::new(0),
            accounts: Mutex::default(),
            account_refresh: tokio::sync::Mutex::default(),
            insert_lock: Mutex::new(()),
            lookup_limiter: Mutex::new(LookupLimiter::default()),
            lookup_locks: Default::default(),
            refreshed_at: Mutex::new(now),
            store,
        };
        let records = cache.store.keys().await?;
        cache.refresh_accounts().await?;
        for record in records {
            cache.insert(record);
        }
        Ok(cache)
    }

    /// Returns the HMAC key that tokens are hashed with.
    pub const fn pepper(&self) -> &hmac::Key {
        &self.pepper
    }

    /// Returns the key for a token, and keeps it as known. All failures give the same error, which
    /// does not reveal the reason.
    pub async fn find(&self, text: &str, known: &KnownKey) -> Result<FoundKey, ApiError> {
        let Some(token) = KeyToken::parse(text) else { return self.find_foreign(text, known) };
        let mut found = self.find_by_id(token.id()).await?;
        if !found.key.is_live(self.clock.now()) {
            return Err(invalid_key());
        }
        if !self.is_current(token, &found.key) {
            if self.is_old(token, &found.key) {
                // Not kept as known, because its time ends.
                return Ok(found);
            }
            found = Box::pin(self.look_up_rotated(token, &found.key)).await?;
        }
        known.keep(&found);
        Ok(found)
    }

    /// Returns the known key of a head. `None` if there is none, if it has changed since, or if it may
    /// not be used any more.
    pub fn find_known(&self, known: &KnownKey) -> Option<FoundKey> {
        let mut slot = known.0.lock();
        let found = slot.as_mut()?;
        let changes = self.changes();
        if found.changes != changes {
            let current = self.get(&found.key.record.id);
            if !current.is_some_and(|current| Arc::ptr_eq(&current, &found.key)) {
                *slot = None;
                return None;
            }
            found.changes = changes;
        }
        found.key.is_live_now(&*self.clock).then(|| found.clone())
    }

    /// Returns the key with this public id, as [`Self::by_id`] does.
    pub async fn find_by_id(&self, id: &str) -> Result<FoundKey, ApiError> {
        // Read before the key, so that a change in between is noticed.
        let changes = self.changes();
        let key = self.by_id(id).await?;
        Ok(FoundKey { key, changes })
    }

    /// Returns a cached key with this public id.
    pub fn find_cached(&self, id: &str) -> Option<FoundKey> {
        let changes = self.changes();
        Some(FoundKey { key: self.get(id)?, changes })
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns true if the token is the current one of the key.
    fn is_current(&self, token: KeyToken<'_>, key: &ApiKey) -> bool {
        let ApiKey { record, proof, .. } = key;
        let Some(proof_key) = &self.proof_key else {
            return token.matches(&self.pepper, &record.hash);
        };
        if proof.covers(proof_key, token) {
            return true;
        }
        let matches = token.matches(&self.pepper, &record.hash);
        if matches {
            proof.remember(proof_key, token);
        }
        matches
    }

    /// Returns true if the token is the one from before the current one, and may still be used.
    fn is_old(&self, token: KeyToken<'_>, key: &ApiKey) -> bool {
        let KeyRecord { old_hash: Some(hash), old_until: Some(until), .. } = &key.record else {
            return false;
        };
        self.clock.now() < *until && token.matches(&self.pepper, hash)
    }

    /// Returns the key with this public id, looking it up in the store if it is not cached.
    pub async fn by_id(&self, id: &str) -> Result<Arc<ApiKey>, ApiError> {
        match self.get(id) {
            Some(key) => Ok(key),
            // Boxed because it is rare: the future of every call would grow by its size.
            None => Box::pin(self.look_up(id)).await,
        }
    }

    /// Returns a key that was found earlier in its current state. Refuses it if it was revoked or
    /// has expired since.
    pub fn still_live(&self, key: &ApiKey) -> Result<Arc<ApiKey>, ApiError> {
        let now = self.clock.now();
        self.get(&key.record.id).filter(|key| key.is_live(now)).ok_or_else(invalid_key)
    }

    /// Returns a key that was found in its current state, as [`Self::still_live`] does.
    pub fn recheck(&self, found: FoundKey) -> Result<Arc<ApiKey>, ApiError> {
        if found.changes == self.changes() && found.key.is_live_now(&*self.clock) {
            return Ok(found.key);
        }
        self.still_live(&found.key)
    }

    /// Reads a cached key from the store again. Refuses it if it is revoked or has expired.
    pub async fn read_again(&self, id: &str) -> Result<FoundKey, ApiError> {
        let record = self.store.key(id).await.map_err(|e| store_error(&e))?;
        let changes = self.changes();
        let key = self.insert(record.ok_or_else(invalid_key)?);
        if key.is_live(self.clock.now()) {
            Ok(FoundKey { key, changes })
        } else {
            Err(invalid_key())
        }
    }

    /// Returns the cached key with this public id.
    pub fn get(&self, id: &str) -> Option<Arc<ApiKey>> {
        self.keys.pin().get(id).cloned()
    }

    /// Returns the balances of all keys that may make calls.
    pub fn calling_balances(&self) -> Vec<Arc<KeyBalance>> {
        let now = self.clock.now();
        let keys = self.keys.pin();
        let calling =
            keys.values().filter(|key| key.is_live(now) && key.record.scope == KeyScope::Call);
        calling.map(|key| Arc::clone(&key.balance)).collect()
    }

    /// Fetches keys and account terms that changed in the store.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let since = *self.refreshed_at.lock();
        let now = self.clock.now();
        let changed = self.store.keys_changed_since(since - CHANGE_OVERLAP).await?;
        // Account terms are read after the keys and applied before them, so that no key is ever
        // used with limits that are too loose.
        self.refresh_accounts().await?;
        for record in changed {
            self.insert(record);
        }
        *self.refreshed_at.lock() = now;
        Ok(())
    }

    /// Fetches caps and budgets of all accounts.
    async fn refresh_accounts(&self) -> Result<(), StoreError> {
        let _turn = self.account_refresh.lock().await;
        let mut all_terms: HashMap<String, AccountTerms> =
            self.store.account_terms().await?.into_iter().collect();
        // Accounts missing in the answer no longer have limits.
        for id in self.accounts.lock().keys() {
            all_terms.entry(id.clone()).or_default();
        }
        for (id, terms) in all_terms {
            let account = self.account_funds(&id);
            let _alone = self.insert_lock.lock();
            if account.set_terms(&terms) {
                let known = self.keys.pin();
                for key in known.values().filter(|key| key.record.account_id == id) {
                    key.balance.set_terms(account.spend_terms(&key.record));
                }
            }
        }
        Ok(())
    }

    fn account_funds(&self, id: &str) -> Arc<AccountFunds> {
        Arc::clone(self.accounts.lock().entry(id.to_owned()).or_default())
    }

    /// Inserts a new or changed key. The balance of a known key is kept.
    ///
    /// A new key of an unknown account is not inserted. Its first call looks it up together with
    /// the terms of its account.
    pub fn insert_changed(&self, record: KeyRecord) {
        let is_known = self.accounts.lock().contains_key(&record.account_id);
        if is_known || self.get(&record.id).is_some() {
            self.insert(record);
        } else {
            self.lookup_limiter.lock().forget(&record.id);
        }
    }

    pub(super) fn insert(&self, record: KeyRecord) -> Arc<ApiKey> {
        let _alone = self.insert_lock.lock();
        let known = self.keys.pin();
        let old = known.get(&record.id);
        let account = self.account_funds(&record.account_id);
        // If any limit is set, all money comes from leases, which respect all limits.
        let terms = account.spend_terms(&record);
        let (balance, rate_window, node_use) = match old {
            Some(key) if key.record == record => return Arc::clone(key),
            Some(key) => {
                key.balance.set_terms(terms);
                key.rate_window.set_limits(record.limits);
                let balance = Arc::clone(&key.balance);
                (balance, Arc::clone(&key.rate_window), Arc::clone(&key.node_use))
            }
            None => (
                KeyBalance::new(&record.id, terms, record.spent),
                Arc::new(RateWindow::new(record.limits)),
                Arc::default(),
            ),
        };
        let allowed_networks =
            record.ips.iter().filter_map(|text| IpRange::parse(text).ok()).collect();
        let proof = TokenProof::default();
        let key = Arc::new(ApiKey {
            balance,
            account,
            rate_window,
            allowed_networks,
            node_use,
            record,
            proof,
        });
        self.foreign.add(&key.record);
        if let Some(old) = known.insert(key.record.id.clone(), Arc::clone(&key)) {
            self.foreign.forget(&old.record, &key.record);
        }
        self.changes.fetch_add(1, Ordering::Release);
        key
    }

    async fn look_up(&self, id: &str) -> Result<Arc<ApiKey>, ApiError> {
        let _alone = self.lookup_turn(id).await;
        if let Some(key) = self.get(id) {
            return Ok(key);
        }
        let now = self.clock.now();
        self.lookup_limiter.lock().admit(id, now)?;
        match self.store.key(id).await {
            Ok(Some(record)) => {
                // The terms of the account may be as new as the key.
                self.refresh_accounts().await.map_err(|e| store_error(&e))?;
                Ok(self.insert(record))
            }
            Ok(None) => {
                self.lookup_limiter.lock().remember_unknown(id, now);
                Err(invalid_key())
            }
            Err(e) => Err(store_error(&e)),
        }
    }

    /// Reads a key again whose cached record does not have this token. Fails if the store does not
    /// have it either.
    async fn look_up_rotated(
        &self,
        token: KeyToken<'_>,
        cached: &Arc<ApiKey>,
    ) -> Result<FoundKey, ApiError> {
        let _alone = self.lookup_turn(token.id()).await;
        let mut found = self.find_cached(token.id()).ok_or_else(invalid_key)?;
        if Arc::ptr_eq(&found.key, cached) {
            let now = self.clock.now();
            self.lookup_limiter.lock().admit(token.text(), now)?;
            found = self.read_again(token.id()).await?;
            if Arc::ptr_eq(&found.key, cached) {
                self.lookup_limiter.lock().remember_unknown(token.text(), now);
            }
        }
        let is_live = found.key.is_live(self.clock.now());
        if is_live && self.is_current(token, &found.key) { Ok(found) } else { Err(invalid_key()) }
    }

    /// Waits until no other request looks up this key.
    async fn lookup_turn(&self, id: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let letter = id.bytes().last().map_or(0, |byte| usize::from(byte % 16));
        Some(self.lookup_locks.get(letter)?.lock().await)
    }
}

fn store_error(error: &StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "the key cannot be checked, retry shortly")
        .with_log_note(format!("the store failed to look up a key: {error}"))
}

pub(super) fn invalid_key() -> ApiError {
    ApiError::new(
        ErrorKind::Unauthenticated,
        "the API key is not valid; check that it was copied whole and has not expired or been revoked",
    )
    .with_code("invalid_api_key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{NewKeyToken, hash_token};
    use canon::Money;
    use ledger::TestClock;
    use store::{Account, AccountRole, KeyBounds, KeyGrants, RateLimits};

    const BEGIN: Micros = Micros::from_secs(1_800_000_000);

    fn record(token: &NewKeyToken, pepper: &hmac::Key) -> KeyRecord {
        KeyRecord {
            id: token.id.clone(),
            account_id: "a".to_owned(),
            created_by: None,
            name: "key".to_owned(),
            scope: KeyScope::Call,
            grants: KeyGrants::default(),
            hash: hash_token(pepper, &token.text),
            old_hash: None,
            surface: None,
            old_until: None,
            cap: None,
            spent: Money::ZERO,
            budget: None,
            models: Vec::new(),
            expires: None,
            revoked: None,
            limits: RateLimits::default(),
            ips: Vec::new(),
            bounds: KeyBounds::default(),
            created: BEGIN,
            changed: BEGIN,
            last_used: None,
        }
    }

    /// Law: a known key is the record that its token finds, after any change and at any time.
    #[tokio::test]
    async fn a_known_key_is_the_one_that_its_token_finds() {
        let clock = Arc::new(TestClock::at(BEGIN));
        let store = Store::open("sqlite::memory:").await.unwrap();
        let shared = Arc::clone(&clock) as Arc<dyn Clock>;
        let cache = KeyCache::load(store, shared, "pepper").await.unwrap();
        let [token, other] = [0, 1].map(|_| NewKeyToken::generate(KeyScope::Call).unwrap());
        let rotated = NewKeyToken::with_id(token.id.clone(), KeyScope::Call).unwrap();
        let hash = |token: &NewKeyToken| hash_token(cache.pepper(), &token.text);
        let second = Micros::from_secs(1);
        let mut own = record(&token, cache.pepper());
        cache.insert(own.clone());
        let known = KnownKey::default();
        assert!(cache.find_known(&known).is_none(), "nothing was found yet");
        for (step, is_found, is_known) in [
            ("none", true, true),
            ("another key", true, true),
            ("name", true, false),
            ("expires later", true, false),
            ("time passes", true, true),
            ("expires", false, false),
            ("extended", true, false),
            ("revoked", false, false),
            ("restored", true, false),
            ("rotated", true, false),
            ("old token expires", false, false),
            ("rotated back", true, false),
            ("none", true, true),
        ] {
            // Filled before each step, if the token is the current one.
            let before = cache.find(&token.text, &known).await.is_ok();
            match step {
                "another key" => drop(cache.insert(record(&other, cache.pepper()))),
                "name" => own.name = "other".to_owned(),
                "expires later" => own.expires = Some(clock.now() + 9 * second),
                "time passes" => clock.pass(8 * second),
                "expires" | "old token expires" => clock.pass(second),
                "extended" => own.expires = Some(clock.now() + 1_000 * second),
                "revoked" => own.revoked = Some(clock.now()),
                "restored" => own.revoked = None,
                "rotated" => {
                    own.hash = hash(&rotated);
                    own.old_hash = Some(hash(&token));
                    own.old_until = Some(clock.now() + second);
                }
                "rotated back" => own.hash = hash(&token),
                _ => assert!(before, "{step}"),
            }
            cache.insert(own.clone());
            let found = cache.find(&token.text, &KnownKey::default()).await.ok();
            assert_eq!(found.is_some(), is_found, "{step}");
            let known = cache.find_known(&known);
            assert_eq!(known.is_some(), is_known, "{step}");
            if let (Some(known), Some(found)) = (known, found) {
                assert!(Arc::ptr_eq(&known, &found), "{step}");
            }
        }
    }

    #[tokio::test]
    async fn a_token_that_another_node_made_is_good_at_once_and_a_guess_is_read_once() {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let clock: Arc<dyn Clock> = Arc::new(TestClock::at(BEGIN));
        let cache = KeyCache::load(store.clone(), clock, "pepper").await.unwrap();
        let account = Account {
            id: "a".to_owned(),
            username: "ada".to_owned(),
            email: None,
            role: AccountRole::Member,
            password_hash: None,
            disabled: false,
            created: BEGIN,
            changed: BEGIN,
        };
        store.add_account(&account).await.unwrap();
        let first = NewKeyToken::generate(KeyScope::Call).unwrap();
        let next = || NewKeyToken::with_id(first.id.clone(), KeyScope::Call).unwrap();
        let [second, third] = [next(), next()];
        store.add_key(&record(&first, cache.pepper())).await.unwrap();
        let find = async |token: &NewKeyToken| cache.find(&token.text, &KnownKey::default()).await;
        let rotate = async |token: &NewKeyToken| {
            let hash = hash_token(cache.pepper(), &token.text);
            assert!(store.rotate_key(&token.id, &hash, BEGIN, BEGIN).await.unwrap());
        };
        assert!(find(&first).await.is_ok());
        assert!(find(&second).await.is_err());
        rotate(&second).await;
        assert!(find(&second).await.is_err(), "the store is not asked again so soon");
        rotate(&third).await;
        assert!(find(&third).await.is_ok());
        assert!(find(&first).await.is_err());
    }

    #[tokio::test]
    async fn a_key_that_was_found_is_refused_once_it_is_revoked() {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let clock = Arc::new(TestClock::at(BEGIN));
        let cache = KeyCache::load(store, clock as Arc<dyn Clock>, "pepper").await.unwrap();
        let token = NewKeyToken::generate(KeyScope::Call).unwrap();
        let mut own = record(&token, cache.pepper());
        cache.insert(own.clone());
        let found = cache.find(&token.text, &KnownKey::default()).await.unwrap();
        assert!(Arc::ptr_eq(&cache.recheck(found.clone()).unwrap(), &found));
        own.name = "other".to_owned();
        let changed = cache.insert(own.clone());
        assert!(Arc::ptr_eq(&cache.recheck(found.clone()).unwrap(), &changed));
        own.revoked = Some(BEGIN);
        cache.insert(own);
        assert!(cache.recheck(found).is_err());
    }
}
