//! Complete answers.

use crate::{Extras, Origin, Part, Usage};
use std::fmt;

/// A complete answer, independent of any wire format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Id that the upstream assigned.
    pub id: Option<String>,
    /// Model that answered, by the provider's name.
    pub model: Option<String>,
    /// Creation time in Unix seconds.
    pub created: Option<i64>,
    /// Generated answers; one unless the caller requested more.
    pub candidates: Vec<Candidate>,
    /// Usage; `None` if the upstream did not report it.
    pub usage: Option<Usage>,
    /// Fields that only the answer's own format defines.
    pub extras: Extras,
}

/// One generated answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Number of the answer.
    pub index: u32,
    /// Content of the answer.
    pub parts: Vec<Part>,
    /// Finish reason; `None` if the upstream sent none, which marks a broken answer.
    pub finish: Option<Finish>,
    /// Log probabilities of its tokens, if requested.
    pub logprobs: Vec<Logprob>,
    /// Fields that only the answer's own format defines.
    pub extras: Extras,
}

/// End of an answer: the canonical reason and the upstream's own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Canonical reason.
    pub why: Why,
    /// The upstream's word, for its own format and for logs.
    pub raw: Raw,
    /// Stop sequence that ended the answer, if the format reports it.
    pub stop: Option<String>,
}

impl Finish {
    /// Creates a finish without a stop sequence.
    pub const fn new(why: Why, raw: Raw) -> Self {
        Self { why, raw, stop: None }
    }
}

/// Canonical reason for the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The model finished.
    Stop,
    /// A stop sequence occurred.
    StopText,
    /// The output limit was reached.
    Length,
    /// The model waits for tool results.
    ToolCalls,
    /// The answer was withheld by a content filter.
    Filtered,
    /// The prompt was blocked by a content filter.
    PromptBlocked,
    /// The provider paused the turn. Sending the answer back continues it
    /// (<https://docs.anthropic.com/en/api/handling-stop-reasons>).
    Paused,
    /// The model's output was malformed.
    Malformed,
    /// A reason without a canonical word.
    Other,
}

/// An upstream's own finish reason. Only its own format and logs read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    origin: Origin,
    word: String,
}

impl Raw {
    /// Creates the word as read from an answer of that format.
    pub fn new(origin: Origin, word: impl Into<String>) -> Self {
        Self { origin, word: word.into() }
    }

    /// Returns the word if it is of that format.
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
    /// The chosen token.
    pub chosen: TokenChance,
    /// The most likely tokens at that position.
    pub top: Vec<TokenChance>,
}

/// A token with its log probability.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenChance {
    /// Its text.
    pub token: String,
    /// Id in the model's vocabulary, if reported.
    pub id: Option<i64>,
    /// Its log probability.
    pub logprob: f64,
    /// Bytes of the token, if reported separately from its text.
    pub bytes: Option<Vec<u8>>,
}
