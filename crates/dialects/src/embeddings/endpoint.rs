//! The endpoints for embeddings, each with the steps of a call.

use bytes::Bytes;
use canon::{ApiError, Lossy, Usage, WireFormat};

use super::reply::EmbeddingReply;
use super::request::{EmbeddingFacts, EmbeddingRequest};
use super::{chat, native};
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

    /// Parses the request facts and applies the rules, in one pass.
    pub fn read_facts(
        self,
        target: &RequestTarget,
        body: &[u8],
    ) -> Result<EmbeddingFacts, ApiError> {
        match self {
            Self::OpenAi => chat::read_facts(body),
            Self::EmbedContent => native::read_facts(target, body, false),
            Self::BatchEmbedContents => native::read_facts(target, body, true),
        }
    }

    /// Returns the caller's body with the provider's model name.
    pub fn patch(self, body: &Bytes, glimpse: &EmbeddingFacts, model: &str) -> ProviderRequest {
        match self {
            Self::OpenAi => chat::patch(body, glimpse, model),
            Self::EmbedContent => native::patch(body, glimpse, model, false),
            Self::BatchEmbedContents => native::patch(body, glimpse, model, true),
        }
    }

    /// Reads a caller's request.
    pub fn read_request(
        self,
        target: &RequestTarget,
        body: &[u8],
    ) -> Result<EmbeddingRequest, ApiError> {
        match self {
            Self::OpenAi => chat::read_request(body),
            Self::EmbedContent => native::read_request(target, body, false),
            Self::BatchEmbedContents => native::read_request(target, body, true),
        }
    }

    /// Writes the requests for a provider, to be sent in sequence. A provider may accept fewer
    /// inputs per request than the caller's format.
    pub fn write_requests(
        self,
        embed: &EmbeddingRequest,
        model: &str,
    ) -> Result<Lossy<Vec<ProviderRequest>>, ApiError> {
        match self {
            Self::OpenAi => Ok(chat::write_request(embed, model)),
            Self::EmbedContent => native::write_requests(embed, model, false),
            Self::BatchEmbedContents => native::write_requests(embed, model, true),
        }
    }

    /// Returns the usage of a provider's reply. `Err` if it is not a reply of this endpoint.
    pub fn read_usage(self, body: &[u8]) -> Result<Option<Usage>, ApiError> {
        match self {
            Self::OpenAi => chat::read_usage(body),
            Self::EmbedContent => native::read_usage(body, false),
            Self::BatchEmbedContents => native::read_usage(body, true),
        }
    }

    /// Reads a provider's reply.
    pub fn read_reply(self, body: &[u8]) -> Result<EmbeddingReply, ApiError> {
        match self {
            Self::OpenAi => chat::read_reply(body),
            Self::EmbedContent => native::read_reply(body, false),
            Self::BatchEmbedContents => native::read_reply(body, true),
        }
    }

    /// Writes the reply to the given request.
    pub fn write_reply(
        self,
        embedded: &EmbeddingReply,
        embed: &EmbeddingRequest,
    ) -> Lossy<Vec<u8>> {
        match self {
            Self::OpenAi => chat::write_reply(embedded, embed),
            Self::EmbedContent => native::write_reply(embedded, false),
            Self::BatchEmbedContents => native::write_reply(embedded, true),
        }
    }
}
