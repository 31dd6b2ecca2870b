//! Models: list, create, change, delete.

use catalog::ModelListing;
use config::{Config, EntryName, MergedConfig, StoredEntries, StoredModel, default_auth};
use serde::Serialize;
use serde_json::{Map, Value};
use store::{ConfigChange, ConfigEntry, ConfigEntryKind};

use crate::Admin;
use crate::actor::Actor;
use crate::config_edit::{ConfigEdit, field_error};
use crate::error::AdminError;
use crate::names;
use crate::provider_view::EntrySource;
use crate::version::{ReadVersion, version_of};

/// A model as administrators see it.
#[derive(Clone, Debug, Serialize)]
pub struct ModelView {
    /// Facts that callers see, or as much as is known of them.
    #[serde(flatten)]
    pub facts: ModelFacts,
    /// Place where it is configured.
    pub source: EntrySource,
    /// Reason why it cannot be used.
    pub trouble: Option<String>,
    /// Settings as the administrator sent them; `None` if it is not stored.
    pub settings: Option<Map<String, Value>>,
}

/// Facts of a model.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ModelFacts {
    /// A model that is served.
    Served {
        /// The entry of the public catalog.
        #[serde(flatten)]
        listing: ModelListing,
        /// Names of its lanes.
        lanes: Vec<String>,
        /// Version of its prices.
        price_version: String,
    },
    /// A stored model that cannot be served.
    Unserved {
        /// Id that callers use.
        id: String,
        /// Names of the lanes in its settings.
        lanes: Vec<String>,
    },
}

/// A model that was created or changed.
#[derive(Clone, Debug, Serialize)]
pub struct SavedModel {
    /// The model as it is now.
    #[serde(flatten)]
    pub model: ModelView,
    /// Settings that are valid but probably a mistake.
    pub warnings: Vec<String>,
    /// True if there were no settings of it before.
    #[serde(skip)]
    pub is_new: bool,
}

/// A model whose settings were deleted.
#[derive(Clone, Debug, Serialize)]
pub struct DeletedModel {
    /// Id of the model.
    pub id: String,
    /// Always true.
    pub deleted: bool,
}

impl ModelView {
    /// Id that callers use.
    pub fn id(&self) -> &str {
        match &self.facts {
            ModelFacts::Served { listing, .. } => &listing.id,
            ModelFacts::Unserved { id, .. } => id,
        }
    }

    /// Names of its lanes, in order of preference.
    pub fn lanes(&self) -> &[String] {
        match &self.facts {
            ModelFacts::Served { lanes, .. } | ModelFacts::Unserved { lanes, .. } => lanes,
        }
    }

    /// The entry of the public catalog; `None` if the model is not served.
    pub const fn listing(&self) -> Option<&ModelListing> {
        match &self.facts {
            ModelFacts::Served { listing, .. } => Some(listing),
            ModelFacts::Unserved { .. } => None,
        }
    }

    /// Version of the model, for a change of what was read.
    pub fn version(&self) -> String {
        version_of(self)
    }

    fn find(config: &Config, stored: &StoredEntries, id: &str) -> Option<Self> {
        let entry = EntryName::Model(id.to_owned());
        let own = stored.models.get(id);
        let facts = match config.catalog.get(id).filter(|live| live.id == id) {
            Some(live) => ModelFacts::Served {
                listing: ModelListing::new(live, &config.public_url),
                lanes: live.lanes.iter().map(|lane| lane.name().to_owned()).collect(),
                price_version: live.prices.version.to_string(),
            },
            None => {
                let lanes = own?.raw.as_ref().map(|raw| raw.lanes.as_slice()).unwrap_or_default();
                let lanes = lanes.iter().map(|lane| lane.name().to_owned()).collect();
                ModelFacts::Unserved { id: id.to_owned(), lanes }
            }
        };
        let source = if config.file_layer.contains(&entry) {
            EntrySource::File
        } else if own.is_some() {
            EntrySource::Stored
        } else {
            EntrySource::BuiltIn
        };
        Some(Self {
            facts,
            source,
            trouble: config.issues.get(&entry).cloned(),
            settings: own.map(|own| own.settings.clone()),
        })
    }
}

impl Admin {
    /// Lists all models: served ones, then stored ones that cannot be served.
    pub fn models(&self, actor: &Actor) -> Result<Vec<ModelView>, AdminError> {
        actor.require_admin()?;
        let (config, stored) = self.current_config();
        let live = config.catalog.iter().map(|model| model.id.as_str());
        let gone = stored.models.keys().map(String::as_str);
        let gone = gone.filter(|id| config.catalog.get(id).is_none_or(|live| live.id != *id));
        Ok(live.chain(gone).filter_map(|id| ModelView::find(&config, &stored, id)).collect())
    }

