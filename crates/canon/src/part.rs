//! Parts of a turn or an answer.

use crate::{ExtraFields, ImageDetail, Signature, WireFormat};
use serde::Deserialize;
use serde_json::{Map, Value};

/// One part of a turn or an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Kind of the content.
    pub kind: PartKind,
    /// Signature that the caller must send back with the part.
    pub signature: Option<Signature>,
    /// A prompt-cache breakpoint behind this part.
    pub cache_breakpoint: Option<CacheBreakpoint>,
    /// Fields that only the part's own format defines.
    pub extras: ExtraFields,
}

impl Part {
    /// Creates a part without signature, breakpoint or extra fields.
    pub const fn new(kind: PartKind) -> Self {
        Self { kind, signature: None, cache_breakpoint: None, extras: ExtraFields::new() }
    }

    /// Creates a plain text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartKind::Text { text: text.into(), citations: Vec::new() })
    }

    /// Returns the text if the part is plain text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            PartKind::Text { text, .. } => Some(text),
            PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => None,
        }
    }

    /// Returns the number of bytes that the model wrote, to estimate missing usage.
    pub fn output_bytes(&self) -> usize {
        match &self.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => text.len(),
            PartKind::Thought(thought) => thought.text.len(),
            PartKind::ToolCall(call) => call.name.len() + call.arguments.len(),
            PartKind::CodeExecution(code) => code.code.len(),
            PartKind::CodeResult(result) => result.output.len(),
            // Most of such output is encoding or syntax.
            PartKind::Media(Media { source: MediaSource::Inline { data, .. }, .. }) => {
                data.len().div_ceil(8)
            }
            PartKind::Foreign { value, .. } => value.to_string().len().div_ceil(8),
            PartKind::Media(_) | PartKind::ToolResult(_) | PartKind::WebSearch(_) => 1,
        }
    }

    /// Returns the text that a stream appends to: text, a refusal, thinking or arguments.
    pub const fn text_mut(&mut self) -> Option<&mut String> {
        match &mut self.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => Some(text),
            PartKind::Thought(thought) => Some(&mut thought.text),
            PartKind::ToolCall(call) => Some(&mut call.arguments),
            PartKind::Media(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => None,
        }
    }

    /// Sets the signature.
    #[must_use]
    pub fn with_signature(mut self, seal: Option<Signature>) -> Self {
        self.signature = seal;
        self
    }

    /// Sets the extra fields.
    #[must_use]
    pub fn with_extras(mut self, extras: ExtraFields) -> Self {
        self.extras = extras;
        self
    }
}

/// Content of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum PartKind {
    /// Text with its citations.
    Text {
        /// The text.
        text: String,
        /// Citations of the text.
        citations: Vec<Citation>,
    },
    /// Refusal of the model, in its own words.
    Refusal(String),
    /// An image, audio, video or document.
    Media(Media),
    /// Thinking of the model.
    Thought(Thought),
    /// Tool call requested by the model.
    ToolCall(ToolCall),
    /// Result of a tool call.
    ToolResult(ToolResult),
    /// Code that the provider executed for the model.
    CodeExecution(CodeExecution),
    /// Result of that code.
    CodeResult(CodeResult),
    /// Web search that the provider ran for the model.
    WebSearch(WebSearch),
    /// A part that only one format can express, unchanged.
    Foreign {
        /// Format that defines the part.
        origin: WireFormat,
        /// The part as it is in that format.
        value: Value,
    },
}

/// An image, audio, video or document.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// Kind of the content.
    pub kind: MediaKind,
    /// Location of the bytes.
    pub source: MediaSource,
    /// File name or title.
    pub name: Option<String>,
    /// Resolution at which the model reads an image.
    pub detail: Option<ImageDetail>,
    /// Section of a video.
    pub clip: Option<VideoClip>,
}

/// Kind of a media part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// Image.
    Image,
    /// Audio.
    Audio,
    /// Video.
    Video,
    /// A PDF or another document.
    Document,
}

impl Media {
    /// Creates media without a name, a resolution or a clip.
    pub const fn new(kind: MediaKind, source: MediaSource) -> Self {
        Self { kind, source, name: None, detail: None, clip: None }
    }
}

