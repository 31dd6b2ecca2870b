//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::response::Response;
use canon::Fault;
use dialects::Target;
use dialects::messages::{self, BETA, Messages};
use serde_json::json;

use super::{Asked, count, threads};
use crate::flow::{self, Call};

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    let mut call = read(asked).await?;
    match threads::of(&mut call).await? {
        None => flow::serve(call).await,
        Some(thread) => {
            let response = flow::serve(call).await?;
            thread.remember(response).await
        }
    }
}

async fn read(asked: Asked) -> Result<Call, Fault> {
    let interleaved = asked
        .request
        .headers()
        .get_all(BETA)
        .iter()
        .any(|value| value.to_str().is_ok_and(messages::is_interleaved));
    Call::read(asked, &Messages, Target { interleaved, ..Target::default() }).await
}

pub(super) async fn count(asked: Asked) -> Result<Response, Fault> {
    let call = read(asked).await?;
    let counted = count::count(&call, &call.body)?;
    Ok(counted.answer(&json!({ "input_tokens": counted.tokens })))
}
