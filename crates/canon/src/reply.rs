//! Complete answers.

use crate::{ExtraFields, Part, Usage, WireFormat, scrub};
use std::fmt;

/// A complete answer, independent of any wire format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatReply {
    /// Id that the upstream assigned.
    pub id: Option<String>,
    /// Model that answered, by the provider's name.
    pub model: Option<String>,
    /// Creation time in Unix seconds.
    pub created: Option<i64>,
    /// Generated answers; one unless the caller requested more.
    pub candidates: Vec<ReplyCandidate>,
    /// Usage; `None` if the upstream did not report it.
    pub usage: Option<Usage>,
    /// Fields that only the answer's own format defines.
    pub extras: ExtraFields,
}

/// One generated answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyCandidate {
    /// Number of the answer.
    pub index: u32,
    /// Content of the answer.
    pub parts: Vec<Part>,
    /// Finish reason; `None` if the upstream sent none, which marks a broken answer.
    pub finish: Option<Finish>,
    /// Log probabilities of its tokens, if requested.
    pub logprobs: Vec<Logprob>,
    /// Fields that only the answer's own format defines.
    pub extras: ExtraFields,
}

/// End of an answer: the canonical reason and the upstream's own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Canonical reason.
    pub reason: FinishReason,
    /// The upstream's word, for its own format and for logs.
    pub raw: RawReason,
    /// Stop sequence that ended the answer, if the format reports it.
    pub stop_sequence: Option<String>,
}

impl Finish {
    /// Creates a finish without a stop sequence.
    pub const fn new(why: FinishReason, raw: RawReason) -> Self {
        Self { reason: why, raw, stop_sequence: None }
    }
}

/// Canonical reason for the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// The model finished.
    Stop,
    /// A stop sequence occurred.
    StopSequence,
    /// The output limit was reached.
    Length,
    /// The model waits for tool results.
    ToolCalls,
    /// The answer was withheld by a content filter.
    ContentFilter,
    /// The prompt was blocked by a content filter.
    PromptBlocked,
    /// The provider paused the turn. Sending the answer back continues it
    /// (<https://docs.anthropic.com/en/api/handling-stop-reasons>).
    Paused,
    /// The turn failed, for example because the model's output was malformed.
    Malformed,
    /// An unknown reason. The turn may be incomplete.
    Other,
}

/// An upstream's own finish reason. Only its own format and logs read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReason {
    origin: WireFormat,
    word: String,
}

impl RawReason {
    /// Creates the word as read from an answer of that format. A text in its place loses the secrets of
    /// the operator.
    pub fn new(origin: WireFormat, word: impl Into<String>) -> Self {
        let word: String = word.into();
        let is_word = |is_letter: fn(&u8) -> bool| word.bytes().all(|b| is_letter(&b) || b == b'_');
        let is_plain = is_word(u8::is_ascii_lowercase) || is_word(u8::is_ascii_uppercase);
        Self { origin, word: if is_plain { word } else { scrub(&word) } }
    }

    /// Returns the word if it is of that format.
    pub fn for_format(&self, origin: WireFormat) -> Option<&str> {
        (self.origin == origin).then_some(self.word.as_str())
    }
}

impl fmt::Display for RawReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.origin, self.word)
    }
}

/// The log probability of one token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logprob {
    /// The chosen token.
    pub chosen: TokenLogprob,
    /// The most likely tokens at that position.
    pub top: Vec<TokenLogprob>,
}

/// A token with its log probability.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprob {
    /// Its text.
    pub token: String,
    /// Id in the model's vocabulary, if reported.
    pub id: Option<i64>,
    /// Its log probability.
    pub logprob: f64,
    /// Bytes of the token, if reported separately from its text.
    pub bytes: Option<Vec<u8>>,
}
