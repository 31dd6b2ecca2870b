//! The way of a request to its handler: key, address, limits, idempotency.

use access::idempotency;
use access::keys::ApiKey;
use access::{authentication, limits};
use admin::NewKey;
use axum::Router;
use axum::body::Body;
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

/// The API, and behind it the pages of the console.
pub struct ApiService {
    state: Arc<ApiState>,
    routes: RouteTable,
    fallback: Router,
}

impl ApiService {
    /// The API. Paths it does not serve go to `fallback`.
    pub fn new(state: Arc<ApiState>, fallback: Router) -> Self {
        Self { state, routes: RouteTable::new(), fallback }
    }

    /// The parts the handlers use.
    pub fn state(&self) -> &Arc<ApiState> {
        &self.state
    }

    /// Answers a request of that id, from that address.
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
                request.extensions_mut().insert(ConnectInfo(peer));
                match Box::pin(self.fallback.clone().oneshot(request)).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            Some(door) => match door.handler(request.method()) {
                Some(handler) => {
                    dispatch(Arc::clone(&self.state), handler, id, peer, request).await
                }
                None => method_not_allowed(&request, &id, &door.allow_header()),
            },
        }
    }
}

async fn dispatch(
    state: Arc<ApiState>,
    door: RouteHandler,
    id: RequestId,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let voice = ErrorFormat::for_path(request.uri().path(), request.headers());
    let outcome = match door {
        RouteHandler::Public(handler) => handler(state, request).await,
        RouteHandler::Keyed(door) => {
            let keys = &state.engine.keys;
            return match authentication::authenticate(keys, request.uri(), request.headers()).await
            {
                Ok(key) => serve_keyed((&state, &key, &id), voice, door, peer, request).await,
                Err(fault) => refuse(fault, voice, &id, request).await,
            };
        }
    };
    outcome.unwrap_or_else(|fault| voice.to_response(&fault, &id.0))
}

/// Finds the handler of a request whose path begins so.
fn find_handler(request: &Request<Body>, prefix: &str) -> Option<RouteHandler> {
    let path = request.uri().path();
    let fits = |route: &ApiRoute| {
        route.path.starts_with(prefix)
            && route.method == *request.method()
            && path_matches(route.path, path)
    };
    route_list().into_iter().find(fits).map(|route| route.handler)
}

/// Answers a request of the console's as if it had come with that key.
pub async fn serve_with_key(
    state: Arc<ApiState>,
    key: &str,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let voice = ErrorFormat::for_path(request.uri().path(), request.headers());
    let id = request.extensions().get().cloned().unwrap_or_else(|| RequestId("".into()));
    let door = find_handler(&request, "/");
    let key =
        state.engine.keys.by_id(key).await.ok().filter(|key| key.is_live(state.clock().now()));
    let Some(door) = door.and_then(RouteHandler::keyed) else {
        return path_not_found(request).await;
    };
    match key {
        Some(key) => serve_keyed((&state, &key, &id), voice, door, peer, request).await,
        None => voice.to_response(
            &ApiError::new(ErrorKind::Unauthenticated, "this key does not work any more"),
            &id.0,
        ),
    }
}

/// Answers a request of the console's for administration, in the name of somebody signed in: the
/// same handlers, rights and notes as for an admin key of theirs.
///
/// The handlers get a stand-in key. It exists for this request alone: its text is dropped here, and
/// it is neither stored nor on the ring, so no request from outside can carry it.
pub async fn serve_admin_request(
    state: Arc<ApiState>,
    account: &store::Account,
    request: Request<Body>,
) -> Response {
    let door = find_handler(&request, "/api/admin/").and_then(RouteHandler::keyed);
    let Some(door) = door else { return path_not_found(request).await };
    let id = RequestId(state.engine.request_ids.next_id(state.clock().now()));
    let key = NewKey { name: "console".to_owned(), cap: None, models: vec![], expires: None };
    let answered = match key.into_record(&account.id, &state.engine.keys, state.clock().now()) {
        Ok((mut record, _)) => {
            record.scope = KeyScope::Admin;
            let key = state.engine.keys.session_key(record);
            let allowed = check_scope(&key, door);
            run_keyed((&state, &key, &id), allowed, door, request).await
        }
        Err(error) => Err(ApiError::internal(error.to_string())),
    };
    answered.unwrap_or_else(|fault| ErrorFormat::Plain.to_response(&fault, &id.0))
}

