//! `/v1/responses` for every model: <https://platform.openai.com/docs/api-reference/responses>. The
//! gateway stores conversations itself, so `previous_response_id`, retrieval and background runs
//! work with any provider.

mod background;
mod compact;
mod conversation;
mod conversation_log;
mod items;
mod prewarm;
mod recorder;
mod socket;
mod stored;

pub(super) use compact::compact;
pub(super) use conversation_log::{
    not_found as conversation_not_found, store_unavailable as conversations_unavailable,
};
pub(super) use items::{KeptItemIds, complete_item, shown_item};
pub(super) use socket::upgrade;
pub(super) use stored::{cancel, delete, get, input_items};

use axum::response::Response;
use canon::ApiError;
use dialects::{RequestTarget, responses::ResponsesDialect};
use serde_json::json;
use std::sync::Arc;
use transport::ServerReply;

use crate::request::ApiRequest;
use crate::token_count;
use conversation::Conversation;
use relay::{self, Call};

pub(super) async fn create(mut incoming: ApiRequest) -> Result<ServerReply, ApiError> {
    let state = Arc::clone(&incoming.state);
    let socket = incoming.socket.take();
    let mut call =
        Call::read(incoming.into_call(), &ResponsesDialect, RequestTarget::default()).await?;
    let answers = socket.as_ref().map(|socket| &socket.answers);
    let mut conversation = Conversation::load(&state, &mut call, answers).await?;
    // An answer that is kept may be continued. Its own call belongs to the session of those after it.
    if conversation.store || socket.is_some() {
        call.open_session();
    }
    let (offset, log) = (conversation.offset, conversation.log.take());
    call.own_paths = Some(Arc::new(move |error| offset.restore_path(error)));
    if conversation.background {
        let started = background::start(state, call, conversation, log).await;
        // The run itself has its own errors.
        return started.map(ServerReply::from).map_err(|error| offset.restore_path(error));
    }
    if !conversation.store && socket.is_none() {
        let response = relay::serve(call).await?;
        return match log {
            Some(log) => log.record(response).await,
            None => Ok(response),
        };
    }
    let is_prepared = socket.as_ref().is_some_and(|socket| !socket.generates);
    // A free response is kept with its connection and takes no room in the store.
    conversation.store &= !is_prepared;
    let answers = answers.cloned();
    let recorder = recorder::ResponseRecorder::new(state, &call, conversation, answers).await;
    if is_prepared {
        let prepared = prewarm::prepare(&call, &recorder).await;
        return prepared.map_err(|error| offset.restore_path(error));
    }
    let mut response = relay::serve(call).await?;
    if let Some(log) = log {
        response = log.record(response).await?;
    }
    recorder::record_response(recorder, response).await
}

pub(super) async fn input_tokens(incoming: ApiRequest) -> Result<Response, ApiError> {
    let state = Arc::clone(&incoming.state);
    let mut call =
        Call::read(incoming.into_call(), &ResponsesDialect, RequestTarget::default()).await?;
    let Conversation { offset, .. } = Conversation::load(&state, &mut call, None).await?;
    let counted =
        token_count::count_tokens(&call).await.map_err(|error| offset.restore_path(error))?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": counted.tokens });
    Ok(counted.answer(&body))
}
