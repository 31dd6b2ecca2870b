//! `POST /v1/chat/completions`: <https://platform.openai.com/docs/api-reference/chat>.

use canon::ApiError;
use dialects::RequestTarget;

use crate::request::ApiRequest;
use relay::{self, Call};
use transport::ServerReply;

pub(super) async fn create(incoming: ApiRequest) -> Result<ServerReply, ApiError> {
    let call =
        Call::read(incoming.into_call(), &dialects::chat::ChatDialect, RequestTarget::default())
            .await?;
    relay::serve(call).await
}
