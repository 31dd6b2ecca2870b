//! Keys that another gateway issued and that were imported: their texts have any form.
//!
//! The other gateway kept the SHA-256 of a key, so its text is not known at the import. The first call
//! tells it, and then the stored hash is replaced by an HMAC under the pepper, which is what all other
//! keys have. Until then, a reader of the database could try guesses of a weak text.
//!
//! A stored hash of an imported key has one byte more than that of another key, which names its form. So
//! no token of this gateway's own form matches it, and no imported text matches the hash of another key.

use aws_lc_rs::{digest, hmac};
use canon::ApiError;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use store::KeyRecord;

use super::key_cache::{FoundKey, KeyCache, KnownKey, invalid_key};

/// Length of an HMAC and of a SHA-256.
const DIGEST_BYTES: usize = 32;
/// The byte in front of the SHA-256 of a text.
const PLAIN_FORM: u8 = 1;
/// The byte in front of the HMAC of a text under the pepper.
const KEYED_FORM: u8 = 2;
/// The front of the texts of other gateways. Some of them accept a text without it.
const USUAL_PREFIX: &str = "sk-";

/// Returns the stored form of the SHA-256 of an imported key.
pub fn plain_foreign_hash(sha256: &[u8; DIGEST_BYTES]) -> Vec<u8> {
    with_form(PLAIN_FORM, sha256)
}

/// Returns the stored form of the hash of an imported key whose text is known.
pub fn keyed_foreign_hash(pepper: &hmac::Key, text: &str) -> Vec<u8> {
    with_form(KEYED_FORM, hmac::sign(pepper, text.as_bytes()).as_ref())
}

fn with_form(form: u8, digest: &[u8]) -> Vec<u8> {
    let mut hash = Vec::with_capacity(1 + digest.len());
    hash.push(form);
    hash.extend_from_slice(digest);
    hash
}

fn is_foreign(hash: &[u8]) -> bool {
    match hash {
        [PLAIN_FORM | KEYED_FORM, digest @ ..] => digest.len() == DIGEST_BYTES,
        [..] => false,
    }
}

/// Returns the hashes of a key by which an imported text finds it.
fn foreign_hashes(record: &KeyRecord) -> impl Iterator<Item = &[u8]> {
    let hashes = [Some(record.hash.as_slice()), record.old_hash.as_deref()];
    hashes.into_iter().flatten().filter(|hash| is_foreign(hash))
}

/// A stored plain hash, and the keyed one that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRehash {
    /// The key.
    pub key_id: String,
    /// The hash that is stored.
    pub plain: Vec<u8>,
    /// The hash to be stored.
    pub keyed: Vec<u8>,
}

/// Imported keys by their hashes.
#[derive(Default)]
pub(super) struct ForeignKeys {
    ids: papaya::HashMap<Vec<u8>, String, RandomState>,
    /// Keys whose text was seen since the last look. Each is listed once.
    rehashes: Mutex<Vec<KeyRehash>>,
}

impl ForeignKeys {
    /// Enters the hashes of a new or changed key, before the cache has it.
    pub(super) fn add(&self, new: &KeyRecord) {
        let ids = self.ids.pin();
        for hash in foreign_hashes(new) {
            ids.insert(hash.to_vec(), new.id.clone());
        }
    }

    /// Removes the hashes that a changed key no longer has, after the cache has it. In between a text
    /// finds its key by either hash.
    pub(super) fn forget(&self, old: &KeyRecord, new: &KeyRecord) {
        for hash in foreign_hashes(old) {
            if !foreign_hashes(new).any(|current| current == hash) {
                self.ids.pin().remove(hash);
            }
        }
    }

    /// Returns the id of the key that has one of these hashes.
    fn find(&self, hashes: &ForeignHashes) -> Option<String> {
        let ids = self.ids.pin();
        ids.get(&hashes.keyed).or_else(|| ids.get(&hashes.plain)).cloned()
    }
}

/// Both stored forms of the hash of a text.
struct ForeignHashes {
    keyed: Vec<u8>,
    plain: Vec<u8>,
}

impl ForeignHashes {
    fn of(pepper: &hmac::Key, text: &str) -> Self {
        let sha256 = digest::digest(&digest::SHA256, text.as_bytes());
        let keyed = keyed_foreign_hash(pepper, text);
        Self { keyed, plain: with_form(PLAIN_FORM, sha256.as_ref()) }
    }

    fn contain(&self, hash: &[u8]) -> bool {
        self.keyed == hash || self.plain == hash
    }
}

impl KeyCache {
    /// Returns the imported key with this text, and keeps it as known. New keys are in the cache within a
    /// second, so the store is not asked.
    pub(super) fn find_foreign(&self, text: &str, known: &KnownKey) -> Result<FoundKey, ApiError> {
        // Without imported keys a wrong token costs no hash.
        if self.foreign.ids.pin().is_empty() {
            return Err(invalid_key());
        }
        let mut hashes = ForeignHashes::of(&self.pepper, text);
        let mut key_id = self.foreign.find(&hashes);
        if key_id.is_none() && !text.starts_with(USUAL_PREFIX) {
            hashes = ForeignHashes::of(&self.pepper, &format!("{USUAL_PREFIX}{text}"));
            key_id = self.foreign.find(&hashes);
        }
        let found = key_id.and_then(|id| self.find_cached(&id)).ok_or_else(invalid_key)?;
        let (record, now) = (&found.record, self.clock.now());
        if !found.is_live(now) {
            return Err(invalid_key());
        }
        if hashes.contain(&record.hash) {
            if record.hash == hashes.plain {
                let ForeignHashes { keyed, plain } = hashes;
                self.note_rehash(KeyRehash { key_id: record.id.clone(), plain, keyed });
            }
            known.keep(&found);
            return Ok(found);
        }
        let is_old = record.old_hash.as_ref().is_some_and(|hash| hashes.contain(hash));
        // Not kept as known, because its time ends.
        if is_old && record.old_until.is_some_and(|until| now < until) {
            Ok(found)
        } else {
            Err(invalid_key())
        }
    }

