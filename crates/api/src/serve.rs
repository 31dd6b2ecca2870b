//! The way of a request to its handler: route, key, address, limits, idempotency.

use access::idempotency;
use access::keys::FoundKey;
use access::limits::{Admission, NetworkPermit, NetworkUse};
use access::{authentication, limits};
use admin::RequestOrigin;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::{ApiError, ErrorKind};
use http::header::{ACCEPT, HeaderValue, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use relay::{ErrorFormat, RequestId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;
use transport::{HeaderBlock, ServerBody, ServerReply, ServerRequest};

use crate::head_facts::{HeadFacts, RouteMatch};
use crate::request::{ApiRequest, HandlerFuture};
use crate::routes::{
    ApiRoute, KeyedHandler, RouteHandler, RouteNeed, RouteTable, path_matches, route_list,
};
use crate::scope::check_scope;
use crate::state::ApiState;

/// Page of models, which has the path of the list without its version.
const MODELS_PAGE: &str = "/models";

/// The API, with the pages of the console as fallback.
pub struct ApiService {
    state: Arc<ApiState>,
    routes: RouteTable,
    pages: PageService,
}

/// Pages of the console.
pub struct PageService {
    /// Router for paths that are not in the table of the API.
    pub router: Router,
    /// Returns the page for a network that asked too often, with the seconds to wait.
    pub too_many_requests: fn(u64) -> Response,
}

impl ApiService {
    /// Creates the API. Requests for other paths go to the pages.
    pub fn new(state: Arc<ApiState>, pages: PageService) -> Self {
        Self { state, routes: RouteTable::new(), pages }
    }

    /// The parts the handlers use.
    pub fn state(&self) -> &Arc<ApiState> {
        &self.state
    }

    /// The routes of the API.
    pub(crate) fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// Answers a request with that id, and a head with these facts, from that address.
    pub(crate) async fn serve(
        &self,
        id: &RequestId,
        facts: &HeadFacts,
        peer: SocketAddr,
        request: ServerRequest,
    ) -> ServerReply {
        let (state, format) = (&self.state, facts.format);
        // The rare futures are boxed, so that calls do not carry their size.
        let route = match facts.route {
            RouteMatch::Handler(RouteHandler::Keyed(route)) => route,
            RouteMatch::Handler(RouteHandler::Public(handler)) => {
                return match admit_network(state, NetworkUse::Public, peer, request.headers()) {
                    Ok(_permit) => {
                        let answered = handler(Arc::clone(state), request.into_http()).await;
                        answered.unwrap_or_else(|error| format.to_response(&error, &id.0).into())
                    }
                    Err(error) => Box::pin(refuse(error, format, id, request)).await,
                };
            }
            RouteMatch::Handler(RouteHandler::Probe(handler)) => {
                let answered = handler(Arc::clone(state), request.into_http()).await;
                return answered.unwrap_or_else(|error| format.to_response(&error, &id.0).into());
            }
            RouteMatch::Page | RouteMatch::WrongMethod => {
                return Box::pin(self.serve_other(id, format, peer, request)).await;
            }
        };
        let found = match state.engine.keys.find_known(&facts.key) {
            Some(key) => Ok(key),
            None => Box::pin(authenticate(state, facts, peer)).await,
        };
        let key = match found {
            Ok(key) => key,
            Err(error) => return Box::pin(refuse(error, format, id, request)).await,
        };
        let incoming = ApiRequest {
            state: Arc::clone(state),
            config: state.config(),
            key,
            id: id.clone(),
            head: Arc::clone(&facts.call),
            admission: Admission::default(),
            request,
        };
        serve_keyed(incoming, format, route, peer).await
    }

    /// Answers a request that the route table has no handler for.
    async fn serve_other(
        &self,
        id: &RequestId,
        format: ErrorFormat,
        peer: SocketAddr,
        request: ServerRequest,
    ) -> ServerReply {
        if let Some(route) = self.routes.find(request.path()) {
            return method_not_allowed(&request, format, id, &route.allow_header()).into();
        }
        let config = self.state.config();
        let client = limits::client_address(&config.trusted_proxies, peer, request.headers());
        let mut request = request.into_http();
        request.extensions_mut().insert(id.clone());
        request.extensions_mut().insert(ConnectInfo(client));
        let admitted = self.state.limiter.admit_network(client, NetworkUse::Public, &config.gate);
        let mut response = match admitted {
            Ok(_permit) => self.serve_page(request).await,
            Err(error) => self.refuse_page(error, request).await,
        };
        if config.public_url.starts_with("https://") {
            let lasting = HeaderValue::from_static("max-age=31536000");
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, lasting);
        }
        response.into()
    }

    /// Refuses a request for a page, or for an unknown path of the API in its format.
    async fn refuse_page(&self, error: ApiError, request: Request<Body>) -> Response {
        let format = path_format(&request);
        let id = request.extensions().get().cloned().unwrap_or_else(|| RequestId("".into()));
        if !matches!(format, ErrorFormat::Plain) {
            return refuse(error, format, &id, request.into()).await.into_response();
        }
        drain_body(request.into()).await;
        let wait = error.retry_after().unwrap_or_default();
        (self.pages.too_many_requests)(wait.as_secs().max(1))
    }

    async fn serve_page(&self, request: Request<Body>) -> Response {
        let caller = (!wants_page(request.headers())).then(|| {
            let format = match path_format(&request) {
                ErrorFormat::Plain => ErrorFormat::Dialect(dialects::DEFAULT),
                own @ ErrorFormat::Dialect(_) => own,
            };
            (request.uri().clone(), format, request.extensions().get::<RequestId>().cloned())
        });
        // An official client that lists models reads no page.
        if let Some((uri, format, id)) = &caller
            && uri.path() == MODELS_PAGE
            && wants_json(request.headers())
        {
            return not_found_error(uri.path(), *format, id.as_ref());
        }
        let page = match Box::pin(self.pages.router.clone().oneshot(request)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        match caller {
            // A client with a wrong base address reads no page.
            Some((uri, format, id)) if page.status() == StatusCode::METHOD_NOT_ALLOWED => {
                not_found_error(uri.path(), format, id.as_ref())
            }
            Some(_) | None => page,
        }
    }
}

/// Admits a request without a key by the network it comes from.
fn admit_network(
    state: &ApiState,
    kind: NetworkUse,
    peer: SocketAddr,
    headers: &HeaderBlock,
) -> Result<NetworkPermit, ApiError> {
    let config = state.config();
    let client = limits::client_address(&config.trusted_proxies, peer, headers);
    state.limiter.admit_network(client, kind, &config.gate)
}

/// Finds the key of a request by its token. Requests without a valid key are counted by network.
async fn authenticate(
    state: &ApiState,
    facts: &HeadFacts,
    peer: SocketAddr,
) -> Result<FoundKey, ApiError> {
    let HeadFacts { head, key, .. } = facts;
    let found = authentication::authenticate(&state.engine.keys, head, key).await;
    found.map_err(|error| {
        let admitted = admit_network(state, NetworkUse::WrongKey, peer, head.headers());
        admitted.err().unwrap_or(error)
    })
}

/// Returns the format of errors of a request for a page.
fn path_format(request: &Request<Body>) -> ErrorFormat {
    ErrorFormat::for_path(request.uri().path(), |name| request.headers().contains_key(name))
}

/// Returns the handler of a request.
fn find_handler(request: &Request<Body>) -> Option<RouteHandler> {
    let path = request.uri().path();
    let fits =
        |route: &ApiRoute| route.method == *request.method() && path_matches(route.path, path);
    route_list().into_iter().find(fits).map(|route| route.handler)
}

/// Answers a request of the console with the rights of an existing key.
pub async fn serve_with_key(
    state: Arc<ApiState>,
    key: &str,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let format = path_format(&request);
    let id = request.extensions().get().cloned().unwrap_or_else(|| RequestId("".into()));
    let route = find_handler(&request);
    let found = state.engine.keys.find_by_id(key).await.ok();
    let found = found.filter(|key| key.is_live(state.clock().now()));
    let Some(route) = route.and_then(RouteHandler::keyed) else {
        return path_not_found(request).await;
    };
    match found {
        Some(key) => {
            let incoming = ApiRequest {
                config: state.config(),
                state,
                key,
                id,
                head: Arc::default(),
                admission: Admission::default(),
                request: request.into(),
            };
            serve_keyed(incoming, format, route, peer).await.into_response()
        }
        None => format.to_response(
            &ApiError::new(ErrorKind::Unauthenticated, "this key does not work any more")
                .with_code("invalid_api_key"),
            &id.0,
        ),
    }
}

/// Answers a request with a valid key, and adds the rate limit headers.
async fn serve_keyed(
    incoming: ApiRequest,
    format: ErrorFormat,
    route: KeyedHandler,
    peer: SocketAddr,
) -> ServerReply {
    let (state, key) = (Arc::clone(&incoming.state), Arc::clone(&incoming.key));
    let id = incoming.id.clone();
    let work = begin_keyed(incoming, route, peer);
    let answered = relay::run_for_caller(&state.engine.tasks, work).await;
    let mut reply = answered.unwrap_or_else(|error| format.to_response(&error, &id.0).into());
    if !route.paid {
        // It may hold a secret, and belongs to this key alone.
        reply.headers.insert_default("cache-control", b"no-store");
        reply.headers.insert("x-content-type-options", b"nosniff");
    }
    if let Some(style) = format.limit_headers() {
        let left = state.limiter.remaining(&key);
        limits::add_limit_headers(&left, style, || state.clock().now(), &mut reply.headers);
    }
    reply
}

/// Checks the address, the scope and the rate limits of a request with a valid key, and begins its
/// work. The body has not been read.
fn begin_keyed(mut incoming: ApiRequest, route: KeyedHandler, peer: SocketAddr) -> HandlerFuture {
    if let Err(error) = check_caller(&mut incoming, route, peer) {
        return Box::pin(refuse_keyed(error, incoming.request));
    }
    if route.paid && !incoming.state.limiter.is_unlimited(&incoming.key) {
        return Box::pin(run_within_rate(incoming, route, peer));
    }
    begin_admitted(incoming, route, peer)
}

/// Refuses a request whose address or scope is wrong, and one that there is no room for.
fn check_caller(
    incoming: &mut ApiRequest,
    route: KeyedHandler,
    peer: SocketAddr,
) -> Result<(), ApiError> {
    let ApiRequest { state, config, key, admission, request, .. } = incoming;
    limits::check_address(&config.trusted_proxies, key, peer, request.headers())?;
    check_scope(key, route.need)?;
    if route.paid {
        // Checked before the rate limits: a shed call must not count, and must not query other
        // nodes.
        state.engine.in_flight.check_room(config.max_running_calls)
    } else {
        admission.free = Some(state.limiter.admit_free(&key.node_use, &config.gate)?);
        Ok(())
    }
}

/// Runs a request whose key or account has rate limits.
async fn run_within_rate(
    mut incoming: ApiRequest,
    route: KeyedHandler,
    peer: SocketAddr,
) -> Result<ServerReply, ApiError> {
    let admitted = incoming.state.limiter.admit(&incoming.key).await;
    match admitted {
        Ok(permit) => {
            incoming.admission.rate = permit;
            begin_admitted(incoming, route, peer).await
        }
        Err(error) => refuse_keyed(error, incoming.request).await,
    }
}

/// Begins the work of a request that is within the limits of its caller, if there is memory for its
/// body. With an idempotency key it runs at most once.
fn begin_admitted(
    mut incoming: ApiRequest,
    route: KeyedHandler,
    peer: SocketAddr,
) -> HandlerFuture {
    let KeyedHandler { handler, paid, need } = route;
    let ApiRequest { state, config, key, admission, request, .. } = &mut incoming;
    match state.limiter.admit_body(&key.node_use, &config.gate, request) {
        Ok(permit) => admission.buffer = permit,
        Err(error) => return Box::pin(refuse_keyed(error, incoming.request)),
    }
    if matches!(need, RouteNeed::Admin(_)) {
        return Box::pin(run_admin(incoming, peer, handler));
    }
    if paid && incoming.request.headers().contains(idempotency::HEADER) {
        return Box::pin(run_once(incoming, handler));
    }
    handler(incoming)
}

async fn refuse_keyed(error: ApiError, request: ServerRequest) -> Result<ServerReply, ApiError> {
    drain_body(request).await;
    Err(error)
}

/// Runs a request of administration.
///
/// The body is read first and the key after it, from the store: a key that is revoked while its body
/// is on the way must not act any more. The work is a task of its own, so that a caller who
/// disconnects cannot stop it between the commit of a change and the update of this node's caches.
async fn run_admin(
    mut incoming: ApiRequest,
    peer: SocketAddr,
    handler: fn(ApiRequest) -> HandlerFuture,
) -> Result<ServerReply, ApiError> {
    let ApiRequest { state, config, request, .. } = &mut incoming;
    let client = limits::client_address(&config.trusted_proxies, peer, request.headers());
    let origin = RequestOrigin::new(Some(client.ip()), &request.headers().to_map());
    let body = crate::admin::read_bytes(std::mem::take(&mut request.body)).await?;
    request.body = ServerBody::Whole(body);
    let tasks = state.engine.tasks.clone();
    incoming.key = incoming.state.engine.keys.read_again(&incoming.key.record.id).await?;
    let work = handler(incoming);
    tasks.spawn(origin.scope(work)).await.map_err(|error| ApiError::internal(error.to_string()))?
}

/// Runs a call under its idempotency key.
async fn run_once(
    incoming: ApiRequest,
    handler: fn(ApiRequest) -> HandlerFuture,
) -> Result<ServerReply, ApiError> {
    let ApiRequest { state, config, key, id, head, admission, request } = incoming;
    let (idempotency, limit) = (Arc::clone(&state.idempotency), config.max_body_bytes);
    let (owner, request_id) = (key.object_owner(), Arc::clone(&id.0));
    let run = async move |request| {
        let tasks = state.engine.tasks.clone();
        let call = handler(ApiRequest { state, config, key, id, head, admission, request });
        relay::run_for_caller(&tasks, call).await.map(ServerReply::into_response)
    };
    let answered = idempotency.run_once(&owner, &request_id, limit, request, run).await;
    answered.map(ServerReply::from)
}

async fn refuse(
    error: ApiError,
    format: ErrorFormat,
    id: &RequestId,
    request: ServerRequest,
) -> ServerReply {
    drain_body(request).await;
    format.to_response(&error, &id.0).into()
}

/// Reads the rest of a refused request if it is small. Closing a connection with unread bytes
/// causes a TCP reset, which can destroy the response (RFC 9112, section 9.6).
async fn drain_body(request: ServerRequest) {
    const MAX_DRAIN_BYTES: usize = 256 << 10;
    let is_awaited = request.headers().contains("expect");
    let mut body = request.body;
    // A body that is refused for its size is not asked for, nor is one whose sender waits to be asked.
    if is_awaited || body.size_hint().lower() > MAX_DRAIN_BYTES as u64 {
        return;
    }
    let reading = async {
        let mut read = 0;
        while read <= MAX_DRAIN_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            read += frame.data_ref().map_or(0, |data| data.len());
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
}

fn method_not_allowed(
    request: &ServerRequest,
    format: ErrorFormat,
    id: &RequestId,
    allowed: &HeaderValue,
) -> Response {
    let message = format!(
        "{} is not allowed here; allowed: {}",
        request.method(),
        allowed.to_str().unwrap_or_default()
    );
    let error = ApiError::new(ErrorKind::MethodNotAllowed, message);
    relay::with_allow_header(format.to_response(&error, &id.0), allowed)
}

/// Returns true if a request asks for a page, as browsers do.
pub fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns true if a request asks for JSON, as official clients do.
fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("application/json"))
}

/// Answers a request for an unknown path.
pub async fn path_not_found(request: Request<Body>) -> Response {
    let path = request.uri().path();
    let format = path_format(&request);
    not_found_error(path, format, request.extensions().get())
}

fn not_found_error(path: &str, format: ErrorFormat, id: Option<&RequestId>) -> Response {
    let shown = |path: &str| path.chars().take(64).collect::<String>();
    let meant = dialects::meant_path(path);
    let meant = meant.or_else(|| (path == MODELS_PAGE).then_some("/v1/models".into()));
    let hint = match meant {
        Some(meant) => format!("check the base address, {} is meant", shown(&meant)),
        None => "check the base address".to_owned(),
    };
    let error = ApiError::new(
        ErrorKind::UnknownPath,
        format!("there is nothing at {}; {hint}", shown(path)),
    );
    format.to_response(&error, id.map_or("", |id| &id.0))
}
