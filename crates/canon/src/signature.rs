//! Opaque signatures that a client must send back unchanged.

use crate::WireFormat;
use std::fmt;

/// An opaque token that a model attached to a part of its answer.
///
/// The token is bound to the format that issued it and is readable only for that format. It is
/// never parsed, trimmed or printed: `Debug` shows only its length.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signature {
    origin: WireFormat,
    token: String,
}

impl Signature {
    /// Creates a signature as read from an answer or a history in that format.
    pub fn new(origin: WireFormat, token: impl Into<String>) -> Self {
        Self { origin, token: token.into() }
    }

    /// Returns the token for the format that issued it; `None` for every other format.
    pub fn for_format(&self, origin: WireFormat) -> Option<&str> {
        (self.origin == origin).then_some(self.token.as_str())
    }

    /// Returns the format that issued the token.
    pub const fn origin(&self) -> WireFormat {
        self.origin
    }

    /// Returns format and token, for the envelope in which a signature crosses a foreign format.
    pub fn origin_and_token(&self) -> (WireFormat, &str) {
        (self.origin, &self.token)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({}, {} bytes)", self.origin, self.token.len())
    }
}
