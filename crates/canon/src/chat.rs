//! A request for an answer: the conversation so far and how the answer should be.

use crate::{Extras, Origin, Part, Tool, ToolChoice};
use serde_json::{Map, Value};

/// A request in the middle language.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chat {
    /// The model the caller asked for.
    pub model: String,
    /// The conversation, instructions included, in the caller's order.
    pub turns: Vec<Turn>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it must, may or must not call, and how many at once.
    pub choice: ToolChoice,
    /// How words are chosen and where the answer stops.
    pub sampling: Sampling,
    /// How much the model thinks and whether it shows it.
    pub thinking: Thinking,
    /// The shape of the answer's text.
    pub format: Format,
    /// The kinds of answer asked for; empty means the model's own default.
    pub modalities: Vec<Modality>,
    /// What pictures in the answer are to look like.
    pub canvas: Canvas,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// What is kept between calls.
    pub state: State,
    /// What does not change the answer.
    pub hints: Hints,
    /// Fields only the caller's format knows.
    pub extras: Extras,
}

/// What pictures in an answer are to look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Canvas {
    /// Width to height, such as `16:9`.
    pub ratio: Option<String>,
    /// About how large, such as `2K`.
    pub size: Option<String>,
}

/// One turn of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Whose turn it is.
    pub role: Role,
    /// What was said, in order.
    pub parts: Vec<Part>,
    /// The speaker's name, where a format has one.
    pub name: Option<String>,
    /// Fields only the turn's own format knows.
    pub extras: Extras,
}

impl Turn {
    /// A turn without a name or extras.
    pub const fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { role, parts, name: None, extras: Extras::none() }
    }
}

/// Whose turn it is. Results of tool calls are parts of the user's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions of the operator.
    System,
    /// Instructions of the application, where a format tells them apart.
    Developer,
    /// The user, and the results of the tools run for the model.
    User,
    /// The model.
    Assistant,
}

/// How words are chosen and where the answer stops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Randomness.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Sampling among the k best.
    pub top_k: Option<i64>,
    /// Discourages repeating topics.
    pub presence_penalty: Option<f64>,
    /// Discourages repeating words.
    pub frequency_penalty: Option<f64>,
    /// Makes sampling repeatable.
    pub seed: Option<i64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// The most tokens the answer may have, thinking included.
    pub max_output: Option<u64>,
    /// How many answers.
    pub candidates: Option<u32>,
    /// Asks for the log probabilities of the tokens, with that many alternatives each.
    pub logprobs: Option<u32>,
}

/// How much the model thinks and whether it shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Effort as a level.
    pub level: Option<Level>,
    /// Effort as a number of tokens.
    pub budget: Option<u64>,
    /// The model decides by itself.
    pub dynamic: bool,
    /// What is shown of it.
    pub show: Option<Show>,
}

impl Thinking {
    /// Whether nothing was said about thinking.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// The budget this amounts to on the scale all formats share; `None` leaves it to the model.
    pub const fn tokens(&self) -> Option<u64> {
        match (self.budget, self.level) {
            (Some(budget), _) => Some(budget),
            (None, Some(level)) => Some(level.tokens()),
            (None, None) => None,
        }
    }

    /// The level this amounts to on the scale all formats share; `None` leaves it to the model.
    pub fn as_level(&self) -> Option<Level> {
        self.level.or_else(|| self.budget.map(Level::from_tokens))
    }
}

/// Effort on the written scale. Budgets and levels translate into each other by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
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

impl Level {
    /// Every level, lowest first.
    pub const ALL: [Self; 7] =
        [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The written word.
    pub const fn word(self) -> &'static str {
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

    /// The level of a word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }

    /// The budget that stands for the level.
    pub const fn tokens(self) -> u64 {
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

    /// The highest level whose budget is not above that many tokens; a level is its own budget's.
    pub fn from_tokens(tokens: u64) -> Self {
        let mut found = if tokens == 0 { Self::Off } else { Self::Minimal };
        for level in Self::ALL {
            if level.tokens() <= tokens && tokens > 0 && level > Self::Off {
                found = level;
            }
        }
        found
    }
}

/// What is shown of the thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Show {
    /// Nothing.
    Hidden,
    /// A summary, as the model likes.
    Auto,
    /// A short summary.
    Concise,
    /// A long summary.
    Detailed,
}

/// The shape of the answer's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Free text.
    #[default]
    Text,
    /// Any JSON object.
    Json,
    /// JSON of a given shape.
    Schema {
        /// A name for the shape, where a format wants one.
        name: Option<String>,
        /// What the shape is for.
        description: Option<String>,
        /// The shape.
        schema: Schema,
        /// Whether the shape is enforced.
        strict: Option<bool>,
    },
}

/// A JSON Schema, and the words it was first written in where those were another dialect of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The shape as JSON Schema.
    pub json: Value,
    /// The original, for the way back into its own format.
    pub verbatim: Option<(Origin, Value)>,
}

impl Schema {
    /// A schema that was written as JSON Schema.
    pub const fn new(json: Value) -> Self {
        Self { json, verbatim: None }
    }
}

/// A kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modality {
    /// Text.
    Text,
    /// Pictures.
    Image,
    /// Sound.
    Audio,
}

/// How closely a picture is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Coarsely.
    Low,
    /// Between the two, where a format knows it.
    Medium,
    /// Closely.
    High,
    /// In its own resolution.
    Original,
}

/// What is kept between calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether the answer is kept for later calls.
    pub store: Option<bool>,
    /// The kept answer this conversation goes on from.
    pub previous: Option<String>,
    /// Whether the call runs on without the caller waiting.
    pub background: Option<bool>,
}

/// What does not change the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// The caller's own name for its end user.
    pub user: Option<String>,
    /// The caller's own notes.
    pub metadata: Map<String, Value>,
    /// How urgent the call is.
    pub tier: Option<Tier>,
    /// Which prompts share a cache.
    pub cache_key: Option<String>,
    /// How wordy the answer should be: `low`, `medium`, `high`.
    pub verbosity: Option<String>,
}

/// How urgent a call is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// As the provider likes.
    Auto,
    /// The normal tier.
    Standard,
    /// Cheaper and slower.
    Flex,
    /// Faster and dearer.
    Priority,
    /// Fastest.
    Fast,
    /// A tier only one format knows, by its own word.
    Other(Origin, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_its_own_budget() {
        for level in Level::ALL {
            assert_eq!(Level::from_tokens(level.tokens()), level);
        }
    }

    #[test]
    fn a_budget_between_two_levels_is_the_lower_one() {
        assert_eq!(Level::from_tokens(1), Level::Minimal);
        assert_eq!(Level::from_tokens(8_191), Level::Low);
        assert_eq!(Level::from_tokens(1_000_000), Level::Max);
    }
}
