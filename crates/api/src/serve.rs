//! The way of a request to its handler: route, key, address, limits, idempotency.

use access::idempotency;
use access::keys::ApiKey;
use access::{authentication, limits};
use admin::RequestOrigin;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::{ApiError, ErrorKind};
use http::Request;
use http::header::HeaderValue;
use relay::{ErrorFormat, RequestId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::KeyScope;
use tower::ServiceExt as _;

use crate::request::{ApiRequest, HandlerFuture};
use crate::routes::{ApiRoute, KeyedHandler, RouteHandler, RouteTable, path_matches, route_list};
use crate::state::ApiState;

/// The API, with the pages of the console as fallback.
pub struct ApiService {
    state: Arc<ApiState>,
    routes: RouteTable,
    fallback: Router,
}

impl ApiService {
    /// Creates the API. Requests for other paths go to `fallback`.
    pub fn new(state: Arc<ApiState>, fallback: Router) -> Self {
        Self { state, routes: RouteTable::new(), fallback }
    }

    /// The parts the handlers use.
    pub fn state(&self) -> &Arc<ApiState> {
        &self.state
    }

    /// Answers a request with that id from that address.
    pub async fn serve(
        &self,
        id: RequestId,
        peer: SocketAddr,
        mut request: Request<Body>,
    ) -> Response {
        match self.routes.find(request.uri().path()) {
            None => {
                // Only pages read these extensions; inserting them allocates.
                request.extensions_mut().insert(id);
                let proxies = &self.state.config().trusted_proxies;
                let client = limits::client_address(proxies, peer, request.headers());
                request.extensions_mut().insert(ConnectInfo(client));
                match Box::pin(self.fallback.clone().oneshot(request)).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            Some(route) => match route.handler(request.method()) {
                Some(handler) => {
                    dispatch(Arc::clone(&self.state), handler, id, peer, request).await
                }
                None => method_not_allowed(&request, &id, &route.allow_header()),
            },
        }
    }
}

async fn dispatch(
    state: Arc<ApiState>,
    route: RouteHandler,
    id: RequestId,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let format = ErrorFormat::for_path(request.uri().path(), request.headers());
    let outcome = match route {
        RouteHandler::Public(handler) => handler(state, request).await,
        RouteHandler::Keyed(route) => {
            let keys = &state.engine.keys;
            return match authentication::authenticate(keys, request.uri(), request.headers()).await
            {
                Ok(key) => serve_keyed((&state, &key, &id), format, route, peer, request).await,
                Err(error) => refuse(error, format, &id, request).await,
            };
        }
    };
    outcome.unwrap_or_else(|error| format.to_response(&error, &id.0))
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
    let format = ErrorFormat::for_path(request.uri().path(), request.headers());
    let id = request.extensions().get().cloned().unwrap_or_else(|| RequestId("".into()));
    let route = find_handler(&request);
    let key =
        state.engine.keys.by_id(key).await.ok().filter(|key| key.is_live(state.clock().now()));
    let Some(route) = route.and_then(RouteHandler::keyed) else {
        return path_not_found(request).await;
    };
    match key {
        Some(key) => serve_keyed((&state, &key, &id), format, route, peer, request).await,
        None => format.to_response(
            &ApiError::new(ErrorKind::Unauthenticated, "this key does not work any more")
                .with_code("invalid_api_key"),
            &id.0,
        ),
    }
}

/// Answers a request with a valid key, and adds the rate limit headers.
async fn serve_keyed(
    (state, key, id): (&Arc<ApiState>, &Arc<ApiKey>, &RequestId),
    format: ErrorFormat,
    route: KeyedHandler,
    peer: SocketAddr,
    mut request: Request<Body>,
) -> Response {
    let proxies = &state.config().trusted_proxies;
    if route.scope == Some(KeyScope::Admin) {
        let client = limits::client_address(proxies, peer, request.headers());
        request.extensions_mut().insert(ConnectInfo(client));
    }
    let allowed = limits::check_address(proxies, key, peer, request.headers())
        .and_then(|()| check_scope(key, route));
    let answered = run_keyed((state, key, id), allowed, route, request).await;
    let mut response = answered.unwrap_or_else(|error| format.to_response(&error, &id.0));
    let left = state.limiter.remaining(key);
    if let Some(style) = format.limit_headers() {
        limits::add_limit_headers(&left, style, state.clock().now(), response.headers_mut());
    }
    response
}

/// Refuses a key of another scope.
fn check_scope(key: &ApiKey, route: KeyedHandler) -> Result<(), ApiError> {
    let message = match (route.scope, key.record.scope) {
        (None, KeyScope::Call | KeyScope::Admin)
        | (Some(KeyScope::Call), KeyScope::Call)
        | (Some(KeyScope::Admin), KeyScope::Admin) => return Ok(()),
        (Some(KeyScope::Admin), KeyScope::Call) => {
            "this key has the scope `call` and cannot administrate; create one for it with \
             `portunus keys create --scope admin`"
        }
        (Some(KeyScope::Call), KeyScope::Admin) => {
            "this key has the scope `admin` and cannot make calls; create one for them with \
             `portunus keys create`"
        }
    };
    Err(crate::admin::permission_denied(message))
}

/// Runs the handler of a request with a valid key, after the address, scope and rate limit checks.
/// With an idempotency key it runs at most once.
async fn run_keyed(
    (state, key, id): (&Arc<ApiState>, &Arc<ApiKey>, &RequestId),
    allowed: Result<(), ApiError>,
    route: KeyedHandler,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let KeyedHandler { handler, paid, scope } = route;
    let entered = match allowed {
        Ok(()) if paid => {
            // Checked before the rate limits: a shed call must not count, and must not query other
            // nodes.
            state.engine.in_flight.check_room(state.config().max_running_calls)?;
            state.limiter.admit(key).await
        }
        Ok(()) => Ok(None),
        Err(error) => Err(error),
    };
    let permit = match entered {
        Ok(permit) => permit,
        Err(error) => {
            drain_body(request).await;
            return Err(error);
        }
    };
    let incoming = ApiRequest {
        state: Arc::clone(state),
        key: Arc::clone(key),
        id: id.clone(),
        permit,
        request,
    };
    if scope == Some(KeyScope::Admin) {
        return run_admin(incoming, handler).await;
    }
    if paid && incoming.request.headers().contains_key(idempotency::HEADER) {
        // Boxed, so that other calls do not carry the size of this future.
        return Box::pin(run_once(incoming, handler)).await;
    }
    handler(incoming).await
}

/// Runs a request of administration.
///
/// The body is read first and the key after it, from the store: a key that is revoked while its body
/// is on the way must not act any more. The work is a task of its own, so that a caller who
/// disconnects cannot stop it between the commit of a change and the update of this node's caches.
async fn run_admin(
    incoming: ApiRequest,
    handler: fn(ApiRequest) -> HandlerFuture,
) -> Result<Response, ApiError> {
    let ApiRequest { state, key, id, permit, request } = incoming;
    let (parts, body) = request.into_parts();
    let body = crate::admin::read_bytes(body).await?;
    let key = state.engine.keys.read_again(&key.record.id).await?;
    let client = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let origin = RequestOrigin::new(client.map(|client| client.0.ip()), &parts.headers);
    let request = Request::from_parts(parts, Body::from(body));
    let tasks = state.engine.tasks.clone();
    let work = handler(ApiRequest { state, key, id, permit, request });
    tasks.spawn(origin.scope(work)).await.map_err(|error| ApiError::internal(error.to_string()))?
}

/// Runs a call under its idempotency key.
async fn run_once(
    incoming: ApiRequest,
    handler: fn(ApiRequest) -> HandlerFuture,
) -> Result<Response, ApiError> {
    let ApiRequest { state, key, id, permit, request } = incoming;
    let (idempotency, limit) = (Arc::clone(&state.idempotency), state.config().max_body_bytes);
    let (account, owner) = (key.record.account_id.clone(), Arc::clone(&id.0));
    let run = move |request| handler(ApiRequest { state, key, id, permit, request });
    idempotency.run_once(&account, &owner, limit, request, run).await
}

async fn refuse(
    error: ApiError,
    format: ErrorFormat,
    id: &RequestId,
    request: Request<Body>,
) -> Response {
    drain_body(request).await;
    format.to_response(&error, &id.0)
}

/// Reads the rest of a refused request if it is small. Closing a connection with unread bytes
/// causes a TCP reset, which can destroy the response (RFC 9112, section 9.6).
async fn drain_body(request: Request<Body>) {
    const MAX_DRAIN_BYTES: usize = 256 << 10;
    let reading = to_bytes(request.into_body(), MAX_DRAIN_BYTES);
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
}

fn method_not_allowed(request: &Request<Body>, id: &RequestId, allowed: &HeaderValue) -> Response {
    let message = format!(
        "{} is not allowed here; allowed: {}",
        request.method(),
        allowed.to_str().unwrap_or_default()
    );
    let format = ErrorFormat::for_path(request.uri().path(), request.headers());
    let error = ApiError::new(ErrorKind::MethodNotAllowed, message);
    relay::with_allow_header(format.to_response(&error, &id.0), allowed)
}

/// Answers a request for an unknown path.
pub async fn path_not_found(request: Request<Body>) -> Response {
    let path = request.uri().path();
    let format = ErrorFormat::for_path(path, request.headers());
    let shown: String = path.chars().take(64).collect();
    let error = ApiError::new(
        ErrorKind::UnknownPath,
        format!("there is nothing at {shown}; check the base address"),
    );
    let id = request.extensions().get::<RequestId>();
    format.to_response(&error, id.map_or("", |id| &id.0))
}
