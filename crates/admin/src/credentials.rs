//! Credentials of stored providers: add and delete. A credential is sealed on arrival and never
//! shown again.

use canon::Micros;
use config::{EntryName, RawAuth, StoredAuth, StoredEntries, auth_from_json, auth_from_secret};
use serde::Serialize;
use serde_json::Value;
use store::{ConfigChange, SealedSecret, SecretSealer, StoredCredential, VaultError};

use crate::Admin;
use crate::actor::Actor;
use crate::config_edit::{ConfigEdit, field_error};
use crate::error::AdminError;
use crate::names;
use crate::provider_view::{ProviderView, require_changeable};
use crate::time_text::serialize_time;
use crate::version::ReadVersion;

/// Maximum number of credentials of one provider.
const MAX_CREDENTIALS: usize = 100;
/// Maximum length of a credential's name.
const MAX_NAME_BYTES: usize = 200;

/// A credential to be added. It has no `Debug`, so it cannot be logged.
pub struct CredentialDraft {
    /// Name, to tell several apart.
    pub name: String,
    /// The secret.
    pub secret: CredentialSecret,
}

/// The secret of a credential. It has no `Debug`, so it cannot be logged.
pub enum CredentialSecret {
    /// A secret for the provider's usual method of authentication.
    Value(Value),
    /// A method of authentication with its secrets, as in the configuration file.
    Auth(Value),
}

/// A credential that was added, without its secret.
#[derive(Clone, Debug, Serialize)]
pub struct AddedCredential {
    /// Id of the credential.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Time it was added.
    #[serde(serialize_with = "serialize_time")]
    pub added: Micros,
}

/// A credential that was deleted.
#[derive(Clone, Debug, Serialize)]
pub struct DeletedCredential {
    /// Id of the credential.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Always true.
    pub deleted: bool,
}

impl CredentialDraft {
    fn check_name(&self) -> Result<&str, AdminError> {
        let name = self.name.trim();
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(AdminError::invalid("name", "must have 1 to 200 bytes on one line"));
        }
        names::require_visible("name", name)?;
        Ok(name)
    }

    fn to_auth(&self, provider: &str, like: Option<&str>) -> Result<RawAuth, AdminError> {
        let read = match &self.secret {
            CredentialSecret::Value(value) => auth_from_secret(provider, like, value),
            CredentialSecret::Auth(auth) => auth_from_json(auth),
        };
        read.map_err(|wrong| field_error(&wrong))
    }
}

/// Refuses a list of drafts that is too long or has a wrong name.
pub(crate) fn check_drafts(drafts: &[CredentialDraft]) -> Result<(), AdminError> {
    if drafts.len() > MAX_CREDENTIALS {
        return Err(AdminError::invalid(
            "credentials",
            format!("must be at most {MAX_CREDENTIALS}"),
        ));
    }
    drafts.iter().try_for_each(|draft| draft.check_name().map(|_| ()))
}

/// Sealed credentials ready to be stored. The sealer is held until they are stored, so that no
/// re-keying happens in between.
pub(crate) struct SealedCredentials<'a> {
    pub(crate) rows: Vec<StoredCredential>,
    pub(crate) auths: Vec<StoredAuth>,
    _sealer: Option<SecretSealer<'a>>,
}

