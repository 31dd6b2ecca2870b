//! Providers as administrators see them.

use canon::Micros;
use config::{
    Config, DEMO_PROVIDER, EntryName, OWN_OBJECTS, SHARED_OBJECTS, StoredEntries, StoredProvider,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use upstream::Provider;

use crate::error::AdminError;
use crate::time_text::serialize_optional_time;
use crate::version::version_of;

/// Place where a provider, a model or a credential is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntrySource {
    /// Part of the program or of its directory.
    BuiltIn,
    /// The configuration file.
    File,
    /// The store, through administration.
    Stored,
    /// A variable of the environment.
    Environment,
}

impl EntrySource {
    fn of_provider(config: &Config, stored: &StoredEntries, name: &str) -> Self {
        if name == DEMO_PROVIDER {
            Self::BuiltIn
        } else if config.file_layer.contains(&EntryName::Provider(name.to_owned())) {
            Self::File
        } else if stored.providers.contains_key(name) {
            Self::Stored
        } else {
            Self::Environment
        }
    }
}

/// A provider without the health of its lanes, which changes all the time. The version of a
/// provider is computed from this part.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderView {
    /// Name of the provider.
    pub id: String,
    /// Place where it is configured.
    pub source: EntrySource,
    /// Entry of the directory that it follows.
    pub of: Option<String>,
    /// Wire formats it accepts.
    pub speaks: Vec<&'static str>,
    /// Base address.
    pub base: Option<String>,
    /// Calls that may run at once; `None` is unlimited.
    pub max_in_flight: Option<usize>,
    /// Objects in the operator's account that callers may name: `own` or `shared`.
    pub objects: &'static str,
    /// Reason why it cannot be used.
    pub trouble: Option<String>,
    /// Settings as the administrator sent them; `None` if it is not stored.
    pub settings: Option<Map<String, Value>>,
    /// Credentials, without their secrets.
    pub credentials: Vec<CredentialView>,
}

/// A credential without its secret.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialView {
    /// Id of the credential.
    pub id: String,
    /// Name the administrator gave it.
    pub name: String,
    /// Place where it is configured.
    pub source: EntrySource,
    /// Time it was added, if it is stored.
    #[serde(serialize_with = "serialize_optional_time")]
    pub added: Option<Micros>,
    /// Reason why it cannot be used.
    pub trouble: Option<String>,
}

/// Health of one lane with one credential.
#[derive(Clone, Debug, Serialize)]
pub struct LaneView {
    /// Name of the lane: provider/model.
    pub lane: String,
    /// Index of the credential.
    pub credential: usize,
    /// State in one word.
    pub standing: &'static str,
    /// Failures in a row.
    pub failures: u32,
    /// Running calls.
    pub pending: u32,
    /// Usual time to a response, if measured recently.
    pub latency_ms: Option<u64>,
    /// Reason of the last failure.
    pub last_failure: Option<&'static str>,
}

/// A provider with the health of its lanes.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderDetail {
    /// The part that changes only through administration.
    #[serde(flatten)]
    pub provider: ProviderView,
    /// Health of its lanes.
    pub lanes: Vec<LaneView>,
    /// Credentials that cannot be fetched or renewed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credential_troubles: Vec<CredentialTrouble>,
}

/// A credential that cannot be fetched or renewed.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialTrouble {
    /// Index of the credential, as in the lanes.
    pub credential: usize,
    /// The reason.
    pub why: String,
}

/// Returns the credentials of a provider that cannot be fetched or renewed.
pub(crate) fn credential_troubles(provider: &Provider) -> Vec<CredentialTrouble> {
    let trouble = |credential| {
        let why = provider.credential_trouble(credential)?;
        Some(CredentialTrouble { credential, why })
    };
    (0..provider.credential_count()).filter_map(trouble).collect()
}

impl ProviderDetail {
    /// Joins a provider with its state, which changes all the time.
    pub(crate) fn new(config: &Config, provider: ProviderView, lanes: Vec<LaneView>) -> Self {
        let live = config.providers.iter().find(|live| live.name == provider.id);
        let credential_troubles = live.map(|live| credential_troubles(live)).unwrap_or_default();
        Self { provider, lanes, credential_troubles }
    }

    /// Version of the provider, for a change of what was read.
    pub fn version(&self) -> String {
        version_of(&self.provider)
    }
}

