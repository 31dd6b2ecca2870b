//! A chat request: the conversation so far and the options of the answer.

use crate::{ExtraFields, Part, Tool, ToolChoice, WireFormat};
use serde_json::{Map, Value};

/// A chat request, independent of any wire format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// The model the caller asked for.
    pub model: String,
    /// The conversation, instructions included, in the caller's order.
    pub turns: Vec<Turn>,
    /// Tools the model may call.
    pub tools: Vec<Tool>,
    /// The caller's rule for tool calls: required, allowed or forbidden, and parallel or not.
    pub tool_choice: ToolChoice,
    /// Sampling parameters, stop sequences and output limits.
    pub sampling: SamplingOptions,
    /// Thinking effort and visibility.
    pub thinking: ThinkingOptions,
    /// Format of the answer's text.
    pub response_format: ResponseFormat,
    /// Requested output modalities; empty means the model's default.
    pub modalities: Vec<Modality>,
    /// Requested shape of images in the answer.
    pub image_shape: ImageShape,
    /// True if the answer is to be streamed.
    pub stream: bool,
    /// State that the provider keeps between calls.
    pub state: ConversationState,
    /// Options that do not change the answer itself.
    pub hints: RequestHints,
    /// Fields that only the caller's format defines.
    pub extras: ExtraFields,
}

/// Requested shape of generated images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageShape {
    /// Aspect ratio, width to height, for example `16:9`.
    pub aspect_ratio: Option<String>,
    /// Approximate size, for example `2K`.
    pub size: Option<String>,
}

/// One turn of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Author of the turn.
    pub role: Role,
    /// Content of the turn, in order.
    pub parts: Vec<Part>,
    /// Name of the author, if the format has one.
    pub name: Option<String>,
    /// Fields that only the turn's own format defines.
    pub extras: ExtraFields,
}

impl Turn {
    /// Creates a turn without a name or extra fields.
    pub const fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, name: None, extras: ExtraFields::new() }
    }
}

/// Author of a turn. Results of tool calls are parts of the user's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions of the operator.
    System,
    /// Instructions of the application, in formats that distinguish them from the operator's.
    Developer,
    /// The end user, and results of tools run for the model.
    User,
    /// The model.
    Assistant,
}

/// Sampling parameters, stop sequences and output limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOptions {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Sampling from the `k` most likely tokens.
    pub top_k: Option<i64>,
    /// Penalty on tokens that already occur in the text.
    pub presence_penalty: Option<f64>,
    /// Penalty on tokens in proportion to their frequency in the text.
    pub frequency_penalty: Option<f64>,
    /// Seed for repeatable sampling.
    pub seed: Option<i64>,
    /// Sequences that end the answer.
    pub stop_sequences: Vec<String>,
    /// Maximum number of output tokens, thinking included.
    pub max_output_tokens: Option<u64>,
    /// Number of answers to generate.
    pub candidates: Option<u32>,
    /// Requests log probabilities, with this number of alternatives per token.
    pub logprobs: Option<u32>,
}

/// Thinking effort and visibility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkingOptions {
    /// Effort as a named level.
    pub level: Option<EffortLevel>,
    /// Effort as a token budget.
    pub budget: Option<u64>,
    /// True if the model chooses the effort itself.
    pub dynamic: bool,
    /// Part of the thinking that is shown to the caller.
    pub display: Option<ThinkingDisplay>,
}

impl ThinkingOptions {
    /// Returns true if the request does not mention thinking.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the budget in tokens on the scale that all formats share; `None` leaves it to the
    /// model.
    pub const fn effective_budget(&self) -> Option<u64> {
        match (self.budget, self.level) {
            (Some(budget), _) => Some(budget),
            (None, Some(level)) => Some(level.budget_tokens()),
            (None, None) => None,
        }
    }

    /// Returns the level on the scale that all formats share; `None` leaves it to the model.
    pub fn effective_level(&self) -> Option<EffortLevel> {
        self.level.or_else(|| self.budget.map(EffortLevel::from_tokens))
    }
}

/// Thinking effort. Budgets and levels are converted into each other by this scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffortLevel {
    /// No thinking.
    Off,
    /// 512 tokens.
    Minimal,
    /// 1,024 tokens.
    Low,
    /// 8,192 tokens.
    Medium,
    /// 24,576 tokens.
    High,
    /// 32,768 tokens.
    XHigh,
    /// 65,536 tokens, or the model's limit.
    Max,
}

