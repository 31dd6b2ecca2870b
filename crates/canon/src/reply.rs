//! A whole answer.

use crate::{Extras, Origin, Part, Usage};
use std::fmt;

/// A whole answer in the middle language.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The answer's id, as the upstream gave it.
    pub id: Option<String>,
    /// The model that answered, by its own name.
    pub model: Option<String>,
    /// When, in seconds since 1970.
    pub created: Option<i64>,
    /// The answers, one unless more were asked for.
    pub candidates: Vec<Candidate>,
    /// What it consumed; `None` when the upstream did not tell.
    pub usage: Option<Usage>,
    /// Fields only the answer's own format knows.
    pub extras: Extras,
}

/// One of the answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Its number.
    pub index: u32,
    /// What it says.
    pub parts: Vec<Part>,
    /// Why it ended; `None` when the upstream did not tell, which is a broken answer.
    pub finish: Option<Finish>,
    /// The log probabilities of its tokens, if asked for.
    pub logprobs: Vec<Logprob>,
    /// Fields only the answer's own format knows.
    pub extras: Extras,
}

/// Why an answer ended: our word, and the upstream's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Our word, to branch on.
    pub why: Why,
    /// The upstream's word, for its own format and the log.
    pub raw: Raw,
    /// The stop text that was met, where a format tells it.
    pub stop: Option<String>,
}

impl Finish {
    /// An end without a stop text.
    pub const fn new(why: Why, raw: Raw) -> Self {
        Self { why, raw, stop: None }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It was done.
    Stop,
    /// It met one of the stop texts.
    StopText,
    /// It reached its limit.
    Length,
    /// It waits for tools.
    ToolCalls,
    /// The answer was held back on grounds of policy.
    Filtered,
    /// The prompt was held back on grounds of policy.
    PromptBlocked,
    /// The provider paused; sending it back goes on.
    Paused,
    /// The model's output made no sense.
    Malformed,
    /// A reason we have no word for.
    Other,
}

/// An upstream's own word, readable by its own format only, and in logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    origin: Origin,
    word: String,
}

impl Raw {
    /// The word as it stood in an answer of that format.
    pub fn new(origin: Origin, word: impl Into<String>) -> Self {
        Self { origin, word: word.into() }
    }

    /// The word, for the format it is from.
    pub fn for_origin(&self, origin: Origin) -> Option<&str> {
        (self.origin == origin).then_some(self.word.as_str())
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.origin, self.word)
    }
}

/// The log probability of one token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logprob {
    /// The token that was chosen.
    pub chosen: TokenChance,
    /// The most likely tokens at its place.
    pub top: Vec<TokenChance>,
}

/// A token and how likely it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenChance {
    /// Its text.
    pub token: String,
    /// Its number in the model's vocabulary, where told.
    pub id: Option<i64>,
    /// Its log probability.
    pub logprob: f64,
    /// Its bytes, where told apart from its text.
    pub bytes: Option<Vec<u8>>,
}
