//! Requests to image providers, and their answers.

use canon::{ApiError, GeneratedImage, ImageReply, Lossy, scrub};
use std::fmt::Display;

use crate::chat::ChatDialect;
use crate::fields::ObjectWriter;
use crate::upstream_error::unreadable_reply;
use crate::{PassThrough as _, ProviderRequest};

/// A request to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageProviderRequest {
    /// Path and body.
    pub outgoing: ProviderRequest,
    /// Content type, if it is not JSON.
    pub content_type: Option<String>,
    /// Additional headers.
    pub headers: &'static [(&'static str, &'static str)],
}

impl ImageProviderRequest {
    pub(super) fn at(path: impl Into<String>, body: ObjectWriter) -> Self {
        Self { outgoing: ProviderRequest::new(path, body), content_type: None, headers: &[] }
    }
}

/// The requests for one call, with the losses of the translation.
pub(super) type WrittenImages = Result<Lossy<Vec<ImageProviderRequest>>, ApiError>;

/// A provider's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageAnswer {
    /// The images.
    Finished(ImageReply),
    /// A pending task, with the path or URL to poll.
    Pending(String),
}

/// Returns an image that was not made. The words are the provider's.
pub(super) fn failed(code: &str, say: &str) -> GeneratedImage {
    GeneratedImage::Failed { code: scrub(code), say: scrub(say) }
}

/// Code and message of an image that a content policy blocked.
pub(super) const POLICY_CODE: &str = "content_policy_violation";
pub(super) const BLOCKED: &str = "the provider's content policy blocked the image";

/// Returns an image that a content policy blocked.
pub(super) fn blocked() -> GeneratedImage {
    failed(POLICY_CODE, BLOCKED)
}

/// Returns the error in a body, which is that of the chat format. `why` is the log note without one.
pub(super) fn error_in(body: &[u8], why: &str) -> ApiError {
    ChatDialect.meter_reply(body).err().unwrap_or_else(|| unreadable(why))
}

/// Error for a body that is not an answer.
pub(super) fn unreadable(why: impl Display) -> ApiError {
    unreadable_reply("pictures", &why.to_string())
}
