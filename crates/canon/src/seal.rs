//! Opaque signatures that a client must bring back unchanged.

use crate::Origin;
use std::fmt;

/// An opaque token a model attached to a part of its answer.
///
/// It is bound to the format that issued it and opens only for that format. It is never parsed,
/// trimmed or printed: `Debug` tells only its length.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Seal {
    origin: Origin,
    token: String,
}

impl Seal {
    /// A seal as it was read from an answer or a history in that format.
    pub fn new(origin: Origin, token: impl Into<String>) -> Self {
        Self { origin, token: token.into() }
    }

    /// The token, for the format that issued it; `None` for every other one.
    pub fn for_origin(&self, origin: Origin) -> Option<&str> {
        (self.origin == origin).then_some(self.token.as_str())
    }

    /// The format that issued the token.
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// Origin and token, for the envelope in which a seal crosses a foreign format.
    pub fn open(&self) -> (Origin, &str) {
        (self.origin, &self.token)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({}, {} bytes)", self.origin, self.token.len())
    }
}
