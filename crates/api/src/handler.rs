//! Handlers of a listener: the whole API, or metrics alone.

use canon::{ApiError, ErrorKind, Micros};
use futures_util::FutureExt as _;
use http::header::HeaderValue;
use relay::{ErrorFormat, RequestId};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use transport::{HeaderBlock, RequestHandler, ServerReply, ServerRequest};

use crate::health::{alive, metrics_text, ready};
use crate::serve::ApiService;
use crate::state::ApiState;

/// Answers the requests of one connection from the route table.
pub(crate) struct ApiHandler {
    api: Arc<ApiService>,
    peer: SocketAddr,
}

impl ApiHandler {
    /// Creates a handler for a connection from that address.
    pub(crate) fn new(api: Arc<ApiService>, peer: SocketAddr) -> Self {
        Self { api, peer }
    }
}

/// Id of a request, and the error format of its path.
#[derive(Clone)]
pub struct RequestContext {
    id: Arc<str>,
    format: ErrorFormat,
}

impl RequestContext {
    fn new(state: &ApiState, path: &str, headers: &HeaderBlock) -> Self {
        let format = ErrorFormat::for_path(path, |name| headers.contains(name));
        Self { id: next_id(state), format }
    }
}

impl RequestHandler for ApiHandler {
    type Context = RequestContext;

    fn context(&self, path: &str, headers: &HeaderBlock) -> RequestContext {
        RequestContext::new(self.api.state(), path, headers)
    }

    /// Answers one request. A panic becomes an internal error of this request and affects no other.
    async fn answer(&self, request: ServerRequest, context: RequestContext) -> ServerReply {
        let RequestContext { id, format } = context;
        let work = self.api.serve(RequestId(Arc::clone(&id)), format, self.peer, request);
        let reply = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(reply) => reply,
            Err(_) => format.to_response(&ApiError::internal("a request panicked"), &id).into(),
        };
        reply.with_request_id(&id)
    }

    fn refuse(&self, error: &ApiError, path: &str) -> ServerReply {
        refuse(self.api.state(), error, path)
    }

    fn stopped(&self, context: &RequestContext) -> ServerReply {
        stopped(context)
    }

    fn now(&self) -> Micros {
        self.api.state().clock().now()
    }
}

/// Answers with the metrics, and with the state of the process.
pub struct MetricsHandler(pub Arc<ApiState>);

impl RequestHandler for MetricsHandler {
    type Context = RequestContext;

    fn context(&self, path: &str, headers: &HeaderBlock) -> RequestContext {
        RequestContext::new(&self.0, path, headers)
    }

    async fn answer(&self, request: ServerRequest, context: RequestContext) -> ServerReply {
        let state = Arc::clone(&self.0);
        let outcome = match request.path() {
            "/metrics" => Ok(metrics_text(&state)),
            "/healthz" => alive(state, request.into_http()).await,
            "/readyz" => ready(state, request.into_http()).await,
            _ => {
                let message = "there is nothing here but /metrics, /healthz and /readyz";
                Err(ApiError::new(ErrorKind::UnknownPath, message))
            }
        };
        let RequestContext { id, format } = context;
        outcome.unwrap_or_else(|error| format.to_response(&error, &id)).into()
    }

    fn refuse(&self, error: &ApiError, path: &str) -> ServerReply {
        refuse(&self.0, error, path)
    }

    fn stopped(&self, context: &RequestContext) -> ServerReply {
        stopped(context)
    }

    fn now(&self) -> Micros {
        self.0.clock().now()
    }
}

fn next_id(state: &ApiState) -> Arc<str> {
    state.engine.request_ids.next_id(state.clock().now())
}

fn refuse(state: &ApiState, error: &ApiError, path: &str) -> ServerReply {
    let format = ErrorFormat::for_path(path, |_| false);
    let id = next_id(state);
    let response = format.to_response(error, &id);
    let response = match error.kind() {
        ErrorKind::MethodNotAllowed => relay::with_allow_header(
            response,
            &HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        ),
        _ => response,
    };
    ServerReply::from(response).with_request_id(&id)
}

/// Answers with the id of the cut request, under which its receipt and its log lines are found.
fn stopped(context: &RequestContext) -> ServerReply {
    let RequestContext { id, format } = context;
    let error = ApiError::new(ErrorKind::Overloaded, "the gateway is stopping, retry elsewhere");
    ServerReply::from(format.to_response(&error, id)).with_request_id(id)
}
