//! The endpoints for embeddings, each with the steps of a call.

use bytes::Bytes;
use canon::{Fault, Lossy, Origin, Usage};

use super::reply::Embedded;
use super::request::{Embed, Glimpse};
use super::{chat, native};
use crate::{Outgoing, Target};

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
            Self::List => chat::read_facts(body),
            Self::One => native::read_facts_one(target, body),
            Self::Batch => native::read_facts_batch(target, body),
        }
    }

    /// Returns the caller's body with the provider's model name.
    pub fn patch(self, body: &Bytes, glimpse: &Glimpse, model: &str) -> Outgoing {
        match self {
            Self::List => chat::patch(body, glimpse, model),
            Self::One => native::patch(body, glimpse, model, native::EMBED_METHOD),
            Self::Batch => native::patch(body, glimpse, model, native::BATCH_METHOD),
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
            Self::List => chat::read_usage(body),
            Self::One => native::read_usage_one(body),
            Self::Batch => native::read_usage_batch(body),
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
}
