//! Thinking options of a model: the record of the directory, and what the writers of each format use.

use serde::{Deserialize, Serialize};

use crate::{EffortLevel, Losses};

/// Thinking options that a model supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThinkingRange {
    /// Minimum budget in tokens, if it accepts budgets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Maximum budget in tokens, if it accepts budgets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// True if thinking can be disabled.
    pub can_disable: bool,
    /// True if the model can choose the budget itself.
    pub dynamic: bool,
    /// Supported effort levels, lowest first; empty if there are none.
    pub levels: Vec<EffortLevel>,
}

impl ThinkingRange {
    /// Returns the accepted budget nearest to the requested one.
    pub fn clamp_budget(&self, budget: u64) -> u64 {
        let budget = self.max.map_or(budget, |max| budget.min(max));
        self.min.map_or(budget, |min| budget.max(min))
    }

    /// Returns true if the model accepts a budget in tokens.
    pub const fn accepts_budget(&self) -> bool {
        self.max.is_some()
    }

    /// Thinking of a model that does not think: it has no parameter for it.
    pub const NEVER: Self =
        Self { min: None, max: None, can_disable: true, dynamic: false, levels: Vec::new() };

    /// Returns true if the model does not think. Records a loss if it was asked to.
    pub fn note_missing_thinking(&self, is_wanted: bool, losses: &mut Losses) -> bool {
        let is_missing = *self == Self::NEVER;
        losses.add_if(is_missing && is_wanted, "thinking", "this model does not think");
        is_missing
    }

    /// Returns false if no parameter is known: the model does not think, or it is not known how it is asked to.
    pub const fn has_controls(&self) -> bool {
        self.accepts_budget() || self.dynamic || !self.levels.is_empty()
    }

    /// Returns the nearest level that both the model and the format support: the next lower one, or
    /// else the lowest. Records a loss if it differs from `requested`.
    pub fn nearest_level(
        &self,
        requested: EffortLevel,
        words: &[EffortLevel],
        losses: &mut Losses,
    ) -> Option<EffortLevel> {
        let known = |level: &&EffortLevel| words.contains(level);
        let below = self.levels.iter().filter(known).rfind(|level| **level <= requested);
        let found = below.or_else(|| self.levels.iter().find(known)).copied();
        let is_other =
            found.is_some_and(|found| found != requested && requested > EffortLevel::Low);
        let why = "the model has no such level, so the nearest one is sent";
        losses.add_if(is_other, "thinking.level", why);
        found
    }

    /// Returns the level for a format without budgets. `None` if the level is better left out.
    pub fn effort_level(&self, requested: EffortLevel, losses: &mut Losses) -> Option<EffortLevel> {
        if self.note_missing_thinking(requested != EffortLevel::Off, losses) {
            return None;
        }
        if requested == EffortLevel::Off && !self.note_unavoidable_thinking(losses) {
            return Some(requested);
        }
        match self.levels.is_empty() {
            true => Some(requested).filter(|requested| *requested != EffortLevel::Off),
            false => self.nearest_level(requested, &EffortLevel::ALL, losses),
        }
    }

    /// Records a loss and returns true if the model thinks although thinking was switched off.
    pub fn note_unavoidable_thinking(&self, losses: &mut Losses) -> bool {
        let why = "the thinking of this model cannot be switched off";
        losses.add_if(!self.can_disable, "thinking", why);
        !self.can_disable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_clamped_to_the_range() {
        let range = ThinkingRange { min: Some(128), max: Some(32_768), ..ThinkingRange::default() };
        assert_eq!(range.clamp_budget(1), 128);
        assert_eq!(range.clamp_budget(4_096), 4_096);
        assert_eq!(range.clamp_budget(u64::MAX), 32_768);
        assert_eq!(ThinkingRange::default().clamp_budget(77), 77);
        assert!(range.accepts_budget() && !ThinkingRange::default().accepts_budget());
        assert!(range.has_controls() && !ThinkingRange::default().has_controls());
    }

    #[test]
    fn nearest_level_is_the_next_lower_or_the_lowest() {
        let known = ThinkingRange {
            levels: vec![EffortLevel::Low, EffortLevel::High],
            ..ThinkingRange::default()
        };
        for (requested, words, found, recorded) in [
            (EffortLevel::High, &EffortLevel::ALL[..], Some(EffortLevel::High), false),
            (EffortLevel::Medium, &EffortLevel::ALL[..], Some(EffortLevel::Low), true),
            (EffortLevel::Max, &EffortLevel::ALL[..], Some(EffortLevel::High), true),
            (EffortLevel::Minimal, &EffortLevel::ALL[..], Some(EffortLevel::Low), false),
            (EffortLevel::High, &[EffortLevel::Low][..], Some(EffortLevel::Low), true),
            (EffortLevel::High, &[][..], None, false),
        ] {
            let mut losses = Losses::new();
            assert_eq!(known.nearest_level(requested, words, &mut losses), found, "{requested:?}");
            assert_eq!(!losses.is_empty(), recorded, "{requested:?}");
        }
    }

    #[test]
    fn requests_a_supported_level() {
        use EffortLevel::{High, Low, Max, Medium, Minimal, Off, XHigh};
        let of = |levels: &[EffortLevel], can_disable| ThinkingRange {
            levels: levels.to_vec(),
            can_disable,
            ..ThinkingRange::default()
        };
        for (range, requested, expected, lost) in [
            (of(&[Low, Medium, High], true), Off, Some(Off), None),
            (of(&[Low, Medium, High], true), Minimal, Some(Low), None),
            (of(&[Low, Medium, High], true), Max, Some(High), Some("thinking.level")),
            (of(&[Medium, XHigh], false), Off, Some(Medium), Some("thinking")),
            (of(&[], false), Off, None, Some("thinking")),
            (ThinkingRange { max: Some(9), ..of(&[], true) }, XHigh, Some(XHigh), None),
            (ThinkingRange::NEVER, XHigh, None, Some("thinking")),
            (ThinkingRange::NEVER, Off, None, None),
        ] {
            let mut losses = Losses::new();
            assert_eq!(
                range.effort_level(requested, &mut losses),
                expected,
                "{range:?} {requested:?}"
            );
            let recorded = losses.iter().map(|loss| loss.path.as_str()).next();
            assert_eq!(recorded, lost, "{range:?} {requested:?}");
        }
    }
}
