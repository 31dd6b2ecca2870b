//! Requests to image providers, and their answers.

use canon::{Fault, Pictures, Trouble};

use crate::Outgoing;
use crate::json::Segments;

/// A request to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Path and body.
    pub outgoing: Outgoing,
    /// Content type, if it is not JSON.
    pub kind: Option<String>,
    /// Additional headers.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Written {
    pub(super) const fn json(outgoing: Outgoing) -> Self {
        Self { outgoing, kind: None, headers: &[] }
    }

    pub(super) fn at(path: impl Into<String>, body: &serde_json::Value) -> Self {
        let body = Segments::whole(body.to_string());
        Self::json(Outgoing { path: path.into(), body })
    }
}

/// A provider's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The images.
    Now(Pictures),
    /// A pending task, with the path or URL to poll.
    Later(String),
}

/// Error for a body that is not an answer.
pub(super) fn unreadable(why: &str) -> Fault {
    Fault::new(Trouble::Unavailable, "the provider's answer could not be read")
        .note(format!("no pictures: {why}"))
}
