//! A parsed image request.

use canon::Picture;
use std::ops::Range;

/// A parsed image request.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The requested images.
    pub picture: Picture,
    /// Options for asynchronous delivery.
    pub later: Later,
    /// Byte range of the model name.
    pub(super) model_range: Option<Range<usize>>,
    /// Byte ranges of form parts that only the gateway reads.
    pub(super) gateway_parts: Vec<Range<usize>>,
    /// True if the GPT family accepts the body unchanged at the same endpoint.
    pub(super) is_gpt_body: bool,
}

impl Order {
    /// Returns true if the GPT family accepts the caller's body unchanged.
    pub const fn is_plain(&self) -> bool {
        self.is_gpt_body
    }
}

/// Options for asynchronous delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Later {
    /// True if the caller wants to poll for the result.
    pub wanted: bool,
    /// URL to notify when the task ends.
    pub webhook: Option<String>,
}

/// Fields only the gateway reads. The GPT image models reject the first one.
pub const OURS: [&str; 4] = ["response_format", "async", "webhook", "webhook_url"];
