//! Request of an authenticated caller, as handlers receive it.

use access::keys::ApiKey;
use access::limits::Admission;
use canon::ApiError;
use futures_util::future::BoxFuture;
use relay::{CallRequest, RequestId};
use std::sync::Arc;
use transport::{ServerReply, ServerRequest};

use crate::state::ApiState;

/// A request with a valid key.
pub(crate) struct ApiRequest {
    pub(crate) state: Arc<ApiState>,
    pub(crate) key: Arc<ApiKey>,
    pub(crate) id: RequestId,
    /// Resources held until the request ends.
    pub(crate) admission: Admission,
    pub(crate) request: ServerRequest,
}

/// The future of a handler.
pub(crate) type HandlerFuture = BoxFuture<'static, Result<ServerReply, ApiError>>;

impl ApiRequest {
    /// Converts the request for the relay.
    pub(crate) fn into_call(self) -> CallRequest {
        let Self { state, key, id, admission, request } = self;
        CallRequest { engine: Arc::clone(&state.engine), key, id, admission, request }
    }
}
