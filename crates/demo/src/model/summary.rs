//! Summaries of a conversation, as coding agents request them before they drop its older part.

use canon::{ChatRequest, Part, Role};

use super::prompt::Prompt;
use super::talk;

/// Phrases of a last message that requests a summary. Some agents name the element it must be in.
const REQUESTS: [&str; 5] = [
    "<state_snapshot>",
    "<summary>",
    "handoff summary",
    "summary of the conversation",
    "summarize the conversation",
];
/// Phrases of a system message that requests a summary of the text below.
const INSTRUCTIONS: [&str; 2] = ["summarize this partial conversation", "summarization agent"];
/// Elements that agents look for in a summary.
const ELEMENTS: [&str; 2] = ["state_snapshot", "summary"];

/// A request for a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SummaryRequest {
    /// Element that must enclose the summary.
    element: Option<&'static str>,
}

impl SummaryRequest {
    /// Recognises a request for a summary. The words may stand next to a tool result.
    pub(crate) fn find(chat: &ChatRequest) -> Option<Self> {
        let contains = |parts: &[Part], phrases: &[&str]| {
            let mut texts = parts.iter().filter_map(Part::as_text);
            texts.any(|text| {
                let lower = text.to_lowercase();
                phrases.iter().any(|phrase| lower.contains(phrase))
            })
        };
        let last = chat.turns.iter().rfind(|turn| turn.role == Role::User)?;
        let mut rules =
            chat.turns.iter().filter(|turn| matches!(turn.role, Role::System | Role::Developer));
        let asked = contains(&last.parts, &REQUESTS)
            || rules.any(|turn| contains(&turn.parts, &INSTRUCTIONS));
        let element = |name: &&str| contains(&last.parts, &[&format!("<{name}>")]);
        asked.then(|| Self { element: ELEMENTS.into_iter().find(element) })
    }

    /// Returns the summary: the name of the user and the topic of the conversation.
    pub(crate) fn answer(self, prompt: &Prompt<'_>) -> String {
        let mut told = "The user talked with a demo model.".to_owned();
        if let Some(name) = &prompt.user_name {
            told.push_str(&format!(" The user said: my name is {name}."));
        }
        if let Some(topic) = prompt.first_text.and_then(talk::topic) {
            told.push_str(&format!(" The first topic was {topic}."));
        }
        match self.element {
            Some(name) => format!("<{name}>\n{told}\n</{name}>"),
            None => told,
        }
    }
}
