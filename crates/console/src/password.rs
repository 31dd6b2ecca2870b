//! Password hashing with argon2id (RFC 9106) on blocking threads, with limited concurrency and a
//! short queue.

use std::sync::Arc;

use admin::{HashedPassword, NewPassword};
use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::page_error::PageError;
use crate::throttle::AttemptSource;

/// Each hash takes one core and 19 MiB.
const MAX_CONCURRENT_HASHES: usize = 2;
const MAX_QUEUED_HASHES: usize = 32;
/// Places for browsers that an account knows. Strangers cannot take them.
const MAX_QUEUED_KNOWN: usize = 16;

/// Hash that is verified for accounts without one, so both cases take the same time.
const DECOY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$I03n6TrPLsiEEPY8csOPFQ$IbBjWDkrjeEWc98vkm2gBc7WWUuvtu7vWCF78/FXACg";

/// Limits concurrent password work.
pub(crate) struct PasswordWorkers {
    queue: Semaphore,
    known_queue: Semaphore,
    workers: Arc<Semaphore>,
}

impl Default for PasswordWorkers {
    fn default() -> Self {
        Self {
            queue: Semaphore::new(MAX_CONCURRENT_HASHES + MAX_QUEUED_HASHES),
            known_queue: Semaphore::new(MAX_QUEUED_KNOWN),
            workers: Arc::new(Semaphore::new(MAX_CONCURRENT_HASHES)),
        }
    }
}

impl PasswordWorkers {
    /// Takes a place in the queue, or reports that all are taken. A sign-in takes its place before
    /// it is counted, so that a busy gateway costs nobody an attempt.
    pub(crate) fn reserve(&self) -> Result<PasswordSlot<'_>, PageError> {
        self.reserve_in(&self.queue)
    }

    /// Takes a place for an attempt from that source.
    pub(crate) fn reserve_for(
        &self,
        source: &AttemptSource,
    ) -> Result<PasswordSlot<'_>, PageError> {
        match source {
            AttemptSource::Device(_) => self.reserve_in(&self.known_queue),
            AttemptSource::Network(_) => self.reserve(),
        }
    }

    fn reserve_in<'a>(&'a self, queue: &'a Semaphore) -> Result<PasswordSlot<'a>, PageError> {
        let place = queue.try_acquire().map_err(|_| PageError::Busy)?;
        Ok(PasswordSlot { workers: &self.workers, _place: place })
    }

    /// Hashes a password.
    pub(crate) async fn hash(&self, password: NewPassword) -> Result<HashedPassword, PageError> {
        self.reserve()?.run_blocking(move || password.hash()).await?.map_err(|error| {
            tracing::error!("cannot hash a password: {error}");
            PageError::Internal
        })
    }
}

/// A place in the queue for one operation.
pub(crate) struct PasswordSlot<'a> {
    workers: &'a Arc<Semaphore>,
    _place: SemaphorePermit<'a>,
}

impl PasswordSlot<'_> {
    /// Returns true if the password matches the hash. Without a hash, returns false after the same
    /// work.
    pub(crate) async fn verify(
        self,
        password: &str,
        hash: Option<String>,
    ) -> Result<bool, PageError> {
        let password = password.to_owned();
        self.run_blocking(move || match hash {
            Some(hash) => matches_hash(&password, &hash),
            None => {
                std::hint::black_box(matches_hash(&password, DECOY_HASH));
                false
            }
        })
        .await
    }

    async fn run_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PageError> {
        // Tests count this event to check that every path costs the same.
        tracing::trace!("password operation");
        let permit =
            Arc::clone(self.workers).acquire_owned().await.map_err(|_| PageError::Internal)?;
        // The permit moves into the work. Otherwise a disconnecting browser would release it while
        // its hash is still being computed.
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| {
            tracing::error!("a password operation failed: {error}");
            PageError::Internal
        })
    }
}

fn matches_hash(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn password_matches_only_its_own_hash() {
        let passwords = PasswordWorkers::default();
        let password = NewPassword::check("three harbour lights", &[]).unwrap();
        let hash = passwords.hash(password).await.unwrap().as_str().to_owned();
        assert!(hash.starts_with("$argon2id$"));
        let verify =
            async |password, hash| passwords.reserve().unwrap().verify(password, hash).await;
        assert!(verify("three harbour lights", Some(hash.clone())).await.unwrap());
        assert!(!verify("three harbour light", Some(hash)).await.unwrap());
        assert!(!verify("the decoy's password", None).await.unwrap());
        assert!(!verify("x", Some("not a hash".to_owned())).await.unwrap());
    }

    #[tokio::test]
    async fn queue_is_bounded_and_places_return() {
        let passwords = PasswordWorkers::default();
        let places: Vec<_> = std::iter::from_fn(|| passwords.reserve().ok()).collect();
        assert_eq!(places.len(), MAX_CONCURRENT_HASHES + MAX_QUEUED_HASHES);
        assert_eq!(passwords.reserve().err(), Some(PageError::Busy));
        let known = AttemptSource::Device(vec![1]);
        assert!(passwords.reserve_for(&known).is_ok(), "strangers do not take these places");
        drop(places);
        assert!(passwords.reserve().is_ok());
    }
}
