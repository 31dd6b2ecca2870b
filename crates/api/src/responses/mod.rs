//! `/v1/responses` for every model: <https://platform.openai.com/docs/api-reference/responses>. The
//! gateway stores conversations itself, so `previous_response_id`, retrieval and background runs
//! work with any provider.

mod background;
mod compact;
mod conversation;
mod recorder;
mod stored;

pub(super) use compact::compact;
pub(super) use stored::{cancel, delete, get, input_items};

use axum::response::Response;
use canon::{ApiError, ErrorKind};
use dialects::{RequestTarget, responses::ResponsesDialect};
use serde_json::json;
use std::sync::Arc;
use transport::ServerReply;

use crate::request::ApiRequest;
use crate::token_count;
use conversation::Conversation;
use relay::{self, Call};

pub(super) async fn create(incoming: ApiRequest) -> Result<ServerReply, ApiError> {
    let state = Arc::clone(&incoming.state);
    let mut call =
        Call::read(incoming.into_call(), &ResponsesDialect, RequestTarget::default()).await?;
    let conversation = Conversation::load(&state, &mut call).await?;
    let offset = conversation.offset;
    call.own_paths = Some(Arc::new(move |error| offset.restore_path(error)));
    if conversation.background {
        let started = background::start(state, call, conversation).await;
        // The run itself has its own errors.
        return started.map(ServerReply::from).map_err(|error| offset.restore_path(error));
    }
    if !conversation.store {
        return relay::serve(call).await;
    }
    let recorder = recorder::ResponseRecorder::new(state, &call, conversation).await;
    let response = relay::serve(call).await?;
    recorder::record_response(recorder, response).await
}

/// Refuses a WebSocket on `GET /v1/responses`. Some clients try it first and fall back to HTTP.
pub(super) async fn upgrade(_incoming: ApiRequest) -> Result<Response, ApiError> {
    Err(ApiError::new(
        ErrorKind::UpgradeRefused,
        "there is no WebSocket here; send POST /v1/responses",
    ))
}

pub(super) async fn input_tokens(incoming: ApiRequest) -> Result<Response, ApiError> {
    let state = Arc::clone(&incoming.state);
    let mut call =
        Call::read(incoming.into_call(), &ResponsesDialect, RequestTarget::default()).await?;
    let Conversation { offset, .. } = Conversation::load(&state, &mut call).await?;
    let counted =
        token_count::count_tokens(&call).await.map_err(|error| offset.restore_path(error))?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": counted.tokens });
    Ok(counted.answer(&body))
}
