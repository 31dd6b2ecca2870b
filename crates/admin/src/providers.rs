//! Providers: list, create, change, delete.

use config::{Config, DEMO_PROVIDER, EntryName, StoredEntries, StoredProvider};
use serde::Serialize;
use serde_json::{Map, Value};
use store::{ConfigChange, ConfigEntry, ConfigEntryKind};

use crate::Admin;
use crate::actor::Actor;
use crate::config_edit::{ConfigEdit, field_error};
use crate::credentials::{CredentialDraft, check_drafts};
use crate::error::AdminError;
use crate::provider_view::{ProviderDetail, ProviderView, lane_views, require_changeable};
use crate::version::ReadVersion;

/// Maximum length of a provider's name.
const MAX_NAME_BYTES: usize = 64;

/// A new provider, or the new state of one. It has no `Debug`, because it may carry secrets.
pub struct ProviderDraft {
    /// Settings, named as in the configuration file. `null` is the same as absent.
    pub settings: Map<String, Value>,
    /// Credentials that replace the present ones; `None` keeps them if the address stays the same.
    pub credentials: Option<Vec<CredentialDraft>>,
}

/// A provider that was created or changed.
#[derive(Clone, Debug, Serialize)]
pub struct SavedProvider {
    /// The provider as it is now.
    #[serde(flatten)]
    pub detail: ProviderDetail,
    /// Number of credentials that were dropped, because others were given or the address changed.
    pub dropped_credentials: usize,
    /// True if there was none of that name before.
    #[serde(skip)]
    pub is_new: bool,
}

/// A provider that was deleted.
#[derive(Clone, Debug, Serialize)]
pub struct DeletedProvider {
    /// Name of the provider.
    pub id: String,
    /// Always true.
    pub deleted: bool,
    /// Stored models that lost their last lane.
    pub models_left_alone: Vec<String>,
}

/// A provider of the directory, to choose from.
#[derive(Clone, Debug, Serialize)]
pub struct DirectoryProvider {
    /// Id in the directory.
    pub id: &'static str,
    /// Display name.
    pub name: &'static str,
    /// Wire formats it accepts.
    pub speaks: Vec<&'static str>,
    /// Base address, with placeholders in braces.
    pub base: &'static str,
    /// Placeholders that the operator fills in.
    pub fill: Vec<&'static str>,
    /// Method of authentication.
    pub auth: &'static str,
    /// Number of models the directory knows of it.
    pub models: usize,
}

