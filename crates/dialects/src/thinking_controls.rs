//! The ways a model's thinking can be controlled, for formats with more than one way to ask.
//!
//! The catalog knows this for most models. For the others it is guessed from the model name, only
//! here.
//!
//! See <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking> and
//! <https://ai.google.dev/gemini-api/docs/thinking>.

use canon::{EffortLevel, Losses};
use std::borrow::Cow;

use crate::LaneSettings;

/// The ways a model's thinking can be controlled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThinkingControls {
    /// Smallest and largest budget in tokens. `None` if the model takes no budget.
    pub budget: Option<(u64, u64)>,
    /// True if the model can choose the amount of thinking itself.
    pub dynamic: bool,
    /// True if thinking can be switched off.
    pub can_disable: bool,
    /// Supported levels, lowest first. Empty if the model takes no level.
    pub levels: Vec<EffortLevel>,
}

const ANY_BUDGET_TOKENS: Option<(u64, u64)> = Some((0, u64::MAX));

impl ThinkingControls {
    /// Returns the catalog's entry for the lane's model, or a guess by its name.
    pub(crate) fn for_lane<'a>(lane: &LaneSettings<'a>) -> Cow<'a, Self> {
        lane.thinking_controls.map_or_else(|| Cow::Owned(Self::by_name(lane.model)), Cow::Borrowed)
    }

    /// Guesses by the model name. An unknown model is assumed to support everything.
    fn by_name(model: &str) -> Self {
        let (budget, dynamic, has_levels) = match (claude_version(model), gemini_generation(model))
        {
            (Some((0..=3, _) | (4, 0..=5)), _) => (ANY_BUDGET_TOKENS, false, false),
            (Some((4, 6)) | None, None | Some(3..)) => (ANY_BUDGET_TOKENS, true, true),
            (Some(_), _) => (None, true, true),
            (None, Some(_)) => (ANY_BUDGET_TOKENS, true, false),
        };
        let levels = EffortLevel::ALL.into_iter().skip(1).filter(|_| has_levels).collect();
        Self { budget, dynamic, can_disable: true, levels }
    }

    /// Returns the nearest level that both the model and the format support: the next lower one, or
    /// else the lowest. Records a loss if it differs from `wish`.
    pub(crate) fn nearest_level(
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
    pub(crate) fn effort_level(
        &self,
        requested: EffortLevel,
        losses: &mut Losses,
    ) -> Option<EffortLevel> {
        if requested == EffortLevel::Off && !self.note_unavoidable_thinking(losses) {
            return Some(requested);
        }
        match self.levels.is_empty() {
            true => Some(requested).filter(|requested| *requested != EffortLevel::Off),
            false => self.nearest_level(requested, &EffortLevel::ALL, losses),
        }
    }

    /// Limits a budget to the model's range.
    pub(crate) fn clamp_budget(&self, budget: u64) -> u64 {
        self.budget.map_or(budget, |(min, max)| budget.min(max).max(min))
    }

    /// Records a loss and returns true if the model thinks although thinking was switched off.
    pub(crate) fn note_unavoidable_thinking(&self, losses: &mut Losses) -> bool {
        let why = "the thinking of this model cannot be switched off";
        losses.add_if(!self.can_disable, "thinking", why);
        !self.can_disable
    }
}