    fn note_rehash(&self, rehash: KeyRehash) {
        let mut rehashes = self.foreign.rehashes.lock();
        if !rehashes.iter().any(|noted| noted.key_id == rehash.key_id) {
            rehashes.push(rehash);
        }
    }

    /// Returns the keys whose text was seen for the first time since the last look. One that is not
    /// stored is noted again by the next call.
    pub fn take_rehashes(&self) -> Vec<KeyRehash> {
        std::mem::take(&mut *self.foreign.rehashes.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{NewKeyToken, hash_token};
    use canon::{Micros, Money};
    use ledger::{Clock, TestClock};
    use std::sync::Arc;
    use store::{KeyBounds, KeyGrants, KeyScope, RateLimits, Store};

    const BEGIN: Micros = Micros::from_secs(1_800_000_000);

    fn sha256(text: &str) -> [u8; DIGEST_BYTES] {
        digest::digest(&digest::SHA256, text.as_bytes()).as_ref().try_into().unwrap()
    }

    fn record(id: &str, hash: Vec<u8>) -> KeyRecord {
        KeyRecord {
            id: id.to_owned(),
            account_id: "a".to_owned(),
            created_by: None,
            name: "key".to_owned(),
            scope: KeyScope::Call,
            grants: KeyGrants::default(),
            hash,
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

    async fn cache(clock: &Arc<TestClock>) -> KeyCache {
        let store = Store::open("sqlite::memory:").await.unwrap();
        KeyCache::load(store, Arc::clone(clock) as Arc<dyn Clock>, "pepper").await.unwrap()
    }

    #[tokio::test]
    async fn an_imported_text_finds_its_key_and_its_plain_hash_is_replaced() {
        let clock = Arc::new(TestClock::at(BEGIN));
        let cache = cache(&clock).await;
        let find = async |text: &str| cache.find(text, &KnownKey::default()).await.is_ok();
        assert!(!find("sk-old").await);
        let mut own = record("imported", plain_foreign_hash(&sha256("sk-old")));
        cache.insert(own.clone());
        assert!(find("sk-old").await && find("sk-old").await && find("old").await);
        for wrong in ["sk-old ", "sk-OLD", "sk-sk-old", "", "sk-", "imported"] {
            assert!(!find(wrong).await, "{wrong}");
        }
        let rehashes = cache.take_rehashes();
        let [rehash] = &rehashes[..] else { panic!("one key was used") };
        assert_eq!((rehash.key_id.as_str(), &rehash.plain), ("imported", &own.hash));
        own.hash = rehash.keyed.clone();
        cache.insert(own.clone());
        assert!(find("sk-old").await);
        assert!(cache.take_rehashes().is_empty());
        // A stored hash is no key.
        let digest: String = sha256("sk-old").iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!find(&digest).await);
        own.expires = Some(BEGIN);
        cache.insert(own.clone());
        assert!(!find("sk-old").await);
        (own.expires, own.revoked) = (None, Some(BEGIN));
        cache.insert(own);
        assert!(!find("sk-old").await);
    }

    #[tokio::test]
    async fn a_rotated_imported_key_keeps_its_text_for_the_overlap_only() {
        let clock = Arc::new(TestClock::at(BEGIN));
        let cache = cache(&clock).await;
        let token = NewKeyToken::generate(KeyScope::Call).unwrap();
        let mut own = record(&token.id, plain_foreign_hash(&sha256("sk-old")));
        cache.insert(own.clone());
        let find = async |text: &str| cache.find(text, &KnownKey::default()).await.is_ok();
        assert!(find("sk-old").await && !find(&token.text).await);
        own.old_hash =
            Some(std::mem::replace(&mut own.hash, hash_token(cache.pepper(), &token.text)));
        own.old_until = Some(BEGIN + Micros::from_secs(1));
        cache.insert(own.clone());
        assert!(find("sk-old").await && find(&token.text).await);
        clock.pass(Micros::from_secs(1));
        assert!(!find("sk-old").await && find(&token.text).await);
    }

    /// Law: neither form of hash is good for a text of the other kind.
    #[tokio::test]
    async fn hashes_of_imported_and_own_keys_do_not_mix() {
        let clock = Arc::new(TestClock::at(BEGIN));
        let cache = cache(&clock).await;
        let token = NewKeyToken::generate(KeyScope::Call).unwrap();
        // The text of an own key as an imported one, and an imported text as an own hash.
        cache.insert(record(&token.id, keyed_foreign_hash(cache.pepper(), &token.text)));
        cache.insert(record("other", hash_token(cache.pepper(), "sk-old")));
        assert!(cache.find(&token.text, &KnownKey::default()).await.is_err());
        assert!(cache.find("sk-old", &KnownKey::default()).await.is_err());
    }
}
