//! `POST /v1/embeddings`, and the native operators `:embedContent` and `:batchEmbedContents`.

use axum::response::Response;
use canon::ApiError;
use dialects::embeddings::EmbeddingEndpoint;
use dialects::{RequestTarget, chat::ChatDialect, native::NativeDialect};

use crate::request::ApiRequest;
use relay::{self, Call};

pub(super) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    relay::serve_embeddings(
        *Call::read(incoming.into_call(), &ChatDialect, RequestTarget::default()).await?,
        EmbeddingEndpoint::OpenAi,
    )
    .await
}

/// Native embedding operators. The model is in the path: <https://ai.google.dev/api/embeddings>.
pub(super) async fn create_native(
    incoming: ApiRequest,
    target: RequestTarget,
    form: EmbeddingEndpoint,
) -> Result<Response, ApiError> {
    let call = Call::read(incoming.into_call(), &NativeDialect, target).await?;
    relay::serve_embeddings(*call, form).await
}
