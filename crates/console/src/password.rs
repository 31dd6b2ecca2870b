//! Passwords: argon2id on threads of its own, a few at a time, with a short queue before them.

use std::sync::Arc;

use admin::password::hash;
use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use tokio::sync::Semaphore;

use crate::page_error::PageError;

/// How many hashes are computed at the same time: each takes a core and 19 MiB.
const MAX_CONCURRENT_HASHES: usize = 2;
/// How many may wait for their turn.
const MAX_QUEUED_HASHES: usize = 32;

/// Verified against when there is nothing to verify against, so that both take the same time.
const DECOY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$I03n6TrPLsiEEPY8csOPFQ$IbBjWDkrjeEWc98vkm2gBc7WWUuvtu7vWCF78/FXACg";

/// The workers.
pub(crate) struct PasswordWorkers {
    queue: Semaphore,
    workers: Arc<Semaphore>,
}

impl Default for PasswordWorkers {
    fn default() -> Self {
        Self {
            queue: Semaphore::new(MAX_CONCURRENT_HASHES + MAX_QUEUED_HASHES),
            workers: Arc::new(Semaphore::new(MAX_CONCURRENT_HASHES)),
        }
    }
}

impl PasswordWorkers {
    /// The hash to store.
    pub(crate) async fn hash(&self, password: &str) -> Result<String, PageError> {
        let password = password.to_owned();
        self.run_blocking(move || hash(&password)).await?.map_err(|error| {
            tracing::error!("a password could not be hashed: {error}");
            PageError::Internal
        })
    }

    /// Whether the password belongs to the hash. Without a hash it is false after the same work.
    pub(crate) async fn verify(
        &self,
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
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PageError> {
        let _place = self.queue.try_acquire().map_err(|_| PageError::Busy)?;
        // Counted by those who check that every way through a form costs the same.
        tracing::trace!("a password is worked on");
        let turn =
            Arc::clone(&self.workers).acquire_owned().await.map_err(|_| PageError::Internal)?;
        // The turn goes with the work: were it kept here, a browser that leaves would free a turn
        // while its hash is still being computed.
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            job()
        });
        done.await.map_err(|error| {
            tracing::error!("password work failed: {error}");
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
    async fn a_password_fits_its_own_hash_only() {
        let passwords = PasswordWorkers::default();
        let hash = passwords.hash("three harbour lights").await.unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(passwords.verify("three harbour lights", Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify("three harbour light", Some(hash)).await.unwrap());
        assert!(!passwords.verify("the decoy's password", None).await.unwrap());
        assert!(!passwords.verify("x", Some("not a hash".to_owned())).await.unwrap());
    }
}
