//! One response of a WebSocket: an ordinary call whose events are sent as messages.

use access::keys::{FoundKey, KnownKey};
use access::limits::Admission;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use futures_util::FutureExt as _;
use relay::{CallHead, RequestId};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::mpsc;
use transport::{CloseReason, RequestHead, ServerReply, ServerRequest};

use super::client_event::CreateEvent;
use super::event_sender::EventSender;
use super::server_event::error_event;
use crate::connection_answers::ConnectionAnswers;
use crate::keyed::{KeyedHandler, RouteNeed, authenticate, begin_keyed};
use crate::request::{ApiRequest, SocketCall};
use crate::state::ApiState;

/// Route of every call: the one of `POST /v1/responses`.
const CREATE_ROUTE: KeyedHandler = KeyedHandler {
    handler: |incoming| Box::pin(super::super::create(incoming)),
    paid: true,
    need: RouteNeed::Call,
};
/// Larger replies that are no streams are not read.
const MAX_WHOLE_BYTES: usize = 1 << 20;

/// Parts of a WebSocket that its calls share.
pub(super) struct SocketContext {
    pub(super) state: Arc<ApiState>,
    pub(super) peer: SocketAddr,
    /// Head of every call: the one of the handshake, as a POST.
    pub(super) head: Arc<RequestHead>,
    pub(super) call_head: Arc<CallHead>,
    pub(super) known_key: KnownKey,
    pub(super) answers: Arc<ConnectionAnswers>,
}

/// End of a response.
pub(super) struct SocketTurnEnd {
    pub(super) stream_id: Option<String>,
    /// Error after which the connection is closed.
    pub(super) fatal: Option<(CloseReason, ApiError)>,
}

/// Serves one call and sends its events. The caller has left if the future is dropped.
pub(super) async fn run_turn(
    context: Arc<SocketContext>,
    create: CreateEvent,
    events: mpsc::Sender<Bytes>,
) -> SocketTurnEnd {
    let CreateEvent { stream_id, generates, body } = create;
    let state = &context.state;
    let id = RequestId(state.engine.request_ids.next_id(state.clock().now()));
    let mut stream = EventSender::new(stream_id.as_deref(), &events);
    let work = AssertUnwindSafe(serve_turn(&context, &id, generates, body, &mut stream));
    let served = work.catch_unwind().await;
    let served = served.unwrap_or_else(|_| Err(ApiError::internal("a request panicked")));
    let mut fatal = None;
    if let Err(error) = served {
        let event = error_event(&error, &id.0, stream_id.as_deref());
        let _ = events.send(event).await;
        if error.kind() == ErrorKind::Unauthenticated {
            fatal = Some((CloseReason::PolicyViolation, error));
        }
    }
    SocketTurnEnd { stream_id, fatal }
}

async fn serve_turn(
    context: &SocketContext,
    id: &RequestId,
    generates: bool,
    body: Bytes,
    stream: &mut EventSender<'_>,
) -> Result<(), ApiError> {
    let connections = &context.state.engine.connections;
    let reply = tokio::select! {
        biased;
        reply = begin_call(context, id, generates, body) => reply?,
        () = connections.wait_for_end() => return Err(stopping()),
    };
    let is_stream = reply
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.starts_with(b"text/event-stream"));
    if !is_stream {
        return Err(whole_error(reply).await);
    }
    if let Some(failure) = stream.forward(reply, id).await? {
        // A key that was revoked meanwhile is the reason that the caller is told.
        find_key(context).await?;
        stream.fail(failure).await;
    }
    Ok(())
}

/// Returns the key of the connection in its current state.
async fn find_key(context: &SocketContext) -> Result<FoundKey, ApiError> {
    let SocketContext { state, peer, head, known_key, .. } = context;
    match state.engine.keys.find_known(known_key) {
        Some(key) => Ok(key),
        None => Box::pin(authenticate(state, head, known_key, *peer)).await,
    }
}

/// Begins a call like one that arrives over HTTP. The key is looked up again.
async fn begin_call(
    context: &SocketContext,
    id: &RequestId,
    generates: bool,
    body: Bytes,
) -> Result<ServerReply, ApiError> {
    let SocketContext { state, peer, head, call_head, answers, .. } = context;
    let key = find_key(context).await?;
    // A response without output costs nothing, and counts like other requests that do not.
    let route = KeyedHandler { paid: generates, ..CREATE_ROUTE };
    let incoming = ApiRequest {
        state: Arc::clone(state),
        config: state.config(),
        key,
        id: id.clone(),
        head: Arc::clone(call_head),
        admission: Admission::default(),
        peer: *peer,
        socket: Some(SocketCall { answers: Arc::clone(answers), generates }),
        request: ServerRequest::with_body(Arc::clone(head), body),
    };
    relay::run_for_caller(&state.engine.tasks, begin_keyed(incoming, route)).await
}

/// Returns the error that a reply which is no stream stands for.
async fn whole_error(reply: ServerReply) -> ApiError {
    let status = reply.status;
    let body = axum::body::to_bytes(reply.body.into_body(), MAX_WHOLE_BYTES).await;
    let body = crate::json_object::parse_object(body.unwrap_or_default());
    let message = body.get("error").and_then(|error| error.get("message")?.as_str());
    let message = message.unwrap_or("the answer is no stream of events").to_owned();
    let kind =
        if status.is_client_error() { ErrorKind::InvalidRequest } else { ErrorKind::Unavailable };
    ApiError::new(kind, message)
}

/// Returns the error of a call that is not begun because the process stops.
pub(super) fn stopping() -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "the gateway is stopping, retry elsewhere")
}