/// Answers a request whose key is good, and tells what is left of its limits.
async fn serve_keyed(
    (state, key, id): (&Arc<ApiState>, &Arc<ApiKey>, &RequestId),
    voice: ErrorFormat,
    door: KeyedHandler,
    peer: SocketAddr,
    request: Request<Body>,
) -> Response {
    let proxies = &state.config().trusted_proxies;
    let allowed = limits::check_address(proxies, key, peer, request.headers())
        .and_then(|()| check_scope(key, door));
    let answered = run_keyed((state, key, id), allowed, door, request).await;
    let mut response = answered.unwrap_or_else(|fault| voice.to_response(&fault, &id.0));
    let left = state.limiter.remaining(key);
    if let Some(origin) = voice.origin() {
        limits::add_limit_headers(&left, origin, state.clock().now(), response.headers_mut());
    }
    response
}

/// Refuses a key that was made for something else.
fn check_scope(key: &ApiKey, door: KeyedHandler) -> Result<(), ApiError> {
    let say = match (door.scope, key.record.scope) {
        (None, KeyScope::Call | KeyScope::Admin)
        | (Some(KeyScope::Call), KeyScope::Call)
        | (Some(KeyScope::Admin), KeyScope::Admin) => return Ok(()),
        (Some(KeyScope::Admin), KeyScope::Call) => {
            "this key has the scope `call` and cannot administrate; make one for it with \
             `portunus keys create --scope admin`"
        }
        (Some(KeyScope::Call), KeyScope::Admin) => {
            "this key has the scope `admin` and cannot make calls; make one for them with \
             `portunus keys create`"
        }
    };
    Err(ApiError::new(ErrorKind::Forbidden, say))
}

/// A request with a good key: from where it may come, within its limits, and once if it says so.
async fn run_keyed(
    (state, key, id): (&Arc<ApiState>, &Arc<ApiKey>, &RequestId),
    allowed: Result<(), ApiError>,
    door: KeyedHandler,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let KeyedHandler { handler, paid, scope: _ } = door;
    let entered = match allowed {
        Ok(()) if paid => {
            // What is shed costs no look at limits, which may ask other nodes, and is not counted.
            state.engine.in_flight.check_room(state.config().max_running_calls)?;
            state.limiter.admit(key).await
        }
        Ok(()) => Ok(None),
        Err(fault) => Err(fault),
    };
    let pass = match entered {
        Ok(pass) => pass,
        Err(fault) => {
            drain_body(request).await;
            return Err(fault);
        }
    };
    let asked = ApiRequest {
        state: Arc::clone(state),
        key: Arc::clone(key),
        id: id.clone(),
        permit: pass,
        request,
    };
    if paid && asked.request.headers().contains_key(idempotency::HEADER) {
        // Boxed: other calls must not carry this future along.
        return Box::pin(run_once(asked, handler)).await;
    }
    handler(asked).await
}

/// Runs a call under its idempotency key.
async fn run_once(
    asked: ApiRequest,
    handler: fn(ApiRequest) -> HandlerFuture,
) -> Result<Response, ApiError> {
    let ApiRequest { state, key, id, permit: pass, request } = asked;
    let (idempotency, limit) = (Arc::clone(&state.idempotency), state.config().max_body_bytes);
    let (account, owner) = (key.record.account_id.clone(), Arc::clone(&id.0));
    let run = move |request| handler(ApiRequest { state, key, id, permit: pass, request });
    idempotency.run_once(&account, &owner, limit, request, run).await
}

async fn refuse(
    fault: ApiError,
    voice: ErrorFormat,
    id: &RequestId,
    request: Request<Body>,
) -> Response {
    drain_body(request).await;
    voice.to_response(&fault, &id.0)
}

/// Reads the rest of a request that is refused, if it is small: a connection that is closed with
/// bytes unread looks to a client like a failure of the network.
async fn drain_body(request: Request<Body>) {
    const MAX_DRAIN_BYTES: usize = 256 << 10;
    let reading = axum::body::to_bytes(request.into_body(), MAX_DRAIN_BYTES);
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
}

fn method_not_allowed(request: &Request<Body>, id: &RequestId, allowed: &HeaderValue) -> Response {
    let say = format!(
        "{} is not allowed here; allowed: {}",
        request.method(),
        allowed.to_str().unwrap_or_default()
    );
    let voice = ErrorFormat::for_path(request.uri().path(), request.headers());
    let fault = ApiError::new(ErrorKind::MethodNotAllowed, say);
    relay::with_allow_header(voice.to_response(&fault, &id.0), allowed)
}

pub async fn path_not_found(request: Request<Body>) -> Response {
    let path = request.uri().path();
    let voice = ErrorFormat::for_path(path, request.headers());
    let shown: String = path.chars().take(64).collect();
    let fault = ApiError::new(
        ErrorKind::UnknownPath,
        format!("there is nothing at {shown}; check the base address"),
    );
    let id = request.extensions().get::<RequestId>();
    voice.to_response(&fault, id.map_or("", |id| &id.0))
}
