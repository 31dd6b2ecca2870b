//! Merges the providers and models of the file with the stored ones, and checks the result.
//!
//! The file wins. A stored entry that does not fit is left out and reported as an issue: a gateway
//! that refuses to start could not be used to correct the entry.

use catalog::{Catalog, MediaFetch, ModelDirectory};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use transport::{AddressGuard, Outbound};
use upstream::{Provider, Timeouts};

use crate::entry::{EntryError, EntryName};
use crate::error::FieldError;
use crate::providers::{self, EndpointsByProvider, EnvLookup};
use crate::raw::{RawAuth, RawLane, RawModel, RawProvider};
use crate::routes::{self, Route, RoutesByModel};
use crate::stored::{StoredEntries, StoredProvider};
use crate::stored_directory::InstalledDirectory;
use crate::{models, outbound, wildcards};

/// Providers and models of the file, with the environment they were read in.
#[derive(Clone)]
pub struct FileLayer {
    pub(super) providers: BTreeMap<String, RawProvider>,
    pub(super) models: BTreeMap<String, RawModel>,
    pub(super) timeouts: Timeouts,
    pub(super) demo_enabled: bool,
    pub(super) outbound: Outbound,
    /// Guard for the addresses of stored providers.
    pub(super) guard: AddressGuard,
    /// Variables that were read together with the file.
    pub(super) recorded_env: BTreeMap<String, String>,
}

/// Omits the variables, which hold secrets.
impl std::fmt::Debug for FileLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLayer")
            .field("providers", &self.providers.keys())
            .field("models", &self.models.keys())
            .finish_non_exhaustive()
    }
}

impl FileLayer {
    /// Returns true if the file defines this entry.
    pub fn contains(&self, entry: &EntryName) -> bool {
        match entry {
            EntryName::Provider(name) => self.providers.contains_key(name),
            EntryName::Model(id) => self.models.contains_key(id),
            EntryName::Directory => false,
        }
    }
}

/// Providers, models and routes after merging.
pub struct MergedConfig {
    pub(super) providers: Vec<Arc<Provider>>,
    pub(super) endpoints: EndpointsByProvider,
    pub(super) catalog: Catalog,
    pub(super) routes: RoutesByModel,
    pub(super) fetches: HashMap<String, MediaFetch>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
    /// Stored entries that are not in use, with the reason.
    pub issues: ConfigIssues,
}

impl MergedConfig {
    /// Returns a provider that serves.
    pub fn provider(&self, name: &str) -> Option<&Arc<Provider>> {
        self.providers.iter().find(|provider| provider.name == name)
    }

    /// Returns the route of a model.
    pub fn route(&self, model: &str) -> Option<&Arc<Route>> {
        self.routes.get(model)
    }
}

/// Reason why a stored entry is not in use, by entry and without its name.
pub type ConfigIssues = BTreeMap<EntryName, String>;

/// Purpose of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckMode {
    /// Prepares serving. A provider without its credential is left out.
    Serve,
    /// Validates a change. A provider without its credential is checked as if it needed none,
    /// because the credential may be added later.
    Validate,
}

/// Merges stored entries into the file layer. An error is about the file. A bundle that does not fit
/// is left out like any other stored entry; the embedded directory applies then.
pub(super) fn merge(
    file_layer: &FileLayer,
    env: EnvLookup<'_>,
    stored: &StoredEntries,
    mode: CheckMode,
) -> Result<MergedConfig, FieldError> {
    let merge_with = |directory| merge_entries((file_layer, env), stored, directory, mode);
    let embedded = ModelDirectory::embedded();
    let issue = match stored.directory.as_ref().map(InstalledDirectory::directory) {
        None => return merge_with(embedded),
        Some(Ok(directory)) => match merge_with(directory) {
            Ok(merged) => return Ok(merged),
            Err(error) => error.to_string(),
        },
        Some(Err(reason)) => reason.to_owned(),
    };
    let mut merged = merge_with(embedded)?;
    merged.issues.insert(EntryName::Directory, issue);
    Ok(merged)
}

