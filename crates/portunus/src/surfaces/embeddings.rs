//! `POST /v1/embeddings`, and the native operators `:embedContent` and `:batchEmbedContents`.

use axum::response::Response;
use canon::Fault;
use dialects::embeddings::Form;
use dialects::{Target, chat::Chat, native::Native};

use super::Asked;
use crate::flow::{self, Call};

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    flow::embed(Call::read(asked, &Chat, Target::default()).await?, Form::List).await
}

/// The native operators; the address names the model.
pub(super) async fn native(asked: Asked, target: Target, form: Form) -> Result<Response, Fault> {
    flow::embed(Call::read(asked, &Native, target).await?, form).await
}
