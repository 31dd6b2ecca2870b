//! Texts into vectors: `POST /v1/embeddings`, and `:embedContent` and `:batchEmbedContents` of the
//! native format.
//!
//! Too small a matter for the conversation's middle language, so it has one of its own: [`Embed`]
//! is what is asked and [`Embedded`] what is answered. [`Form`] is the road in and out, as
//! `Dialect` and `Passage` are for conversations: the same steps under the same names.

mod chat;
mod native;
mod raw;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use canon::{Extras, Fault, Lossy, Origin, Trouble, Usage};
use std::ops::Range;

use crate::{Outgoing, Passage, Target};

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// The model asked for.
    pub model: String,
    /// What is to become vectors, one each.
    pub inputs: Vec<Input>,
    /// How many numbers a vector is to have.
    pub dimensions: Option<u64>,
    /// What the vectors are for, in the native format's words; the first one told.
    pub task: Option<String>,
    /// The title of the document a text is from; the first one told.
    pub title: Option<String>,
    /// How the caller wants its numbers.
    pub encoding: Encoding,
    /// Who asks, in the caller's own words.
    pub user: Option<String>,
    /// Fields only the caller's format knows.
    pub extras: Extras,
}

/// One thing to become a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A text.
    Text(String),
    /// A text already cut into the model's own tokens.
    Tokens(Vec<u64>),
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As JSON numbers.
    #[default]
    Float,
    /// As base64 of little-endian 32-bit numbers, which official clients ask for by default.
    Base64,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    /// The vectors, in the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// What it consumed; `None` when the provider does not tell.
    pub usage: Option<Usage>,
    /// Fields only the provider's format knows.
    pub extras: Extras,
}

/// What the flow must know of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// The model asked for.
    pub model: String,
    /// How many bytes the inputs have without the JSON around them, for an estimate where the
    /// provider does not count.
    pub weight: u64,
    /// Where in the body the model is named.
    pub named: Vec<Range<usize>>,
}

/// The three shapes in which embeddings are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `POST /v1/embeddings`.
    List,
    /// `:embedContent`, one text.
    One,
    /// `:batchEmbedContents`, a request per text.
    Batch,
}

impl Form {
    /// The format whose errors and headers the shape shares.
    pub const fn origin(self) -> Origin {
        match self {
            Self::List => Origin::Chat,
            Self::One | Self::Batch => Origin::Native,
        }
    }

    /// The shape in which a provider of that format is asked; `None` when it has none.
    pub const fn spoken_in(origin: Origin) -> Option<Self> {
        match origin {
            Origin::Chat => Some(Self::List),
            Origin::Native => Some(Self::Batch),
            Origin::Responses | Origin::Messages | Origin::Images => None,
        }
    }

    /// One pass over a caller's request: what the flow must know, and the format's rules.
    pub fn peek(self, target: &Target, body: &[u8]) -> Result<Glimpse, Fault> {
        match self {
            Self::List => chat::peek(body),
            Self::One => native::peek_one(target, body),
            Self::Batch => native::peek_batch(target, body),
        }
    }

    /// The caller's own bytes with nothing changed but the model's name.
    pub fn patch(self, body: &Bytes, glimpse: &Glimpse, model: &str) -> Outgoing {
        match self {
            Self::List => chat::patch(body, glimpse, model),
            Self::One => native::patch(body, glimpse, model, native::ONE),
            Self::Batch => native::patch(body, glimpse, model, native::BATCH),
        }
    }

    /// A caller's request into the middle value.
    pub fn read_request(self, target: &Target, body: &[u8]) -> Result<Embed, Fault> {
        match self {
            Self::List => chat::read_request(body),
            Self::One => native::read_one(target, body),
            Self::Batch => native::read_batch(target, body),
        }
    }

    /// The middle value into requests for a provider, to be sent one after the other: a provider
    /// may take fewer inputs at once than the caller's format allows.
    pub fn write_requests(self, embed: &Embed, model: &str) -> Result<Lossy<Vec<Outgoing>>, Fault> {
        match self {
            Self::List => Ok(chat::write_request(embed, model)),
            Self::One => native::write_ones(embed, model),
            Self::Batch => native::write_batches(embed, model),
        }
    }

    /// What a provider's answer says it consumed. `Err` when it is no answer of this shape.
    pub fn sniff_reply(self, body: &[u8]) -> Result<Option<Usage>, Fault> {
        match self {
            Self::List => chat::sniff(body),
            Self::One => native::sniff_one(body),
            Self::Batch => native::sniff_batch(body),
        }
    }

    /// A provider's answer into the middle value.
    pub fn read_reply(self, body: &[u8]) -> Result<Embedded, Fault> {
        match self {
            Self::List => chat::read_reply(body),
            Self::One => native::read_reply_one(body),
            Self::Batch => native::read_reply_batch(body),
        }
    }

    /// The middle value into an answer for the caller whose request that was.
    pub fn write_reply(self, embedded: &Embedded, embed: &Embed) -> Lossy<Vec<u8>> {
        match self {
            Self::List => chat::write_reply(embedded, embed),
            Self::One => native::write_reply_one(embedded),
            Self::Batch => native::write_reply_batch(embedded),
        }
    }

    /// An error that came under a good status, judged as in a conversation of the same format.
    fn read_error(self, body: &[u8]) -> Fault {
        let said = match self {
            Self::List => crate::chat::Chat.sniff_reply(body),
            Self::One | Self::Batch => crate::native::Native.sniff_reply(body),
        };
        said.err().unwrap_or_else(|| no_answer("an error beside an answer"))
    }
}

impl Embedded {
    /// Takes the answer to the next inputs of the same request in.
    pub fn append(&mut self, later: Self) {
        let Self { vectors, usage, extras } = later;
        let first = self.vectors.is_empty();
        self.vectors.extend(vectors);
        // A sum with a gap in it would be too small a bill.
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

    /// Refuses an answer that leaves inputs without a vector, or cannot tell which is whose.
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

/// A vector whose every number fits 32 bits.
fn finite(vector: Vec<f32>) -> Result<Vec<f32>, Fault> {
    if vector.iter().all(|number| number.is_finite()) {
        Ok(vector)
    } else {
        Err(no_answer("a number is too large"))
    }
}

/// A vector as JSON: the short decimals of 32-bit numbers, not the long ones of wider numbers.
fn numbers(vector: &[f32]) -> String {
    serde_json::to_string(vector).unwrap_or_else(|_| "[]".to_owned())
}
