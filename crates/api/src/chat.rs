//! `POST /v1/chat/completions`.

use axum::response::Response;
use canon::ApiError;
use dialects::RequestTarget;

use crate::request::ApiRequest;
use relay::{self, Call};

pub(super) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    let call =
        Call::read(asked.into_call(), &dialects::chat::ChatDialect, RequestTarget::default())
            .await?;
    relay::serve(call).await
}
