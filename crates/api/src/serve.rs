//! The way of a request to its handler: route and key. The rest is in `keyed.rs`.

use access::limits;
use access::limits::{Admission, NetworkUse};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::{ApiError, ErrorKind};
use dialects::LimitHeaderStyle;
use http::header::{ACCEPT, HeaderValue, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, Request, StatusCode};
use relay::{ErrorFormat, RequestId};
use std::net::SocketAddr;
use std::sync::Arc;
use tower::ServiceExt as _;
use transport::{ServerReply, ServerRequest};

use crate::head_facts::{HeadFacts, RouteMatch};
use crate::keyed::{KeyedHandler, authenticate, begin_keyed, drain_body};
use crate::request::ApiRequest;
use crate::routes::{ApiRoute, RouteHandler, RouteTable, path_matches, route_list};
use crate::standing_cache::StandingCache;
use crate::state::ApiState;
use crate::{mcp, oauth, scim, spend_standing};

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
                let config = state.config();
                let client =
                    limits::client_address(&config.trusted_proxies, peer, request.headers());
                return match state.limiter.admit_network(client, NetworkUse::Public, &config.gate) {
                    Ok(_permit) => {
                        let mut request = request.into_http();
                        request.extensions_mut().insert(ConnectInfo(client));
                        let answered = handler(Arc::clone(state), request).await;
                        answered.unwrap_or_else(|error| error_reply(state, &error, format, id))
                    }
                    // An agent that polls understands only the words of OAuth.
                    Err(error) if request.path().starts_with("/oauth/") => {
                        Box::pin(drain_body(request)).await;
                        oauth::too_many_requests(&error).into()
                    }
                    Err(error) => Box::pin(refuse(state, error, format, id, request)).await,
                };
            }
            RouteMatch::Handler(RouteHandler::Provisioning(handler)) => {
                let config = state.config();
                let client =
                    limits::client_address(&config.trusted_proxies, peer, request.headers());
                let admitted =
                    state.limiter.admit_network(client, NetworkUse::Provisioning, &config.gate);
                return match admitted {
                    Ok(_permit) => {
                        let mut request = request.into_http();
                        request.extensions_mut().insert(ConnectInfo(client));
                        let answered = handler(Arc::clone(state), request).await;
                        answered.unwrap_or_else(|error| error_reply(state, &error, format, id))
                    }
                    Err(error) => {
                        Box::pin(drain_body(request)).await;
                        scim::too_many_requests(&error).into()
                    }
                };
            }
            RouteMatch::Handler(RouteHandler::Probe(handler)) => {
                let answered = handler(Arc::clone(state), request.into_http()).await;
                return answered.unwrap_or_else(|error| error_reply(state, &error, format, id));
            }
            RouteMatch::Page | RouteMatch::WrongMethod => {
                return Box::pin(self.serve_other(id, format, peer, request)).await;
            }
        };
        let found = match state.engine.keys.find_known(&facts.key) {
            Some(key) => Ok(key),
            None => Box::pin(authenticate(state, &facts.head, &facts.key, peer)).await,
        };
        let key = match found {
            Ok(key) => key,
            Err(error) => {
                let challenge = mcp::challenge(&state.config().public_url, request.path());
                let mut reply = Box::pin(refuse(state, error, format, id, request)).await;
                if let Some(challenge) = challenge.filter(|_| reply.status == 401) {
                    reply.headers.insert("www-authenticate", challenge.as_bytes());
                }
                return reply;
            }
        };
        let incoming = ApiRequest {
            state: Arc::clone(state),
            config: state.config(),
            key,
            id: id.clone(),
            head: Arc::clone(&facts.call),
            admission: Admission::default(),
            peer,
            socket: None,
            request,
        };
        serve_keyed(incoming, format, route).await
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
            if scim::is_address(request.path()) {
                return scim::wrong_method(request.method(), route.allow_header()).into();
            }
            return method_not_allowed(&request, format, id, &route.allow_header()).into();
        }
        let config = self.state.config();
        let client = limits::client_address(&config.trusted_proxies, peer, request.headers());
        let mut request = request.into_http();
        request.extensions_mut().insert(id.clone());
        request.extensions_mut().insert(ConnectInfo(client));
        let admitted = self.state.limiter.admit_network(client, NetworkUse::Public, &config.gate);
        let mut response = match admitted {
            Ok(_permit) if scim::is_address(request.uri().path()) => scim::nothing_here(),
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
            let refused = refuse(&self.state, error, format, &id, request.into());
            return refused.await.into_response();
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
                peer,
                socket: None,
                request: request.into(),
            };
            serve_keyed(incoming, format, route).await.into_response()
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
) -> ServerReply {
    let (state, key) = (Arc::clone(&incoming.state), Arc::clone(&incoming.key));
    let id = incoming.id.clone();
    // Only agents that signed in are told their spending, so that other calls do no work for it.
    let tells_spending = route.paid
        && key.record.surface.is_some()
        && format.limit_headers() == Some(LimitHeaderStyle::Anthropic);
    if tells_spending {
        StandingCache::renew(&state, &key);
    }
    let work = begin_keyed(incoming, route);
    let answered = relay::run_for_caller(&state.engine.tasks, work).await;
    let refusal = answered.as_ref().err().filter(|e| e.kind() == ErrorKind::QuotaExceeded);
    let refusal = refusal.map(ApiError::retry_after);
    let mut reply = answered.unwrap_or_else(|error| error_reply(&state, &error, format, &id));
    if !route.paid {
        // It may hold a secret, and belongs to this key alone.
        reply.headers.insert_default("cache-control", b"no-store");
        reply.headers.insert("x-content-type-options", b"nosniff");
    }
    if let Some(style) = format.limit_headers() {
        let left = state.limiter.remaining(&key);
        limits::add_limit_headers(&left, style, || state.clock().now(), &mut reply.headers);
    }
    if tells_spending {
        match refusal {
            Some(wait) => {
                let now = state.clock().now();
                spend_standing::add_rejected_headers(now, &key, wait, &mut reply.headers);
            }
            None if reply.status.is_success() => {
                spend_standing::add_headers(&state, &key, &mut reply.headers);
            }
            None => {}
        }
    }
    reply
}

/// Counts an error and writes it in the format of the caller.
fn error_reply(
    state: &ApiState,
    error: &ApiError,
    format: ErrorFormat,
    id: &RequestId,
) -> ServerReply {
    state.engine.metrics.record_error(error.kind());
    format.to_response(error, &id.0).into()
}

async fn refuse(
    state: &ApiState,
    error: ApiError,
    format: ErrorFormat,
    id: &RequestId,
    request: ServerRequest,
) -> ServerReply {
    drain_body(request).await;
    error_reply(state, &error, format, id)
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
