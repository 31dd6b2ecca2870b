//! `POST /v1/chat/completions`.

use axum::response::Response;
use canon::Fault;
use dialects::Target;

use super::Asked;
use crate::flow::{self, Call};

pub(super) async fn create(asked: Asked) -> Result<Response, Fault> {
    let call = Call::read(asked, &dialects::chat::Chat, Target::default()).await?;
    flow::serve(call).await
}
