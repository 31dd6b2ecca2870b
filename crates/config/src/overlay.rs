//! Merges the providers and models of the file with the stored ones, and checks the result.
//!
//! The file wins. A stored entry that does not fit is left out and reported as an issue: a gateway
//! that refuses to start could not be used to correct the entry.

use catalog::{Catalog, MediaFetch};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use transport::{AddressGuard, Outbound};
use upstream::{Provider, Timeouts};

use crate::providers::{self, EndpointsByProvider, EnvLookup};
use crate::raw::{RawAuth, RawLane, RawModel, RawProvider};
use crate::routes::{self, Route};
use crate::stored::{StoredEntries, StoredProvider};
use crate::{models, outbound};

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
        f.debug_struct("Ground")
            .field("providers", &self.providers.keys())
            .field("models", &self.models.keys())
            .finish_non_exhaustive()
    }
}

impl FileLayer {
    pub fn contains(&self, entry: &EntryName) -> bool {
        match entry {
            EntryName::Provider(name) => self.providers.contains_key(name),
            EntryName::Model(id) => self.models.contains_key(id),
        }
    }
}

/// Providers, models and routes after merging.
pub struct MergedConfig {
    pub(super) providers: Vec<Arc<Provider>>,
    pub(super) endpoints: EndpointsByProvider,
    pub(super) catalog: Catalog,
    pub(super) routes: HashMap<String, Arc<Route>>,
    pub(super) fetches: HashMap<String, MediaFetch>,
    pub warnings: Vec<String>,
    pub issues: ConfigIssues,
}

impl MergedConfig {
    pub fn route(&self, model: &str) -> Option<&Arc<Route>> {
        self.routes.get(model)
    }
}

/// Name of a provider or a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryName {
    Provider(String),
    Model(String),
}

impl std::fmt::Display for EntryName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Provider(name) => write!(f, "providers.{name}"),
            Self::Model(id) => write!(f, "models.\"{id}\""),
        }
    }
}

/// Reason why a stored entry is not in use, by entry and without its name.
pub type ConfigIssues = BTreeMap<EntryName, String>;

/// An error that names the entry it belongs to, if there is one.
pub(super) struct EntryError {
    entry: Option<EntryName>,
    /// Begins with the field below the entry.
    reason: String,
}

impl EntryError {
    pub(super) fn for_entry(entry: EntryName, why: impl Into<String>) -> Self {
        Self { entry: Some(entry), reason: why.into() }
    }
}

impl From<String> for EntryError {
    fn from(why: String) -> Self {
        Self { entry: None, reason: why }
    }
}

impl std::fmt::Display for EntryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "{entry}{}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Purpose of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckMode {
    /// Prepares serving. A provider without its credential is left out.
    Serve,
    /// Validates a change. A provider without its credential is checked as if it needed none,
    /// because the credential may be added later.
    Validate,
}

/// Merges stored entries into the file layer. An error is about the file.
pub(super) fn merge(
    ground: &FileLayer,
    env: EnvLookup<'_>,
    stored: &StoredEntries,
    look: CheckMode,
) -> Result<MergedConfig, String> {
    let mut troubles = ConfigIssues::new();
    loop {
        let (providers, models) = overlay((ground, env), stored, look, &mut troubles);
        match build((ground, env), &providers, models, stored) {
            Ok(mut places) => {
                places.issues.append(&mut troubles);
                return Ok(places);
            }
            // Each round leaves out one more entry, so the loop ends.
            Err(EntryError { entry: Some(entry), reason: why })
                if !ground.contains(&entry) && !troubles.contains_key(&entry) =>
            {
                troubles.insert(entry, why.trim_start_matches(['.', ':', ' ']).to_owned());
            }
            Err(wrong) => return Err(wrong.to_string()),
        }
    }
}

const DEFINED_IN_FILE: &str =
    "the configuration file has an entry with this name, which takes precedence";

type RawEntries = (BTreeMap<String, RawProvider>, BTreeMap<String, RawModel>);

