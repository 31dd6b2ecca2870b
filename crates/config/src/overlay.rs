//! Where models are served: providers, models and routes, those of the file and those of the store,
//! checked as one.
//!
//! The file stands by itself, and wins. What administrators configured is laid over it; an entry of
//! theirs that does not fit (any more) is left out and told as a trouble, because a gateway that does
//! not start helps nobody to put it right.

use catalog::{Catalog, MediaFetch};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use transport::{Guard, Outbound};
use upstream::{Provider, Timeouts};

use crate::providers::{self, AllWays, Env};
use crate::raw::{RawAuth, RawLane, RawModel, RawProvider};
use crate::routes::{self, Route};
use crate::stored::{Stored, StoredProvider};
use crate::{models, outbound};

/// What the file and the environment say of places.
#[derive(Clone)]
pub struct Ground {
    pub(super) providers: BTreeMap<String, RawProvider>,
    pub(super) models: BTreeMap<String, RawModel>,
    pub(super) times: Timeouts,
    pub(super) demo: bool,
    pub(super) way: Outbound,
    /// Where administrators may let providers be.
    pub(super) guard: Guard,
    /// The variables that were asked for when the file was read.
    pub(super) env: BTreeMap<String, String>,
}

/// The variables hold secrets.
impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground")
            .field("providers", &self.providers.keys())
            .field("models", &self.models.keys())
            .finish_non_exhaustive()
    }
}

impl Ground {
    pub fn has(&self, entry: &Entry) -> bool {
        match entry {
            Entry::Provider(name) => self.providers.contains_key(name),
            Entry::Model(id) => self.models.contains_key(id),
        }
    }
}

/// Everything that is served, and where.
pub struct Places {
    pub(super) providers: Vec<Arc<Provider>>,
    pub(super) ways: AllWays,
    pub(super) catalog: Catalog,
    pub(super) routes: HashMap<String, Arc<Route>>,
    pub(super) fetches: HashMap<String, MediaFetch>,
    pub warnings: Vec<String>,
    pub troubles: Troubles,
}

impl Places {
    pub fn route(&self, model: &str) -> Option<&Arc<Route>> {
        self.routes.get(model)
    }
}

/// One thing that is configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    Provider(String),
    Model(String),
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Provider(name) => write!(f, "providers.{name}"),
            Self::Model(id) => write!(f, "models.\"{id}\""),
        }
    }
}

/// What is wrong with stored entries, each told without its name.
pub type Troubles = BTreeMap<Entry, String>;

/// Why places are refused, and which entry is to blame, where one is.
pub(super) struct Wrong {
    about: Option<Entry>,
    /// Begins with the field below the entry.
    why: String,
}

impl Wrong {
    pub(super) fn about(entry: Entry, why: impl Into<String>) -> Self {
        Self { about: Some(entry), why: why.into() }
    }
}