impl MediaKind {
    /// Returns the kind of a MIME type. Types have no case (RFC 2045, section 5.1).
    pub fn from_mime(mime: &str) -> Self {
        let word = mime.split('/').next().unwrap_or_default().trim();
        let kinds = [("image", Self::Image), ("audio", Self::Audio), ("video", Self::Video)];
        let known = kinds.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
        known.map_or(Self::Document, |(_, kind)| kind)
    }
}

/// Location of the bytes of a media part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaSource {
    /// Inline, as base64 without a `data:` prefix.
    Inline {
        /// The media type.
        mime: String,
        /// The bytes in base64, unchanged.
        data: String,
    },
    /// At a URL.
    Url {
        /// The URL.
        url: String,
        /// The media type, if known.
        mime: Option<String>,
    },
    /// In a provider's file storage. Not portable to other providers.
    File {
        /// Format of the provider that stores the file.
        origin: WireFormat,
        /// Id of the file in that storage.
        id: String,
    },
    /// Plain text as a document.
    Text(String),
}

/// A section of a video.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VideoClip {
    /// Start offset, for example `10s`.
    pub start: Option<String>,
    /// End offset.
    pub end: Option<String>,
    /// Sampled frames per second.
    pub fps: Option<f64>,
}

/// Thinking of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thought {
    /// Readable text or summary; empty if there is none.
    pub text: String,
    /// True if only the signature is visible.
    pub redacted: bool,
}

/// Tool call requested by the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Id, unique in the conversation. Readers generate one where the format has none.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text, or free text for a custom tool.
    pub arguments: String,
    /// True if the arguments are free text.
    pub custom: bool,
}

/// Result of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// Id of the call; empty if the caller's format omitted it and no call matched.
    pub call_id: String,
    /// Name of the tool, if known.
    pub name: Option<String>,
    /// Text and media.
    pub parts: Vec<Part>,
    /// The result as the JSON text of one object, in formats that carry an object.
    pub object: Option<String>,
    /// True if the tool failed.
    pub is_error: bool,
}

impl ToolResult {
    /// Returns the text of the result, or its object as JSON text.
    pub fn as_text(&self) -> String {
        match &self.object {
            Some(object) => only_text(object).unwrap_or_else(|| object.clone()),
            None => {
                let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
                texts.join("\n")
            }
        }
    }
}

/// Returns the text of an object that has nothing else.
fn only_text(object: &str) -> Option<String> {
    let fields: Map<String, Value> = serde_json::from_str(object).ok()?;
    let mut fields = fields.into_iter();
    match (fields.next(), fields.next()) {
        (Some((name, Value::String(text))), None) if name == "result" || name == "output" => {
            Some(text)
        }
        _ => None,
    }
}

/// Code that the provider executed for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeExecution {
    /// Id, if the format has one.
    pub id: Option<String>,
    /// The language.
    pub language: String,
    /// The code.
    pub code: String,
}

/// Result of code that the provider executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeResult {
    /// Id of the execution.
    pub id: Option<String>,
    /// Printed output.
    pub output: String,
    /// True if the execution failed.
    pub is_error: bool,
}

/// Web search that the provider ran for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSearch {
    /// Id, if the format has one.
    pub id: Option<String>,
    /// Search queries.
    pub queries: Vec<String>,
    /// Search results: URL and title.
    pub results: Vec<(String, String)>,
}

/// A source cited by a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Citation {
    /// URL of the source.
    pub url: Option<String>,
    /// Title of the source.
    pub title: Option<String>,
    /// Quoted text.
    pub quote: Option<String>,
    /// Range of the answer's text that cites the source, in characters, end exclusive.
    pub span: Option<(usize, usize)>,
    /// Fields that only the citation's own format defines.
    pub extras: ExtraFields,
}

/// A prompt-cache breakpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheBreakpoint {
    /// Lifetime in the caller's notation: `5m`, `30m`, `1h`.
    pub ttl: Option<String>,
}

/// The field in which a provider of the chat format takes a prompt-cache breakpoint. Most providers
/// take none and may refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheField {
    /// `prompt_cache_breakpoint`, as OpenAI has it.
    PromptCacheBreakpoint,
    /// `cache_control` of the messages format, as OpenRouter has it.
    CacheControl,
}