impl serde::Serialize for EffortLevel {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for EffortLevel {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = <String as serde::Deserialize>::deserialize(from)?;
        Self::parse(&word)
            .ok_or_else(|| serde::de::Error::custom(format!("there is no level `{word}`")))
    }
}

impl EffortLevel {
    /// All levels, lowest first.
    pub const ALL: [Self; 7] =
        [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// Returns the word used on the wire and in data files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Returns the level with that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }

    /// Returns the token budget of the level.
    pub const fn budget_tokens(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Minimal => 512,
            Self::Low => 1_024,
            Self::Medium => 8_192,
            Self::High => 24_576,
            Self::XHigh => 32_768,
            Self::Max => 65_536,
        }
    }

    /// Returns the highest level whose budget does not exceed `budget_tokens`. The budget of a level
    /// yields the same level.
    pub fn from_tokens(tokens: u64) -> Self {
        let mut found = if tokens == 0 { Self::Off } else { Self::Minimal };
        for level in Self::ALL {
            if level.budget_tokens() <= tokens && tokens > 0 && level > Self::Off {
                found = level;
            }
        }
        found
    }
}

/// Part of the thinking that is shown to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThinkingDisplay {
    /// Nothing.
    Hidden,
    /// A summary; the model chooses its length.
    Auto,
    /// A short summary.
    Concise,
    /// A long summary.
    Detailed,
}

/// Format of the answer's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Free text.
    #[default]
    Text,
    /// Any JSON object, without a schema.
    Json,
    /// JSON that follows a schema.
    Schema {
        /// Name of the schema, for formats that require one.
        name: Option<String>,
        /// Purpose of the schema.
        description: Option<String>,
        /// The schema.
        schema: JsonSchema,
        /// True if the provider must enforce the schema.
        strict: Option<bool>,
    },
}

/// A JSON Schema (<https://json-schema.org/>), with the original text if the caller wrote it in
/// another schema dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonSchema {
    /// The schema as JSON Schema.
    pub json: Value,
    /// The original text and its format, for translation back into that format.
    pub verbatim: Option<(WireFormat, Value)>,
}

impl JsonSchema {
    /// Creates a schema that was written as JSON Schema.
    pub const fn new(json: Value) -> Self {
        Self { json, verbatim: None }
    }
}

/// An output modality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modality {
    /// Text.
    Text,
    /// Images.
    Image,
    /// Audio.
    Audio,
}

/// Resolution at which the model reads an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageDetail {
    /// Low resolution.
    Low,
    /// Medium resolution; not every format has it.
    Medium,
    /// High resolution.
    High,
    /// Original resolution.
    Original,
}

/// State that the provider keeps between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationState {
    /// True if the provider stores the answer for later calls.
    pub store: Option<bool>,
    /// Id of the stored answer that this conversation continues.
    pub previous_response: Option<String>,
    /// Id of the stored conversation that the call belongs to.
    pub conversation: Option<String>,
    /// True if the call runs in the background.
    pub background: Option<bool>,
}

/// Options that do not change the answer itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestHints {
    /// The caller's identifier for its end user.
    pub user: Option<String>,
    /// Metadata supplied by the caller.
    pub metadata: Map<String, Value>,
    /// Requested service tier.
    pub service_tier: Option<ServiceTier>,
    /// Key of the prompt cache that requests share.
    pub cache_key: Option<String>,
    /// Requested verbosity: `low`, `medium` or `high`.
    pub verbosity: Option<String>,
}

/// A service tier: price and latency class of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServiceTier {
    /// The provider chooses.
    Auto,
    /// The normal tier.
    Standard,
    /// Cheaper and slower.
    Flex,
    /// Faster and more expensive.
    Priority,
    /// Fastest.
    Fast,
    /// A tier that only one format defines, in that format's word.
    Other(WireFormat, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_the_level_of_its_budget() {
        for level in EffortLevel::ALL {
            assert_eq!(EffortLevel::from_tokens(level.budget_tokens()), level);
        }
    }

    #[test]
    fn a_budget_between_two_levels_yields_the_lower_level() {
        assert_eq!(EffortLevel::from_tokens(1), EffortLevel::Minimal);
        assert_eq!(EffortLevel::from_tokens(8_191), EffortLevel::Low);
        assert_eq!(EffortLevel::from_tokens(1_000_000), EffortLevel::Max);
    }
}
