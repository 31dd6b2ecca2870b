//! Record of the objects that providers made for a key. It is in the store, so that every node
//! knows it; those of recent replies are in memory as well.

use access::keys::ApiKey;
use aws_lc_rs::digest;
use canon::{ApiError, ErrorKind, Micros};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use store::{ObjectOwner, ProviderObject, Store};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Objects in memory.
const MAX_RECENT: usize = 10_000;
/// Different objects that one request may name.
const MAX_NAMED: usize = 1_000;
/// Time for a statement of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);

/// Way of a record to the store. It ends with the write, and in time.
pub(super) type ObjectReceipt = JoinHandle<()>;

/// Objects that providers made for keys.
pub struct ObjectBook {
    store: Store,
    tasks: TaskTracker,
    recent: Mutex<RecentObjects>,
}

/// Hash of an id at a provider, and the account.
type ObjectName = (Vec<u8>, String);

#[derive(Default)]
struct RecentObjects {
    /// Keys and expiry by object.
    owners: HashMap<ObjectName, Vec<(String, Micros)>>,
    order: VecDeque<ObjectName>,
}

impl RecentObjects {
    fn insert(&mut self, object: ProviderObject) {
        let ProviderObject { hash, account_id, key_id, expires } = object;
        let name = (hash, account_id);
        let owners = self.owners.entry(name.clone()).or_insert_with(|| {
            self.order.push_back(name);
            Vec::new()
        });
        owners.retain(|(own, _)| *own != key_id);
        owners.push((key_id, expires));
        while self.order.len() > MAX_RECENT {
            if let Some(oldest) = self.order.pop_front() {
                self.owners.remove(&oldest);
            }
        }
    }

    fn is_owned(&self, name: &ObjectName, owner: &ObjectOwner, now: Micros) -> bool {
        let is_seen = |(key_id, expires): &(String, Micros)| {
            now < *expires && owner.owns(&name.1, Some(key_id))
        };
        self.owners.get(name).is_some_and(|owners| owners.iter().any(is_seen))
    }
}

impl ObjectBook {
    /// Creates a book. `tasks` tracks the writes to the store until shutdown.
    pub(super) fn new(store: Store, tasks: TaskTracker) -> Self {
        Self { store, tasks, recent: Mutex::default() }
    }

    /// Records the objects that a reply hands out. This node knows them at once.
    pub(super) fn record(
        &self,
        key: &ApiKey,
        provider: &str,
        ids: &[String],
        expires: Micros,
    ) -> ObjectReceipt {
        let object = |id: &String| ProviderObject {
            hash: hash_id(provider, id),
            account_id: key.record.account_id.clone(),
            key_id: key.record.id.clone(),
            expires,
        };
        let objects: Vec<ProviderObject> = ids.iter().map(object).collect();
        {
            let mut recent = self.recent.lock();
            objects.iter().for_each(|object| recent.insert(object.clone()));
        }
        let store = self.store.clone();
        self.tasks.spawn(async move {
            let write = tokio::time::timeout(STORE_TIMEOUT, store.record_objects(&objects));
            let error = match write.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the store did not answer in time".to_owned(),
            };
            tracing::warn!("objects that a provider made could not be recorded: {error}");
        })
    }

    /// Returns the ids among these that the provider made for the owner.
    pub(super) async fn owned<'a>(
        &self,
        owner: &ObjectOwner,
        provider: &str,
        ids: impl Iterator<Item = &'a str>,
        now: Micros,
    ) -> Result<HashSet<&'a str>, ApiError> {
        let mut owned = HashSet::new();
        let mut unknown: HashMap<Vec<u8>, &str> = HashMap::new();
        for id in ids.collect::<HashSet<&str>>().into_iter().take(MAX_NAMED) {
            let name = (hash_id(provider, id), owner.account_id().to_owned());
            if self.recent.lock().is_owned(&name, owner, now) {
                owned.insert(id);
            } else {
                unknown.insert(name.0, id);
            }
        }
        if unknown.is_empty() {
            return Ok(owned);
        }
        let hashes: Vec<Vec<u8>> = unknown.keys().cloned().collect();
        let query = self.store.provider_objects(owner, &hashes, now);
        let found = match tokio::time::timeout(STORE_TIMEOUT, query).await {
            Ok(found) => found.map_err(|error| unavailable(&error.to_string()))?,
            Err(_) => return Err(unavailable("the store did not answer in time")),
        };
        let mut recent = self.recent.lock();
        for object in found {
            owned.extend(unknown.get(&object.hash));
            recent.insert(object);
        }
        Ok(owned)
    }
}

/// Returns the hash of an id at a provider: callers of some providers choose ids themselves, and
/// the objects of another one stay closed to them.
fn hash_id(provider: &str, id: &str) -> Vec<u8> {
    let mut hash = digest::Context::new(&digest::SHA256);
    // No name of a provider has a zero byte.
    for part in [provider.as_bytes(), &[0], id.as_bytes()] {
        hash.update(part);
    }
    hash.finish().as_ref().to_vec()
}

fn unavailable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the gateway cannot reach its store, retry later")
        .with_log_note(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_keeps_the_latest() {
        let mut recent = RecentObjects::default();
        let object = |number: usize| ProviderObject {
            hash: number.to_be_bytes().to_vec(),
            account_id: "ada".to_owned(),
            key_id: "k1".to_owned(),
            expires: Micros::from_secs(10),
        };
        (0..MAX_RECENT + 5).for_each(|number| recent.insert(object(number)));
        recent.insert(object(MAX_RECENT));
        assert_eq!((recent.owners.len(), recent.order.len()), (MAX_RECENT, MAX_RECENT));
        let owns = |number: usize, owner: &ObjectOwner, now: i64| {
            let name = (number.to_be_bytes().to_vec(), owner.account_id().to_owned());
            recent.is_owned(&name, owner, Micros::from_secs(now))
        };
        let (key, other) = (ObjectOwner::key("ada", "k1"), ObjectOwner::key("ada", "k2"));
        assert!(!owns(0, &key, 1) && owns(5, &key, 1) && owns(MAX_RECENT, &key, 9));
        assert!(!owns(5, &key, 10) && !owns(5, &other, 1));
        assert!(owns(5, &ObjectOwner::account("ada"), 1));
        assert!(!owns(5, &ObjectOwner::account("bob"), 1));
    }
}
