//! The endpoints for embeddings, each with the steps of a call.

use bytes::Bytes;
use canon::{ApiError, Lossy, Usage, WireFormat};
use std::ops::Deref;

use super::chat::ChatEmbeddings;
use super::native::NativeEmbeddings;
use super::reply::{EmbeddingReply, ParsedVectors};
use super::request::{EmbeddingFacts, EmbeddingRequest};
use crate::{ProviderRequest, RequestTarget};

/// The three endpoints for embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingEndpoint {
    /// `POST /v1/embeddings`.
    OpenAi,
    /// `:embedContent`, one text.
    EmbedContent,
    /// `:batchEmbedContents`, one request per text.
    BatchEmbedContents,
}

impl EmbeddingEndpoint {
    /// Returns the format whose errors and headers apply.
    pub const fn origin(self) -> WireFormat {
        match self {
            Self::OpenAi => WireFormat::Chat,
            Self::EmbedContent | Self::BatchEmbedContents => WireFormat::Native,
        }
    }

    /// Returns the endpoint for a provider of that format. `None` if it has none.
    pub const fn for_provider(origin: WireFormat) -> Option<Self> {
        match origin {
            WireFormat::Chat => Some(Self::OpenAi),
            WireFormat::Native => Some(Self::BatchEmbedContents),
            WireFormat::Responses | WireFormat::Messages | WireFormat::Images => None,
        }
    }
}

/// An endpoint has the steps of its format.
impl Deref for EmbeddingEndpoint {
    type Target = dyn EmbeddingFormat;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::OpenAi => &ChatEmbeddings,
            Self::EmbedContent => &NativeEmbeddings { is_batch: false },
            Self::BatchEmbedContents => &NativeEmbeddings { is_batch: true },
        }
    }
}

/// The requests for one call, with the losses of the translation.
pub(super) type WrittenEmbeddings = Result<Lossy<Vec<ProviderRequest>>, ApiError>;

/// The steps of a call in one format.
pub trait EmbeddingFormat {
    /// Parses the request facts and applies the rules, in one pass.
    fn read_facts(&self, target: &RequestTarget, body: &[u8]) -> Result<EmbeddingFacts, ApiError>;

    /// Returns the caller's body with the provider's model name.
    fn patch(&self, body: &Bytes, facts: &EmbeddingFacts, model: &str) -> ProviderRequest;

    /// Reads a caller's request.
    fn read_request(
        &self,
        target: &RequestTarget,
        body: &[u8],
    ) -> Result<EmbeddingRequest, ApiError>;

    /// Writes the requests for a provider, to be sent in sequence. A provider may accept fewer
    /// inputs per request than the caller's format.
    fn write_requests(&self, embed: &EmbeddingRequest, model: &str) -> WrittenEmbeddings;

    /// Parses a provider's reply. `Err` if it is not a reply of this endpoint.
    fn parse_reply<'a>(&self, body: &'a [u8]) -> Result<ParsedVectors<'a>, ApiError>;

    /// Writes the reply to the given request.
    fn write_reply(&self, embedded: &EmbeddingReply, embed: &EmbeddingRequest) -> Lossy<Vec<u8>>;

    /// Returns the usage of a provider's reply.
    fn read_usage(&self, body: &[u8]) -> Result<Option<Usage>, ApiError> {
        Ok(self.parse_reply(body)?.usage())
    }

    /// Reads a provider's reply.
    fn read_reply(&self, body: &[u8]) -> Result<EmbeddingReply, ApiError> {
        self.parse_reply(body)?.read()
    }
}
