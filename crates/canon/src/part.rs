//! The parts a turn or an answer is made of.

use crate::{Detail, Extras, Origin, Seal};
use serde_json::{Map, Value};

/// One part of a turn or an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// The signature that must come back with it.
    pub seal: Option<Seal>,
    /// A prompt-cache breakpoint behind this part.
    pub cache: Option<CacheMark>,
    /// Fields only the part's own format knows.
    pub extras: Extras,
}

impl Part {
    /// A part with nothing attached.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, seal: None, cache: None, extras: Extras::none() }
    }

    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Kind::Text { text: text.into(), citations: Vec::new() })
    }

    /// The part's text, when it is plain text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text { text, .. } => Some(text),
            Kind::Refusal(_)
            | Kind::Media(_)
            | Kind::Thought(_)
            | Kind::ToolCall(_)
            | Kind::ToolResult(_)
            | Kind::Code(_)
            | Kind::CodeOutcome(_)
            | Kind::Search(_)
            | Kind::Foreign { .. } => None,
        }
    }

    /// With that seal.
    #[must_use]
    pub fn sealed(mut self, seal: Option<Seal>) -> Self {
        self.seal = seal;
        self
    }

    /// With those extras.
    #[must_use]
    pub fn with(mut self, extras: Extras) -> Self {
        self.extras = extras;
        self
    }
}

/// What a part is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Text, with the sources it leans on.
    Text {
        /// The text.
        text: String,
        /// Where it is from.
        citations: Vec<Citation>,
    },
    /// The model's words for saying no.
    Refusal(String),
    /// A picture, sound, film or document.
    Media(Media),
    /// The model's thinking.
    Thought(Thought),
    /// The model asks for a tool to be run.
    ToolCall(ToolCall),
    /// What the tool gave.
    ToolResult(ToolResult),
    /// Code the provider ran for the model.
    Code(Code),
    /// What that code gave.
    CodeOutcome(CodeOutcome),
    /// A search the provider ran for the model.
    Search(Search),
    /// A part only one format can express, as it stood there.
    Foreign {
        /// The format.
        origin: Origin,
        /// The part in that format's words.
        value: Value,
    },
}

/// A picture, sound, film or document.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// What it is.
    pub kind: MediaKind,
    /// Where its bytes are.
    pub source: Source,
    /// Its file name or title.
    pub name: Option<String>,
    /// How closely to look at it.
    pub detail: Option<Detail>,
    /// Which stretch of a film.
    pub clip: Option<Clip>,
}

/// What a piece of media is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// Sound.
    Audio,
    /// A film.
    Video,
    /// A PDF or another document.
    Document,
}

impl MediaKind {
    /// The kind a media type belongs to.
    pub fn of_mime(mime: &str) -> Self {
        match mime.split('/').next() {
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            _ => Self::Document,
        }
    }
}

/// Where the bytes of media are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the message, as base64 without a prefix.
    Inline {
        /// The media type.
        mime: String,
        /// The bytes in base64, as they came.
        data: String,
    },
    /// Behind an address.
    Url {
        /// The address.
        url: String,
        /// The media type, if told.
        mime: Option<String>,
    },
    /// In a provider's own storage. Not portable.
    File {
        /// The format whose storage it is.
        origin: Origin,
        /// Its name there.
        id: String,
    },
    /// Plain text offered as a document.
    Text(String),
}

/// A stretch of a film.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clip {
    /// Where it begins, such as `10s`.
    pub start: Option<String>,
    /// Where it ends.
    pub end: Option<String>,
    /// How many pictures a second are looked at.
    pub fps: Option<f64>,
}

/// The model's thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thought {
    /// The readable text or summary; empty when there is none.
    pub text: String,
    /// Only the seal may be seen.
    pub redacted: bool,
}

/// The model asks for a tool to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id, unique in the conversation; readers invent one where the format has none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text, or free text for a custom tool.
    pub arguments: String,
    /// Whether the arguments are free text.
    pub custom: bool,
}

impl ToolCall {
    /// The arguments as an object. Empty text is an empty object; text that is not a JSON object
    /// is kept under `_raw`, because a broken call in a history must not break the request.
    pub fn object(&self) -> Map<String, Value> {
        if self.arguments.trim().is_empty() {
            return Map::new();
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(object)) => object,
            _ => {
                let mut raw = Map::new();
                raw.insert("_raw".to_owned(), Value::String(self.arguments.clone()));
                raw
            }
        }
    }
}

/// What a tool gave.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The call it answers; empty when the caller's format left it out and no call matched.
    pub call: String,
    /// The tool's name, where known.
    pub name: Option<String>,
    /// Text and media.
    pub parts: Vec<Part>,
    /// The result as one JSON object, where a format gives it as such.
    pub object: Option<Map<String, Value>>,
    /// Whether the tool failed.
    pub failed: bool,
}

impl ToolResult {
    /// All text of the result, or its object as JSON text.
    pub fn as_text(&self) -> String {
        match &self.object {
            Some(object) => match (object.len(), object.values().next()) {
                (1, Some(Value::String(only)))
                    if object.contains_key("result") || object.contains_key("output") =>
                {
                    only.clone()
                }
                _ => Value::Object(object.clone()).to_string(),
            },
            None => {
                let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
                texts.join("\n")
            }
        }
    }
}

/// Code the provider ran for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Its id, where the format has one.
    pub id: Option<String>,
    /// The language.
    pub language: String,
    /// The code.
    pub code: String,
}

/// What code gave that the provider ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeOutcome {
    /// The id of the code.
    pub id: Option<String>,
    /// What it printed.
    pub output: String,
    /// Whether it failed.
    pub failed: bool,
}

/// A search the provider ran for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Its id, where the format has one.
    pub id: Option<String>,
    /// What was searched for.
    pub queries: Vec<String>,
    /// What was found: address and title.
    pub found: Vec<(String, String)>,
}

/// A source a text leans on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Citation {
    /// Its address.
    pub url: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// The words quoted from it.
    pub quote: Option<String>,
    /// The stretch of our text that leans on it, in characters, end exclusive.
    pub span: Option<(usize, usize)>,
    /// Fields only the citation's own format knows.
    pub extras: Extras,
}

/// A prompt-cache breakpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheMark {
    /// How long to keep it, in the caller's words: `5m`, `30m`, `1h`.
    pub ttl: Option<String>,
}
