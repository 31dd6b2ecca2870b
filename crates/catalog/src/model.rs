//! A model this gateway offers: its facts, its prices, its lanes.

use std::sync::Arc;

use crate::{Kind, Lane, Palette, Prices};

/// How a model's thinking can be steered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// The smallest budget in tokens it accepts, where it takes budgets.
    pub min: Option<u64>,
    /// The largest budget in tokens it accepts, where it takes budgets.
    pub max: Option<u64>,
    /// Whether thinking can be switched off.
    pub can_disable: bool,
    /// Whether it can decide for itself how long to think.
    pub dynamic: bool,
    /// The effort levels it knows, lowest first; empty where it takes none.
    pub levels: Vec<String>,
}

impl Thinking {
    /// The budget nearest to the wished one that the model accepts.
    pub fn clamp(&self, budget: u64) -> u64 {
        let budget = self.max.map_or(budget, |max| budget.min(max));
        self.min.map_or(budget, |min| budget.max(min))
    }

    /// Whether the model takes a budget in tokens at all.
    pub const fn takes_budget(&self) -> bool {
        self.max.is_some()
    }
}

/// A model as the gateway offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The id callers ask for.
    pub id: String,
    /// Other ids for it.
    pub aliases: Vec<String>,
    /// The id of the provider the model belongs to, such as `openai`; shown in the catalog.
    pub provider: String,
    /// What it makes.
    pub kind: Kind,
    /// Capability tags out of [`crate::FEATURES`].
    pub features: Vec<String>,
    /// How many tokens prompt and answer may hold together.
    pub context: Option<u64>,
    /// How many tokens an answer may hold.
    pub max_output: Option<u64>,
    /// Modalities it takes, out of [`crate::MODALITIES`].
    pub input: Vec<String>,
    /// Modalities it gives, out of [`crate::MODALITIES`].
    pub output: Vec<String>,
    /// How its thinking can be steered; `None` when it does not think.
    pub thinking: Option<Thinking>,
    /// What pictures it makes; `None` when it makes none, or nothing is known of them.
    pub pictures: Option<Palette>,
    /// What it costs.
    pub prices: Arc<Prices>,
    /// What it is, in a sentence or two.
    pub about: String,
    /// The day the facts were taken, `YYYY-MM-DD`.
    pub as_of: String,
    /// The day it came out, `YYYY-MM-DD`, where known.
    pub released: Option<String>,
    /// Who serves it, in order of preference.
    pub lanes: Vec<Lane>,
}

impl Model {
    /// Whether the model has that capability tag.
    pub fn can(&self, feature: &str) -> bool {
        self.features.iter().any(|own| own == feature)
    }

    /// Whether the model takes that modality.
    pub fn takes(&self, modality: &str) -> bool {
        self.input.iter().any(|own| own == modality)
    }

    /// Whether the model gives that modality.
    pub fn gives(&self, modality: &str) -> bool {
        self.output.iter().any(|own| own == modality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_brought_into_the_range() {
        let range = Thinking { min: Some(128), max: Some(32_768), ..Thinking::default() };
        assert_eq!(range.clamp(1), 128);
        assert_eq!(range.clamp(4_096), 4_096);
        assert_eq!(range.clamp(u64::MAX), 32_768);
        assert_eq!(Thinking::default().clamp(77), 77);
        assert!(range.takes_budget() && !Thinking::default().takes_budget());
    }
}
