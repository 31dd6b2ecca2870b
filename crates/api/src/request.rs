//! Request of an authenticated caller, as handlers receive it.

use access::keys::FoundKey;
use access::limits::Admission;
use canon::ApiError;
use config::Config;
use futures_util::future::BoxFuture;
use relay::{CallHead, CallRequest, RequestId};
use std::sync::Arc;
use transport::{ServerReply, ServerRequest};

use crate::state::ApiState;

/// A request with a valid key.
pub(crate) struct ApiRequest {
    pub(crate) state: Arc<ApiState>,
    /// Configuration at arrival.
    pub(crate) config: Arc<Config>,
    pub(crate) key: FoundKey,
    pub(crate) id: RequestId,
    /// Facts of the head about a call.
    pub(crate) head: Arc<CallHead>,
    /// Resources held until the request ends.
    pub(crate) admission: Admission,
    pub(crate) request: ServerRequest,
}

/// The future of a handler.
pub(crate) type HandlerFuture = BoxFuture<'static, Result<ServerReply, ApiError>>;

impl ApiRequest {
    /// Converts the request for the relay.
    pub(crate) fn into_call(self) -> CallRequest {
        let Self { state, config, key, id, head, admission, request } = self;
        CallRequest { engine: Arc::clone(&state.engine), config, key, id, head, admission, request }
    }
}