    /// Returns one model.
    pub fn model(&self, actor: &Actor, id: &str) -> Result<ModelView, AdminError> {
        actor.require_admin()?;
        let (config, stored) = self.current_config();
        ModelView::find(&config, &stored, id).ok_or(AdminError::NotFound("model"))
    }

    /// Creates a model or replaces its settings. A setting of `null` is the same as none.
    pub async fn put_model(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
        mut settings: Map<String, Value>,
    ) -> Result<SavedModel, AdminError> {
        actor.require_admin()?;
        let edit = ConfigEdit::begin(self).await?;
        require_not_in_file(&edit.config, id)?;
        check_id(id, &edit.config, &edit.stored)?;
        read.check(&ModelView::find(&edit.config, &edit.stored, id))?;
        settings.retain(|_, value| !value.is_null());
        let now = self.accounts.now();
        let old = edit.stored.models.get(id);
        let new = StoredModel::new(settings, old.map_or(now, |old| old.created_at));
        new.raw.as_ref().map_err(field_error)?;
        let entry = ConfigEntry {
            kind: ConfigEntryKind::Model,
            id: id.to_owned(),
            settings: serde_json::to_string(&new.settings)
                .map_err(|e| AdminError::Internal(e.to_string()))?,
            created: new.created_at,
            changed: now,
        };
        let mut next = StoredEntries::clone(&edit.stored);
        next.models.insert(id.to_owned(), new);
        let merged = edit.validate(&next, &EntryName::Model(id.to_owned()))?;
        let warnings = warnings(&merged, id);
        let is_new = old.is_none();
        let action = if is_new { "model.create" } else { "model.change" };
        let note = [action, id, &warnings.join("; ")];
        edit.commit(actor, &[ConfigChange::Put(entry)], note).await?;
        Ok(SavedModel { model: self.model(actor, id)?, warnings, is_new })
    }

    /// Deletes the stored settings of a model.
    pub async fn delete_model(
        &self,
        actor: &Actor,
        id: &str,
        read: ReadVersion<'_>,
    ) -> Result<DeletedModel, AdminError> {
        actor.require_admin()?;
        let edit = ConfigEdit::begin(self).await?;
        let now = ModelView::find(&edit.config, &edit.stored, id);
        let now = now.ok_or(AdminError::NotFound("model"))?;
        if !edit.stored.models.contains_key(id) {
            require_not_in_file(&edit.config, id)?;
            return Err(AdminError::invalid("", format!("`{id}` comes with its provider")));
        }
        read.check(&now)?;
        let mut next = StoredEntries::clone(&edit.stored);
        next.models.remove(id);
        // Another model may name this one as its fallback.
        edit.validate(&next, &EntryName::Model(id.to_owned()))?;
        let changes = [ConfigChange::Drop(ConfigEntryKind::Model, id.to_owned())];
        edit.commit(actor, &changes, ["model.delete", id, ""]).await?;
        Ok(DeletedModel { id: id.to_owned(), deleted: true })
    }
}

fn check_id(id: &str, config: &Config, stored: &StoredEntries) -> Result<(), AdminError> {
    let dots = |piece: &str| piece.chars().all(|c| c == '.');
    if id.len() > 256 || id.chars().any(char::is_whitespace) {
        return Err(AdminError::invalid("id", "must have 1 to 256 bytes, without spaces"));
    }
    names::require_visible("id", id)?;
    if id.split('/').any(dots) {
        return Err(AdminError::invalid(
            "id",
            "must not have an empty segment or one of dots only",
        ));
    }
    let live = config.catalog.iter().map(|model| model.id.as_str());
    let mut others = live.chain(stored.models.keys().map(String::as_str));
    match others.find(|other| *other != id && other.eq_ignore_ascii_case(id)) {
        Some(other) => Err(AdminError::invalid("id", format!("there is `{other}` already"))),
        None => Ok(()),
    }
}

fn require_not_in_file(config: &Config, id: &str) -> Result<(), AdminError> {
    if config.file_layer.contains(&EntryName::Model(id.to_owned())) {
        let message = format!("`{id}` is in the configuration file; change it there");
        return Err(AdminError::invalid("", message));
    }
    Ok(())
}

/// Returns warnings about settings that are valid but probably a mistake, such as a price of 0 at a
/// paid provider.
fn warnings(merged: &MergedConfig, id: &str) -> Vec<String> {
    let Some(route) = merged.route(id) else { return Vec::new() };
    let wants =
        |of: &str| default_auth(of, None).is_some_and(|auth| *auth != catalog::AuthScheme::None);
    let free = route.lanes.iter().filter(|lane| {
        lane.prices.is_free()
            && (lane.provider.has_credential(0) || wants(&lane.endpoints.provider))
    });
    let mut names: Vec<&str> = free.map(|lane| lane.name.as_str()).collect();
    names.dedup();
    match names.is_empty() {
        true => Vec::new(),
        false => {
            vec![format!("calls of `{id}` cost nothing by {}: its price is 0", names.join(", "))]
        }
    }
}
