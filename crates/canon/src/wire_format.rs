//! Wire formats.

use std::fmt;

use crate::ModelKind;

/// A wire format, either as the origin of a value or as the format of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WireFormat {
    /// OpenAI chat completions (<https://platform.openai.com/docs/api-reference/chat>).
    Chat,
    /// OpenAI responses (<https://platform.openai.com/docs/api-reference/responses>).
    Responses,
    /// Anthropic messages (<https://docs.anthropic.com/en/api/messages>).
    Messages,
    /// Gemini content generation (<https://ai.google.dev/api/generate-content>).
    Native,
    /// OpenAI images (<https://platform.openai.com/docs/api-reference/images>).
    Images,
}

impl WireFormat {
    /// All wire formats, in display order.
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Responses, Self::Messages, Self::Native, Self::Images];

    /// Returns the word used in configuration, headers and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Native => "native",
            Self::Images => "images",
        }
    }

    /// Returns true if the format can carry that kind of model. The native format carries all kinds,
    /// embeddings belong to the chat format, and images have a format of their own.
    pub const fn carries(self, kind: ModelKind) -> bool {
        match self {
            Self::Native => true,
            Self::Chat => matches!(kind, ModelKind::Chat | ModelKind::Embedding),
            Self::Responses | Self::Messages => matches!(kind, ModelKind::Chat),
            Self::Images => matches!(kind, ModelKind::Image),
        }
    }

    /// Returns the format with that word; `None` if there is no such format.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
