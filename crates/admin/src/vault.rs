//! The vault: key ids, number of secrets sealed by each, and re-keying.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{RekeyCounts, VaultError};

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::request_origin::RequestOrigin;

/// State of the vault.
#[derive(Clone, Debug, Serialize)]
pub struct VaultStatus {
    /// Id of the key that seals.
    pub current: Option<String>,
    /// Ids of all keys.
    pub keys: Vec<String>,
    /// Number of sealed secrets by key.
    pub sealed: BTreeMap<String, i64>,
    /// Reason why nothing can be sealed.
    pub trouble: Option<String>,
}

/// Result of re-keying.
#[derive(Clone, Debug, Serialize)]
pub struct RekeyReport {
    /// The vault afterwards.
    #[serde(flatten)]
    pub status: VaultStatus,
    /// Number of secrets sealed again.
    pub sealed_anew: u64,
    /// Number of secrets that could not be opened.
    pub left: u64,
}

impl Admin {
    /// Returns the state of the vault.
    pub async fn vault_status(&self, actor: &Actor) -> Result<VaultStatus, AdminError> {
        actor.require_admin()?;
        let (current, keys) = self.vault.keys();
        let sealed = self.store.sealed().await?;
        Ok(VaultStatus { current, keys, sealed, trouble: self.vault.unavailable_reason() })
    }

    /// Seals every secret with the newest key.
    pub async fn rekey_vault(self: &Arc<Self>, actor: &Actor) -> Result<RekeyReport, AdminError> {
        actor.require_admin()?;
        // Runs as a task of its own, so that it completes even if the caller disconnects.
        let (admin, task_actor) = (Arc::clone(self), actor.clone());
        let origin = RequestOrigin::current();
        let rekeying = self.engine.tasks.spawn(origin.scope(async move {
            let record = async |detail: &str| {
                admin.accounts.record_event(&task_actor, ["vault.rekey", "vault", detail]).await
            };
            // Re-keying takes many transactions. The first line shows one that did not end.
            record("started").await?;
            let RekeyCounts { sealed, left } = admin.vault.rekey(&admin.store).await?;
            record(&format!("{sealed} resealed, {left} could not be opened")).await?;
            Ok(RekeyCounts { sealed, left })
        }));
        let done = rekeying.await.map_err(|e| AdminError::Internal(e.to_string()))?;
        let RekeyCounts { sealed, left } = done.map_err(|why| match why {
            VaultError::Store(error) => AdminError::Store(error),
            why
            @ (VaultError::Unavailable(_) | VaultError::UnknownKey(_) | VaultError::Corrupt) => {
                AdminError::invalid("", why.to_string())
            }
        })?;
        Ok(RekeyReport { status: self.vault_status(actor).await?, sealed_anew: sealed, left })
    }
}
