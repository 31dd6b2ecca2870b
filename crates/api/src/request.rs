//! Request of an authenticated caller, as handlers receive it.

use access::keys::FoundKey;
use access::limits::Admission;
use canon::ApiError;
use config::Config;
use futures_util::future::BoxFuture;
use relay::{CallHead, CallRequest, RequestId};
use std::net::SocketAddr;
use std::sync::Arc;
use transport::{ServerReply, ServerRequest};

use crate::connection_answers::ConnectionAnswers;
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
    /// Address of the connection.
    pub(crate) peer: SocketAddr,
    /// Part of a WebSocket that the request came over.
    pub(crate) socket: Option<SocketCall>,
    pub(crate) request: ServerRequest,
}

/// Part of a WebSocket that one of its requests uses.
pub(crate) struct SocketCall {
    /// Answers of the connection that are not stored.
    pub(crate) answers: Arc<ConnectionAnswers>,
    /// False if the model is not to be asked.
    pub(crate) generates: bool,
}

/// The future of a handler.
pub(crate) type HandlerFuture = BoxFuture<'static, Result<ServerReply, ApiError>>;

impl ApiRequest {
    /// Converts the request for the relay.
    pub(crate) fn into_call(self) -> CallRequest {
        let Self { state, config, key, id, head, admission, peer: _, socket: _, request } = self;
        CallRequest { engine: Arc::clone(&state.engine), config, key, id, head, admission, request }
    }
}
