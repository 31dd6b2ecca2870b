//! The way of a request with a valid key to its handler: address, scope, limits, memory, idempotency.

use access::keys::{FoundKey, KnownKey};
use access::limits::{NetworkPermit, NetworkUse};
use access::{authentication, idempotency, limits};
use admin::RequestOrigin;
use canon::ApiError;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::AdminPart;
use transport::{HeaderBlock, RequestHead, ServerBody, ServerReply, ServerRequest};

use crate::request::{ApiRequest, HandlerFuture};
use crate::scope::check_scope;
use crate::state::ApiState;

/// A handler that takes a key.
#[derive(Clone, Copy)]
pub(crate) struct KeyedHandler {
    pub(crate) handler: fn(ApiRequest) -> HandlerFuture,
    /// True for calls that cost money. The rate limits of the key apply.
    pub(crate) paid: bool,
    /// Right that the key must have.
    pub(crate) need: RouteNeed,
}

/// Right that a key must have for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteNeed {
    /// None: any valid key.
    AnyKey,
    /// Reading of models, usage, answers and tasks.
    Read,
    /// Calls, and changes of what calls made.
    Call,
    /// A part of administration.
    Admin(AdminPart),
}

/// Admits a request without a key by the network it comes from.
pub(crate) fn admit_network(
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
pub(crate) async fn authenticate(
    state: &ApiState,
    head: &RequestHead,
    known: &KnownKey,
    peer: SocketAddr,
) -> Result<FoundKey, ApiError> {
    let found = authentication::authenticate(&state.engine.keys, head, known).await;
    found.map_err(|error| {
        let admitted = admit_network(state, NetworkUse::WrongKey, peer, head.headers());
        admitted.err().unwrap_or(error)
    })
}

/// Checks the address, the scope and the rate limits of a request with a valid key, and begins its
/// work. The body has not been read.
pub(crate) fn begin_keyed(mut incoming: ApiRequest, route: KeyedHandler) -> HandlerFuture {
    if let Err(error) = check_caller(&mut incoming, route) {
        return Box::pin(refuse_keyed(error, incoming.request));
    }
    if route.paid && !incoming.state.limiter.is_unlimited(&incoming.key) {
        return Box::pin(run_within_rate(incoming, route));
    }
    begin_admitted(incoming, route)
}

/// Refuses a request whose address or scope is wrong, and one that there is no room for.
fn check_caller(incoming: &mut ApiRequest, route: KeyedHandler) -> Result<(), ApiError> {
    let ApiRequest { state, config, key, admission, peer, request, .. } = incoming;
    limits::check_address(&config.trusted_proxies, key, *peer, request.headers())?;
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
) -> Result<ServerReply, ApiError> {
    let admitted = incoming.state.limiter.admit(&incoming.key).await;
    match admitted {
        Ok(permit) => {
            incoming.admission.rate = permit;
            begin_admitted(incoming, route).await
        }
        Err(error) => refuse_keyed(error, incoming.request).await,
    }
}

/// Begins the work of a request that is within the limits of its caller, if there is memory for its
/// body. With an idempotency key it runs at most once.
fn begin_admitted(mut incoming: ApiRequest, route: KeyedHandler) -> HandlerFuture {
    let KeyedHandler { handler, paid, need } = route;
    let ApiRequest { state, config, key, admission, request, .. } = &mut incoming;
    match state.limiter.admit_body(&key.node_use, &config.gate, request) {
        Ok(permit) => admission.buffer = permit,
        Err(error) => return Box::pin(refuse_keyed(error, incoming.request)),
    }
    if matches!(need, RouteNeed::Admin(_)) {
        return Box::pin(run_admin(incoming, handler));
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
    handler: fn(ApiRequest) -> HandlerFuture,
) -> Result<ServerReply, ApiError> {
    let ApiRequest { state, config, peer, request, .. } = &mut incoming;
    let client = limits::client_address(&config.trusted_proxies, *peer, request.headers());
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
    let ApiRequest { state, config, key, id, head, admission, peer, socket, request } = incoming;
    let (idempotency, limit) = (Arc::clone(&state.idempotency), config.max_body_bytes);
    let (owner, request_id) = (key.object_owner(), Arc::clone(&id.0));
    let run = async move |request| {
        let tasks = state.engine.tasks.clone();
        let call =
            handler(ApiRequest { state, config, key, id, head, admission, peer, socket, request });
        relay::run_for_caller(&tasks, call).await.map(ServerReply::into_response)
    };
    let answered = idempotency.run_once(&owner, &request_id, limit, request, run).await;
    answered.map(ServerReply::from)
}

/// Reads the rest of a refused request if it is small. Closing a connection with unread bytes
/// causes a TCP reset, which can destroy the response (RFC 9112, section 9.6).
pub(crate) async fn drain_body(request: ServerRequest) {
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
