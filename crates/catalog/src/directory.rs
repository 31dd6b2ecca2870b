//! The directory: the source of truth for providers, models, capabilities and prices.
//!
//! Its data are the files under `data/`, one per provider, embedded in the binary and read once.
//! The file of a provider describes the provider's own models. Other providers that serve a model
//! list it in their own file as an offer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use canon::Origin;

use crate::data;
use crate::{Kind, Lane, Model, Palette, Prices, ProviderEntry, Thinking};

/// Facts of one model, independent of the provider that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Id that callers use.
    pub id: String,
    /// Other ids of the same model.
    pub aliases: Vec<String>,
    /// Id of the provider that owns the model.
    pub provider: String,
    /// Kind of output.
    pub kind: Kind,
    /// Capability tags from [`crate::FEATURES`].
    pub features: Vec<String>,
    /// Maximum number of tokens of prompt and answer together.
    pub context: Option<u64>,
    /// Maximum number of tokens of an answer.
    pub max_output: Option<u64>,
    /// Input modalities.
    pub input: Vec<String>,
    /// Output modalities.
    pub output: Vec<String>,
    /// Supported thinking options.
    pub thinking: Option<Thinking>,
    /// Image capabilities, if known.
    pub pictures: Option<Palette>,
    /// Prices of its first offer.
    pub prices: Arc<Prices>,
    /// Description in one or two sentences.
    pub about: String,
    /// Date of the facts, `YYYY-MM-DD`.
    pub as_of: String,
    /// Release date, if known.
    pub released: Option<String>,
    /// Announced retirement date, if known.
    pub retires: Option<String>,
    /// Providers that serve it. Its own provider comes first if it is one of them.
    pub offers: Vec<Offer>,
}

/// One provider's offer of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Id of the provider.
    pub provider: String,
    /// The provider's name for the model.
    pub model: String,
    /// Wire formats of the offer, if fewer than those of the provider; otherwise empty.
    pub speaks: Vec<Origin>,
    /// Prices of the offer.
    pub prices: Arc<Prices>,
}

impl Entry {
    /// Returns the model with these lanes. The prices are those of the first lane that the
    /// directory knows, otherwise those of the entry.
    pub fn with_lanes(&self, lanes: Vec<Lane>) -> Model {
        let offer = lanes.iter().find_map(|lane| self.offer(&lane.provider, &lane.model));
        let prices = offer.map_or(&self.prices, |offer| &offer.prices);
        Model {
            id: self.id.clone(),
            aliases: self.aliases.clone(),
            provider: self.provider.clone(),
            kind: self.kind,
            features: self.features.clone(),
            context: self.context,
            max_output: self.max_output,
            input: self.input.clone(),
            output: self.output.clone(),
            thinking: self.thinking.clone(),
            pictures: self.pictures.clone(),
            prices: Arc::clone(prices),
            about: self.about.clone(),
            as_of: self.as_of.clone(),
            released: self.released.clone(),
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

    fn offer(&self, provider: &str, model: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.provider == provider && offer.model == model)
    }
}

/// Error in the data files of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryFault {
    /// Name of the file.
    pub file: String,
    /// Description of the error.
    pub why: String,
}

impl fmt::Display for DirectoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why)
    }
}

impl std::error::Error for DirectoryFault {}

/// Providers and models that the gateway knows without configuration.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    providers: Vec<ProviderEntry>,
    entries: Vec<Entry>,
    by_id: HashMap<String, usize>,
}

impl Directory {
    /// Returns the embedded directory, read on first use.
    pub fn embedded() -> &'static Self {
        // Tests prove that the embedded files are valid. If one were not, a gateway without a
        // directory would still serve the configured models.
        static EMBEDDED: LazyLock<Directory> =
            LazyLock::new(|| Directory::read(&data::FILES).unwrap_or_default());
        &EMBEDDED
    }

    /// Reads a directory from files, given as names and texts.
    pub fn read(files: &[(&str, &str)]) -> Result<Self, DirectoryFault> {
        data::read(files).map(|(providers, entries)| Self::of(providers, entries))
    }

    fn of(providers: Vec<ProviderEntry>, entries: Vec<Entry>) -> Self {
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
    pub fn model(&self, id: &str) -> Option<&Entry> {
        self.by_id.get(id).and_then(|place| self.entries.get(*place))
    }

    /// Returns all models, grouped by provider.
    pub fn models(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the model that a provider serves under its own name, with the offer. A configured
    /// lane uses it to find its facts if the operator gave the model another id.
    pub fn offered(&self, provider: &str, model: &str) -> Option<(&Entry, &Offer)> {
        self.entries
            .iter()
            .find_map(|entry| entry.offer(provider, model).map(|offer| (entry, offer)))
    }

    /// Returns the wire formats in which a provider serves the model with that name, the preferred
    /// format first. An unknown model counts as a chat model.
    pub fn speaks(&self, provider: &str, model: &str) -> Vec<Origin> {
        let offered = self.offered(provider, model);
        let kind = offered.map_or(Kind::Chat, |(entry, _)| entry.kind);
        let own = offered.map(|(_, offer)| offer.speaks.as_slice()).filter(|own| !own.is_empty());
        let all = own.or_else(|| Some(self.provider(provider)?.speaks.as_slice())).unwrap_or(&[]);
        all.iter().copied().filter(|origin| carries(*origin, kind)).collect()
    }
}

/// Returns true if a format can carry that kind of model. The native format carries all kinds,
/// embeddings belong to the chat format, and images have a format of their own.
const fn carries(origin: Origin, kind: Kind) -> bool {
    match (origin, kind) {
        (Origin::Native, Kind::Chat | Kind::Image | Kind::Embedding)
        | (Origin::Chat, Kind::Chat | Kind::Embedding)
        | (Origin::Responses | Origin::Messages, Kind::Chat)
        | (Origin::Images, Kind::Image) => true,
        (Origin::Chat | Origin::Responses | Origin::Messages, Kind::Image)
        | (Origin::Responses | Origin::Messages, Kind::Embedding)
        | (Origin::Images, Kind::Chat | Kind::Embedding) => false,
    }
}
