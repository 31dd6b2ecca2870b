//! `POST /v1/embeddings`, and the native operators `:embedContent` and `:batchEmbedContents`.

use axum::response::Response;
use canon::ApiError;
use dialects::embeddings::EmbeddingEndpoint;
use dialects::{RequestTarget, chat::ChatDialect, native::NativeDialect};

use crate::request::ApiRequest;
use relay::{self, Call};

pub(super) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    relay::serve_embeddings(
        Call::read(asked.into_call(), &ChatDialect, RequestTarget::default()).await?,
        EmbeddingEndpoint::OpenAi,
    )
    .await
}

/// The native operators; the address names the model.
pub(super) async fn create_native(
    asked: ApiRequest,
    target: RequestTarget,
    form: EmbeddingEndpoint,
) -> Result<Response, ApiError> {
    relay::serve_embeddings(Call::read(asked.into_call(), &NativeDialect, target).await?, form)
        .await
}
