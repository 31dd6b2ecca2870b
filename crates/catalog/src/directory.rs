//! The directory: the authority on providers, models, capabilities and prices.
//!
//! Its data are the files under `data/`, one per provider, embedded in the binary and read once.
//! A model stands in the file of the provider it belongs to; other providers that serve it under
//! a name of their own say so in theirs, as an offer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use canon::Origin;

use crate::data;
use crate::{Kind, Lane, Model, Palette, Prices, ProviderEntry, Thinking};

/// What the directory knows of one model, whoever serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id callers ask for.
    pub id: String,
    /// Other ids the same model goes by.
    pub aliases: Vec<String>,
    /// The id of the provider it belongs to.
    pub provider: String,
    /// What it makes.
    pub kind: Kind,
    /// Capability tags out of [`crate::FEATURES`].
    pub features: Vec<String>,
    /// How many tokens prompt and answer may hold together.
    pub context: Option<u64>,
    /// How many tokens an answer may hold.
    pub max_output: Option<u64>,
    /// Modalities it takes.
    pub input: Vec<String>,
    /// Modalities it gives.
    pub output: Vec<String>,
    /// How its thinking can be steered.
    pub thinking: Option<Thinking>,
    /// What pictures it makes, where that is known.
    pub pictures: Option<Palette>,
    /// What it costs at the first of its offers.
    pub prices: Arc<Prices>,
    /// What it is, in a sentence or two.
    pub about: String,
    /// The day the facts were taken, `YYYY-MM-DD`.
    pub as_of: String,
    /// The day it came out, where known.
    pub released: Option<String>,
    /// The day its provider says it will end, where known.
    pub retires: Option<String>,
    /// Who serves it; its own provider first where that one does.
    pub offers: Vec<Offer>,
}

/// One provider's offer of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The provider's id.
    pub provider: String,
    /// Its name for the model.
    pub model: String,
    /// The formats it serves the model in, where they are fewer than it speaks; else empty.
    pub speaks: Vec<Origin>,
    /// What it asks.
    pub prices: Arc<Prices>,
}

impl Entry {
    /// The model with these lanes, at the price of the first lane the directory knows, else at
    /// the entry's own price.
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

    /// The model as the chosen providers serve it; `None` when none of them does.
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

/// What is wrong with the directory's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryFault {
    /// The file.
    pub file: String,
    /// What is wrong in it.
    pub why: String,
}

impl fmt::Display for DirectoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why)
    }
}

impl std::error::Error for DirectoryFault {}

/// Every provider and model the gateway knows without being told.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    providers: Vec<ProviderEntry>,
    entries: Vec<Entry>,
    by_id: HashMap<String, usize>,
}

impl Directory {
    /// The directory in this binary, read on first use.
    pub fn embedded() -> &'static Self {
        // The embedded files are known to be good by test; were one not, a gateway without a
        // directory still serves what its operator configured.
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

    /// The provider with that id.
    pub fn provider(&self, id: &str) -> Option<&ProviderEntry> {
        self.providers.iter().find(|provider| provider.id == id)
    }

    /// Every provider.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderEntry> {
        self.providers.iter()
    }

    /// The model with that id, or that goes by it.
    pub fn model(&self, id: &str) -> Option<&Entry> {
        self.by_id.get(id).and_then(|place| self.entries.get(*place))
    }

    /// Every model, provider by provider.
    pub fn models(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The model a provider serves under that name of its own, and the offer. This is how a
    /// configured lane finds its facts when the operator gave the model another id.
    pub fn offered(&self, provider: &str, model: &str) -> Option<(&Entry, &Offer)> {
        self.entries
            .iter()
            .find_map(|entry| entry.offer(provider, model).map(|offer| (entry, offer)))
    }

    /// The formats in which a provider serves the model of that name of its own, the best one
    /// first. A model the directory does not know is taken to be a chat model.
    pub fn speaks(&self, provider: &str, model: &str) -> Vec<Origin> {
        let offered = self.offered(provider, model);
        let kind = offered.map_or(Kind::Chat, |(entry, _)| entry.kind);
        let own = offered.map(|(_, offer)| offer.speaks.as_slice()).filter(|own| !own.is_empty());
        let all = own.or_else(|| Some(self.provider(provider)?.speaks.as_slice())).unwrap_or(&[]);
        all.iter().copied().filter(|origin| carries(*origin, kind)).collect()
    }
}

/// Whether a format has a place for that kind of model: the native one has for all, embeddings
/// belong to the chat format's family, images have a format of their own.
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
