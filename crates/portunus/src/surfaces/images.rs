//! `POST /v1/images/generations` and `/v1/images/edits`.

use axum::response::Response;
use canon::Fault;
use dialects::images::{self, Form};
use dialects::{Target, chat::Chat};
use http::header::CONTENT_TYPE;

use super::Asked;
use crate::flow::{self, Call, Takes};

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    // Its errors have the shape of chat's.
    flow::picture(Call::read(asked, &Chat, Target::default()).await?, Form::Generate).await
}

/// An edit: in JSON, or as a form with files.
pub(super) async fn edit(asked: Asked) -> Result<Response, Fault> {
    let (call, form) = read_edit(asked).await?;
    flow::picture(call, form).await
}

async fn read_edit(asked: Asked) -> Result<(Call, Form), Fault> {
    let told = asked.request.headers().get(CONTENT_TYPE);
    let form = match images::boundary(told.and_then(|told| told.to_str().ok()).unwrap_or_default())
    {
        None => Form::Edit,
        Some(boundary) => Form::Upload { boundary: boundary? },
    };
    let takes = if form == Form::Edit { Takes::Json } else { Takes::Form };
    Ok((Call::read_as(asked, &Chat, Target::default(), takes).await?, form))
}
