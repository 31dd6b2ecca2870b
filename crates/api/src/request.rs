//! A request with a good key, as a handler gets it.

use access::keys::ApiKey;
use access::limits::RatePermit;
use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use futures_util::future::BoxFuture;
use http::Request;
use relay::{CallRequest, RequestId};
use std::sync::Arc;

use crate::state::ApiState;

/// A request whose key is good.
pub(crate) struct ApiRequest {
    pub(crate) state: Arc<ApiState>,
    pub(crate) key: Arc<ApiKey>,
    pub(crate) id: RequestId,
    /// Its permit within the limits of its key and account, where there are any.
    pub(crate) permit: Option<Arc<RatePermit>>,
    pub(crate) request: Request<Body>,
}

/// The future of a handler.
pub(crate) type HandlerFuture = BoxFuture<'static, Result<Response, ApiError>>;

impl ApiRequest {
    /// The request as the relay takes it.
    pub(crate) fn into_call(self) -> CallRequest {
        let Self { state, key, id, permit: pass, request } = self;
        CallRequest { engine: Arc::clone(&state.engine), key, id, rate_permit: pass, request }
    }
}
