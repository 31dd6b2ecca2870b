//! `POST /v1/embeddings`, and the native operators `:embedContent` and `:batchEmbedContents`.

use axum::response::Response;
use canon::Fault;
use dialects::embeddings::Form;
use dialects::{Target, chat::Chat, native::Native};

use crate::request::ApiRequest;
use relay::{self, Call};

pub(super) async fn create(asked: ApiRequest) -> Result<Response, Fault> {
    relay::embed(Call::read(asked.into_call(), &Chat, Target::default()).await?, Form::List).await
}

/// The native operators; the address names the model.
pub(super) async fn native(
    asked: ApiRequest,
    target: Target,
    form: Form,
) -> Result<Response, Fault> {
    relay::embed(Call::read(asked.into_call(), &Native, target).await?, form).await
}
