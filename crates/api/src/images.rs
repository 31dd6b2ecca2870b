//! `POST /v1/images/generations` and `/v1/images/edits`.

use axum::response::Response;
use canon::Fault;
use dialects::images::{self, Form};
use dialects::{Target, chat::Chat};
use http::header::CONTENT_TYPE;

use crate::request::ApiRequest;
use crate::tasks::{self, Wish};
use relay::{self, Call, ImageOutcome, Takes};
use std::sync::Arc;

const EDITS: &str = "/v1/images/edits";

pub(super) async fn create(asked: ApiRequest) -> Result<Response, Fault> {
    let wish = Wish::of(&asked.request)?;
    let state = Arc::clone(&asked.state);
    let (call, form) = read(asked).await?;
    match relay::picture(call, form, wish.is_later()).await? {
        ImageOutcome::Response(response) => Ok(response),
        ImageOutcome::Task(task) => tasks::submit(&state, wish, *task).await,
    }
}

/// An order. An edit comes in JSON, or as a form with files.
pub(crate) async fn read(asked: ApiRequest) -> Result<(Call, Form), Fault> {
    let told = asked.request.headers().get(CONTENT_TYPE);
    let told = told.and_then(|told| told.to_str().ok()).unwrap_or_default();
    let form = match images::boundary(told) {
        _ if asked.request.uri().path() != EDITS => Ok(Form::Generate),
        None => Ok(Form::Edit),
        Some(boundary) => boundary.map(|boundary| Form::Upload { boundary }),
    };
    let takes = match &form {
        Ok(Form::Generate | Form::Edit) => Takes::Json,
        Ok(Form::Upload { .. }) | Err(_) => Takes::Form,
    };
    // Its errors have the shape of chat's. A bad boundary is told when the body was read, like any
    // wrong header.
    let call = Call::read_as(asked.into_call(), &Chat, Target::default(), takes).await?;
    Ok((call, form?))
}
