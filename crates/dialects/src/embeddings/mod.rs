//! Embeddings: `POST /v1/embeddings`, and `:embedContent` and `:batchEmbedContents` of the native
//! format.
//!
//! Embeddings have their own request ([`Embed`]) and reply ([`Embedded`]) instead of those in
//! canon. [`Form`] corresponds to the `Dialect` trait: same steps, same method names.

mod chat;
mod native;
mod raw;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use canon::{Extras, Fault, Lossy, Origin, Trouble, Usage};
use std::ops::Range;

use crate::{Outgoing, Passage, Target};

/// An embeddings request.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// Requested model.
    pub model: String,
    /// Inputs, one vector each.
    pub inputs: Vec<Input>,
    /// Requested vector length.
    pub dimensions: Option<u64>,
    /// Task type in the native format's words. In a batch, the first one.
    pub task: Option<String>,
    /// Title of the document. In a batch, the first one.
    pub title: Option<String>,
    /// Requested encoding of the vectors.
    pub encoding: Encoding,
    /// End user id.
    pub user: Option<String>,
    /// Fields only the caller's format has.
    pub extras: Extras,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A text.
    Text(String),
    /// A text as token ids of the model.
    Tokens(Vec<u64>),
}

/// Encoding of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// JSON numbers.
    #[default]
    Float,
    /// Base64 of little-endian 32-bit floats, the default of the official SDKs.
    Base64,
}

/// An embeddings reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    /// Vectors in the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// Usage, if reported.
    pub usage: Option<Usage>,
    /// Fields only the provider's format has.
    pub extras: Extras,
}

/// Facts about a request that routing and billing need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// Requested model.
    pub model: String,
    /// Bytes of the inputs without JSON syntax, to estimate usage the provider does not report.
    pub weight: u64,
    /// Byte ranges of the model name.
    pub named: Vec<Range<usize>>,
}

/// The three endpoints for embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `POST /v1/embeddings`.
    List,
    /// `:embedContent`, one text.
    One,
    /// `:batchEmbedContents`, one request per text.
    Batch,
}

impl Form {
    /// Returns the format whose errors and headers apply.
    pub const fn origin(self) -> Origin {
        match self {
            Self::List => Origin::Chat,
            Self::One | Self::Batch => Origin::Native,
        }
    }

    /// Returns the endpoint for a provider of that format. `None` if it has none.
    pub const fn spoken_in(origin: Origin) -> Option<Self> {
        match origin {
            Origin::Chat => Some(Self::List),
            Origin::Native => Some(Self::Batch),
            Origin::Responses | Origin::Messages | Origin::Images => None,
        }
    }

    /// Parses the request facts and applies the rules, in one pass.
    pub fn peek(self, target: &Target, body: &[u8]) -> Result<Glimpse, Fault> {
        match self {
            Self::List => chat::peek(body),
            Self::One => native::peek_one(target, body),
            Self::Batch => native::peek_batch(target, body),
        }
    }

    /// Returns the caller's body with the provider's model name.
    pub fn patch(self, body: &Bytes, glimpse: &Glimpse, model: &str) -> Outgoing {
        match self {
            Self::List => chat::patch(body, glimpse, model),
            Self::One => native::patch(body, glimpse, model, native::ONE),
            Self::Batch => native::patch(body, glimpse, model, native::BATCH),
        }
    }

    /// Reads a caller's request.
    pub fn read_request(self, target: &Target, body: &[u8]) -> Result<Embed, Fault> {
        match self {
            Self::List => chat::read_request(body),
            Self::One => native::read_one(target, body),
            Self::Batch => native::read_batch(target, body),
        }
    }

    /// Writes the requests for a provider, to be sent in sequence. A provider may accept fewer
    /// inputs per request than the caller's format.
    pub fn write_requests(self, embed: &Embed, model: &str) -> Result<Lossy<Vec<Outgoing>>, Fault> {
        match self {
            Self::List => Ok(chat::write_request(embed, model)),
            Self::One => native::write_ones(embed, model),
            Self::Batch => native::write_batches(embed, model),
        }
    }

    /// Returns the usage of a provider's reply. `Err` if it is not a reply of this endpoint.
    pub fn sniff_reply(self, body: &[u8]) -> Result<Option<Usage>, Fault> {
        match self {
            Self::List => chat::sniff(body),
            Self::One => native::sniff_one(body),
            Self::Batch => native::sniff_batch(body),
        }
    }

    /// Reads a provider's reply.
    pub fn read_reply(self, body: &[u8]) -> Result<Embedded, Fault> {
        match self {
            Self::List => chat::read_reply(body),
            Self::One => native::read_reply_one(body),
            Self::Batch => native::read_reply_batch(body),
        }
    }

    /// Writes the reply to the given request.
    pub fn write_reply(self, embedded: &Embedded, embed: &Embed) -> Lossy<Vec<u8>> {
        match self {
            Self::List => chat::write_reply(embedded, embed),
            Self::One => native::write_reply_one(embedded),
            Self::Batch => native::write_reply_batch(embedded),
        }
    }

    /// Reads an error with a success status, in the same way as for conversations.
    fn read_error(self, body: &[u8]) -> Fault {
        let said = match self {
            Self::List => crate::chat::Chat.sniff_reply(body),
            Self::One | Self::Batch => crate::native::Native.sniff_reply(body),
        };
        said.err().unwrap_or_else(|| no_answer("an error beside an answer"))
    }
}

impl Embedded {
    /// Adds the reply to the next inputs of the same request.
    pub fn append(&mut self, later: Self) {
        let Self { vectors, usage, extras } = later;
        let first = self.vectors.is_empty();
        self.vectors.extend(vectors);
        // A sum with a missing part would bill too little.
        self.usage = match (self.usage, usage) {
            _ if first => usage,
            (Some(own), Some(more)) => {
                Some(Usage { input: own.input.saturating_add(more.input), ..own })
            }
            (None, _) | (_, None) => None,
        };
        for origin in Origin::ALL {
            for (name, value) in extras.for_origin(origin).into_iter().flatten() {
                self.extras.put(origin, name, value.clone());
            }
        }
    }

    /// Returns an error if the number of vectors differs from the number of inputs.
    pub fn answers(&self, embed: &Embed) -> Result<(), Fault> {
        let (asked, given) = (embed.inputs.len(), self.vectors.len());
        if asked == given {
            return Ok(());
        }
        Err(no_answer(&format!("{asked} vectors were asked for and {given} came")))
    }
}

fn no_answer(why: &str) -> Fault {
    Fault::new(Trouble::Unavailable, "the provider's answer could not be read")
        .note(format!("no embeddings: {why}"))
}

/// Rejects a vector with a number that does not fit into 32 bits.
fn finite(vector: Vec<f32>) -> Result<Vec<f32>, Fault> {
    if vector.iter().all(|number| number.is_finite()) {
        Ok(vector)
    } else {
        Err(no_answer("a number is too large"))
    }
}

/// Writes a vector as JSON, with the short decimals of 32-bit floats.
fn numbers(vector: &[f32]) -> String {
    serde_json::to_string(vector).unwrap_or_else(|_| "[]".to_owned())
}
