//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::response::Response;
use canon::Fault;
use dialects::{Target, messages::Messages};
use serde_json::json;

use super::{Asked, count};
use crate::flow::{self, Call};

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    let call = Call::read(asked, &Messages, Target::default()).await?;
    flow::serve(call).await
}

pub(super) async fn count(asked: Asked) -> Result<Response, Fault> {
    let call = Call::read(asked, &Messages, Target::default()).await?;
    let counted = count::count(&call, &call.body)?;
    Ok(counted.answer(&json!({ "input_tokens": counted.tokens })))
}
