//! The directory: the source of truth for providers, models, capabilities and prices.
//!
//! Its data are the files under `data/`, one per provider, embedded in the binary and read once.
//! The file of a provider describes the provider's own models. Other providers that serve a model
//! list it in their own file as an offer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use canon::WireFormat;

use crate::data;
use crate::{Lane, Model, ModelCapabilities, ModelCounts, ModelKind, ModelPrices, ProviderEntry};

/// Facts of one model, independent of the provider that serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelEntry {
    /// Id that callers use.
    pub id: String,
    /// Other ids of the same model.
    pub aliases: Vec<String>,
    /// Id of the provider that owns the model.
    pub provider: String,
    /// Name of that provider.
    pub provider_name: String,
    /// Kind of output.
    pub kind: ModelKind,
    /// Capability tags from [`crate::FEATURES`].
    pub features: Vec<String>,
    /// Capabilities.
    pub capabilities: ModelCapabilities,
    /// Counts that are its own.
    pub counts: ModelCounts,
    /// Prices of its first offer.
    pub prices: Arc<ModelPrices>,
    /// Description in one or two sentences.
    pub about: String,
    /// Date of the facts, `YYYY-MM-DD`.
    pub as_of: String,
    /// Release date, if known.
    pub released: Option<String>,
    /// Announced retirement date, if known.
    pub retires: Option<String>,
    /// Providers that serve it. Its own provider comes first if it is one of them.
    pub offers: Vec<ModelOffer>,
}

/// One provider's offer of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOffer {
    /// Id of the provider.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
    /// Wire formats of the offer, if fewer than those of the provider; otherwise empty.
    pub formats: Vec<WireFormat>,
    /// Prices of the offer.
    pub prices: Arc<ModelPrices>,
}

impl ModelEntry {
    /// Returns the model with these lanes. The prices are those of the first lane that the
    /// directory knows, otherwise those of the entry.
    pub fn with_lanes(&self, lanes: Vec<Lane>) -> Model {
        let offer = lanes.iter().find_map(|lane| self.offer(&lane.provider, &lane.model));
        let prices = offer.map_or(&self.prices, |offer| &offer.prices);
        Model {
            id: self.id.clone(),
            aliases: self.aliases.clone(),
            provider: self.provider.clone(),
            provider_name: self.provider_name.clone(),
            kind: self.kind,
            features: self.features.clone(),
            capabilities: self.capabilities.clone(),
            counts: self.counts,
            prices: Arc::clone(prices),
            about: self.about.clone(),
            as_of: self.as_of.clone(),
            released: self.released.clone(),
            retires: self.retires.clone(),
            lanes,
        }
    }

    /// Returns the model with the lanes of the chosen providers; `None` if none of them serves it.
    pub fn served_by(&self, chosen: impl Fn(&str) -> bool) -> Option<Model> {
        let lanes: Vec<_> = self
            .offers
            .iter()
            .filter(|offer| chosen(&offer.provider))
            .map(|offer| Lane::new(&offer.provider, &offer.model))
            .collect();
        (!lanes.is_empty()).then(|| self.with_lanes(lanes))
    }

    fn offer(&self, provider: &str, model: &str) -> Option<&ModelOffer> {
        self.offers.iter().find(|offer| offer.provider == provider && offer.model == model)
    }
}

/// Error in the data files of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryError {
    /// Name of the file.
    pub file: String,
    /// Description of the error.
    pub reason: String,
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.reason)
    }
}

impl std::error::Error for DirectoryError {}

/// Providers and models that the gateway knows without configuration.
#[derive(Clone, Debug, Default)]
pub struct ModelDirectory {
    providers: Vec<ProviderEntry>,
    entries: Vec<ModelEntry>,
    by_id: HashMap<String, usize>,
}

impl ModelDirectory {
    /// Returns the embedded directory, read on first use.
    pub fn embedded() -> &'static Self {
        // Tests prove that the embedded files are valid. If one were not, a gateway without a
        // directory would still serve the configured models.
        static EMBEDDED: LazyLock<ModelDirectory> =
            LazyLock::new(|| ModelDirectory::read(&data::FILES).unwrap_or_default());
        &EMBEDDED
    }

    /// Reads a directory from files, given as names and texts.
    pub fn read(files: &[(&str, &str)]) -> Result<Self, DirectoryError> {
        data::read(files).map(|(providers, entries)| Self::of(providers, entries))
    }

    pub(crate) fn of(providers: Vec<ProviderEntry>, entries: Vec<ModelEntry>) -> Self {
        let mut by_id = HashMap::with_capacity(entries.len() * 2);
        for (place, entry) in entries.iter().enumerate() {
            for id in entry.aliases.iter().chain([&entry.id]) {
                by_id.insert(id.clone(), place);
            }
        }
        Self { providers, entries, by_id }
    }

    /// Returns the provider with that id.
    pub fn provider(&self, id: &str) -> Option<&ProviderEntry> {
        self.providers.iter().find(|provider| provider.id == id)
    }

    /// Returns all providers.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderEntry> {
        self.providers.iter()
    }

    /// Returns the model with that id or alias.
    pub fn model(&self, id: &str) -> Option<&ModelEntry> {
        self.by_id.get(id).and_then(|place| self.entries.get(*place))
    }

    /// Returns all models, grouped by provider.
    pub fn models(&self) -> impl Iterator<Item = &ModelEntry> {
        self.entries.iter()
    }

    /// Returns the model that a provider serves under its own name, with the offer. A configured
    /// lane uses it to find its facts if the operator gave the model another id.
    pub fn find_offer(&self, provider: &str, model: &str) -> Option<(&ModelEntry, &ModelOffer)> {
        self.entries
            .iter()
            .find_map(|entry| entry.offer(provider, model).map(|offer| (entry, offer)))
    }

    /// Returns the wire formats in which a provider serves the model with that name, the preferred
    /// format first. An unknown model counts as a chat model.
    pub fn formats(&self, provider: &str, model: &str) -> Vec<WireFormat> {
        let offered = self.find_offer(provider, model);
        let kind = offered.map_or(ModelKind::Chat, |(entry, _)| entry.kind);
        let own = offered.map(|(_, offer)| offer.formats.as_slice()).filter(|own| !own.is_empty());
        let all = own.or_else(|| Some(self.provider(provider)?.formats.as_slice())).unwrap_or(&[]);
        all.iter().copied().filter(|origin| origin.carries(kind)).collect()
    }
}
