//! What was charged for what: the parts of a call's cost, exact, before they are rounded once.

use serde::{Deserialize, Serialize};

use crate::{Money, Price};

/// Something providers bill by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Tokens of the prompt that are nothing else below.
    Input,
    /// Tokens of the prompt read from the cache.
    CachedInput,
    /// Tokens of the prompt written to the cache for the short term.
    CacheWrite,
    /// Tokens of the prompt written to the cache for the long term.
    CacheWriteLong,
    /// Tokens of the prompt that were audio.
    InputAudio,
    /// Tokens of the prompt that were images.
    InputImage,
    /// Tokens of the answer that are nothing else below.
    Output,
    /// Tokens of thinking.
    Thinking,
    /// Tokens of the answer that were audio.
    OutputAudio,
    /// Tokens of the answer that were images.
    OutputImage,
    /// The call itself.
    Request,
    /// Searches.
    Search,
    /// Pictures, by the piece.
    Image,
    /// Seconds.
    Second,
}

impl Dimension {
    /// The word on receipts and in exports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::CachedInput => "cached_input",
            Self::CacheWrite => "cache_write",
            Self::CacheWriteLong => "cache_write_long",
            Self::InputAudio => "input_audio",
            Self::InputImage => "input_image",
            Self::Output => "output",
            Self::Thinking => "thinking",
            Self::OutputAudio => "output_audio",
            Self::OutputImage => "output_image",
            Self::Request => "request",
            Self::Search => "search",
            Self::Image => "image",
            Self::Second => "second",
        }
    }
}

/// One part of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// What was charged for.
    pub of: Dimension,
    /// How many of them.
    pub count: u64,
    /// What one of them costs.
    pub price: Price,
}

impl Charge {
    /// What this part comes to in picodollars, exact.
    pub fn picos(&self) -> i128 {
        self.price.of(self.count)
    }

    /// What the parts come to together: rounded up once, for the whole call.
    pub fn sum(charges: &[Self]) -> Money {
        Money::from_picos(charges.iter().map(Self::picos).fold(0, i128::saturating_add))
    }
}
