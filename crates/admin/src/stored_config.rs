//! Providers, models and credentials that administrators change at run time: reading them, changing
//! them, and distributing changes to every node.

use config::{Config, ConfigIssues, EntryName, InstalledDirectory, StoredEntries};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::sync::Arc;
use store::{ConfigChange, StoreError};
use tokio::sync::Mutex as AsyncMutex;

use crate::Admin;
use crate::account_admin::AuditNote;
use crate::actor::Actor;

/// Configuration from the store, as this node last read it.
pub struct StoredConfig {
    /// Held while a configuration is built from it, so that two changes cannot start from the same
    /// state.
    stored: Mutex<Arc<StoredEntries>>,
    /// Serialises changes on this node. Other nodes are excluded by the revision number.
    pub(crate) change_lock: AsyncMutex<()>,
}

/// A stored entry that cannot be used.
#[derive(Clone, Debug, Serialize)]
pub struct EntryIssue {
    /// The entry, such as `providers.acme`.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl StoredConfig {
    /// Creates the state from the entries read at start-up.
    pub fn new(stored: StoredEntries) -> Self {
        Self { stored: Mutex::new(Arc::new(stored)), change_lock: AsyncMutex::default() }
    }

    /// Locks the stored configuration. No other configuration is installed while the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, Arc<StoredEntries>> {
        self.stored.lock()
    }

    /// Forces the next poll to read the stored configuration again.
    pub fn mark_stale(&self) {
        let mut stored = self.stored.lock();
        *stored = Arc::new(StoredEntries { revision: -1, ..StoredEntries::clone(&stored) });
    }
}

impl Admin {
    /// Reads the stored configuration if it changed. A failure is logged.
    pub async fn poll_stored_config(&self) {
        if let Err(e) = self.refresh_stored_config().await {
            tracing::warn!("the stored configuration could not be refreshed: {e}");
        }
    }

    /// Returns the current configuration and the stored one it was built from, as one consistent
    /// pair.
    pub(crate) fn current_config(&self) -> (Arc<Config>, Arc<StoredEntries>) {
        let stored = self.stored.lock();
        (self.engine.config(), Arc::clone(&stored))
    }

    /// Reads the stored configuration if the store has a newer revision than this node.
    pub(crate) async fn refresh_stored_config(&self) -> Result<(), StoreError> {
        let revision = self.store.configured_revision().await?;
        if self.stored.lock().revision != revision {
            self.reload_stored_config().await?;
        }
        Ok(())
    }

    /// Reads the stored configuration and installs it.
    async fn reload_stored_config(&self) -> Result<(), StoreError> {
        let read = StoredEntries::open(self.store.configured().await?, &self.vault);
        let before = self.engine.config();
        let directory = read.directory.as_ref().map(InstalledDirectory::version);
        let replaced;
        {
            let mut stored = self.stored.lock();
            // A concurrent read may have installed a later revision.
            if read.revision < stored.revision {
                return Ok(());
            }
            replaced = stored.directory.as_ref().map(InstalledDirectory::version) != directory;
            *stored = Arc::new(read);
        }
        self.install_config(|old, stored| {
            let mut config = Config::clone(old);
            match config.overlay(stored) {
                Ok(()) => Some(config),
                Err(why) => {
                    tracing::error!("the stored configuration cannot be applied: {why}");
                    None
                }
            }
        });
        if replaced {
            match directory.flatten() {
                Some(version) => {
                    tracing::info!(version, "version {version} of the directory is used")
                }
                None => tracing::info!("the built-in directory is used"),
            }
        }
        self.log_issues(Some(&before.issues)).await
    }

    /// Installs a configuration built from the current one and the stored one. The health of lanes
    /// is carried over.
    fn install_config(&self, make: impl FnOnce(&Config, &StoredEntries) -> Option<Config>) {
        // The lock makes a concurrent change start from the result of this one.
        let stored = self.stored.lock();
        let old = self.engine.config();
        if let Some(mut config) = make(&old, &stored) {
            config.inherit_health(&old, self.engine.clock.now());
            self.engine.set_config(config);
        }
    }

    /// Installs a configuration that was read from the file, with the stored one laid over it. Returns false
    /// if it is refused.
    pub fn replace_config(&self, mut config: Config) -> bool {
        let mut is_good = true;
        self.install_config(|_, stored| match config.overlay(stored) {
            Ok(()) => Some(config),
            Err(why) => {
                tracing::error!("the new configuration is refused, the last good one stays: {why}");
                is_good = false;
                None
            }
        });
        is_good
    }

    /// Applies changes, audits them and installs the result. Returns false if the store has a later
    /// revision than `base`.
    pub(crate) async fn change_stored_config(
        &self,
        actor: &Actor,
        base: &StoredEntries,
        changes: &[ConfigChange],
        note: AuditNote<'_>,
    ) -> Result<bool, StoreError> {
        let mut change = self.store.begin_change().await?;
        let applied = change.configure(base.revision, changes).await?;
        if applied {
            self.accounts.commit(change, actor, &[note]).await?;
        } else {
            drop(change);
        }
        self.reload_stored_config().await?;
        Ok(applied)
    }

    /// Lists stored entries that cannot be used, with the reason.
    pub(crate) fn issues(&self) -> Vec<EntryIssue> {
        let (config, stored) = self.current_config();
        let issue = |what: String, why: &str| EntryIssue { what, why: why.to_owned() };
        let entries = config.issues.iter().map(|(entry, why)| issue(entry.to_string(), why));
        let mut all: Vec<_> = entries.collect();
        for (name, provider) in &stored.providers {
            for one in &provider.credentials {
                if let Err(why) = &one.auth {
                    let what = format!("providers.{name}: credential {}", one.id);
                    all.push(issue(what, &why.to_string()));
                }
            }
        }
        all
    }

    /// Logs entries that cannot be used, except those in `reported`.
    pub async fn log_issues(&self, reported: Option<&ConfigIssues>) -> Result<(), StoreError> {
        let config = self.engine.config();
        for (entry, why) in &config.issues {
            if reported.is_none_or(|reported| reported.get(entry) != Some(why)) {
                tracing::warn!(entry = %entry, "stored `{entry}` is left out: {why}");
            }
        }
        let stored = Arc::clone(&self.stored.lock());
        for (name, provider) in &stored.providers {
            let entry = EntryName::Provider(name.clone());
            for credential in &provider.credentials {
                if let Err(why) = &credential.auth {
                    let id = &credential.id;
                    tracing::error!(
                        entry = %entry, credential.id = %id,
                        "a stored credential of `{entry}` is left out: {why}"
                    );
                }
            }
        }
        if reported.is_none()
            && let Some(why) = self.vault.unavailable_reason()
        {
            let sealed = self.store.sealed().await?.values().sum::<i64>();
            if sealed > 0 || self.engine.funds.lease_client.live_nodes() > 1 {
                tracing::warn!(sealed, "{why}; until then no secret is sealed");
            }
        }
        Ok(())
    }
}
