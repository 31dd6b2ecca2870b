//! Handlers of a listener: the whole API, or metrics alone.

use canon::{ApiError, ErrorKind, Micros};
use futures_util::FutureExt as _;
use http::Method;
use http::header::HeaderValue;
use parking_lot::Mutex;
use relay::{ErrorFormat, RequestId};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use transport::{RequestHandler, RequestHead, ServerReply, ServerRequest};

use crate::head_facts::HeadFacts;
use crate::health::{ReportDetail, alive, readiness};
use crate::metrics::metrics_text;
use crate::serve::ApiService;
use crate::state::ApiState;

/// Answers the requests of one connection from the route table.
pub(crate) struct ApiHandler {
    api: Arc<ApiService>,
    peer: SocketAddr,
    /// Facts of the last head.
    facts: Mutex<Option<Arc<HeadFacts>>>,
}

impl ApiHandler {
    /// Creates a handler for a connection from that address.
    pub(crate) fn new(api: Arc<ApiService>, peer: SocketAddr) -> Self {
        Self { api, peer, facts: Mutex::new(None) }
    }
}

/// Id of a request, and the facts of its head.
pub(crate) struct ApiContext {
    id: RequestId,
    facts: Arc<HeadFacts>,
}

impl RequestHandler for ApiHandler {
    type Context = ApiContext;

    fn context(&self, head: &Arc<RequestHead>) -> ApiContext {
        let mut last = self.facts.lock();
        let facts = match &*last {
            Some(facts) if facts.is_of(head) => Arc::clone(facts),
            Some(_) | None => {
                let facts = Arc::new(HeadFacts::new(head, self.api.routes()));
                *last = Some(Arc::clone(&facts));
                facts
            }
        };
        ApiContext { id: RequestId(next_id(self.api.state())), facts }
    }

    /// Answers one request. A panic becomes an internal error of this request and affects no other.
    async fn answer(&self, request: ServerRequest, context: &ApiContext) -> ServerReply {
        let ApiContext { id, facts } = context;
        let work = self.api.serve(id, facts, self.peer, request);
        let reply = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(reply) => reply,
            Err(_) => {
                let error = ApiError::internal("a request panicked");
                self.api.state().engine.metrics.record_error(error.kind());
                facts.format.to_response(&error, &id.0).into()
            }
        };
        self.api.state().engine.metrics.record_response(reply.status.as_u16());
        reply.with_request_id(&id.0)
    }

    fn refuse(&self, error: &ApiError, path: &str) -> ServerReply {
        let metrics = &self.api.state().engine.metrics;
        metrics.record_error(error.kind());
        let reply = refuse(self.api.state(), error, path);
        metrics.record_response(reply.status.as_u16());
        reply
    }

    fn stopped(&self, context: &ApiContext) -> ServerReply {
        stopped(context.facts.format, &context.id.0)
    }

    fn now(&self) -> Micros {
        self.api.state().clock().now()
    }
}

/// Answers with the metrics, and with the state of the process.
pub struct MetricsHandler(pub Arc<ApiState>);

impl RequestHandler for MetricsHandler {
    /// Id of the request, and the error format of its path.
    type Context = (Arc<str>, ErrorFormat);

    fn context(&self, head: &Arc<RequestHead>) -> Self::Context {
        let format = ErrorFormat::for_path(head.path(), |name| head.headers().contains(name));
        (next_id(&self.0), format)
    }

    async fn answer(&self, request: ServerRequest, (id, format): &Self::Context) -> ServerReply {
        let state = Arc::clone(&self.0);
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        let outcome = match request.path() {
            "/metrics" | "/healthz" | "/readyz" if !reads => {
                let message = "this path is only read, with GET";
                Err(ApiError::new(ErrorKind::MethodNotAllowed, message))
            }
            "/metrics" => Ok(metrics_text(&state, request.headers().text("accept"))),
            "/healthz" => alive(state, request.into_http()).await,
            "/readyz" => {
                let request = request.into_http();
                readiness(&state, request.uri().query(), ReportDetail::Sentences)
            }
            _ => {
                let message = "there is nothing here but /metrics, /healthz and /readyz";
                Err(ApiError::new(ErrorKind::UnknownPath, message))
            }
        };
        let respond = |error: ApiError| {
            let response = format.to_response(&error, id);
            match error.kind() {
                ErrorKind::MethodNotAllowed => {
                    relay::with_allow_header(response, &HeaderValue::from_static("GET, HEAD"))
                }
                _ => response,
            }
        };
        outcome.unwrap_or_else(respond).into()
    }

    fn refuse(&self, error: &ApiError, path: &str) -> ServerReply {
        refuse(&self.0, error, path)
    }

    fn stopped(&self, (id, format): &Self::Context) -> ServerReply {
        stopped(*format, id)
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
fn stopped(format: ErrorFormat, id: &Arc<str>) -> ServerReply {
    let error = ApiError::new(ErrorKind::Overloaded, "the gateway is stopping, retry elsewhere");
    ServerReply::from(format.to_response(&error, id)).with_request_id(id)
}
