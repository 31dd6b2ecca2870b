//! `GET /v1/responses` as a WebSocket: <https://developers.openai.com/api/docs/guides/websocket-mode>.
//!
//! Every `response.create` is a call of its own, as if it had arrived over HTTP.

mod client_event;
mod event_sender;
mod server_event;
mod session;
mod turn;

use access::keys::KnownKey;
use canon::{ApiError, ErrorKind};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Uri};
use relay::CallHead;
use std::sync::Arc;
use transport::{ProtocolUpgrade, RequestHead, ServerReply, ServerRequest, accept_web_socket};

use crate::connection_answers::ConnectionAnswers;
use crate::request::ApiRequest;
use session::SocketSession;
use turn::SocketContext;

const DRY_RUN_HEADER: &str = "x-portunus-dry-run";

/// Headers of a handshake that no call has. An idempotency key would make all calls of the connection
/// one.
const HANDSHAKE_HEADERS: [&str; 9] = [
    "connection",
    "content-encoding",
    "expect",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Opens a WebSocket. Without one, or where it cannot be, clients are told to use POST.
pub(crate) async fn upgrade(incoming: ApiRequest) -> Result<ServerReply, ApiError> {
    let ApiRequest { state, config, key, peer, request, .. } = incoming;
    if !config.web_sockets {
        let message = "there is no WebSocket here; send POST /v1/responses";
        return Err(ApiError::new(ErrorKind::UpgradeRefused, message));
    }
    if request.headers().contains(DRY_RUN_HEADER) {
        let message = format!("`{DRY_RUN_HEADER}` is not available over a WebSocket");
        return Err(ApiError::invalid(DRY_RUN_HEADER, message));
    }
    let answers = ConnectionAnswers::new(Arc::clone(&state.limiter), config.gate);
    let context = SocketContext {
        state,
        peer,
        head: call_head(&request),
        call_head: Arc::new(CallHead::default()),
        known_key: KnownKey::default(),
        answers: Arc::new(answers),
    };
    let caller = Arc::clone(&key.node_use);
    let upgrade = ProtocolUpgrade::new(move |connection| {
        Box::pin(SocketSession::run(Arc::new(context), config, caller, connection))
    });
    accept_web_socket(&request, upgrade)
}

/// Returns the head of the calls of a connection.
fn call_head(handshake: &ServerRequest) -> Arc<RequestHead> {
    let mut headers = handshake.headers().to_map();
    let names: Vec<_> = headers.keys().cloned().collect();
    for name in names {
        let text = name.as_str();
        if HANDSHAKE_HEADERS.contains(&text) || text.starts_with("sec-websocket-") {
            headers.remove(name);
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut request = Request::new(axum::body::Body::empty());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/v1/responses");
    *request.headers_mut() = headers;
    Arc::clone(ServerRequest::from(request).head())
}
