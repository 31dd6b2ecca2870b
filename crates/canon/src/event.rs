//! An answer in pieces.
//!
//! A stream is numbered parts that open, grow and close. The grammar, checked by [`Grammar`]:
//!
//! ```text
//! stream    := Begin (part | Count | Aside)* End+ Count* | … Fault
//! part      := Open (Grow | Sealed)* Close
//! ```
//! Parts of one candidate are numbered from 0 without gaps in the order they open; several may be
//! open at once. Every candidate ends once, after all its parts have closed. `Fault` ends the
//! stream wherever it stands.

use crate::{Citation, Fault, Finish, Logprob, Origin, Part, Seal, Usage};
use serde_json::Value;
use std::collections::BTreeMap;

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The answer begins.
    Begin {
        /// Its id, as the upstream gave it.
        id: Option<String>,
        /// The model that answers.
        model: Option<String>,
        /// When, in seconds since 1970.
        created: Option<i64>,
    },
    /// A part begins.
    Open(Place, Opening),
    /// A part grows.
    Grow(Place, Growth),
    /// A part's seal has arrived. Whoever knows the seal of a text before its words tells it first:
    /// some formats have a place for it only there.
    Sealed(Place, Seal),
    /// A part is complete.
    Close(Place),
    /// What was consumed so far; later counts replace earlier ones.
    Count(Usage),
    /// A field only the upstream's format knows, of the whole answer or of one candidate.
    Aside {
        /// The candidate it belongs to; `None` for the whole answer.
        candidate: Option<u32>,
        /// The format it is from.
        origin: Origin,
        /// The field.
        name: String,
        /// Its value; a later one replaces an earlier one.
        value: Value,
    },
    /// A candidate is complete.
    End {
        /// Which.
        candidate: u32,
        /// Why.
        finish: Finish,
    },
    /// The answer broke off.
    Fault(Fault),
}

/// Where a part stands: its candidate and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The candidate.
    pub candidate: u32,
    /// The number of the part.
    pub slot: u32,
}

impl Place {
    /// A part of the first candidate.
    pub const fn first(slot: u32) -> Self {
        Self { candidate: 0, slot }
    }
}

/// How a part begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Opening {
    /// Text follows.
    Text,
    /// Words of refusal follow.
    Refusal,
    /// Thinking follows.
    Thought,
    /// Arguments of a call follow.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// Whether the arguments are free text.
        custom: bool,
    },
    /// The part is here as a whole; only a seal may follow.
    Whole(Box<Part>),
}

/// How a part grows.
#[derive(Clone, Debug, PartialEq)]
pub enum Growth {
    /// More text, thinking or arguments.
    Text(String),
    /// A source of the text.
    Citation(Citation),
    /// Log probabilities of the tokens.
    Logprobs(Vec<Logprob>),
    /// A field only the part's own format knows.
    Extra {
        /// The format.
        origin: Origin,
        /// The field.
        name: String,
        /// Its value.
        value: Value,
    },
}

/// Checks a stream of events against the grammar above; for tests and for distrust.
#[derive(Debug, Default)]
pub struct Grammar {
    begun: bool,
    over: bool,
    slots: BTreeMap<u32, u32>,
    open: Vec<Place>,
    ended: Vec<u32>,
}

impl Grammar {
    /// Takes the next event; `Err` says which rule it breaks.
    pub fn push(&mut self, event: &Event) -> Result<(), String> {
        if self.over {
            return Err(format!("{event:?} after the fault that ended the stream"));
        }
        match event {
            Event::Fault(_) => {
                self.over = true;
                return Ok(());
            }
            Event::Begin { .. } if self.begun => return Err("a second beginning".to_owned()),
            Event::Begin { .. } => {
                self.begun = true;
                return Ok(());
            }
            _ if !self.begun => return Err(format!("{event:?} before the beginning")),
            Event::Open(place, _) => {
                let next = self.slots.entry(place.candidate).or_default();
                if place.slot != *next {
                    return Err(format!("{place:?} opens, but the next slot is {next}"));
                }
                *next += 1;
                if self.ended.contains(&place.candidate) {
                    return Err(format!("{place:?} opens after its candidate ended"));
                }
                self.open.push(*place);
            }
            Event::Grow(place, _) | Event::Sealed(place, _) => {
                if !self.open.contains(place) {
                    return Err(format!("{place:?} grows but is not open"));
                }
            }
            Event::Close(place) => match self.open.iter().position(|open| open == place) {
                Some(at) => {
                    self.open.remove(at);
                }
                None => return Err(format!("{place:?} closes but is not open")),
            },
            Event::End { candidate, .. } => {
                if self.open.iter().any(|place| place.candidate == *candidate) {
                    return Err(format!("candidate {candidate} ends with a part still open"));
                }
                if self.ended.contains(candidate) {
                    return Err(format!("candidate {candidate} ends twice"));
                }
                self.ended.push(*candidate);
            }
            Event::Count(_) | Event::Aside { .. } => {}
        }
        Ok(())
    }

    /// Whether the stream may end here: begun, and every candidate that spoke has ended.
    pub fn finish(&self) -> Result<(), String> {
        if self.over {
            return Ok(());
        }
        if !self.begun {
            return Err("the stream never began".to_owned());
        }
        match self.slots.keys().find(|candidate| !self.ended.contains(candidate)) {
            Some(candidate) => Err(format!("candidate {candidate} never ended")),
            None => Ok(()),
        }
    }
}