/// Adds the stored entries that have no issue to those of the file.
fn overlay(
    (ground, env): (&FileLayer, EnvLookup<'_>),
    stored: &StoredEntries,
    look: CheckMode,
    troubles: &mut ConfigIssues,
) -> RawEntries {
    let (mut providers, mut models) = (ground.providers.clone(), ground.models.clone());
    for (name, own) in &stored.providers {
        let entry = EntryName::Provider(name.clone());
        if troubles.contains_key(&entry) {
            continue;
        }
        let made = if providers.contains_key(name) {
            Err(DEFINED_IN_FILE.to_owned())
        } else {
            raw_provider(name, own, env, look)
        };
        match made {
            Ok(raw) => drop(providers.insert(name.clone(), raw)),
            Err(why) => drop(troubles.insert(entry, why)),
        }
    }
    for (id, own) in &stored.models {
        let entry = EntryName::Model(id.clone());
        if troubles.contains_key(&entry) {
            continue;
        }
        let made = if models.contains_key(id) {
            Err(DEFINED_IN_FILE.to_owned())
        } else {
            own.raw.clone().map_err(|wrong| wrong.to_string())
        };
        match made {
            Ok(raw) => drop(models.insert(id.clone(), raw)),
            Err(why) => drop(troubles.insert(entry, why)),
        }
    }
    (providers, models)
}

/// Returns a stored provider in the form of the file.
fn raw_provider(
    name: &str,
    own: &StoredProvider,
    env: EnvLookup<'_>,
    look: CheckMode,
) -> Result<RawProvider, String> {
    let mut raw = own.raw.clone().map_err(|wrong| wrong.to_string())?;
    let open: Vec<toml::Value> = own.usable_credentials().map(|auth| auth.0.clone()).collect();
    let none = || Some(RawAuth(toml::Value::String("none".to_owned())));
    let wanted = providers::default_auth(name, raw.like.as_deref());
    let wants = wanted.is_some_and(|auth| *auth != catalog::AuthScheme::None);
    // The variable holds a credential for the address in the directory, not for another one.
    let usual = || !own.has_own_address() && providers::has_default_variable(name, env);
    raw.auth = if !open.is_empty() {
        Some(RawAuth(toml::Value::Array(open)))
    } else if look == CheckMode::Validate {
        none()
    } else if !own.credentials.is_empty() {
        return Err("none of its credentials can be used; add another one".to_owned());
    } else if !wants {
        none()
    } else if usual() {
        None
    } else {
        return Err("it has no credential yet".to_owned());
    };
    Ok(raw)
}

fn build(
    (ground, env): (&FileLayer, EnvLookup<'_>),
    providers: &BTreeMap<String, RawProvider>,
    mut models: BTreeMap<String, RawModel>,
    stored: &StoredEntries,
) -> Result<MergedConfig, EntryError> {
    let mut warnings = Vec::new();
    let fetches = outbound::provider_fetches(providers)?;
    let (made, ways) = providers::check(
        providers,
        ground.timeouts,
        ground.demo_enabled,
        &ground.outbound,
        env,
        &mut warnings,
    )?;
    let guarded = ground.outbound.guarded(&ground.guard);
    let mut all: Vec<Arc<Provider>> = Vec::new();
    for provider in made {
        let entry = EntryName::Provider(provider.name.clone());
        let theirs = stored.providers.contains_key(&provider.name)
            && providers.contains_key(&provider.name)
            && !ground.contains(&entry);
        if !theirs {
            all.push(Arc::new(provider));
            continue;
        }
        let address = provider.address();
        if ground.guard.check(&address).is_err() {
            let why = format!(
                ".base: `{address}` is not a public HTTPS address; others are for the operator \
                 to allow, with `allow` of `[outbound]`"
            );
            return Err(EntryError::for_entry(entry, why));
        }
        all.push(Arc::new(provider.with_outbound(&guarded)));
    }
    let made = all;
    let troubles = drop_missing_lanes(&mut models, &made, ground);
    let catalog = models::check(&models, &made, &ways, &mut warnings)?;
    let routes = routes::check(&models, &catalog, &made, &ways)?;
    Ok(MergedConfig {
        providers: made,
        endpoints: ways,
        catalog,
        routes,
        fetches,
        warnings,
        issues: troubles,
    })
}

/// Removes lanes without a provider from stored models that have other lanes.
fn drop_missing_lanes(
    models: &mut BTreeMap<String, RawModel>,
    providers: &[Arc<Provider>],
    ground: &FileLayer,
) -> ConfigIssues {
    let mut troubles = ConfigIssues::new();
    for (id, raw) in models {
        let entry = EntryName::Model(id.clone());
        if ground.contains(&entry) {
            continue;
        }
        let there = |lane: &RawLane| {
            let name = lane.name().split('/').next().unwrap_or_default();
            providers.iter().any(|provider| provider.name == name)
        };
        if !raw.lanes.iter().any(there) {
            continue;
        }
        let gone: Vec<String> =
            raw.lanes.iter().filter(|lane| !there(lane)).map(|lane| lane.name().into()).collect();
        if !gone.is_empty() {
            let why = format!("lanes: there is no provider for `{}`", gone.join("`, `"));
            troubles.insert(entry, why);
            raw.lanes.retain(there);
        }
    }
    troubles
}
