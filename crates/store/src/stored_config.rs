//! Providers and models that administrators configured at run time, and the sealed credentials of
//! these providers, and the bundle laid over the model directory. The settings are opaque here.
//!
//! Every change increases a revision number and succeeds only with the current one, so that the
//! configuration that was validated as a whole is stored as a whole.

use crate::audited_change::in_change;
use crate::db::{clean, in_snapshot, on_reader, unknown_word};
use crate::row::row;
use crate::settings::{GET as GET_SETTING, PUT as PUT_SETTING};
use crate::vault::SealedSecret;
use crate::{AuditedChange, Store, StoreError};
use canon::Micros;

/// The kinds of configured objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfigEntryKind {
    /// A provider.
    Provider,
    /// A model.
    Model,
}

impl ConfigEntryKind {
    const ALL: [Self; 2] = [Self::Provider, Self::Model];

    /// The word in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Model => "model",
        }
    }
}

/// A provider or a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The kind.
    pub kind: ConfigEntryKind,
    /// Its name.
    pub id: String,
    /// Its settings as JSON.
    pub settings: String,
    /// Time of creation.
    pub created: Micros,
    /// Time of the last change.
    pub changed: Micros,
}

/// A credential for a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCredential {
    /// Its id.
    pub id: String,
    /// The provider.
    pub provider_id: String,
    /// Name given by the administrator.
    pub name: String,
    /// Address of the provider when the credential was entered.
    pub place: String,
    /// The secret.
    pub sealed: SealedSecret,
    /// Time of creation.
    pub created: Micros,
}

impl StoredCredential {
    /// Returns the label its secret is bound to.
    pub fn label(&self) -> String {
        label(&self.id, &self.provider_id, &self.place)
    }
}

/// Returns the label of a credential's secret, which names its row, its provider and the provider's
/// address.
pub(crate) fn label(id: &str, provider_id: &str, place: &str) -> String {
    format!("credentials\0{id}\0{provider_id}\0{place}")
}

/// The stored configuration at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSnapshot {
    /// Its revision number.
    pub revision: i64,
    /// Providers and models, by kind and name.
    pub entries: Vec<ConfigEntry>,
    /// Credentials, the oldest first.
    pub credentials: Vec<StoredCredential>,
    /// Bundle over the model directory.
    pub directory: Option<String>,
    /// Largest version of a bundle that was ever installed.
    pub directory_mark: Option<u64>,
}

/// A change of the stored configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Creates or replaces a provider or a model.
    Put(ConfigEntry),
    /// Removes a provider, with its credentials, or a model.
    Drop(ConfigEntryKind, String),
    /// Adds a credential.
    Give(StoredCredential),
    /// Removes the credential with that id.
    Take(String),
    /// Removes all credentials of a provider.
    TakeAll(String),
    /// Replaces or removes the bundle over the model directory.
    Directory(Option<String>),
    /// Keeps the largest version of a bundle that was ever installed.
    DirectoryMark(u64),
}

row! {
    struct ConfiguredRow {
        kind: String,
        id: String,
        settings: String,
        created: Micros,
        changed: Micros,
    }
}

impl TryFrom<ConfiguredRow> for ConfigEntry {
    type Error = sqlx::Error;

    fn try_from(row: ConfiguredRow) -> Result<Self, sqlx::Error> {
        let ConfiguredRow { kind, id, settings, created, changed } = row;
        let known = ConfigEntryKind::ALL.into_iter().find(|known| known.word() == kind);
        let kind = known.ok_or_else(|| unknown_word(&kind))?;
        Ok(Self { kind, id, settings, created, changed })
    }
}

row! {
    struct CredentialRow {
        id: String,
        provider_id: String,
        name: String,
        place: String,
        sealed: Vec<u8>,
        sealed_by: String,
        created: Micros,
    }
}

impl From<CredentialRow> for StoredCredential {
    fn from(row: CredentialRow) -> Self {
        let CredentialRow { id, provider_id, name, place, sealed, sealed_by, created } = row;
        let sealed = SealedSecret { by: sealed_by, bytes: sealed };
        Self { id, provider_id, name, place, sealed, created }
    }
}

const REVISION: &str = "SELECT number FROM revisions WHERE name = 'places'";
const NEXT_REVISION: &str =
    "UPDATE revisions SET number = number + 1 WHERE name = 'places' AND number = $1";
const ENTRIES: &str =
    "SELECT kind, id, settings, created, changed FROM configured ORDER BY kind, id";
const CREDENTIALS: &str = "SELECT id, provider_id, name, place, sealed, sealed_by, created \
    FROM credentials ORDER BY created, id";
const PUT: &str = "INSERT INTO configured (kind, id, settings, created, changed) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kind, id) DO UPDATE \
    SET settings = excluded.settings, changed = excluded.changed";