impl ProviderView {
    /// Describes a provider; `None` if there is none of that name.
    pub(crate) fn find(config: &Config, stored: &StoredEntries, name: &str) -> Option<Self> {
        let live = config.providers.iter().find(|provider| provider.name == name);
        let own = stored.providers.get(name);
        if live.is_none() && own.is_none() {
            return None;
        }
        let source = EntrySource::of_provider(config, stored, name);
        let raw = own.and_then(|own| own.raw.as_ref().ok());
        let of = config
            .endpoints
            .get(name)
            .map(|endpoints| endpoints.provider.clone())
            .filter(|of| !of.is_empty());
        // A provider that is not live shows its settings, completed from the directory.
        let known = raw.map(|raw| raw.like.as_deref().unwrap_or(name));
        let known = known.and_then(|of| catalog::ModelDirectory::embedded().provider(of));
        let speaks = live.map(|live| &live.formats).or_else(|| known.map(|known| &known.formats));
        let base = live.filter(|_| name != DEMO_PROVIDER).map(|live| live.address());
        let base = base.or_else(|| raw.and_then(|raw| raw.base.clone()));
        let max_in_flight = live.map(|live| live.max_in_flight);
        let is_shared = live.is_some_and(|live| live.shares_objects);
        Some(Self {
            id: name.to_owned(),
            source,
            of: of.or_else(|| known.map(|known| known.id.clone())),
            speaks: speaks.into_iter().flatten().map(|one| one.as_str()).collect(),
            base: base.or_else(|| known.map(|known| known.base.clone())),
            max_in_flight: max_in_flight.filter(|max_in_flight| *max_in_flight != usize::MAX),
            objects: if is_shared { SHARED_OBJECTS } else { OWN_OBJECTS },
            trouble: config.issues.get(&EntryName::Provider(name.to_owned())).cloned(),
            settings: own.map(|own| own.settings.clone()),
            credentials: credential_views(source, live.map(|live| &**live), own),
        })
    }
}

fn credential_views(
    source: EntrySource,
    live: Option<&Provider>,
    own: Option<&StoredProvider>,
) -> Vec<CredentialView> {
    let stored = source == EntrySource::Stored;
    if let Some(own) = own.filter(|own| stored && !own.credentials.is_empty()) {
        let views = own.credentials.iter().map(|one| CredentialView {
            id: one.id.clone(),
            name: one.name.clone(),
            source: EntrySource::Stored,
            added: Some(one.added_at),
            trouble: one.auth.as_ref().err().map(ToString::to_string),
        });
        return views.collect();
    }
    // A stored provider without credentials of its own uses those of the environment, if any.
    let source = if stored { EntrySource::Environment } else { source };
    let Some(live) = live else { return Vec::new() };
    let slots = (0..live.credential_count()).filter(|slot| live.has_credential(*slot));
    let views = slots.map(|slot| CredentialView {
        id: slot.to_string(),
        name: format!("credential {}", slot + 1),
        source,
        added: None,
        trouble: None,
    });
    views.collect()
}

/// Health of the lanes of each provider.
pub(crate) fn lane_views(config: &Config, now: Micros) -> BTreeMap<String, Vec<LaneView>> {
    let mut all: BTreeMap<String, Vec<LaneView>> = BTreeMap::new();
    for lane in config.lane_health(now) {
        let provider = lane.lane.split('/').next().unwrap_or_default().to_owned();
        let health = &lane.health;
        let latency = health.latency.map(|time| time.as_millis());
        all.entry(provider).or_default().push(LaneView {
            credential: lane.credential,
            standing: health.state.as_str(),
            failures: health.failure_streak,
            pending: health.pending,
            latency_ms: latency.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            last_failure: health.last_failure,
            lane: lane.lane,
        });
    }
    all
}

/// Refuses to change a provider that is built in or defined in the file.
pub(crate) fn require_changeable(config: &Config, name: &str) -> Result<(), AdminError> {
    if name == DEMO_PROVIDER {
        return Err(AdminError::invalid(
            "",
            "the demo models are built in; `[server] demo` turns them on or off",
        ));
    }
    if config.file_layer.contains(&EntryName::Provider(name.to_owned())) {
        let message = format!("`{name}` is in the configuration file; change it there");
        return Err(AdminError::invalid("", message));
    }
    Ok(())
}
