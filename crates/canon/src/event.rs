//! Events of a streamed answer.
//!
//! A stream consists of numbered parts that open, grow and close. [`EventGrammar`] checks this grammar:
//!
//! ```text
//! stream    := Begin (part | Count | Aside)* End+ Count* | … Fault
//! part      := Open (Grow | Sealed)* Close
//! ```
//! Parts of one candidate are numbered from 0 without gaps, in the order in which they open. Several
//! parts may be open at once. Every candidate ends once, after all its parts have closed. `Error`
//! may occur anywhere and ends the stream.

use crate::{
    ApiError, Citation, Finish, Logprob, Part, PartKind, Signature, Thought, ToolCall, Usage,
    WireFormat,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// One event of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Start of the answer.
    Start {
        /// Id that the upstream assigned.
        id: Option<String>,
        /// Model that answers.
        model: Option<String>,
        /// Creation time in Unix seconds.
        created: Option<i64>,
    },
    /// Start of a part.
    PartStart(PartIndex, PartStart),
    /// Content appended to a part.
    PartDelta(PartIndex, PartDelta),
    /// Signature of a part. A sender that knows the signature of a text before its content sends
    /// the signature first: some formats carry it only in the opening event.
    PartSignature(PartIndex, Signature),
    /// End of a part.
    PartEnd(PartIndex),
    /// Usage so far. A later count replaces an earlier one.
    Usage(Usage),
    /// A field that only the upstream's format defines, of the whole answer or of one candidate.
    Extra {
        /// Candidate of the field; `None` for the whole answer.
        candidate: Option<u32>,
        /// Format that defines the field.
        origin: WireFormat,
        /// Name of the field.
        name: String,
        /// Value of the field. A later value replaces an earlier one.
        value: Value,
    },
    /// End of a candidate.
    Finish {
        /// Number of the candidate.
        candidate: u32,
        /// Finish reason.
        finish: Finish,
    },
    /// Error that ended the stream.
    Error(ApiError),
}

impl Part {
    /// Appends what a stream sends of the part.
    pub fn grow(&mut self, growth: PartDelta) {
        match growth {
            PartDelta::Text(more) => {
                if let Some(text) = self.text_mut() {
                    text.push_str(&more);
                }
            }
            PartDelta::Citation(citation) => {
                if let PartKind::Text { citations, .. } = &mut self.kind {
                    citations.push(citation);
                }
            }
            PartDelta::Extra { origin, name, value } => self.extras.insert(origin, &name, value),
            PartDelta::Logprobs(_) => {}
        }
    }
}

/// Position of a part: its candidate and its number within the candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartIndex {
    /// Number of the candidate.
    pub candidate: u32,
    /// Number of the part.
    pub slot: u32,
}

impl Event {
    /// A field of a reply or of a candidate that only its format has.
    pub fn extra(candidate: Option<u32>, origin: WireFormat, name: &str, value: Value) -> Self {
        Self::Extra { candidate, origin, name: name.to_owned(), value }
    }
}

impl PartIndex {
    /// Returns the position of a part of the first candidate.
    pub const fn first(slot: u32) -> Self {
        Self { candidate: 0, slot }
    }

    /// Returns the position of the next part of a candidate that has so many slots.
    pub const fn next(candidate: u32, slots: &mut u32) -> Self {
        *slots += 1;
        Self { candidate, slot: *slots - 1 }
    }
}

/// Start of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PartStart {
    /// Text follows.
    #[default]
    Text,
    /// A refusal follows.
    Refusal,
    /// Thinking follows.
    Thought,
    /// Arguments of a tool call follow.
    ToolCall {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// True if the arguments are free text.
        custom: bool,
    },
    /// The complete part. Only a signature may follow.
    Complete(Box<Part>),
}

