//! Requests to image providers, and their answers.

use canon::{ApiError, ErrorKind, ImageReply};

use crate::ProviderRequest;
use crate::json::BodySegments;

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
    pub(super) const fn json(outgoing: ProviderRequest) -> Self {
        Self { outgoing, content_type: None, headers: &[] }
    }

    pub(super) fn at(path: impl Into<String>, body: &serde_json::Value) -> Self {
        let body = BodySegments::single(body.to_string());
        Self::json(ProviderRequest { path: path.into(), body })
    }
}

/// A provider's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageAnswer {
    /// The images.
    Finished(ImageReply),
    /// A pending task, with the path or URL to poll.
    Pending(String),
}

/// Error for a body that is not an answer.
pub(super) fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("no pictures: {why}"))
}