/// Merges stored entries into the file layer, with the facts of one directory.
fn merge_entries(
    (file_layer, env): (&FileLayer, EnvLookup<'_>),
    stored: &StoredEntries,
    directory: &ModelDirectory,
    mode: CheckMode,
) -> Result<MergedConfig, FieldError> {
    let mut issues = ConfigIssues::new();
    loop {
        let (providers, models) = overlay((file_layer, env), stored, mode, &mut issues);
        match build((file_layer, env), &providers, models, stored, directory) {
            Ok(mut merged) => {
                merged.issues.append(&mut issues);
                return Ok(merged);
            }
            // Each round leaves out one more entry, so the loop ends.
            Err(EntryError { entry: Some(entry), error })
                if !file_layer.contains(&entry) && !issues.contains_key(&entry) =>
            {
                issues.insert(entry, error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

const DEFINED_IN_FILE: &str =
    "the configuration file has an entry with this name, which takes precedence";

type RawEntries = (BTreeMap<String, RawProvider>, BTreeMap<String, RawModel>);

/// Adds the stored entries that have no issue to those of the file.
fn overlay(
    (file_layer, env): (&FileLayer, EnvLookup<'_>),
    stored: &StoredEntries,
    mode: CheckMode,
    issues: &mut ConfigIssues,
) -> RawEntries {
    let (mut providers, mut models) = (file_layer.providers.clone(), file_layer.models.clone());
    for (name, own) in &stored.providers {
        let entry = EntryName::Provider(name.clone());
        if issues.contains_key(&entry) {
            continue;
        }
        let built = if providers.contains_key(name) {
            Err(FieldError::new("", DEFINED_IN_FILE))
        } else {
            raw_provider(name, own, env, mode)
        };
        match built {
            Ok(raw) => drop(providers.insert(name.clone(), raw)),
            Err(error) => drop(issues.insert(entry, error.to_string())),
        }
    }
    for (id, own) in &stored.models {
        let entry = EntryName::Model(id.clone());
        if issues.contains_key(&entry) {
            continue;
        }
        let built = if models.contains_key(id) {
            Err(FieldError::new("", DEFINED_IN_FILE))
        } else {
            own.raw.clone()
        };
        match built {
            Ok(raw) => drop(models.insert(id.clone(), raw)),
            Err(error) => drop(issues.insert(entry, error.to_string())),
        }
    }
    (providers, models)
}

/// Returns a stored provider in the form of the file.
fn raw_provider(
    name: &str,
    own: &StoredProvider,
    env: EnvLookup<'_>,
    mode: CheckMode,
) -> Result<RawProvider, FieldError> {
    let mut raw = own.raw.clone()?;
    let credentials: Vec<toml::Value> =
        own.usable_credentials().map(|auth| auth.0.clone()).collect();
    let none = || Some(RawAuth(toml::Value::String("none".to_owned())));
    let default_auth = providers::default_auth(name, raw.like.as_deref());
    let needs_auth = default_auth.is_some_and(|auth| *auth != catalog::AuthScheme::None);
    // The variable holds a credential for the address in the directory, not for another one.
    let has_variable = || !own.has_own_address() && providers::has_default_variable(name, env);
    raw.auth = if !credentials.is_empty() {
        Some(RawAuth(toml::Value::Array(credentials)))
    } else if mode == CheckMode::Validate {
        none()
    } else if !own.credentials.is_empty() {
        return Err(FieldError::new("", "none of its credentials can be used; add another one"));
    } else if !needs_auth {
        none()
    } else if has_variable() {
        None
    } else {
        return Err(FieldError::new("", "it has no credential yet"));
    };
    Ok(raw)
}

fn build(
    (file_layer, env): (&FileLayer, EnvLookup<'_>),
    providers: &BTreeMap<String, RawProvider>,
    mut models: BTreeMap<String, RawModel>,
    stored: &StoredEntries,
    directory: &ModelDirectory,
) -> Result<MergedConfig, EntryError> {
    let mut warnings = Vec::new();
    let is_stored = |name: &str| {
        stored.providers.contains_key(name) && !file_layer.providers.contains_key(name)
    };
    let (built, endpoints) = providers::check(
        (providers, &is_stored),
        file_layer.timeouts,
        file_layer.demo_enabled,
        &file_layer.outbound,
        env,
        &mut warnings,
    )?;
    let guarded = file_layer.outbound.guarded(&file_layer.guard);
    let mut all: Vec<Arc<Provider>> = Vec::new();
    for provider in built {
        let entry = EntryName::Provider(provider.name.clone());
        if !is_stored(&provider.name) || !providers.contains_key(&provider.name) {
            all.push(Arc::new(provider));
            continue;
        }
        let address = provider.address();
        if file_layer.guard.check(&address).is_err() {
            let address = upstream::shown_address(&address);
            let reason = format!(
                "`{address}` is not a public HTTPS address; others are for the operator to allow, \
                 with `allow` of `[outbound]`"
            );
            return Err(EntryError::for_entry(entry, FieldError::new("base", reason)));
        }
        all.push(Arc::new(provider.with_outbound(&guarded)));
    }
    let built = all;
    let fetches = outbound::provider_fetches(providers, &built)?;
    let issues = drop_missing_lanes(&mut models, &built, file_layer);
    wildcards::expand(&mut models, directory, &built, &endpoints, &mut warnings)?;
    let catalog = models::check((&models, directory), &built, &endpoints, &mut warnings)?;
    let routes = routes::check((&models, directory), &catalog, &built, &endpoints)?;
    Ok(MergedConfig { providers: built, endpoints, catalog, routes, fetches, warnings, issues })
}

/// Removes lanes without a provider from stored models that have other lanes.
fn drop_missing_lanes(
    models: &mut BTreeMap<String, RawModel>,
    providers: &[Arc<Provider>],
    file_layer: &FileLayer,
) -> ConfigIssues {
    let mut issues = ConfigIssues::new();
    for (id, raw) in models {
        let entry = EntryName::Model(id.clone());
        if file_layer.contains(&entry) {
            continue;
        }
        let has_provider = |lane: &RawLane| {
            let name = lane.name().split('/').next().unwrap_or_default();
            providers.iter().any(|provider| provider.name == name)
        };
        if !raw.lanes.iter().any(has_provider) {
            continue;
        }
        let missing: Vec<String> = raw
            .lanes
            .iter()
            .filter(|lane| !has_provider(lane))
            .map(|lane| lane.name().into())
            .collect();
        if !missing.is_empty() {
            let reason = FieldError::new(
                "lanes",
                format_args!("there is no provider for `{}`", missing.join("`, `")),
            );
            issues.insert(entry, reason.to_string());
            raw.lanes.retain(has_provider);
        }
    }
    issues
}
