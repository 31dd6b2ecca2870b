//! `POST /v1/images/generations` and `/v1/images/edits`:
//! <https://platform.openai.com/docs/api-reference/images>.

use axum::response::Response;
use canon::ApiError;
use dialects::images::{self, ImageRequestForm};
use dialects::{RequestTarget, chat::ChatDialect};

use crate::request::ApiRequest;
use crate::tasks::{self, AsyncOptions};
use relay::{self, BodyKind, Call, ImageOutcome};
use std::sync::Arc;

const EDITS: &str = "/v1/images/edits";

pub(super) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let options = AsyncOptions::from_request(&incoming.request)?;
    let state = Arc::clone(&incoming.state);
    let (call, form) = read_image_call(incoming).await?;
    match relay::serve_images(call, form, options.is_async()).await? {
        ImageOutcome::Response(response) => Ok(response),
        ImageOutcome::Task(task) => tasks::submit(&state, options, *task).await,
    }
}

/// Reads an image request. An edit comes as JSON, or as a multipart form with files.
pub(crate) async fn read_image_call(
    incoming: ApiRequest,
) -> Result<(Call, ImageRequestForm), ApiError> {
    let content_type = incoming.request.headers().text("content-type").unwrap_or_default();
    let form = match images::boundary(content_type) {
        _ if incoming.request.path() != EDITS => Ok(ImageRequestForm::Generation),
        None => Ok(ImageRequestForm::JsonEdit),
        Some(boundary) => boundary.map(|boundary| ImageRequestForm::MultipartEdit { boundary }),
    };
    let takes = match &form {
        Ok(ImageRequestForm::Generation | ImageRequestForm::JsonEdit) => BodyKind::Json,
        Ok(ImageRequestForm::MultipartEdit { .. }) | Err(_) => BodyKind::Form,
    };
    // Errors have the shape of the chat format. A bad boundary is reported after the body was read,
    // like any other wrong header.
    let call =
        Call::read_as(incoming.into_call(), &ChatDialect, RequestTarget::default(), takes).await?;
    Ok((*call, form?))
}