impl PartStart {
    /// Returns the part that starts.
    pub fn into_part(self) -> Part {
        match self {
            Self::Text => Part::text(""),
            Self::Refusal => Part::new(PartKind::Refusal(String::new())),
            Self::Thought => Part::new(PartKind::Thought(Thought::default())),
            Self::ToolCall { id, name, custom } => {
                let call = ToolCall { id, name, arguments: String::new(), custom };
                Part::new(PartKind::ToolCall(call))
            }
            Self::Complete(part) => *part,
        }
    }
}

/// Content appended to a part.
#[derive(Clone, Debug, PartialEq)]
pub enum PartDelta {
    /// More text, thinking or arguments.
    Text(String),
    /// A citation of the text.
    Citation(Citation),
    /// Log probabilities of the tokens.
    Logprobs(Vec<Logprob>),
    /// A field that only the part's own format defines.
    Extra {
        /// Format that defines the field.
        origin: WireFormat,
        /// Name of the field.
        name: String,
        /// Value of the field.
        value: Value,
    },
}

/// A rule of the grammar that a stream of events breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError(String);

impl GrammarError {
    fn new(rule: impl Into<String>) -> Self {
        Self(rule.into())
    }
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GrammarError {}

/// Checks a stream of events against the grammar above. Used by tests and by readers of untrusted
/// streams.
#[derive(Debug, Default)]
pub struct EventGrammar {
    started: bool,
    failed: bool,
    next_slots: BTreeMap<u32, u32>,
    open: Vec<PartIndex>,
    ended: Vec<u32>,
}

impl EventGrammar {
    /// Checks the next event. `Err` names the broken rule.
    pub fn push(&mut self, event: &Event) -> Result<(), GrammarError> {
        if self.failed {
            return Err(GrammarError::new(format!(
                "{event:?} after the error that ended the stream"
            )));
        }
        match event {
            Event::Error(_) => {
                self.failed = true;
                return Ok(());
            }
            Event::Start { .. } if self.started => return Err(GrammarError::new("a second start")),
            Event::Start { .. } => {
                self.started = true;
                return Ok(());
            }
            _ if !self.started => {
                return Err(GrammarError::new(format!("{event:?} before the start")));
            }
            Event::PartStart(place, _) => {
                let next = self.next_slots.entry(place.candidate).or_default();
                if place.slot != *next {
                    return Err(GrammarError::new(format!(
                        "{place:?} opens, but the next slot is {next}"
                    )));
                }
                *next += 1;
                if self.ended.contains(&place.candidate) {
                    return Err(GrammarError::new(format!(
                        "{place:?} opens after its candidate ended"
                    )));
                }
                self.open.push(*place);
            }
            Event::PartDelta(place, _) | Event::PartSignature(place, _) => {
                if !self.open.contains(place) {
                    return Err(GrammarError::new(format!("{place:?} grows but is not open")));
                }
            }
            Event::PartEnd(place) => match self.open.iter().position(|open| open == place) {
                Some(at) => {
                    self.open.remove(at);
                }
                None => return Err(GrammarError::new(format!("{place:?} closes but is not open"))),
            },
            Event::Finish { candidate, .. } => {
                if self.open.iter().any(|place| place.candidate == *candidate) {
                    return Err(GrammarError::new(format!(
                        "candidate {candidate} ends with a part still open"
                    )));
                }
                if self.ended.contains(candidate) {
                    return Err(GrammarError::new(format!("candidate {candidate} ends twice")));
                }
                self.ended.push(*candidate);
            }
            Event::Usage(_) | Event::Extra { .. } => {}
        }
        Ok(())
    }

    /// Checks that the stream may end here: it has started, and every candidate with a part has
    /// ended.
    pub fn finish(&self) -> Result<(), GrammarError> {
        if self.failed {
            return Ok(());
        }
        if !self.started {
            return Err(GrammarError::new("the stream never started"));
        }
        match self.next_slots.keys().find(|candidate| !self.ended.contains(candidate)) {
            Some(candidate) => Err(GrammarError::new(format!("candidate {candidate} never ended"))),
            None => Ok(()),
        }
    }
}
