//! `POST /v1/images/generations` and `/v1/images/edits`.

use axum::response::Response;
use canon::Fault;
use dialects::images::{self, Form};
use dialects::{Target, chat::Chat};
use http::header::CONTENT_TYPE;

use super::Asked;
use crate::flow::{self, Call, Takes};
use crate::tasks::Wish;

const EDITS: &str = "/v1/images/edits";

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    let wish = Wish::of(&asked.request)?;
    let (call, form) = read(asked).await?;
    flow::picture(call, form, wish).await
}

/// An order. An edit comes in JSON, or as a form with files.
pub(crate) async fn read(asked: Asked) -> Result<(Call, Form), Fault> {
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
    let call = Call::read_as(asked, &Chat, Target::default(), takes).await?;
    Ok((call, form?))
}
