//! Which wire format something came from or is meant for.

use std::fmt;

/// A wire format, as the origin of a value or the language of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI responses.
    Responses,
    /// Anthropic messages.
    Messages,
    /// Gemini-style content generation.
    Native,
    /// OpenAI images.
    Images,
}

impl Origin {
    /// Every wire format, in the order they are listed everywhere.
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Responses, Self::Messages, Self::Native, Self::Images];

    /// The word used in configuration, headers and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Native => "native",
            Self::Images => "images",
        }
    }

    /// The format with that word; `None` when there is no such format.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.name() == name)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
