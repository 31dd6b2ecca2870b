//! A parsed image request.

use canon::ImageRequest;
use std::ops::Range;

/// A parsed image request.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedImageRequest {
    /// The requested images.
    pub picture: ImageRequest,
    /// The field of each input image, as the caller named it.
    pub input_paths: Vec<String>,
    /// Options for asynchronous delivery.
    pub delivery: AsyncDelivery,
    /// Byte range of the model name.
    pub(super) model_range: Option<Range<usize>>,
    /// Byte ranges of form parts that only the gateway reads.
    pub(super) gateway_parts: Vec<Range<usize>>,
    /// True if the GPT family accepts the body unchanged at the same endpoint.
    pub(super) is_gpt_body: bool,
}

impl ParsedImageRequest {
    /// Returns true if the GPT family accepts the caller's body unchanged.
    pub const fn is_gpt_body(&self) -> bool {
        self.is_gpt_body
    }
}

/// Options for asynchronous delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsyncDelivery {
    /// True if the caller wants to poll for the result.
    pub is_requested: bool,
    /// URL to notify when the task ends.
    pub webhook: Option<String>,
}

/// Fields only the gateway reads. The GPT image models reject the first one.
pub const GATEWAY_FIELDS: [&str; 4] = ["response_format", "async", "webhook", "webhook_url"];
