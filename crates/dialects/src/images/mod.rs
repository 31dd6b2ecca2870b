//! Pictures: `POST /v1/images/generations` and `/v1/images/edits`, and the families of providers
//! behind them.
//!
//! Callers ask in one shape ([`Form`]), providers are asked in several ([`Spoken`]): the GPT image
//! models in the callers' own, on the caller's own bytes; the others through [`canon::Picture`],
//! with what they cannot be told as losses. Some of them answer with a task that has to be asked
//! again and again ([`Answer::Later`]).

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

/// The shapes in which pictures are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// `POST /v1/images/generations`.
    Generate,
    /// `POST /v1/images/edits` in JSON.
    Edit,
    /// `POST /v1/images/edits` as a form with files.
    Upload {
        /// What stands between its parts.
        boundary: String,
    },
}

/// A request, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What is asked for.
    pub picture: Picture,
    /// Whether it is waited for.
    pub later: Later,
    /// Where in the body the model is named.
    named: Option<Range<usize>>,
    /// Parts of a form that are only for us.
    ours: Vec<Range<usize>>,
    /// Whether the body is what the GPT family takes at the address it came to.
    plain: bool,
}

/// Whether an order is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Later {
    /// Whether the caller wants to come back for it.
    pub wanted: bool,
    /// Who wants to hear of its end.
    pub webhook: Option<String>,
}

/// Fields that are told to the gateway alone. The GPT image models refuse the first.
pub const OURS: [&str; 4] = ["response_format", "async", "webhook", "webhook_url"];

impl Form {
    /// Whether pictures are given to begin with.
    pub const fn is_edit(&self) -> bool {
        match self {
            Self::Generate => false,
            Self::Edit | Self::Upload { .. } => true,
        }
    }

    /// The content type a body of this shape has.
    pub fn content_type(&self) -> String {
        match self {
            Self::Generate | Self::Edit => "application/json".to_owned(),
            Self::Upload { boundary } => format!("multipart/form-data; boundary={boundary}"),
        }
    }

    /// Reads a request and applies the rules that hold for every model.
    pub fn read(&self, body: &Bytes) -> Result<Order, Fault> {
        let order = match self {
            Self::Generate => read_request::json(body, false)?,
            Self::Edit => read_request::json(body, true)?,
            Self::Upload { boundary } => read_request::form(body, boundary)?,
        };
        rules::check(&order.picture)?;
        Ok(order)
    }

    /// The caller's own bytes with nothing changed but the model's name, and what is for us alone
    /// taken out of a form. In JSON that is left to whoever knows the provider's ways.
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
    /// Whether the caller's own bytes are what the GPT family takes.
    pub const fn is_plain(&self) -> bool {
        self.plain
    }
}

/// A request as it goes to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Path and body.
    pub outgoing: Outgoing,
    /// Its content type, where that is not JSON.
    pub kind: Option<String>,
    /// Headers it needs besides.
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

/// What a provider answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The pictures.
    Now(Pictures),
    /// They will be there, by and by: the path or address to ask at.
    Later(String),
}

/// How a lane is asked for pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// As a conversation in the native format.
    Native,
    /// At the images address, as that family does.
    Images(Family),
}

impl Spoken {
    /// The wire format whose errors and paths it shares.
    pub const fn origin(self) -> Origin {
        match self {
            Self::Native => Origin::Native,
            Self::Images(_) => Origin::Images,
        }
    }

    /// Whether the caller's own bytes can be sent as they are.
    pub const fn is_callers(self) -> bool {
        matches!(self, Self::Images(Family::Gpt))
    }

    /// Whether it can be asked for a stream.
    pub const fn streams(self) -> bool {
        matches!(self, Self::Images(Family::Gpt | Family::Seedream))
    }

    /// The requests for a lane: one for all pictures, or one for each where it makes one at a time.
    /// `word` is a random one, for what has to be told apart from the rest of the body.
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

    /// How far a task has come, in hundredths, where its provider tells it.
    pub fn progress(self, body: &[u8]) -> Option<u8> {
        match self {
            Self::Native => None,
            Self::Images(family) => tasks::progress(family, body),
        }
    }

    /// A provider's answer. An error object in place of one is that error.
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