/// Version number in the name of a Claude model.
fn claude_version(model: &str) -> Option<(u32, u32)> {
    let rest = text_after(model, "claude-")?;
    // Longer numbers are dates.
    let mut numbers = rest
        .split(['-', '.', '@', ':', '_'])
        .filter(|word| word.len() <= 2)
        .filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Generation in the name of a Gemini model.
fn gemini_generation(model: &str) -> Option<u32> {
    let rest = text_after(model, "gemini-")?;
    rest.split(['-', '.']).next()?.parse().ok()
}

/// Returns the text behind a word. The names of models are short, so that a searcher of the standard
/// library would cost more than the search.
fn text_after<'a>(model: &'a str, word: &str) -> Option<&'a str> {
    model.get(memchr::memmem::find(model.as_bytes(), word.as_bytes())? + word.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{ChatRequest, ThinkingOptions, WireFormat};
    use serde_json::{Value, json};

    #[test]
    fn guesses_by_model_name() {
        for (model, budget, levels) in [
            ("claude-3-7-sonnet-20250219", true, false),
            ("claude-opus-4-20250514", true, false),
            ("anthropic.claude-sonnet-4-5-20250929-v1:0", true, false),
            ("anthropic/claude-haiku-4.5", true, false),
            ("claude-sonnet-4-6", true, true),
            ("claude-opus-4-8", false, true),
            ("claude-sonnet-5", false, true),
            ("claude-latest", true, true),
            ("models/gemini-2.5-pro", true, false),
            ("gemini-1.5-flash", true, false),
            ("gemini-3-pro", true, true),
            ("gemini-x-1", true, true),
            ("house-model", true, true),
        ] {
            let guess = ThinkingControls::by_name(model);
            let got = (guess.budget.is_some(), !guess.levels.is_empty());
            assert_eq!(got, (budget, levels), "{model}");
        }
    }

    #[test]
    fn nearest_level_is_the_next_lower_or_the_lowest() {
        let known = ThinkingControls {
            levels: vec![EffortLevel::Low, EffortLevel::High],
            ..ThinkingControls::default()
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

    /// Returns the request for that level, and the recorded losses.
    fn sent(
        origin: WireFormat,
        steering: &ThinkingControls,
        thinking: ThinkingOptions,
    ) -> (Value, Vec<String>) {
        let turns = vec![canon::Turn::new(canon::Role::User, vec![canon::Part::text("Hello.")])];
        let chat = ChatRequest { thinking, turns, ..ChatRequest::default() };
        // The name suggests the opposite of the catalog's entry.
        let model = if origin == WireFormat::Native { "gemini-2.5-pro" } else { "claude-opus-4-8" };
        let (limit, max_output) = (None, Some(200_000));
        let lane = LaneSettings {
            model,
            max_payable_output: limit,
            model_max_output: max_output,
            thinking_controls: Some(steering),
            cache_field: None,
        };
        let (out, losses) = crate::get(origin).unwrap().write_request(&chat, &lane).unwrap();
        let body: Value = serde_json::from_slice(&out.body.to_vec()).unwrap();
        let sent_value = match origin {
            WireFormat::Native => body["generationConfig"]["thinkingConfig"].clone(),
            _ => json!([body["thinking"], body["output_config"]["effort"]]),
        };
        (sent_value, losses.into_iter().map(|loss| loss.path).collect())
    }

    #[test]
    fn catalog_entry_overrides_the_name() {
        let levels = vec![EffortLevel::Low, EffortLevel::Medium, EffortLevel::High];
        let by_level = ThinkingControls { dynamic: true, levels, ..ThinkingControls::default() };
        let by_budget =
            ThinkingControls { budget: Some((2_048, 30_000)), ..ThinkingControls::default() };
        let requested = ThinkingOptions::default();
        let high = ThinkingOptions { level: Some(EffortLevel::High), ..requested };
        let highest = ThinkingOptions { level: Some(EffortLevel::Max), ..requested };
        let off = ThinkingOptions { level: Some(EffortLevel::Off), ..requested };
        let tokens = ThinkingOptions { budget: Some(9_000), ..requested };
        let enabled = |tokens: u64| json!([{"type": "enabled", "budget_tokens": tokens}, null]);
        let (native, messages) = (WireFormat::Native, WireFormat::Messages);
        let nothing: [&str; 0] = [];
        for (origin, steering, requested, sent_value, lost) in [
            (native, &by_level, high, json!({"thinkingLevel": "HIGH"}), &nothing[..]),
            (native, &by_level, tokens, json!({"thinkingLevel": "MEDIUM"}), &["thinking.budget"]),
            (native, &by_level, off, json!({"thinkingLevel": "LOW"}), &["thinking"]),
            (native, &by_budget, high, json!({"thinkingBudget": 24_576}), &nothing),
            (native, &by_budget, highest, json!({"thinkingBudget": 30_000}), &nothing),
            (native, &by_budget, tokens, json!({"thinkingBudget": 9_000}), &nothing),
            (native, &by_budget, off, json!({"thinkingBudget": 2_048}), &["thinking"]),
            (
                messages,
                &by_level,
                highest,
                json!([{"type": "adaptive"}, "high"]),
                &["thinking.level"],
            ),
            (messages, &by_level, off, json!([null, null]), &["thinking"]),
            (messages, &by_budget, high, enabled(24_576), &nothing),
            (messages, &by_budget, tokens, enabled(9_000), &nothing),
            (messages, &by_budget, highest, enabled(30_000), &nothing),
        ] {
            let got = sent(origin, steering, requested);
            let lost: Vec<String> = lost.iter().map(|what| (*what).to_owned()).collect();
            assert_eq!(got, (sent_value, lost), "{origin} {steering:?} {requested:?}");
        }
    }

    #[test]
    fn requests_a_supported_level() {
        use EffortLevel::{High, Low, Max, Medium, Minimal, Off, XHigh};
        let of = |levels: &[EffortLevel], can_disable| ThinkingControls {
            levels: levels.to_vec(),
            can_disable,
            ..ThinkingControls::default()
        };
        for (steering, requested, expected, lost) in [
            (of(&[Low, Medium, High], true), Off, Some(Off), None),
            (of(&[Low, Medium, High], true), Minimal, Some(Low), None),
            (of(&[Low, Medium, High], true), Max, Some(High), Some("thinking.level")),
            (of(&[Medium, XHigh], false), Off, Some(Medium), Some("thinking")),
            (of(&[], false), Off, None, Some("thinking")),
            (of(&[], true), XHigh, Some(XHigh), None),
        ] {
            let mut losses = Losses::new();
            assert_eq!(
                steering.effort_level(requested, &mut losses),
                expected,
                "{steering:?} {requested:?}"
            );
            let recorded = losses.iter().map(|loss| loss.path.as_str()).next();
            assert_eq!(recorded, lost, "{steering:?} {requested:?}");
        }
    }
}
