//! Names of keys and accounts, read by their ids.

use std::collections::HashMap;

use store::{GroupBy, Store, StoreError};

/// Names of groups whose ids are not readable.
#[derive(Default)]
pub(super) struct GroupNames {
    keys: HashMap<String, String>,
    accounts: HashMap<String, String>,
}

impl GroupNames {
    /// Adds the names of these groups.
    pub(super) async fn add(
        &mut self,
        store: &Store,
        by: GroupBy,
        ids: &[String],
    ) -> Result<(), StoreError> {
        for id in ids {
            match by {
                GroupBy::Key => self.add_key(store, id).await?,
                GroupBy::Account if !self.accounts.contains_key(id) => {
                    if let Some(owner) = store.owner(id).await? {
                        self.accounts.insert(id.to_owned(), owner.name().to_owned());
                    }
                }
                GroupBy::Account
                | GroupBy::Model
                | GroupBy::Provider
                | GroupBy::Lane
                | GroupBy::Status
                | GroupBy::Error
                | GroupBy::Format
                | GroupBy::Session
                | GroupBy::EndUser
                | GroupBy::Tag => {}
            }
        }
        Ok(())
    }

    /// Adds the name of a key.
    pub(super) async fn add_key(&mut self, store: &Store, id: &str) -> Result<(), StoreError> {
        if !self.keys.contains_key(id)
            && let Some(key) = store.key(id).await?
        {
            self.keys.insert(key.id, key.name);
        }
        Ok(())
    }

    /// The name of a key; empty if there is no such key.
    pub(super) fn key(&self, id: &str) -> &str {
        self.keys.get(id).map_or("", String::as_str)
    }

    /// The name of a group.
    pub(super) fn name_of(&self, by: GroupBy, id: &str) -> String {
        let found = match by {
            GroupBy::Key => self.keys.get(id),
            GroupBy::Account => self.accounts.get(id),
            GroupBy::Model
            | GroupBy::Provider
            | GroupBy::Lane
            | GroupBy::Status
            | GroupBy::Error
            | GroupBy::Format
            | GroupBy::Session
            | GroupBy::EndUser
            | GroupBy::Tag => None,
        };
        match found {
            Some(name) => name.clone(),
            None if id.is_empty() => "none".to_owned(),
            None => id.to_owned(),
        }
    }
}
