//! Providers, models and credentials that administrators change while the gateway runs: what is
//! stored, how a change is made, and how every node hears of it.

use config::{Config, Entry, Stored, Troubles};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use store::{ConfigChange, StoreError};
use tokio::sync::Mutex as Turn;

use crate::Admin;

/// What is stored, as this node last read it.
pub struct StoredConfig {
    /// Held while a configuration is made of it, so that no two are made of the same one before.
    stored: Mutex<Arc<Stored>>,
    /// One change at a time; other nodes are held off by the number of the state.
    pub turn: Turn<()>,
}

impl StoredConfig {
    pub fn new(stored: Stored) -> Self {
        Self { stored: Mutex::new(Arc::new(stored)), turn: Turn::default() }
    }

    /// What is stored. While it is held, nobody else puts a configuration in force.
    pub fn stored(&self) -> MutexGuard<'_, Arc<Stored>> {
        self.stored.lock()
    }

    /// Has it read anew at the next opportunity.
    pub fn forget(&self) {
        let mut stored = self.stored.lock();
        *stored = Arc::new(Stored { revision: -1, ..Stored::clone(&stored) });
    }
}

impl Admin {
    /// Reads what is stored, if it changed.
    pub async fn hear_of_places(&self) {
        if let Err(e) = self.fresh_places().await {
            tracing::warn!("news of providers and models could not be fetched: {e}");
        }
    }

    /// The configuration in force and what is stored, of one moment.
    pub fn in_force(&self) -> (Arc<Config>, Arc<Stored>) {
        let stored = self.stored.stored();
        (self.engine.config(), Arc::clone(&stored))
    }

    /// Makes sure that nothing newer is stored than what this node serves by.
    pub async fn fresh_places(&self) -> Result<(), StoreError> {
        let revision = self.store.configured_revision().await?;
        if self.stored.stored().revision != revision {
            self.read_places().await?;
        }
        Ok(())
    }

    /// Reads what is stored and serves by it.
    pub async fn read_places(&self) -> Result<(), StoreError> {
        let read = Stored::read(self.store.configured().await?, &self.vault);
        let before = self.engine.config();
        {
            let mut stored = self.stored.stored();
            // Somebody else may have read a later state in the meantime.
            if read.revision < stored.revision {
                return Ok(());
            }
            *stored = Arc::new(read);
        }
        self.put_in_force(|old, stored| {
            let mut config = Config::clone(old);
            match config.lay(stored) {
                Ok(()) => Some(config),
                Err(why) => {
                    tracing::error!("what is stored cannot be laid over the file: {why}");
                    None
                }
            }
        });
        self.tell_places(Some(&before.troubles)).await
    }

    /// Puts a configuration in force that is made of the one before and of what is stored; how its
    /// lanes stand is not forgotten.
    fn put_in_force(&self, make: impl FnOnce(&Config, &Stored) -> Option<Config>) {
        // Of two that change it at once, each starts from what the other left.
        let stored = self.stored.stored();
        let old = self.engine.config();
        if let Some(mut config) = make(&old, &stored) {
            config.inherit(&old);
            self.engine.set_config(config);
        }
    }

    /// Puts a configuration that was read anew in force, with what is stored laid over it.
    pub fn replace_config(&self, mut config: Config) {
        self.put_in_force(|_, stored| match config.lay(stored) {
            Ok(()) => Some(config),
            Err(why) => {
                tracing::error!("the new configuration is refused, the last good one stays: {why}");
                None
            }
        });
    }

    /// Makes a change, unless something was changed since that state. Served from here on.
    pub async fn change_places(
        &self,
        seen: &Stored,
        changes: &[ConfigChange],
    ) -> Result<bool, StoreError> {
        let made = self.store.configure(seen.revision, changes).await?;
        self.read_places().await?;
        Ok(made)
    }

    /// Everything that is stored and cannot be used: what, and why.
    pub fn troubles(&self) -> Vec<serde_json::Value> {
        let (config, stored) = self.in_force();
        let tell = |what: String, why: &str| serde_json::json!({ "what": what, "why": why });
        let entries = config.troubles.iter().map(|(entry, why)| tell(entry.to_string(), why));
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
    pub async fn tell_places(&self, told: Option<&Troubles>) -> Result<(), StoreError> {
        let config = self.engine.config();
        for (entry, why) in &config.troubles {
            if told.is_none_or(|told| told.get(entry) != Some(why)) {
                tracing::warn!(entry = %entry, "stored `{entry}` is left out: {why}");
            }
        }
        let stored = Arc::clone(&self.stored.stored());
        for (name, provider) in &stored.providers {
            let entry = Entry::Provider(name.clone());
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
            if sealed > 0 || self.engine.funds.teller.live_nodes() > 1 {
                tracing::warn!(sealed, "{why}; until then no secret is sealed");
            }
        }
        Ok(())
    }
}