impl From<String> for Wrong {
    fn from(why: String) -> Self {
        Self { about: None, why }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.about {
            Some(entry) => write!(f, "{entry}{}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// What places are looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// To serve by them: a provider without the credential it needs is left out.
    Serve,
    /// To judge a change: such a provider is looked at as if it needed none, because the credential
    /// may come later.
    Judge,
}

/// Checks the file with what is stored laid over it. `Err` is about the file.
pub(super) fn check(
    ground: &Ground,
    env: Env<'_>,
    stored: &Stored,
    look: Look,
) -> Result<Places, String> {
    let mut troubles = Troubles::new();
    loop {
        let (providers, models) = lay((ground, env), stored, look, &mut troubles);
        match whole((ground, env), &providers, models, stored) {
            Ok(mut places) => {
                places.troubles.append(&mut troubles);
                return Ok(places);
            }
            // Each turn leaves one more out, so this ends.
            Err(Wrong { about: Some(entry), why })
                if !ground.has(&entry) && !troubles.contains_key(&entry) =>
            {
                troubles.insert(entry, why.trim_start_matches(['.', ':', ' ']).to_owned());
            }
            Err(wrong) => return Err(wrong.to_string()),
        }
    }
}

const IN_FILE: &str = "the configuration file has one of this name, which is the one that counts";

type Raw = (BTreeMap<String, RawProvider>, BTreeMap<String, RawModel>);

/// The file, and over it what is stored and in no trouble.
fn lay(
    (ground, env): (&Ground, Env<'_>),
    stored: &Stored,
    look: Look,
    troubles: &mut Troubles,
) -> Raw {
    let (mut providers, mut models) = (ground.providers.clone(), ground.models.clone());
    for (name, own) in &stored.providers {
        let entry = Entry::Provider(name.clone());
        if troubles.contains_key(&entry) {
            continue;
        }
        let made = if providers.contains_key(name) {
            Err(IN_FILE.to_owned())
        } else {
            provider(name, own, env, look)
        };
        match made {
            Ok(raw) => drop(providers.insert(name.clone(), raw)),
            Err(why) => drop(troubles.insert(entry, why)),
        }
    }
    for (id, own) in &stored.models {
        let entry = Entry::Model(id.clone());
        if troubles.contains_key(&entry) {
            continue;
        }
        let made = if models.contains_key(id) {
            Err(IN_FILE.to_owned())
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

/// A stored provider as the file would have it.
fn provider(
    name: &str,
    own: &StoredProvider,
    env: Env<'_>,
    look: Look,
) -> Result<RawProvider, String> {
    let mut raw = own.raw.clone().map_err(|wrong| wrong.to_string())?;
    let open: Vec<toml::Value> = own.open().map(|auth| auth.0.clone()).collect();
    let none = || Some(RawAuth(toml::Value::String("none".to_owned())));
    let wanted = providers::usual_auth(name, raw.like.as_deref());
    let wants = wanted.is_some_and(|auth| *auth != catalog::AuthScheme::None);
    // The environment's credential was given for the address the directory knows, and no other.
    let usual = || !own.is_moved() && providers::has_usual(name, env);
    raw.auth = if !open.is_empty() {
        Some(RawAuth(toml::Value::Array(open)))
    } else if look == Look::Judge {
        none()
    } else if !own.credentials.is_empty() {
        return Err("none of its credentials can be used; give it another".to_owned());
    } else if !wants {
        none()
    } else if usual() {
        None
    } else {
        return Err("it has no credential yet".to_owned());
    };
    Ok(raw)
}

fn whole(
    (ground, env): (&Ground, Env<'_>),
    providers: &BTreeMap<String, RawProvider>,
    mut models: BTreeMap<String, RawModel>,
    stored: &Stored,
) -> Result<Places, Wrong> {
    let mut warnings = Vec::new();
    let fetches = outbound::fetches(providers)?;
    let (made, ways) =
        providers::check(providers, ground.times, ground.demo, &ground.way, env, &mut warnings)?;
    let guarded = ground.way.guarded(&ground.guard);
    let mut all: Vec<Arc<Provider>> = Vec::new();
    for provider in made {
        let entry = Entry::Provider(provider.name.clone());
        let theirs = stored.providers.contains_key(&provider.name)
            && providers.contains_key(&provider.name)
            && !ground.has(&entry);
        if !theirs {
            all.push(Arc::new(provider));
            continue;
        }
        let address = provider.address();
        if ground.guard.look(&address).is_err() {
            let why = format!(
                ".base: `{address}` is not a public HTTPS address; others are for the operator \
                 to allow, with `allow` of `[outbound]`"
            );
            return Err(Wrong::about(entry, why));
        }
        all.push(Arc::new(provider.by_way_of(&guarded)));
    }
    let made = all;
    let troubles = prune(&mut models, &made, ground);
    let catalog = models::check(&models, &made, &ways, &mut warnings)?;
    let routes = routes::check(&models, &catalog, &made, &ways)?;
    Ok(Places { providers: made, ways, catalog, routes, fetches, warnings, troubles })
}

/// Takes away the lanes of stored models whose provider is not there, where others are left.
fn prune(
    models: &mut BTreeMap<String, RawModel>,
    providers: &[Arc<Provider>],
    ground: &Ground,
) -> Troubles {
    let mut troubles = Troubles::new();
    for (id, raw) in models {
        let entry = Entry::Model(id.clone());
        if ground.has(&entry) {
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
