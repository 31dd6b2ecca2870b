//! The keys this gateway knows, in memory: a call never waits for the database.
//!
//! Changes made elsewhere (another node, the command line) are fetched every second. A key nobody
//! here has heard of is looked up once; how often that happens is limited, so that guessing keys
//! cannot become a load on the database.

use aws_lc_rs::hmac;
use canon::{ApiError, Money, ErrorKind};
use ledger::{Budget, Clock, Micros, KeyBalance};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use store::{AccountTerms, BudgetTerms, KeyRecord, Store, StoreError};

use super::account::AccountMoney;
use super::token::Token;
use config::Net;

use crate::limits::Pace;

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
    pub purse: Arc<KeyBalance>,
    /// Its money for a period.
    pub budget: Option<Arc<Budget>>,
    /// The money it shares with the other keys of its account.
    pub account: Arc<AccountMoney>,
    /// How fast it is used.
    pub pace: Arc<Pace>,
    /// Where it may be used from; nowhere, if what the record says cannot be read.
    pub places: Vec<Net>,
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
    /// The money of accounts, by their ids.
    accounts: Mutex<HashMap<String, Arc<AccountMoney>>>,
    /// Held while what accounts may spend is read and put in force: no older word undoes a newer one.
    hearing: tokio::sync::Mutex<()>,
    /// Held while a key is taken in: two purses for one key would each have its lease.
    taking_in: Mutex<()>,
    lookups: Mutex<Lookups>,
    /// Held while a key is looked up, by a letter of its id: a hundred first calls of one new key
    /// are one question to the store.
    looking: [tokio::sync::Mutex<()>; 16],
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
            accounts: Mutex::default(),
            hearing: tokio::sync::Mutex::default(),
            taking_in: Mutex::new(()),
            lookups: Mutex::new(Lookups::default()),
            looking: Default::default(),
            seen: Mutex::new(now),
            store,
        };
        let records = ring.store.keys().await?;
        ring.refresh_accounts().await?;
        for record in records {
            ring.take_in(record).await?;
        }
        Ok(ring)
    }

    /// What keys are hashed with.
    pub const fn pepper(&self) -> &hmac::Key {
        &self.pepper
    }

    /// The key behind a text; a fault that says nothing of why it is not good.
    pub async fn find(&self, text: &str) -> Result<Arc<Key>, ApiError> {
        let token = Token::read(text).ok_or_else(bad_key)?;
        let key = self.by_id(token.id()).await?;
        let now = self.clock.now();
        let record = &key.record;
        let old = record.old_hash.as_deref().filter(|_| record.old_until.is_some_and(|t| now < t));
        let matches = token.matches(&self.pepper, &record.hash)
            || old.is_some_and(|old| token.matches(&self.pepper, old));
        if matches && key.is_live(now) { Ok(key) } else { Err(bad_key()) }
    }

    /// A key by its public id, looked up if this gateway has not heard of it.
    pub async fn by_id(&self, id: &str) -> Result<Arc<Key>, ApiError> {
        match self.get(id) {
            Some(key) => Ok(key),
            // Boxed: it is rare, and every call carries its future along.
            None => Box::pin(self.look_up(id)).await,
        }
    }

    /// A key by its public id, if this gateway has heard of it.
    pub fn get(&self, id: &str) -> Option<Arc<Key>> {
        self.known.pin().get(id).cloned()
    }

    /// Fetches what changed elsewhere.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let since = *self.seen.lock();
        let now = self.clock.now();
        let changed = self.store.keys_changed_since(since.saturating_sub(OVERLAP)).await?;
        // Read behind the keys and in force before them: none is ever taken for freer than it is.
        self.refresh_accounts().await?;
        for record in changed {
            self.take_in(record).await?;
        }
        *self.seen.lock() = now;
        Ok(())
    }

    /// Fetches what accounts may spend.
    async fn refresh_accounts(&self) -> Result<(), StoreError> {
        let _turn = self.hearing.lock().await;
        let mut told: HashMap<String, AccountTerms> =
            self.store.account_terms().await?.into_iter().collect();
        // One that is not told of any more has no limits left.
        for id in self.accounts.lock().keys() {
            told.entry(id.clone()).or_default();
        }
        for (id, terms) in told {
            let account = self.account(&id);
            let mut spent = Money::ZERO;
            if let Some(budget) = terms.budget.filter(|_| account.is_new(terms)) {
                let now = self.clock.now();
                (_, spent) = self.store.account_spent_in(&id, budget.period, now).await?;
            }
            let _alone = self.taking_in.lock();
            if account.set(terms, spent, self.clock.now()) {
                let known = self.known.pin();
                for key in known.values().filter(|key| key.record.account_id == id) {
                    key.purse.set_cap(key.record.cap.or(terms.cap));
                }
            }
        }
        Ok(())
    }

    fn account(&self, id: &str) -> Arc<AccountMoney> {
        Arc::clone(self.accounts.lock().entry(id.to_owned()).or_default())
    }

    /// Hears what other nodes spent of budgets.
    pub async fn refresh_budgets(&self) -> Result<(), StoreError> {
        let budgets: Vec<(String, Arc<Budget>)> = {
            let known = self.known.pin();
            let budgets = known.iter().filter_map(|(id, key)| {
                key.budget.as_ref().map(|budget| (id.clone(), Arc::clone(budget)))
            });
            budgets.collect()
        };
        for (id, budget) in budgets {
            let (day, spent) = self.store.spent_in(&id, budget.period(), self.clock.now()).await?;
            budget.raise_spent(day, spent);
        }
        let accounts: Vec<(String, Arc<Budget>)> = {
            let accounts = self.accounts.lock();
            let budgets = accounts.iter().filter_map(|(id, one)| Some((id.clone(), one.budget()?)));
            budgets.collect()
        };
        for (id, budget) in accounts {
            let now = self.clock.now();
            let (day, spent) = self.store.account_spent_in(&id, budget.period(), now).await?;
            budget.raise_spent(day, spent);
        }
        Ok(())
    }

    /// Takes a key in, with what was spent of its budget if it has one that is new here.
    async fn take_in(&self, record: KeyRecord) -> Result<Arc<Key>, StoreError> {
        let mut spent = Money::ZERO;
        if let Some(terms) = record.budget {
            let known = self.get(&record.id).and_then(|key| key.budget.clone());
            if known.is_none_or(|budget| budget.period() != terms.period) {
                let now = self.clock.now();
                (_, spent) = self.store.spent_in(&record.id, terms.period, now).await?;
            }
        }
        Ok(self.put_spent(record, spent))
    }

    /// Takes a new key in, or a change of a known one. Its purse stays the same one: money runs on.
    /// A new key of an account that was not heard of yet is looked up when it is first used, together
    /// with what its account may spend.
    pub fn put(&self, record: KeyRecord) {
        let heard = self.accounts.lock().contains_key(&record.account_id);
        if heard || self.get(&record.id).is_some() {
            self.put_spent(record, Money::ZERO);
        } else {
            self.lookups.lock().missing.remove(&record.id);
        }
    }

    fn put_spent(&self, record: KeyRecord, spent: Money) -> Arc<Key> {
        let _alone = self.taking_in.lock();
        let known = self.known.pin();
        let old = known.get(&record.id);
        let account = self.account(&record.account_id);
        // With either cap, all of its money comes from leases, which know of both.
        let cap = record.cap.or(account.cap());
        let (purse, pace) = match old {
            Some(key) if key.record == record => return Arc::clone(key),
            Some(key) => {
                key.purse.set_cap(cap);
                key.pace.set(record.limits);
                (Arc::clone(&key.purse), Arc::clone(&key.pace))
            }
            None => (KeyBalance::new(&record.id, cap, record.spent), Arc::new(Pace::new(record.limits))),
        };
        let old = old.and_then(|key| key.budget.as_ref());
        let budget = record.budget.map(|BudgetTerms { limit: most, period }| match old {
            Some(budget) if budget.period() == period => {
                budget.set_limit(most);
                Arc::clone(budget)
            }
            Some(_) | None => Budget::new(most, period, spent, self.clock.now()),
        });
        let places = record.ips.iter().filter_map(|text| Net::read(text).ok()).collect();
        let key = Arc::new(Key { purse, budget, account, pace, places, record });
        known.insert(key.record.id.clone(), Arc::clone(&key));
        key
    }

    /// Stands in the place of a key where somebody signed in asks. It is of their account, but on no
    /// ring and without money, so that no request from outside comes with it.
    pub fn stand_in(&self, record: KeyRecord) -> Arc<Key> {
        Arc::new(Key {
            purse: KeyBalance::new(&record.id, Some(Money::ZERO), Money::ZERO),
            budget: None,
            account: Arc::default(),
            pace: Arc::new(Pace::new(record.limits)),
            places: Vec::new(),
            record,
        })
    }

    async fn look_up(&self, id: &str) -> Result<Arc<Key>, ApiError> {
        let letter = id.bytes().last().map_or(0, |byte| usize::from(byte % 16));
        let _alone = match self.looking.get(letter) {
            Some(looking) => Some(looking.lock().await),
            None => None,
        };
        if let Some(key) = self.get(id) {
            return Ok(key);
        }
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
                return Err(bad_key().with_log_note("too many unknown keys in this second to look them up"));
            }
        }
        match self.store.key(id).await {
            Ok(Some(record)) => {
                // What its account may spend may be as new as the key.
                self.refresh_accounts().await.map_err(|e| unread(&e))?;
                self.take_in(record).await.map_err(|e| unread(&e))
            }
            Ok(None) => {
                let until = now.saturating_add(2_000_000);
                self.lookups.lock().missing.insert(id.to_owned(), until);
                Err(bad_key())
            }
            Err(e) => Err(unread(&e)),
        }
    }
}

fn unread(error: &StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "the key cannot be checked, retry shortly")
        .with_log_note(format!("the store failed to look up a key: {error}"))
}

fn bad_key() -> ApiError {
    ApiError::new(
        ErrorKind::Unauthenticated,
        "the API key is not valid; check that it was copied whole and has not expired or been revoked",
    )
}
