//! `POST /v1/images/generations` and `/v1/images/edits`.

use axum::response::Response;
use canon::ApiError;
use dialects::images::{self, ImageRequestForm};
use dialects::{RequestTarget, chat::ChatDialect};
use http::header::CONTENT_TYPE;

use crate::request::ApiRequest;
use crate::tasks::{self, AsyncOptions};
use relay::{self, BodyKind, Call, ImageOutcome};
use std::sync::Arc;

const EDITS: &str = "/v1/images/edits";

pub(super) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    let wish = AsyncOptions::from_request(&asked.request)?;
    let state = Arc::clone(&asked.state);
    let (call, form) = read_image_call(asked).await?;
    match relay::serve_images(call, form, wish.is_async()).await? {
        ImageOutcome::Response(response) => Ok(response),
        ImageOutcome::Task(task) => tasks::submit(&state, wish, *task).await,
    }
}

/// An order. An edit comes in JSON, or as a form with files.
pub(crate) async fn read_image_call(
    asked: ApiRequest,
) -> Result<(Call, ImageRequestForm), ApiError> {
    let told = asked.request.headers().get(CONTENT_TYPE);
    let told = told.and_then(|told| told.to_str().ok()).unwrap_or_default();
    let form = match images::boundary(told) {
        _ if asked.request.uri().path() != EDITS => Ok(ImageRequestForm::Generation),
        None => Ok(ImageRequestForm::JsonEdit),
        Some(boundary) => boundary.map(|boundary| ImageRequestForm::MultipartEdit { boundary }),
    };
    let takes = match &form {
        Ok(ImageRequestForm::Generation | ImageRequestForm::JsonEdit) => BodyKind::Json,
        Ok(ImageRequestForm::MultipartEdit { .. }) | Err(_) => BodyKind::Form,
    };
    // Its errors have the shape of chat's. A bad boundary is told when the body was read, like any
    // wrong header.
    let call =
        Call::read_as(asked.into_call(), &ChatDialect, RequestTarget::default(), takes).await?;
    Ok((call, form?))
}
