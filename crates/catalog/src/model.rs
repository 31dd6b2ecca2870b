//! Models of the gateway: facts, prices and lanes.

use canon::Price;
use serde::Deserialize;
use std::sync::Arc;

use crate::{ImageCapabilities, Lane, ModelKind, ModelPrices};

/// Thinking options that a model supports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThinkingRange {
    /// Minimum budget in tokens, if it accepts budgets.
    pub min: Option<u64>,
    /// Maximum budget in tokens, if it accepts budgets.
    pub max: Option<u64>,
    /// True if thinking can be disabled.
    pub can_disable: bool,
    /// True if the model can choose the budget itself.
    pub dynamic: bool,
    /// Supported effort levels, lowest first; empty if there are none.
    pub levels: Vec<String>,
}

impl ThinkingRange {
    /// Returns the accepted budget nearest to the requested one.
    pub fn clamp(&self, budget: u64) -> u64 {
        let budget = self.max.map_or(budget, |max| budget.min(max));
        self.min.map_or(budget, |min| budget.max(min))
    }

    /// Returns true if the model accepts a budget in tokens.
    pub const fn accepts_budget(&self) -> bool {
        self.max.is_some()
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Maximum number of tokens of prompt and answer together.
    pub context_window: Option<u64>,
    /// Maximum number of tokens of an answer.
    pub max_output_tokens: Option<u64>,
    /// Input modalities from [`crate::MODALITIES`].
    pub input: Vec<String>,
    /// Output modalities from [`crate::MODALITIES`].
    pub output: Vec<String>,
    /// Supported thinking options; `None` if it does not think.
    pub thinking: Option<ThinkingRange>,
    /// Image capabilities; `None` if it makes no images or nothing is known.
    pub images: Option<ImageCapabilities>,
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
    /// Returns true if the directory has the model. Otherwise only its configuration is known.
    pub const fn is_in_directory(&self) -> bool {
        !self.as_of.is_empty()
    }

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

    /// Returns true if the model accepts that input modality.
    pub fn accepts_input(&self, modality: &str) -> bool {
        self.input.iter().any(|own| own == modality)
    }

    /// Returns true if the model produces that output modality.
    pub fn produces_output(&self, modality: &str) -> bool {
        self.output.iter().any(|own| own == modality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_clamped_to_the_range() {
        let range = ThinkingRange { min: Some(128), max: Some(32_768), ..ThinkingRange::default() };
        assert_eq!(range.clamp(1), 128);
        assert_eq!(range.clamp(4_096), 4_096);
        assert_eq!(range.clamp(u64::MAX), 32_768);
        assert_eq!(ThinkingRange::default().clamp(77), 77);
        assert!(range.accepts_budget() && !ThinkingRange::default().accepts_budget());
    }
}
