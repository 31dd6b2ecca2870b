//! Providers, models and credentials that administrators change while the gateway runs: what is
//! stored, how a change is made, and how every node hears of it.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use store::{Change, StoreError};
use tokio::sync::Mutex as Turn;

use crate::app::App;
use crate::config::{Config, Entry, Stored, Troubles};

/// What is stored, as this node last read it.
pub(crate) struct Places {
    /// Held while a configuration is made of it, so that no two are made of the same one before.
    stored: Mutex<Arc<Stored>>,
    /// One change at a time; other nodes are held off by the number of the state.
    pub(crate) turn: Turn<()>,
}

impl Places {
    pub(crate) fn new(stored: Stored) -> Self {
        Self { stored: Mutex::new(Arc::new(stored)), turn: Turn::default() }
    }

    /// What is stored. While it is held, nobody else puts a configuration in force.
    pub(crate) fn stored(&self) -> MutexGuard<'_, Arc<Stored>> {
        self.stored.lock()
    }

    /// Has it read anew at the next opportunity.
    pub(crate) fn forget(&self) {
        let mut stored = self.stored.lock();
        *stored = Arc::new(Stored { revision: -1, ..Stored::clone(&stored) });
    }
}

impl App {
    /// Reads what is stored, if it changed.
    pub(crate) async fn hear_of_places(&self) {
        if let Err(e) = self.fresh_places().await {
            tracing::warn!("news of providers and models could not be fetched: {e}");
        }
    }

    /// The configuration in force and what is stored, of one moment.
    pub(crate) fn in_force(&self) -> (Arc<Config>, Arc<Stored>) {
        let stored = self.places.stored();
        (self.config(), Arc::clone(&stored))
    }

    /// Makes sure that nothing newer is stored than what this node serves by.
    pub(crate) async fn fresh_places(&self) -> Result<(), StoreError> {
        let revision = self.store.configured_revision().await?;
        if self.places.stored().revision != revision {
            self.read_places().await?;
        }
        Ok(())
    }

    /// Reads what is stored and serves by it.
    pub(crate) async fn read_places(&self) -> Result<(), StoreError> {
        let read = Stored::read(self.store.configured().await?, &self.vault);
        let before = self.config();
        {
            let mut stored = self.places.stored();
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

    /// Makes a change, unless something was changed since that state. Served from here on.
    pub(crate) async fn change_places(
        &self,
        seen: &Stored,
        changes: &[Change],
    ) -> Result<bool, StoreError> {
        let made = self.store.configure(seen.revision, changes).await?;
        self.read_places().await?;
        Ok(made)
    }

    /// Everything that is stored and cannot be used: what, and why.
    pub(crate) fn troubles(&self) -> Vec<serde_json::Value> {
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
    pub(crate) async fn tell_places(&self, told: Option<&Troubles>) -> Result<(), StoreError> {
        let config = self.config();
        for (entry, why) in &config.troubles {
            if told.is_none_or(|told| told.get(entry) != Some(why)) {
                tracing::warn!(entry = %entry, "stored `{entry}` is left out: {why}");
            }
        }
        let stored = Arc::clone(&self.places.stored());
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
            && let Some(why) = self.vault.shut()
        {
            let sealed = self.store.sealed().await?.values().sum::<i64>();
            if sealed > 0 || self.teller.nodes() > 1 {
                tracing::warn!(sealed, "{why}; until then no secret is sealed");
            }
        }
        Ok(())
    }
}
