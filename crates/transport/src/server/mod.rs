//! The server side: the accept loop, HTTP/1 and HTTP/2 connections, and an orderly shutdown.
//!
//! The loop is our own, so that every limit of a connection can be configured: header count and
//! time, streams, and the shutdown.

mod connections;
mod cut_frames;
pub(crate) mod h1;
mod h2;
mod h2_frames;
mod handler;
mod limits;
mod metered_stream;
mod request_body;
mod server_reply;
mod server_request;
mod tls;
mod upgrade;
mod web_socket;

pub use connections::{Connection, ConnectionUse, Connections, ShutdownPhase};
pub use handler::RequestHandler;
pub use limits::{HttpLimits, MAX_HEADERS};
pub use metered_stream::ReadMeter;
pub use request_body::{body_error, read_whole, too_large};
pub use server_reply::{ReplyHeaders, ServerReply};
pub use server_request::{RequestHead, ServerBody, ServerRequest};
pub use tls::{ChallengeCertificates, ChallengeFuture, TlsSettings};
pub use upgrade::{ConnectionPlace, ProtocolUpgrade, UpgradedConnection};
pub use web_socket::{CloseReason, SocketInput, WebSocket, accept_web_socket};

use bytes::BytesMut;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use h2_frames::PrefixedStream;

/// Pause before the next `accept` after one failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Shortest time between two log lines about refused or failed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Response to a connection beyond the limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Settings of a listener. They are read again for every connection, so that a reload applies.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Limits of each connection.
    pub limits: HttpLimits,
    /// Certificate and protocols; `None` serves plain HTTP.
    pub tls: Option<TlsSettings>,
}

/// Accepts connections until `closing` has ended and none waits to be accepted. Each one is a task of
/// `tasks` and is counted in `connections`.
pub async fn accept<H: RequestHandler>(
    listener: TcpListener,
    connections: Arc<Connections>,
    tasks: TaskTracker,
    settings: impl Fn() -> ListenerSettings,
    handler: impl Fn(SocketAddr) -> H,
    closing: impl Future<Output = ()>,
) {
    let mut closing = pin!(closing);
    let mut logged: Option<Instant> = None;
    let mut should_log = move || {
        let due = logged.is_none_or(|at| at.elapsed() > LOG_INTERVAL);
        if due {
            logged = Some(Instant::now());
        }
        due
    };
    loop {
        // In this order, because a connection that is not accepted before the listener closes is reset.
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = &mut closing => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // Usually the process is out of file descriptors, and other connections must close
                // first.
                if should_log() {
                    tracing::warn!("a connection could not be accepted: {e}");
                }
                tokio::select! {
                    () = tokio::time::sleep(ACCEPT_RETRY_DELAY) => continue,
                    () = &mut closing => return,
                }
            }
        };
        let ListenerSettings { limits, tls } = settings();
        let Some(connection) = connections.admit(peer.ip(), &limits) else {
            if tls.is_none() {
                let _ = socket2::SockRef::from(&stream).send(TOO_MANY_CONNECTIONS);
            }
            if should_log() {
                tracing::warn!(peer = %peer.ip(), "too many connections: {} is refused", peer.ip());
            }
            continue;
        };
        let streams = tasks.clone();
        tasks.spawn(serve(handler(peer), connection, stream, tls, limits, streams));
    }
}

async fn serve<H: RequestHandler>(
    handler: H,
    connection: Connection,
    stream: TcpStream,
    tls: Option<TlsSettings>,
    limits: HttpLimits,
    tasks: TaskTracker,
) {
    set_socket_options(&stream, &limits);
    match tls {
        None => serve_http(stream, handler, connection, limits, tasks).await,
        Some(tls) => match within_head_time(tls.accept(stream), &connection, &limits).await {
            Some(Ok(Some(stream))) => serve_http(stream, handler, connection, limits, tasks).await,
            Some(Ok(None)) => tracing::debug!("a challenge was answered within TLS"),
            Some(Err(e)) => tracing::debug!("a TLS handshake failed: {e}"),
            None => tracing::debug!("a TLS handshake did not finish in time"),
        },
    }
}

/// Runs the handshake of a connection within the time of a head. Returns `None` if it takes longer, also
/// than the drain gives a connection without a request, or if the connection is replaced.
async fn within_head_time<T>(
    handshake: impl Future<Output = T>,
    connection: &Connection,
    limits: &HttpLimits,
) -> Option<T> {
    let begun = tokio::time::Instant::now();
    let mut handshake = pin!(handshake);
    let mut timer = h1::DeadlineTimer::default();
    poll_fn(|cx| {
        if let Poll::Ready(ended) = handshake.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        connection.register_waker(cx);
        if connection.is_replaced() {
            return Poll::Ready(None);
        }
        let time = match connection.phase() {
            ShutdownPhase::Serve | ShutdownPhase::HandOver | ShutdownPhase::Linger => {
                limits.header_time
            }
            ShutdownPhase::Drain => limits.header_time.min(h1::DRAIN_IDLE_TIME),
            ShutdownPhase::End | ShutdownPhase::Cut => return Poll::Ready(None),
        };
        timer.poll(cx, begun + time).map(|()| None)
    })
    .await
}

/// Serves HTTP/1 unless the first bytes are the HTTP/2 preface.
async fn serve_http<S: h1::ByteStream, H: RequestHandler>(
    stream: S,
    handler: H,
    connection: Connection,
    limits: HttpLimits,
    tasks: TaskTracker,
) {
    let handover = h1::serve(stream, BytesMut::new(), handler, connection, limits).await;
    if let Some(h1::Http2Handover { stream, prefix, handler, connection }) = handover {
        let stream = PrefixedStream::new(stream, prefix, limits.control_frames);
        h2::serve(stream, handler, connection, limits, tasks).await;
    }
}

/// Sets the socket options of a connection. They are best effort: without one the connection
/// still works.
fn set_socket_options(stream: &TcpStream, limits: &HttpLimits) {
    // With Nagle's algorithm a small write waits for an acknowledgement, up to 40 ms.
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let alive = socket2::TcpKeepalive::new().with_time(limits.stall);
    let _ = socket.set_tcp_keepalive(&alive);
    // Closes the connection of a machine that vanished without a FIN.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(limits.stall));
}
