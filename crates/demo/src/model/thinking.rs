//! Thinking of the demo model: its text and its visibility.

use canon::{Level, Origin, Show, Thinking};

use super::prompt::Prompt;

/// Thoughts before an answer.
pub(super) struct Thoughts {
    /// The complete text, visible or not.
    pub(super) text: String,
    /// True if the caller sees it.
    pub(super) shown: bool,
}

/// Returns true if a request asks for thinking.
fn is_asked(thinking: &Thinking) -> bool {
    if thinking.level == Some(Level::Off) || thinking.budget == Some(0) {
        return false;
    }
    !thinking.is_unset()
}

/// Returns the thoughts before an answer that `plan` describes; `None` if none were requested.
pub(super) fn think(
    thinking: &Thinking,
    prompt: &Prompt<'_>,
    plan: &str,
    origin: Origin,
) -> Option<Thoughts> {
    if !is_asked(thinking) {
        return None;
    }
    let said: String = prompt.text.chars().take(80).collect();
    let said =
        if said.is_empty() { "nothing in words".to_owned() } else { format!("“{said}”") };
    let mut text = format!("The user said {said}. Let me see what is needed. {plan}");
    if thinking.as_level().is_some_and(|level| level >= Level::High) {
        text.push_str(
            " Before I settle on that, let me check it once more from the other side. Nothing \
             contradicts it, and nothing simpler would do.",
        );
    }
    let shown = match thinking.show {
        Some(Show::Hidden) => false,
        Some(Show::Auto | Show::Concise | Show::Detailed) => true,
        // Two formats show thinking by default, two only on request.
        None => match origin {
            Origin::Chat | Origin::Messages => true,
            Origin::Responses | Origin::Native | Origin::Images => false,
        },
    };
    Some(Thoughts { text, shown })
}
