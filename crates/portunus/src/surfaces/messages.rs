//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::response::Response;
use canon::Fault;
use dialects::{Target, messages::Messages};
use serde_json::json;

use super::{Asked, count, threads};
use crate::flow::{self, Call};

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    let mut call = Call::read(asked, &Messages, Target::default()).await?;
    match threads::of(&mut call).await? {
        None => flow::serve(call).await,
        Some(thread) => {
            let response = flow::serve(call).await?;
            thread.remember(response).await
        }
    }
}

pub(super) async fn count(asked: Asked) -> Result<Response, Fault> {
    let call = Call::read(asked, &Messages, Target::default()).await?;
    let counted = count::count(&call, &call.body)?;
    Ok(counted.answer(&json!({ "input_tokens": counted.tokens })))
}