const DROP: &str = "DELETE FROM configured WHERE kind = $1 AND id = $2";
const ADD_CREDENTIAL: &str = "INSERT INTO credentials \
    (id, provider_id, name, place, sealed, sealed_by, created) VALUES ($1, $2, $3, $4, $5, $6, $7)";
const DROP_CREDENTIAL: &str = "DELETE FROM credentials WHERE id = $1";
/// Setting with the bundle. Earlier versions of the program ignore it.
const DIRECTORY_SETTING: &str = "directory_bundle";
/// Setting with the largest version of a bundle. It stays when the bundle is removed.
const MARK_SETTING: &str = "directory_mark";
const DROP_SETTING: &str = "DELETE FROM settings WHERE name = $1";
const DROP_CREDENTIALS: &str = "DELETE FROM credentials WHERE provider_id = $1";

impl Store {
    /// Returns the revision number of the stored configuration.
    pub async fn configured_revision(&self) -> Result<i64, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_scalar(REVISION).fetch_one(pool).await?))
    }

    /// Returns the stored configuration.
    pub async fn configured(&self) -> Result<ConfigSnapshot, StoreError> {
        type Rows = (i64, Vec<ConfiguredRow>, Vec<CredentialRow>, Option<String>, Option<String>);
        let (revision, entries, credentials, directory, mark): Rows = in_snapshot!(
            &self.db, tx: Kind => (
                sqlx::query_scalar(REVISION).fetch_one(&mut *tx).await?,
                sqlx::query_as(ENTRIES).fetch_all(&mut *tx).await?,
                sqlx::query_as(CREDENTIALS).fetch_all(&mut *tx).await?,
                sqlx::query_scalar(GET_SETTING)
                    .bind(DIRECTORY_SETTING)
                    .fetch_optional(&mut *tx)
                    .await?,
                sqlx::query_scalar(GET_SETTING)
                    .bind(MARK_SETTING)
                    .fetch_optional(&mut *tx)
                    .await?,
            )
        );
        let entries = entries.into_iter().map(ConfigEntry::try_from).collect::<Result<_, _>>()?;
        let credentials = credentials.into_iter().map(StoredCredential::from).collect();
        let directory_mark = mark.and_then(|mark| mark.parse().ok());
        Ok(ConfigSnapshot { revision, entries, credentials, directory, directory_mark })
    }
}

impl AuditedChange {
    /// Makes all changes in one transaction if the revision is still `seen`. Returns false if it is
    /// not.
    pub async fn configure(
        &mut self,
        seen: i64,
        changes: &[ConfigChange],
    ) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            let moved = sqlx::query(NEXT_REVISION).bind(seen).execute(&mut *tx).await?.rows_affected();
            if moved == 0 {
                return Ok(false);
            }
            for change in changes {
                let query = match change {
                    ConfigChange::Put(ConfigEntry { kind, id, settings, created, changed }) => {
                        sqlx::query(PUT)
                            .bind(kind.word())
                            .bind(clean(id))
                            .bind(clean(settings))
                            .bind(created.get())
                            .bind(changed.get())
                    }
                    ConfigChange::Drop(kind, id) => {
                        if *kind == ConfigEntryKind::Provider {
                            sqlx::query(DROP_CREDENTIALS).bind(clean(id)).execute(&mut *tx).await?;
                        }
                        sqlx::query(DROP).bind(kind.word()).bind(clean(id))
                    }
                    ConfigChange::Give(given) => sqlx::query(ADD_CREDENTIAL)
                        .bind(clean(&given.id))
                        .bind(clean(&given.provider_id))
                        .bind(clean(&given.name))
                        .bind(clean(&given.place))
                        .bind(&given.sealed.bytes)
                        .bind(clean(&given.sealed.by))
                        .bind(given.created.get()),
                    ConfigChange::Take(id) => sqlx::query(DROP_CREDENTIAL).bind(clean(id)),
                    ConfigChange::TakeAll(provider) => sqlx::query(DROP_CREDENTIALS).bind(clean(provider)),
                    ConfigChange::Directory(Some(bundle)) => {
                        sqlx::query(PUT_SETTING).bind(DIRECTORY_SETTING).bind(clean(bundle))
                    }
                    ConfigChange::DirectoryMark(version) => {
                        sqlx::query(PUT_SETTING).bind(MARK_SETTING).bind(version.to_string())
                    }
                    ConfigChange::Directory(None) => sqlx::query(DROP_SETTING).bind(DIRECTORY_SETTING),
                };
                query.execute(&mut *tx).await.map_err(StoreError::naming("credential", "provider"))?;
            }
            true
        }))
    }
}
