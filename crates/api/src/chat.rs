//! `POST /v1/chat/completions`.

use axum::response::Response;
use canon::Fault;
use dialects::Target;

use crate::request::ApiRequest;
use relay::{self, Call};

pub(super) async fn create(asked: ApiRequest) -> Result<Response, Fault> {
    let call = Call::read(asked.into_call(), &dialects::chat::Chat, Target::default()).await?;
    relay::serve(call).await
}
