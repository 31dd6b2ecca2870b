//! Models of the gateway: facts, prices and lanes.

use canon::{Price, ThinkingRange};
use serde::Deserialize;
use std::sync::Arc;

use crate::{Lane, ModelCapabilities, ModelKind, ModelPrices};

/// Thinking of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThinkingSupport {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The model does not think.
    Never,
    /// The model thinks, with these options.
    Range(ThinkingRange),
}

impl ThinkingSupport {
    /// Returns the options of a model that thinks.
    pub const fn range(&self) -> Option<&ThinkingRange> {
        match self {
            Self::Range(range) => Some(range),
            Self::Unknown | Self::Never => None,
        }
    }

    /// Returns true if nothing is known.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }
}

/// Counts that a model is known for, where they differ from those of other models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCounts {
    /// Most tokens of one picture.
    pub image: Option<u64>,
    /// Most searches of a call that asks for none, if the model searches by itself.
    #[serde(default)]
    pub searches: u64,
    /// True if all searches for one prompt cost one fee.
    #[serde(default)]
    pub searches_once: bool,
}

/// A model of the gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Id that callers use.
    pub id: String,
    /// Other ids of the same model.
    pub aliases: Vec<String>,
    /// Id of the provider that owns the model, for example `openai`.
    pub provider: String,
    /// Name of that provider, for example `OpenAI`. The catalog shows it.
    pub provider_name: String,
    /// Kind of output.
    pub kind: ModelKind,
    /// Capability tags from [`crate::FEATURES`].
    pub features: Vec<String>,
    /// Capabilities.
    pub capabilities: ModelCapabilities,
    /// Counts that are its own.
    pub counts: ModelCounts,
    /// Prices.
    pub prices: Arc<ModelPrices>,
    /// Description in one or two sentences.
    pub about: String,
    /// Date of the facts, `YYYY-MM-DD`; empty if the directory has none.
    pub as_of: String,
    /// Release date, `YYYY-MM-DD`, if known.
    pub released: Option<String>,
    /// Announced retirement date, `YYYY-MM-DD`, if known.
    pub retires: Option<String>,
    /// Lanes that serve it, in order of preference.
    pub lanes: Vec<Lane>,
}

impl Model {
    /// Returns true if the model has that capability tag.
    pub fn has_feature(&self, feature: &str) -> bool {
        self.features.iter().any(|own| own == feature)
    }

    /// Returns the price of the tokens that the model is called for: those of images for an image
    /// model, if they have a price of their own.
    pub fn output_price(&self) -> Price {
        match self.kind {
            ModelKind::Image => self.prices.output_image.unwrap_or(self.prices.output),
            ModelKind::Chat | ModelKind::Embedding => self.prices.output,
        }
    }
}
