//! Providers, models and credentials that administrators change while the gateway runs: what is
//! stored, how a change is made, and how every node hears of it.

use config::{Config, ConfigIssues, EntryName, StoredEntries};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use store::{ConfigChange, StoreError};
use tokio::sync::Mutex as Turn;

use crate::Admin;

/// What is stored, as this node last read it.
pub struct StoredConfig {
    /// Held while a configuration is made of it, so that no two are made of the same one before.
    stored: Mutex<Arc<StoredEntries>>,
    /// One change at a time; other nodes are held off by the number of the state.
    pub change_lock: Turn<()>,
}

impl StoredConfig {
    pub fn new(stored: StoredEntries) -> Self {
        Self { stored: Mutex::new(Arc::new(stored)), change_lock: Turn::default() }
    }

    /// What is stored. While it is held, nobody else puts a configuration in force.
    pub fn lock(&self) -> MutexGuard<'_, Arc<StoredEntries>> {
        self.stored.lock()
    }

    /// Has it read anew at the next opportunity.
    pub fn mark_stale(&self) {
        let mut stored = self.stored.lock();
        *stored = Arc::new(StoredEntries { revision: -1, ..StoredEntries::clone(&stored) });
    }
}

impl Admin {
    /// Reads what is stored, if it changed.
    pub async fn poll_stored_config(&self) {
        if let Err(e) = self.refresh_stored_config().await {
            tracing::warn!("news of providers and models could not be fetched: {e}");
        }
    }

    /// The configuration in force and what is stored, of one moment.
    pub fn current_config(&self) -> (Arc<Config>, Arc<StoredEntries>) {
        let stored = self.stored.lock();
        (self.engine.config(), Arc::clone(&stored))
    }

    /// Makes sure that nothing newer is stored than what this node serves by.
    pub async fn refresh_stored_config(&self) -> Result<(), StoreError> {
        let revision = self.store.configured_revision().await?;
        if self.stored.lock().revision != revision {
            self.reload_stored_config().await?;
        }
        Ok(())
    }

    /// Reads what is stored and serves by it.
    pub async fn reload_stored_config(&self) -> Result<(), StoreError> {
        let read = StoredEntries::open(self.store.configured().await?, &self.vault);
        let before = self.engine.config();
        {
            let mut stored = self.stored.lock();
            // Somebody else may have read a later state in the meantime.
            if read.revision < stored.revision {
                return Ok(());
            }
            *stored = Arc::new(read);
        }
        self.install_config(|old, stored| {
            let mut config = Config::clone(old);
            match config.overlay(stored) {
                Ok(()) => Some(config),
                Err(why) => {
                    tracing::error!("what is stored cannot be laid over the file: {why}");
                    None
                }
            }
        });
        self.log_issues(Some(&before.issues)).await
    }

    /// Puts a configuration in force that is made of the one before and of what is stored; how its
    /// lanes stand is not forgotten.
    fn install_config(&self, make: impl FnOnce(&Config, &StoredEntries) -> Option<Config>) {
        // Of two that change it at once, each starts from what the other left.
        let stored = self.stored.lock();
        let old = self.engine.config();
        if let Some(mut config) = make(&old, &stored) {
            config.inherit_health(&old);
            self.engine.set_config(config);
        }
    }

    /// Puts a configuration that was read anew in force, with what is stored laid over it.
    pub fn replace_config(&self, mut config: Config) {
        self.install_config(|_, stored| match config.overlay(stored) {
            Ok(()) => Some(config),
            Err(why) => {
                tracing::error!("the new configuration is refused, the last good one stays: {why}");
                None
            }
        });
    }

    /// Makes a change, unless something was changed since that state. Served from here on.
    pub async fn change_stored_config(
        &self,
        seen: &StoredEntries,
        changes: &[ConfigChange],
    ) -> Result<bool, StoreError> {
        let made = self.store.configure(seen.revision, changes).await?;
        self.reload_stored_config().await?;
        Ok(made)
    }

    /// Everything that is stored and cannot be used: what, and why.
    pub fn issues(&self) -> Vec<serde_json::Value> {
        let (config, stored) = self.current_config();
        let tell = |what: String, why: &str| serde_json::json!({ "what": what, "why": why });
        let entries = config.issues.iter().map(|(entry, why)| tell(entry.to_string(), why));
        let mut all: Vec<_> = entries.collect();
        for (name, provider) in &stored.providers {
            for one in &provider.credentials {
                if let Err(why) = &one.auth {
                    all.push(tell(format!("providers.{name}: credential {}", one.id), why));
                }
            }
        }
        all
    }

    /// Tells the log what cannot be used and was not told before.
    pub async fn log_issues(&self, told: Option<&ConfigIssues>) -> Result<(), StoreError> {
        let config = self.engine.config();
        for (entry, why) in &config.issues {
            if told.is_none_or(|told| told.get(entry) != Some(why)) {
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
        if told.is_none()
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
