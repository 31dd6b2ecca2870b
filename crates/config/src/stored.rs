//! Stored providers and models in the types of the file, with decrypted credentials.

use canon::Micros;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use store::{ConfigEntryKind, ConfigSnapshot, Vault, VaultError};

use crate::error::FieldError;
use crate::raw::{RawAuth, RawModel, RawProvider};
use crate::stored_directory::InstalledDirectory;

/// Fields that determine the address. A credential is valid only for the address it was stored for.
const ADDRESS_FIELDS: [&str; 5] = ["like", "base", "hosts", "fill", "paths"];

/// All stored providers and models.
#[derive(Clone, Debug, Default)]
pub struct StoredEntries {
    /// Revision of the store that this was read from.
    pub revision: i64,
    /// Providers by name.
    pub providers: BTreeMap<String, StoredProvider>,
    /// Models by id.
    pub models: BTreeMap<String, StoredModel>,
    /// Bundle over the model directory.
    pub directory: Option<InstalledDirectory>,
    /// Largest version of a bundle that was ever installed.
    pub directory_mark: Option<u64>,
}

/// A stored provider.
#[derive(Clone, Debug)]
pub struct StoredProvider {
    /// Settings as the administrator sent them.
    pub settings: Map<String, Value>,
    /// Parsed settings.
    pub raw: Result<RawProvider, FieldError>,
    /// Creation time.
    pub created_at: Micros,
    /// Credentials in their stored order.
    pub credentials: Vec<StoredAuth>,
}

/// A credential of a stored provider.
#[derive(Clone, Debug)]
pub struct StoredAuth {
    /// Id of the credential.
    pub id: String,
    /// Name the administrator gave it.
    pub name: String,
    /// Creation time.
    pub added_at: Micros,
    /// Credential in the form of the file, or the reason why it cannot be used.
    pub auth: Result<RawAuth, CredentialIssue>,
}

/// Reason why a stored credential cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialIssue {
    /// The vault cannot open it.
    #[error(transparent)]
    Sealed(#[from] VaultError),
    /// The opened text is not a credential.
    #[error("it cannot be decoded")]
    Undecodable,
    /// The provider has moved since it was stored.
    #[error("it was given for another address")]
    OtherAddress,
}

impl Serialize for CredentialIssue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A stored model.
#[derive(Clone, Debug)]
pub struct StoredModel {
    /// Settings as the administrator sent them.
    pub settings: Map<String, Value>,
    /// Parsed settings.
    pub raw: Result<RawModel, FieldError>,
    /// Creation time.
    pub created_at: Micros,
}

impl StoredProvider {
    /// Parses the settings of a provider, which has no credentials yet.
    pub fn new(settings: Map<String, Value>, created_at: Micros) -> Self {
        let raw = parse_settings(&settings);
        Self { settings, raw, created_at, credentials: Vec::new() }
    }

    /// Returns the usable credentials in their stored order.
    pub fn usable_credentials(&self) -> impl Iterator<Item = &RawAuth> {
        self.credentials.iter().filter_map(|own| own.auth.as_ref().ok())
    }

    /// Returns true if the settings may move the provider away from its address in the directory.
    pub(super) fn has_own_address(&self) -> bool {
        ADDRESS_FIELDS.iter().any(|field| self.settings.contains_key(*field))
    }

    /// Returns the address fields as one text, to compare addresses.
    pub fn address_key(&self) -> String {
        let address =
            ADDRESS_FIELDS.iter().filter_map(|field| Some((*field, self.settings.get(*field)?)));
        let address: BTreeMap<&str, &Value> = address.collect();
        serde_json::to_string(&address).unwrap_or_default()
    }
}

impl StoredModel {
    /// Parses the settings of a model.
    pub fn new(settings: Map<String, Value>, created_at: Micros) -> Self {
        let raw = parse_settings(&settings);
        Self { settings, raw, created_at }
    }
}

/// Parses settings into a type of the file.
fn parse_settings<T: DeserializeOwned>(settings: &Map<String, Value>) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(Value::Object(settings.clone())).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { String::new() } else { path };
        FieldError { field, reason: error.into_inner().to_string() }
    })
}

impl StoredEntries {
    /// Parses a snapshot of the store and decrypts its credentials.
    pub fn open(all: ConfigSnapshot, vault: &Vault) -> Self {
        let ConfigSnapshot { revision, entries, credentials, directory, directory_mark } = all;
        let directory = directory.map(|record| InstalledDirectory::open(&record));
        let mut stored = Self { revision, directory, directory_mark, ..Self::default() };
        for entry in entries {
            // The gateway wrote this text. Should it be no object, the missing fields are reported.
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
                open.map_err(CredentialIssue::from).and_then(|json| {
                    let read = serde_json::from_slice(&json);
                    // The error of serde could repeat the secret.
                    read.map_err(|_| CredentialIssue::Undecodable)
                })
            } else {
                Err(CredentialIssue::OtherAddress)
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
