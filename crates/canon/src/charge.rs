//! Parts of a call's cost, exact, before the sum is rounded once.

use serde::{Deserialize, Serialize};

use crate::{Money, Price};

/// A quantity that providers bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceDimension {
    /// Prompt tokens that no other input dimension counts.
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
    /// Answer tokens that no other output dimension counts.
    Output,
    /// Thinking tokens.
    Thinking,
    /// Tokens of the answer that were audio.
    OutputAudio,
    /// Tokens of the answer that were images.
    OutputImage,
    /// The call itself.
    Request,
    /// Web searches.
    Search,
    /// Generated images, billed per image.
    Image,
    /// Seconds.
    Second,
    /// Searches in stored files.
    FileSearch,
    /// Runs of code.
    CodeRun,
    /// Tokens of images that a tool made.
    ToolImage,
    /// Tokens kept in a provider's cache, times hours.
    CacheStorage,
}

impl PriceDimension {
    /// Returns the word used on receipts and in exports.
    pub const fn as_str(self) -> &'static str {
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
            Self::FileSearch => "file_search",
            Self::CodeRun => "code_run",
            Self::ToolImage => "tool_image",
            Self::CacheStorage => "cache_storage",
        }
    }

    /// Returns true if the quantity is a number of tokens, or of tokens times hours.
    pub const fn counts_tokens(self) -> bool {
        match self {
            Self::Input
            | Self::CachedInput
            | Self::CacheWrite
            | Self::CacheWriteLong
            | Self::InputAudio
            | Self::InputImage
            | Self::Output
            | Self::Thinking
            | Self::OutputAudio
            | Self::OutputImage
            | Self::ToolImage
            | Self::CacheStorage => true,
            Self::Request
            | Self::Search
            | Self::Image
            | Self::Second
            | Self::FileSearch
            | Self::CodeRun => false,
        }
    }
}

/// One part of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The billed quantity.
    #[serde(rename = "of")]
    pub dimension: PriceDimension,
    /// Number of billed units.
    pub count: u64,
    /// Price of one unit.
    pub price: Price,
}

impl Charge {
    /// Returns the exact amount in picodollars.
    pub fn picos(&self) -> i128 {
        self.price.times(self.count)
    }

    /// Returns the amount in dollars with all twelve digits: `0.000360000000`.
    pub fn usd(&self) -> String {
        const DOLLAR: i128 = 1_000_000_000_000;
        let picos = self.picos();
        format!("{}.{:012}", picos / DOLLAR, picos % DOLLAR)
    }

    /// Returns the sum of the parts, rounded up once for the whole call.
    pub fn total(charges: &[Self]) -> Money {
        Money::from_picos(charges.iter().map(Self::picos).fold(0, i128::saturating_add))
    }
}
