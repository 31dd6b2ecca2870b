//! The ways a model's thinking can be controlled, for formats with more than one way to ask.
//!
//! The catalog knows this for most models. For the others it is guessed from the model name, only
//! here.
//!
//! See <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking> and
//! <https://ai.google.dev/gemini-api/docs/thinking>.

use canon::{EffortLevel, ThinkingRange};
use std::borrow::Cow;

use crate::LaneSettings;

/// Returns the catalog's entry for the lane's model, or a guess by its name.
pub(crate) fn lane_range<'a>(lane: &LaneSettings<'a>) -> Cow<'a, ThinkingRange> {
    lane.thinking_range.map_or_else(|| Cow::Owned(range_by_name(lane.model)), Cow::Borrowed)
}

/// Guesses by the model name. An unknown model is assumed to support everything.
fn range_by_name(model: &str) -> ThinkingRange {
    let (accepts_budget, dynamic, has_levels) =
        match (claude_version(model), gemini_generation(model)) {
            (Some((0..=3, _) | (4, 0..=5)), _) => (true, false, false),
            (Some((4, 6)) | None, None | Some(3..)) => (true, true, true),
            (Some(_), _) => (false, true, true),
            (None, Some(_)) => (true, true, false),
        };
    ThinkingRange {
        min: accepts_budget.then_some(0),
        max: accepts_budget.then_some(u64::MAX),
        dynamic,
        can_disable: true,
        levels: EffortLevel::ALL.into_iter().skip(1).filter(|_| has_levels).collect(),
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
            let guess = range_by_name(model);
            let got = (guess.accepts_budget(), !guess.levels.is_empty());
            assert_eq!(got, (budget, levels), "{model}");
        }
    }

    /// Returns the request for that level, and the recorded losses.
    fn sent(
        origin: WireFormat,
        steering: &ThinkingRange,
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
            thinking_range: Some(steering),
            cache_field: None,
            client_tools: &[canon::ToolKind::Custom],
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
    fn a_model_that_does_not_think_is_not_asked_to() {
        let requested = ThinkingOptions::default();
        let high = ThinkingOptions { level: Some(EffortLevel::High), ..requested };
        let off = ThinkingOptions { level: Some(EffortLevel::Off), ..requested };
        let tokens = ThinkingOptions { budget: Some(9_000), ..requested };
        let dynamic = ThinkingOptions { dynamic: true, ..requested };
        for (origin, silent) in
            [(WireFormat::Native, Value::Null), (WireFormat::Messages, json!([null, null]))]
        {
            for (requested, is_lost) in
                [(requested, false), (high, true), (off, false), (tokens, true), (dynamic, true)]
            {
                let (sent, lost) = sent(origin, &ThinkingRange::NEVER, requested);
                assert_eq!(sent, silent, "{origin} {requested:?}");
                let expected: &[&str] = if is_lost { &["thinking"] } else { &[] };
                assert_eq!(lost, expected, "{origin} {requested:?}");
            }
        }
    }

    #[test]
    fn catalog_entry_overrides_the_name() {
        let levels = vec![EffortLevel::Low, EffortLevel::Medium, EffortLevel::High];
        let by_level = ThinkingRange { dynamic: true, levels, ..ThinkingRange::default() };
        let by_budget =
            ThinkingRange { min: Some(2_048), max: Some(30_000), ..ThinkingRange::default() };
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
}
