//! `/v1/responses`, with memory for every model: the gateway itself keeps conversations, so that
//! `previous_response_id`, retrieval and background runs work whatever serves the model.

mod background;
mod compact;
mod conversation;
mod kept;
mod remember;

pub(super) use compact::compact;
pub(super) use kept::{cancel, delete, get, input_items};

use axum::response::Response;
use canon::{Fault, Trouble};
use dialects::{Target, responses::Responses};
use serde_json::json;

use super::{Asked, count};
use crate::flow::{self, Call};
use conversation::Conversation;

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    let mut call = Call::read(asked, &Responses, Target::default()).await?;
    let conversation = Conversation::of(&mut call).await?;
    if conversation.background {
        return background::start(call, conversation).await;
    }
    if !conversation.store {
        return flow::serve(call).await;
    }
    let keeper = remember::Keeper::new(&call, conversation);
    let response = flow::serve(call).await?;
    remember::remember(keeper, response).await
}

/// `GET /v1/responses` is where clients try a WebSocket first; they go on with HTTP when refused.
pub(super) async fn upgrade(_asked: Asked) -> Result<Response, Fault> {
    Err(Fault::new(Trouble::Upgrade, "there is no WebSocket here; send POST /v1/responses"))
}

pub(super) async fn input_tokens(asked: Asked) -> Result<Response, Fault> {
    let mut call = Call::read(asked, &Responses, Target::default()).await?;
    Conversation::of(&mut call).await?;
    let counted = count::count(&call, &call.body)?;
    Ok(counted
        .answer(&json!({ "object": "response.input_tokens", "input_tokens": counted.tokens })))
}