impl Admin {
    /// Seals credentials for a provider. `address_key` is the address the secrets may be sent to.
    pub(crate) async fn seal_credentials(
        &self,
        (provider, like): (&str, Option<&str>),
        address_key: &str,
        drafts: &[CredentialDraft],
    ) -> Result<SealedCredentials<'_>, AdminError> {
        let mut sealed = SealedCredentials { rows: Vec::new(), auths: Vec::new(), _sealer: None };
        if drafts.is_empty() {
            return Ok(sealed);
        }
        let read = drafts.iter().map(|draft| draft.to_auth(provider, like));
        let auths: Vec<RawAuth> = read.collect::<Result<_, _>>()?;
        let unavailable = |why: VaultError| AdminError::invalid("", why.to_string());
        let sealer = self.vault.sealer().await.map_err(unavailable)?;
        for (draft, auth) in drafts.iter().zip(auths) {
            let mut row = StoredCredential {
                id: uuid::Uuid::now_v7().to_string(),
                provider_id: provider.to_owned(),
                name: draft.check_name()?.to_owned(),
                place: address_key.to_owned(),
                sealed: SealedSecret { by: String::new(), bytes: Vec::new() },
                created: self.accounts.now(),
            };
            let text =
                serde_json::to_vec(&auth.0).map_err(|e| AdminError::Internal(e.to_string()))?;
            row.sealed = sealer.seal(&row.label(), &text).map_err(unavailable)?;
            sealed.auths.push(StoredAuth {
                id: row.id.clone(),
                name: row.name.clone(),
                added_at: row.created,
                auth: Ok(auth),
            });
            sealed.rows.push(row);
        }
        sealed._sealer = Some(sealer);
        Ok(sealed)
    }

    /// Adds a credential to a stored provider.
    pub async fn add_credential(
        &self,
        actor: &Actor,
        name: &str,
        read: ReadVersion<'_>,
        draft: CredentialDraft,
    ) -> Result<AddedCredential, AdminError> {
        actor.require_admin()?;
        let edit = ConfigEdit::begin(self).await?;
        require_changeable(&edit.config, name)?;
        let Some(provider) = edit.stored.providers.get(name) else {
            let known = edit.config.providers.iter().any(|live| live.name == name)
                || catalog::ModelDirectory::embedded().provider(name).is_some();
            return Err(match known {
                true => AdminError::invalid(
                    "",
                    format!("`{name}` is not stored; PUT /api/admin/providers/{name} first"),
                ),
                false => AdminError::NotFound("provider"),
            });
        };
        read.check(&ProviderView::find(&edit.config, &edit.stored, name))?;
        draft.check_name()?;
        if provider.credentials.len() >= MAX_CREDENTIALS {
            return Err(AdminError::invalid(
                "name",
                format!("there are {MAX_CREDENTIALS} already; delete one first"),
            ));
        }
        let like = provider.raw.as_ref().ok().and_then(|raw| raw.like.as_deref());
        let address_key = provider.address_key();
        let sealed = self.seal_credentials((name, like), &address_key, &[draft]).await?;
        let mut next = StoredEntries::clone(&edit.stored);
        if let Some(provider) = next.providers.get_mut(name) {
            provider.credentials.extend(sealed.auths.iter().cloned());
        }
        edit.validate(&next, &EntryName::Provider(name.to_owned()))?;
        let changes: Vec<ConfigChange> =
            sealed.rows.iter().cloned().map(ConfigChange::Give).collect();
        let row = sealed.rows.first().ok_or(AdminError::NotFound("credential"))?;
        let detail = format!("{} ({})", row.name, row.id);
        edit.commit(actor, &changes, ["credential.add", name, &detail]).await?;
        Ok(AddedCredential { id: row.id.clone(), name: row.name.clone(), added: row.created })
    }

    /// Deletes a credential of a stored provider.
    pub async fn delete_credential(
        &self,
        actor: &Actor,
        name: &str,
        read: ReadVersion<'_>,
        id: &str,
    ) -> Result<DeletedCredential, AdminError> {
        actor.require_admin()?;
        let edit = ConfigEdit::begin(self).await?;
        require_changeable(&edit.config, name)?;
        let provider = edit.stored.providers.get(name);
        let own = provider.and_then(|own| own.credentials.iter().find(|one| one.id == id));
        let own = own.ok_or(AdminError::NotFound("credential"))?;
        read.check(&ProviderView::find(&edit.config, &edit.stored, name))?;
        let detail = format!("{} ({id})", own.name);
        let changes = [ConfigChange::Take(id.to_owned())];
        edit.commit(actor, &changes, ["credential.delete", name, &detail]).await?;
        Ok(DeletedCredential { id: id.to_owned(), name: own.name.clone(), deleted: true })
    }
}