impl Admin {
    /// Lists all providers with the health of their lanes, by name.
    pub fn providers(&self, actor: &Actor) -> Result<Vec<ProviderDetail>, AdminError> {
        actor.require_admin()?;
        let (config, stored) = self.current_config();
        let mut lanes = lane_views(&config, self.engine.monotonic_now());
        let mut names: Vec<&str> = config.providers.iter().map(|live| live.name.as_str()).collect();
        names.extend(stored.providers.keys().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        let details = names.into_iter().filter_map(|name| {
            let provider = ProviderView::find(&config, &stored, name)?;
            let lanes = lanes.remove(name).unwrap_or_default();
            Some(ProviderDetail::new(&config, provider, lanes))
        });
        Ok(details.collect())
    }

    /// Returns one provider.
    pub fn provider(&self, actor: &Actor, name: &str) -> Result<ProviderDetail, AdminError> {
        actor.require_admin()?;
        let (config, stored) = self.current_config();
        let provider = ProviderView::find(&config, &stored, name);
        let provider = provider.ok_or(AdminError::NotFound("provider"))?;
        let mut lanes = lane_views(&config, self.engine.monotonic_now());
        Ok(ProviderDetail::new(&config, provider, lanes.remove(name).unwrap_or_default()))
    }

    /// Creates a provider or replaces its settings.
    pub async fn put_provider(
        &self,
        actor: &Actor,
        name: &str,
        read: ReadVersion<'_>,
        draft: ProviderDraft,
    ) -> Result<SavedProvider, AdminError> {
        actor.require_admin()?;
        let ProviderDraft { mut settings, credentials } = draft;
        let edit = ConfigEdit::begin(self).await?;
        require_changeable(&edit.config, name)?;
        check_name(name, &edit.stored, &edit.config)?;
        let old = edit.stored.providers.get(name);
        read.check(&ProviderView::find(&edit.config, &edit.stored, name))?;
        check_drafts(credentials.as_deref().unwrap_or_default())?;
        if settings.contains_key("auth") {
            let message = "credentials are set separately, as `credentials` or at …/credentials";
            return Err(AdminError::invalid("auth", message));
        }
        settings.retain(|_, value| !value.is_null());
        let now = self.accounts.now();
        let mut new = StoredProvider::new(settings, old.map_or(now, |old| old.created_at));
        let raw = new.raw.as_ref().map_err(field_error)?;
        let like = raw.like.clone();
        let address_key = new.address_key();
        // A credential is valid only for the address it was given for.
        let retained = old.filter(|old| credentials.is_none() && old.address_key() == address_key);
        let dropped = match (old, retained) {
            (Some(old), None) => old.credentials.len(),
            (Some(_), Some(_)) | (None, _) => 0,
        };
        new.credentials = retained.map(|old| old.credentials.clone()).unwrap_or_default();
        let drafts = credentials.unwrap_or_default();
        let sealed = self.seal_credentials((name, like.as_deref()), &address_key, &drafts).await?;
        new.credentials.extend(sealed.auths.iter().cloned());
        let entry = ConfigEntry {
            kind: ConfigEntryKind::Provider,
            id: name.to_owned(),
            settings: serde_json::to_string(&new.settings)
                .map_err(|e| AdminError::Internal(e.to_string()))?,
            created: new.created_at,
            changed: now,
        };
        let mut next = StoredEntries::clone(&edit.stored);
        next.providers.insert(name.to_owned(), new);
        let merged = edit.validate(&next, &EntryName::Provider(name.to_owned()))?;
        let mut changes = vec![ConfigChange::Put(entry)];
        if retained.is_none() {
            changes.push(ConfigChange::TakeAll(name.to_owned()));
        }
        let added = sealed.rows.len();
        changes.extend(sealed.rows.iter().cloned().map(ConfigChange::Give));
        let is_new = old.is_none();
        let action = if is_new { "provider.create" } else { "provider.change" };
        let base = merged.provider(name).map(|live| live.address()).unwrap_or_default();
        let note = format!("{base}, credentials: {added} given, {dropped} dropped");
        edit.commit(actor, &changes, [action, name, &note]).await?;
        drop(sealed);
        let detail = self.provider(actor, name)?;
        Ok(SavedProvider { detail, dropped_credentials: dropped, is_new })
    }

    /// Deletes a stored provider and its credentials. Without `force`, a provider that is the last
    /// lane of a stored model stays.
    pub async fn delete_provider(
        &self,
        actor: &Actor,
        name: &str,
        read: ReadVersion<'_>,
        force: bool,
    ) -> Result<DeletedProvider, AdminError> {
        actor.require_admin()?;
        let edit = ConfigEdit::begin(self).await?;
        if !edit.stored.providers.contains_key(name) {
            require_changeable(&edit.config, name)?;
            let live = edit.config.providers.iter().any(|live| live.name == name);
            return Err(match live {
                true => AdminError::invalid("", format!("`{name}` comes from the environment")),
                false => AdminError::NotFound("provider"),
            });
        }
        read.check(&ProviderView::find(&edit.config, &edit.stored, name))?;
        let alone = models_only_on(&edit.stored, name);
        let in_file = edit.config.file_layer.contains(&EntryName::Provider(name.to_owned()));
        if !alone.is_empty() && !force && !in_file {
            return Err(AdminError::Conflict(format!(
                "only `{name}` serves {}; change or delete them first, or repeat with ?force=true",
                alone.join(", ")
            )));
        }
        let changes = [ConfigChange::Drop(ConfigEntryKind::Provider, name.to_owned())];
        edit.commit(actor, &changes, ["provider.delete", name, &alone.join(", ")]).await?;
        Ok(DeletedProvider { id: name.to_owned(), deleted: true, models_left_alone: alone })
    }

    /// Lists the providers of the directory.
    pub fn provider_directory(&self, actor: &Actor) -> Result<Vec<DirectoryProvider>, AdminError> {
        actor.require_admin()?;
        let directory = catalog::ModelDirectory::embedded();
        let known = directory.providers().filter(|known| known.id != DEMO_PROVIDER);
        let listed = known.map(|known| {
            let offers = |entry: &&catalog::ModelEntry| {
                entry.offers.iter().any(|offer| offer.provider == known.id)
            };
            DirectoryProvider {
                id: &known.id,
                name: &known.name,
                speaks: known.formats.iter().map(|one| one.as_str()).collect(),
                base: &known.base,
                fill: known.placeholders(),
                auth: auth_word(&known.auth),
                models: directory.models().filter(offers).count(),
            }
        });
        Ok(listed.collect())
    }
}

fn check_name(name: &str, stored: &StoredEntries, config: &Config) -> Result<(), AdminError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > MAX_NAME_BYTES
        || !name.chars().all(plain)
        || !name.starts_with(char::is_alphanumeric)
    {
        let message = format!(
            "must have 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`, a letter or digit first"
        );
        return Err(AdminError::invalid("id", message));
    }
    let live = config.providers.iter().map(|live| live.name.as_str());
    let mut others = live.chain(stored.providers.keys().map(String::as_str));
    match others.find(|other| *other != name && other.eq_ignore_ascii_case(name)) {
        Some(other) => Err(AdminError::invalid("id", format!("there is `{other}` already"))),
        None => Ok(()),
    }
}

/// Returns the stored models that only this provider serves.
fn models_only_on(stored: &StoredEntries, name: &str) -> Vec<String> {
    let alone = stored.models.iter().filter(|(_, model)| {
        let lanes = model.raw.as_ref().map(|raw| raw.lanes.as_slice()).unwrap_or_default();
        let theirs = |lane: &str| lane.split('/').next() == Some(name);
        !lanes.is_empty() && lanes.iter().all(|lane| theirs(lane.name()))
    });
    alone.map(|(id, _)| id.clone()).collect()
}

const fn auth_word(auth: &catalog::AuthScheme) -> &'static str {
    match auth {
        catalog::AuthScheme::Bearer => "bearer",
        catalog::AuthScheme::Header(_) => "header",
        catalog::AuthScheme::Google => "google",
        catalog::AuthScheme::SigV4(_) => "sigv4",
        catalog::AuthScheme::None => "none",
    }
}
