//! Providers and models that administrators configured while the gateway ran, and the sealed
//! credentials of such providers. What the settings say is not this crate's to understand.
//!
//! Every change moves one number on and is made only by who has seen the one before, so that what was
//! checked as a whole is stored as that whole.

use ledger::Micros;
use sqlx::FromRow;

use crate::db::{clean, in_snapshot, in_transaction, on_reader, unknown_word};
use crate::vault::Sealed;
use crate::{Store, StoreError};

/// What can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfiguredKind {
    /// A place that serves models.
    Provider,
    /// A model.
    Model,
}

impl ConfiguredKind {
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
pub struct Configured {
    /// What it is.
    pub kind: ConfiguredKind,
    /// Its name.
    pub id: String,
    /// What was said of it, as JSON.
    pub settings: String,
    /// When it was made.
    pub created: Micros,
    /// When it was last changed.
    pub changed: Micros,
}

/// What proves us to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCredential {
    /// Its id.
    pub id: String,
    /// The provider.
    pub provider_id: String,
    /// What people call it.
    pub name: String,
    /// Where the provider was when it was given.
    pub place: String,
    /// The secret.
    pub sealed: Sealed,
    /// When it was given.
    pub created: Micros,
}

impl StoredCredential {
    /// What its secret is bound to.
    pub fn label(&self) -> String {
        label(&self.id, &self.provider_id, &self.place)
    }
}

/// What the secret of a credential is bound to: its row, its provider, and where that is.
pub(crate) fn label(id: &str, provider_id: &str, place: &str) -> String {
    format!("credentials\0{id}\0{provider_id}\0{place}")
}

/// Everything that is configured, as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllConfigured {
    /// The number of that moment.
    pub revision: i64,
    /// Providers and models, by kind and name.
    pub entries: Vec<Configured>,
    /// The credentials of providers, the oldest first.
    pub credentials: Vec<StoredCredential>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a provider or a model, or puts it in the place of the one of that name.
    Put(Configured),
    /// Removes one; a provider goes with its credentials.
    Drop(ConfiguredKind, String),
    /// Adds a credential.
    Give(StoredCredential),
    /// Removes the credential with that id.
    Take(String),
    /// Removes all credentials of a provider.
    TakeAll(String),
}

#[derive(FromRow)]
struct EntryRow {
    kind: String,
    id: String,
    settings: String,
    created: Micros,
    changed: Micros,
}

impl TryFrom<EntryRow> for Configured {
    type Error = sqlx::Error;

    fn try_from(row: EntryRow) -> Result<Self, sqlx::Error> {
        let EntryRow { kind, id, settings, created, changed } = row;
        let known = ConfiguredKind::ALL.into_iter().find(|known| known.word() == kind);
        let kind = known.ok_or_else(|| unknown_word(&kind))?;
        Ok(Self { kind, id, settings, created, changed })
    }
}

#[derive(FromRow)]
struct CredentialRow {
    id: String,
    provider_id: String,
    name: String,
    place: String,
    sealed: Vec<u8>,
    sealed_by: String,
    created: Micros,
}

impl From<CredentialRow> for StoredCredential {
    fn from(row: CredentialRow) -> Self {
        let CredentialRow { id, provider_id, name, place, sealed, sealed_by, created } = row;
        let sealed = Sealed { by: sealed_by, bytes: sealed };
        Self { id, provider_id, name, place, sealed, created }
    }
}

const REVISION: &str = "SELECT number FROM revisions WHERE name = 'places'";
const MOVE_ON: &str =
    "UPDATE revisions SET number = number + 1 WHERE name = 'places' AND number = $1";
const ENTRIES: &str =
    "SELECT kind, id, settings, created, changed FROM configured ORDER BY kind, id";
const CREDENTIALS: &str = "SELECT id, provider_id, name, place, sealed, sealed_by, created \
    FROM credentials ORDER BY created, id";
const PUT: &str = "INSERT INTO configured (kind, id, settings, created, changed) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kind, id) DO UPDATE \
    SET settings = excluded.settings, changed = excluded.changed";
const DROP: &str = "DELETE FROM configured WHERE kind = $1 AND id = $2";
const GIVE: &str = "INSERT INTO credentials \
    (id, provider_id, name, place, sealed, sealed_by, created) VALUES ($1, $2, $3, $4, $5, $6, $7)";
const TAKE: &str = "DELETE FROM credentials WHERE id = $1";
const TAKE_ALL: &str = "DELETE FROM credentials WHERE provider_id = $1";

impl Store {
    /// The number that every change of what is configured moves on.
    pub async fn configured_revision(&self) -> Result<i64, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_scalar(REVISION).fetch_one(pool).await?))
    }

    /// Everything that is configured.
    pub async fn configured(&self) -> Result<AllConfigured, StoreError> {
        let (revision, entries, credentials): (i64, Vec<EntryRow>, Vec<CredentialRow>) = in_snapshot!(
            &self.db, tx: Kind => (
                sqlx::query_scalar(REVISION).fetch_one(&mut *tx).await?,
                sqlx::query_as(ENTRIES).fetch_all(&mut *tx).await?,
                sqlx::query_as(CREDENTIALS).fetch_all(&mut *tx).await?,
            )
        );
        let entries = entries.into_iter().map(Configured::try_from).collect::<Result<_, _>>()?;
        let credentials = credentials.into_iter().map(StoredCredential::from).collect();
        Ok(AllConfigured { revision, entries, credentials })
    }

    /// Makes changes, all or none, if nothing was changed since that number was seen. False when
    /// something was.
    pub async fn configure(&self, seen: i64, changes: &[Change]) -> Result<bool, StoreError> {
        Ok(in_transaction!(&self.db, tx: Kind => {
            let moved = sqlx::query(MOVE_ON).bind(seen).execute(&mut *tx).await?.rows_affected();
            if moved == 0 {
                return Ok(false);
            }
            for change in changes {
                let query = match change {
                    Change::Put(Configured { kind, id, settings, created, changed }) => {
                        sqlx::query(PUT)
                            .bind(kind.word())
                            .bind(clean(id))
                            .bind(clean(settings))
                            .bind(created)
                            .bind(changed)
                    }
                    Change::Drop(kind, id) => {
                        if *kind == ConfiguredKind::Provider {
                            sqlx::query(TAKE_ALL).bind(clean(id)).execute(&mut *tx).await?;
                        }
                        sqlx::query(DROP).bind(kind.word()).bind(clean(id))
                    }
                    Change::Give(given) => sqlx::query(GIVE)
                        .bind(clean(&given.id))
                        .bind(clean(&given.provider_id))
                        .bind(clean(&given.name))
                        .bind(clean(&given.place))
                        .bind(&given.sealed.bytes)
                        .bind(clean(&given.sealed.by))
                        .bind(given.created),
                    Change::Take(id) => sqlx::query(TAKE).bind(clean(id)),
                    Change::TakeAll(provider) => sqlx::query(TAKE_ALL).bind(clean(provider)),
                };
                query.execute(&mut *tx).await.map_err(StoreError::naming("credential", "provider"))?;
            }
            true
        }))
    }
}
