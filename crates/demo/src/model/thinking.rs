//! Thinking of the demo model: its text and its visibility.

use canon::{EffortLevel, ThinkingDisplay, ThinkingOptions, WireFormat};

use super::prompt::Prompt;

/// Thoughts before an answer.
pub(super) struct Thoughts {
    /// The complete text, visible or not.
    pub(super) text: String,
    /// True if the caller sees it.
    pub(super) shown: bool,
}

/// Returns true if a request asks for thinking.
fn is_asked(thinking: &ThinkingOptions) -> bool {
    if thinking.level == Some(EffortLevel::Off) || thinking.budget == Some(0) {
        return false;
    }
    !thinking.is_unset()
}

/// Returns the thoughts before an answer that `plan` describes; `None` if none were requested.
pub(super) fn think(
    thinking: &ThinkingOptions,
    prompt: &Prompt<'_>,
    plan: &str,
    origin: WireFormat,
) -> Option<Thoughts> {
    if !is_asked(thinking) {
        return None;
    }
    let said: String = prompt.text.chars().take(80).collect();
    let said =
        if said.is_empty() { "nothing in words".to_owned() } else { format!("“{said}”") };
    let mut text = format!("The user said {said}. Let me see what is needed. {plan}");
    if thinking.effective_level().is_some_and(|level| level >= EffortLevel::High) {
        text.push_str(
            " Before I settle on that, let me check it once more from the other side. Nothing \
             contradicts it, and nothing simpler would do.",
        );
    }
    let shown = match thinking.display {
        Some(ThinkingDisplay::Hidden) => false,
        Some(ThinkingDisplay::Auto | ThinkingDisplay::Concise | ThinkingDisplay::Detailed) => true,
        // Two formats show thinking by default, two only on request.
        None => match origin {
            WireFormat::Chat | WireFormat::Messages => true,
            WireFormat::Responses | WireFormat::Native | WireFormat::Images => false,
        },
    };
    Some(Thoughts { text, shown })
}
