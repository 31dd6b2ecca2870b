//! Whether the model thinks, what it thinks, and how much of it is seen.

use canon::{Level, Origin, Show, Thinking};

use super::prompt::Prompt;

/// What was thought before an answer.
pub(super) struct Thoughts {
    /// The whole text, seen or not.
    pub(super) text: String,
    /// Whether the caller sees it.
    pub(super) shown: bool,
}

/// Whether a request asks for thinking.
fn is_asked(thinking: &Thinking) -> bool {
    if thinking.level == Some(Level::Off) || thinking.budget == Some(0) {
        return false;
    }
    !thinking.is_unset()
}

/// The thoughts before an answer that `plan` describes; `None` when none were asked for.
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
        // Two formats show thinking unless told otherwise, two only when told to.
        None => match origin {
            Origin::Chat | Origin::Messages => true,
            Origin::Responses | Origin::Native | Origin::Images => false,
        },
    };
    Some(Thoughts { text, shown })
}
