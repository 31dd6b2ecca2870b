//! Image generation and editing: `POST /v1/images/generations` and `/v1/images/edits`, and the
//! provider families behind them.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/images>. Callers use one format
//! ([`Form`]), providers use several ([`Spoken`]). Requests to the GPT image models are passed
//! through. The others are written from [`canon::Picture`], and fields they do not have are
//! recorded as losses. Some answer with a task that must be polled ([`Answer::Later`]).

mod gpt;
mod measure;
mod multipart;
mod native;
mod read_request;
mod rules;
mod seedream;
mod shape;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;
mod write_reply;
mod xai;

pub use measure::{Measure, decode, encode, measure, measure_base64, of_made};
pub use multipart::boundary;
pub use rules::{check_inputs, extent};
pub use stream::{completed, failed, sniffer};
pub use write_reply::write as write_reply;

use bytes::Bytes;
use canon::{Family, Fault, Lossy, Origin, Picture, Pictures, Trouble};
use std::ops::Range;

use crate::Outgoing;
use crate::json::{self, Edit, Segments};

const ME: Origin = Origin::Images;
const GENERATIONS: &str = "/v1/images/generations";
const EDITS: &str = "/v1/images/edits";

/// Body formats of an image request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// `POST /v1/images/generations`.
    Generate,
    /// `POST /v1/images/edits` as JSON.
    Edit,
    /// `POST /v1/images/edits` as `multipart/form-data`.
    Upload {
        /// Boundary between its parts.
        boundary: String,
    },
}

/// A parsed image request.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The requested images.
    pub picture: Picture,
    /// Options for asynchronous delivery.
    pub later: Later,
    /// Byte range of the model name.
    named: Option<Range<usize>>,
    /// Byte ranges of form parts that only the gateway reads.
    ours: Vec<Range<usize>>,
    /// True if the GPT family accepts the body unchanged at the same endpoint.
    plain: bool,
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

impl Form {
    /// Returns true if the request has input images.
    pub const fn is_edit(&self) -> bool {
        match self {
            Self::Generate => false,
            Self::Edit | Self::Upload { .. } => true,
        }
    }

    /// Returns the content type of the body.
    pub fn content_type(&self) -> String {
        match self {
            Self::Generate | Self::Edit => "application/json".to_owned(),
            Self::Upload { boundary } => format!("multipart/form-data; boundary={boundary}"),
        }
    }

    /// Reads a request and applies the rules that hold for all models.
    pub fn read(&self, body: &Bytes) -> Result<Order, Fault> {
        let order = match self {
            Self::Generate => read_request::json(body, false)?,
            Self::Edit => read_request::json(body, true)?,
            Self::Upload { boundary } => read_request::form(body, boundary)?,
        };
        rules::check(&order.picture)?;
        Ok(order)
    }

    /// Returns the caller's body with the provider's model name. Parts for the gateway are removed
    /// from a form. In JSON, the caller of this function removes them as the provider requires.
    pub fn patch(&self, body: &Bytes, order: &Order, model: &str) -> Written {
        let mut edits: Vec<Edit> =
            order.ours.iter().map(|at| Edit { at: at.clone(), with: Bytes::new() }).collect();
        if let Some(at) = order.named.clone().filter(|_| order.picture.model != model) {
            let with = match self {
                Self::Generate | Self::Edit => json::quoted(model),
                Self::Upload { .. } => Bytes::from(model.to_owned()),
            };
            edits.push(Edit { at, with });
        }
        let path = if self.is_edit() { EDITS } else { GENERATIONS };
        let outgoing = Outgoing { path: path.to_owned(), body: Segments::edited(body, edits) };
        let kind = matches!(self, Self::Upload { .. }).then(|| self.content_type());
        Written { kind, ..Written::json(outgoing) }
    }
}

impl Order {
    /// Returns true if the GPT family accepts the caller's body unchanged.
    pub const fn is_plain(&self) -> bool {
        self.plain
    }
}

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
    const fn json(outgoing: Outgoing) -> Self {
        Self { outgoing, kind: None, headers: &[] }
    }

    fn at(path: impl Into<String>, body: &serde_json::Value) -> Self {
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

/// Request format of a lane for images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// `generateContent` of the native format.
    Native,
    /// The images endpoint, in the variant of that family.
    Images(Family),
}

impl Spoken {
    /// Returns the wire format whose errors and paths apply.
    pub const fn origin(self) -> Origin {
        match self {
            Self::Native => Origin::Native,
            Self::Images(_) => Origin::Images,
        }
    }

    /// Returns true if the caller's body can be passed through.
    pub const fn is_callers(self) -> bool {
        matches!(self, Self::Images(Family::Gpt))
    }

    /// Returns true if the lane can stream.
    pub const fn streams(self) -> bool {
        matches!(self, Self::Images(Family::Gpt | Family::Seedream))
    }

    /// Writes the requests for a lane: one for all images, or one per image if the lane generates
    /// one at a time. `word` is random and becomes part of the form boundary.
    pub fn write(
        self,
        picture: &Picture,
        model: &str,
        word: &str,
    ) -> Result<Lossy<Vec<Written>>, Fault> {
        match self {
            Self::Native => native::write(picture, model),
            Self::Images(Family::Gpt) => gpt::write(picture, model, word),
            Self::Images(Family::Seedream) => seedream::write(picture, model),
            Self::Images(Family::Xai) => xai::write(picture, model),
            Self::Images(Family::Dashscope) => tasks::write_dashscope(picture, model),
            Self::Images(Family::Flux) => tasks::write_flux(picture, model),
            Self::Images(Family::Predictions) => tasks::write_predictions(picture, model),
        }
    }

    /// Progress of a task in percent, if the provider reports it.
    pub fn progress(self, body: &[u8]) -> Option<u8> {
        match self {
            Self::Native => None,
            Self::Images(family) => tasks::progress(family, body),
        }
    }

    /// Reads a provider's answer. An error object in place of one becomes that error.
    pub fn read(self, body: &[u8]) -> Result<Answer, Fault> {
        match self {
            Self::Native => native::read(body).map(Answer::Now),
            Self::Images(family) => tasks::read(family, body),
        }
    }
}

fn no_answer(why: &str) -> Fault {
    Fault::new(Trouble::Unavailable, "the provider's answer could not be read")
        .note(format!("no pictures: {why}"))
}
