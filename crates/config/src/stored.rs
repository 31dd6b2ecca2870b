//! What administrators configured while the gateway ran: providers and models out of the store, in
//! the types of the file, with their credentials opened.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use store::{ConfigEntryKind, ConfigSnapshot, Vault};

use crate::raw::{RawAuth, RawModel, RawProvider};

/// The fields that say where a provider is: a credential is for there and for nowhere else.
const ADDRESS_FIELDS: [&str; 5] = ["like", "base", "hosts", "fill", "paths"];

/// Everything that is stored.
#[derive(Clone, Debug, Default)]
pub struct StoredEntries {
    /// The number of this state.
    pub revision: i64,
    pub providers: BTreeMap<String, StoredProvider>,
    pub models: BTreeMap<String, StoredModel>,
}

/// A field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub reason: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.reason);
        }
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// A stored provider.
#[derive(Clone, Debug)]
pub struct StoredProvider {
    /// As it was said.
    pub settings: Map<String, Value>,
    pub raw: Result<RawProvider, FieldError>,
    pub created_at: i64,
    pub credentials: Vec<StoredAuth>,
}

/// A credential of a stored provider.
#[derive(Clone, Debug)]
pub struct StoredAuth {
    pub id: String,
    pub name: String,
    pub added_at: i64,
    /// As the file would have it, or why it cannot be used.
    pub auth: Result<RawAuth, String>,
}

/// A stored model.
#[derive(Clone, Debug)]
pub struct StoredModel {
    /// As it was said.
    pub settings: Map<String, Value>,
    pub raw: Result<RawModel, FieldError>,
    pub created_at: i64,
}

impl StoredProvider {
    pub fn new(settings: Map<String, Value>, created: i64) -> Self {
        let raw = parse_settings(&settings);
        Self { settings, raw, created_at: created, credentials: Vec::new() }
    }

    /// The credentials that can be used, in the order of their places.
    pub fn usable_credentials(&self) -> impl Iterator<Item = &RawAuth> {
        self.credentials.iter().filter_map(|own| own.auth.as_ref().ok())
    }

    /// Whether it may be elsewhere than where the directory knows it.
    pub(super) fn has_own_address(&self) -> bool {
        ADDRESS_FIELDS.iter().any(|field| self.settings.contains_key(*field))
    }

    /// What says where it is, as one text.
    pub fn address_key(&self) -> String {
        let said =
            ADDRESS_FIELDS.iter().filter_map(|field| Some((*field, self.settings.get(*field)?)));
        let said: BTreeMap<&str, &Value> = said.collect();
        serde_json::to_string(&said).unwrap_or_default()
    }
}

impl StoredModel {
    pub fn new(settings: Map<String, Value>, created: i64) -> Self {
        let raw = parse_settings(&settings);
        Self { settings, raw, created_at: created }
    }
}

/// Settings in the type of the file.
fn parse_settings<T: DeserializeOwned>(settings: &Map<String, Value>) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(Value::Object(settings.clone())).map_err(|wrong| {
        let path = wrong.path().to_string();
        let field = if path == "." { String::new() } else { path };
        FieldError { field, reason: wrong.into_inner().to_string() }
    })
}

impl StoredEntries {
    /// Reads what the store has, and opens what is sealed.
    pub fn open(all: ConfigSnapshot, vault: &Vault) -> Self {
        let ConfigSnapshot { revision, entries, credentials } = all;
        let mut stored = Self { revision, ..Self::default() };
        for entry in entries {
            // Only we write it; were it no object, it would be told by the fields it lacks.
            let settings = serde_json::from_str(&entry.settings).unwrap_or_default();
            match entry.kind {
                ConfigEntryKind::Provider => {
                    let provider = StoredProvider::new(settings, entry.created);
                    stored.providers.insert(entry.id, provider);
                }
                ConfigEntryKind::Model => {
                    let model = StoredModel::new(settings, entry.created);
                    stored.models.insert(entry.id, model);
                }
            }
        }
        for credential in credentials {
            let Some(provider) = stored.providers.get_mut(&credential.provider_id) else {
                continue;
            };
            let auth = if credential.place == provider.address_key() {
                let open = vault.open(&credential.label(), &credential.sealed);
                open.map_err(|why| why.to_string()).and_then(|json| {
                    let read = serde_json::from_slice(&json);
                    // What it says could repeat the secret.
                    read.map_err(|_| "it is not one of ours".to_owned())
                })
            } else {
                Err("it was given for another address".to_owned())
            };
            provider.credentials.push(StoredAuth {
                id: credential.id,
                name: credential.name,
                added_at: credential.created,
                auth,
            });
        }
        stored
    }
}
