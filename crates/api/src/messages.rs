//! `POST /v1/messages` and `/v1/messages/count_tokens`:
//! <https://docs.anthropic.com/en/api/messages>.

use axum::response::Response;
use canon::ApiError;
use dialects::RequestTarget;
use dialects::messages::{self, BETA_HEADER, MessagesDialect};
use serde_json::json;
use std::sync::Arc;
use transport::{ServerReply, visible_text};

use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::{threads, token_count};
use relay::{self, Call};

pub(super) async fn create(incoming: ApiRequest) -> Result<ServerReply, ApiError> {
    let state = Arc::clone(&incoming.state);
    let call = read_call(incoming).await?;
    match threads::may_name_thread(&call.body) {
        // Boxed because it is rare: the future of every call would grow by its size.
        true => Box::pin(create_in_thread(state, call)).await,
        false => relay::serve(call).await,
    }
}

async fn create_in_thread(
    state: Arc<ApiState>,
    mut call: Box<Call>,
) -> Result<ServerReply, ApiError> {
    match threads::open_thread(&state, &mut call).await? {
        None => relay::serve(call).await,
        Some(thread) => thread.serve(call).await,
    }
}

fn read_call(incoming: ApiRequest) -> impl Future<Output = Result<Box<Call>, ApiError>> {
    let interleaved = incoming
        .request
        .headers()
        .get_all(BETA_HEADER)
        .any(|value| visible_text(value).is_some_and(messages::enables_interleaved_thinking));
    Call::read(
        incoming.into_call(),
        &MessagesDialect,
        RequestTarget { interleaved_thinking: interleaved, ..RequestTarget::default() },
    )
}

pub(super) async fn count(incoming: ApiRequest) -> Result<Response, ApiError> {
    let call = read_call(incoming).await?;
    let counted = token_count::count_tokens(&call).await?;
    let body = json!({ "input_tokens": counted.tokens });
    Ok(counted.answer(&body))
}
