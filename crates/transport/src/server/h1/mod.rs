//! HTTP/1 server.
//!
//! One task per connection works directly on the socket: a request costs one read and one write,
//! and a refusal has the error format of any other response.

mod body;
pub(crate) mod fuzz;
mod head;
mod known_head;
mod read_alarm;
mod reply;
mod wire;

pub(super) use crate::deadline_timer::DeadlineTimer;
pub(super) use head::is_host;
pub(super) use wire::ByteStream;

use crate::framing::{Framing, FramingStep};
use axum::body::Body;
use bytes::BytesMut;
use canon::{ApiError, ErrorKind};
use http::Method;
use http_body::Body as _;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

use super::connections::{Connection as ConnectionGuard, ConnectionUse, ShutdownPhase};
use super::handler::RequestHandler;
use super::limits::HttpLimits;
use super::request_body::PacedBody;
use super::server_reply::ServerReply;
use super::server_request::{ServerBody, ServerRequest};
use super::upgrade::{ConnectionPlace, ProtocolUpgrade, UpgradedConnection};
use body::IncomingBody;
use head::{HeadScan, ReceivedHead};
use known_head::KnownHead;
use reply::{ReplyFraming, ReplyOptions};
use wire::{ReplyBuffer, ServerWire};

/// Time a caller that is still sending is read, so that it receives the response instead of a
/// reset.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that are discarded during that time.
const MAX_LINGER_BYTES: usize = 64 << 20;
/// Time that a connection may wait for a request during the drain, since its start or its last answer. A
/// caller that was not told to close it may have sent the next request already.
pub(super) const DRAIN_IDLE_TIME: Duration = Duration::from_millis(500);
/// Probe sent to a half-closed caller before the response has begun. Clients skip interim responses
/// (RFC 9110, section 15.2).
const PROBE_HEAD: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Probe within a chunked response. A chunk size may begin with a zero.
const PROBE_CHUNK: &[u8] = b"0";

/// First bytes of HTTP/2 (RFC 9113, section 3.4), which parse as a request head.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// A connection that speaks HTTP/2, with the bytes read so far.
pub(super) struct Http2Handover<S, H> {
    pub(super) stream: S,
    pub(super) prefix: BytesMut,
    pub(super) handler: H,
    pub(super) connection: ConnectionGuard,
}

/// Serves a connection until it ends or turns out to speak HTTP/2.
pub(super) async fn serve<S: ByteStream, H: RequestHandler>(
    stream: S,
    read: BytesMut,
    handler: H,
    connection: ConnectionGuard,
    limits: HttpLimits,
) -> Option<Http2Handover<S, H>> {
    let mut session = Http1Connection {
        wire: Arc::new(Mutex::new(ServerWire::new(stream, read))),
        handler,
        connection,
        limits,
        timer: DeadlineTimer::default(),
        known_head: KnownHead::default(),
        out: ReplyBuffer::default(),
    };
    let mut first = true;
    loop {
        match session.serve_request(first).await {
            NextStep::Next => first = false,
            NextStep::Close => return None,
            NextStep::Http2 => break,
            NextStep::Upgrade(upgrade) => {
                session.upgrade(upgrade).await;
                return None;
            }
        }
    }
    let Http1Connection { wire, handler, connection, .. } = session;
    let (stream, rest) = Arc::into_inner(wire)?.into_inner().into_parts();
    let mut read = BytesMut::from(HTTP2_PREFACE);
    read.extend_from_slice(&rest);
    Some(Http2Handover { stream, prefix: read, handler, connection })
}

/// Action after a request.
enum NextStep {
    /// Serve the next request.
    Next,
    /// Close the connection.
    Close,
    /// Continue with HTTP/2.
    Http2,
    /// Continue with another protocol.
    Upgrade(ProtocolUpgrade),
}

struct Http1Connection<S, H> {
    wire: Arc<Mutex<ServerWire<S>>>,
    handler: H,
    connection: ConnectionGuard,
    limits: HttpLimits,
    timer: DeadlineTimer,
    known_head: KnownHead,
    out: ReplyBuffer,
}

/// Result of waiting for a head.
enum NextHead {
    /// A head that was read in one pass.
    Usual(ReceivedHead),
    /// The bytes of another head.
    Head(BytesMut),
    Refused(ApiError, String),
    Closed,
}

/// Result of sending a response.
enum SendOutcome {
    Complete,
    /// Ended early on purpose, so that the client sees an incomplete response.
    Truncated,
    /// The caller is gone or does not read.
    Lost,
}

impl<S: ByteStream, H: RequestHandler> Http1Connection<S, H> {
    /// Serves one request.
    async fn serve_request(&mut self, first: bool) -> NextStep {
        self.connection.set_use(ConnectionUse::Waiting);
        let head = self.next_head(first).await;
        self.connection.set_use(ConnectionUse::Busy);
        let head = match head {
            NextHead::Usual(head) => Ok(head),
            NextHead::Head(bytes) if first && bytes == HTTP2_PREFACE => return NextStep::Http2,
            NextHead::Head(bytes) => {
                let parsed = head::parse_head(&bytes, &self.limits);
                parsed.map_err(|error| (error, head::path_hint(&bytes).to_owned()))
            }
            NextHead::Closed => return NextStep::Close,
            NextHead::Refused(error, path) => return self.refuse(&error, &path).await,
        };
        let head = match head {
            Ok(head) => head,
            Err((error, path)) => return self.refuse(&error, &path).await,
        };
        let mut options = ReplyOptions {
            head_only: *head.head.method() == Method::HEAD,
            is_http10: head.is_http10,
            keep_alive: head.keep_alive,
        };
        let request = self.build_request(head);
        let Some(mut reply) = self.run_handler(request, options).await else {
            return NextStep::Close;
        };
        let finished = {
            let mut wire = self.wire.lock();
            wire.end_request();
            wire.framing == Framing::Done
        };
        let is_kept =
            self.connection.phase() == ShutdownPhase::Serve && !self.connection.is_replaced();
        options.keep_alive &= finished && is_kept;
        let upgrade = reply.upgrade.take();
        // The connection stays open for the other protocol, which ends it at a shutdown.
        options.keep_alive |= upgrade.is_some();
        match self.send_reply(reply, options).await {
            Some(true) => upgrade.map_or(NextStep::Next, NextStep::Upgrade),
            Some(false) => self.close().await,
            None => NextStep::Close,
        }
    }

    /// Waits for the next head.
    async fn next_head(&mut self, first: bool) -> NextHead {
        let Self { wire, connection, limits, timer, known_head, .. } = self;
        let mut scan = HeadScan::default();
        // The idle time ends with the first byte. A new connection has no idle time.
        let begun = Instant::now();
        let mut deadline = begun + if first { limits.header_time } else { limits.idle };
        let mut begins = true;
        poll_fn(|cx| {
            let mut wire = wire.lock();
            loop {
                if !wire.read.is_empty() {
                    // The bytes of a head that arrives in pieces are not parsed again and again.
                    if begins && let Some(head) = known_head.take(&mut wire.read, limits) {
                        return Poll::Ready(NextHead::Usual(head));
                    }
                    match scan.find_end(&wire.read, limits) {
                        Ok(Some(end)) => {
                            return Poll::Ready(NextHead::Head(wire.read.split_to(end)));
                        }
                        Ok(None) if begins && !first => {
                            begins = false;
                            deadline = Instant::now() + limits.header_time;
                        }
                        Ok(None) => begins = false,
                        Err(error) => {
                            let path = head::path_hint(&wire.read).to_owned();
                            return Poll::Ready(NextHead::Refused(error, path));
                        }
                    }
                }
                match wire.poll_read(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(NextHead::Closed),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
            }
            connection.register_waker(cx);
            if connection.is_replaced() {
                return Poll::Ready(NextHead::Closed);
            }
            if connection.phase() >= ShutdownPhase::Drain && wire.read.is_empty() {
                if connection.phase() >= ShutdownPhase::End {
                    return Poll::Ready(NextHead::Closed);
                }
                deadline = deadline.min(begun + DRAIN_IDLE_TIME);
            }
            ready!(timer.poll(cx, deadline));
            if wire.read.is_empty() {
                return Poll::Ready(NextHead::Closed);
            }
            let error =
                ApiError::new(ErrorKind::RequestTimeout, "the headers did not arrive in time");
            Poll::Ready(NextHead::Refused(error, head::path_hint(&wire.read).to_owned()))
        })
        .await
    }

    /// Builds the request for the handler. A body that is already complete needs no reader.
    fn build_request(&self, head: ReceivedHead) -> ServerRequest {
        let framing = head.framing;
        let mut wire = self.wire.lock();
        let request_number = wire.begin_request(framing, head.expects_continue);
        let length = match framing {
            Framing::Length(length) => Some(length),
            Framing::Done | Framing::Chunked(_) | Framing::UntilClose | Framing::Broken => None,
        };
        let body = match (framing, length) {
            (Framing::Done, _) => ServerBody::Empty,
            (_, Some(length)) if length <= wire.read.len() as u64 => {
                let ServerWire { framing, read, .. } = &mut *wire;
                match framing.take(read) {
                    Ok(FramingStep::Data(data)) => ServerBody::Whole(data),
                    Ok(FramingStep::Trailer(_) | FramingStep::NeedMore | FramingStep::End)
                    | Err(_) => ServerBody::Empty,
                }
            }
            _ => {
                let last_frame_at = std::time::Instant::now();
                let wire = Arc::clone(&self.wire);
                let body = IncomingBody { wire, request_number, length, last_frame_at };
                let body = PacedBody::new(body, IncomingBody::held_bytes, &self.limits);
                ServerBody::Stream(Body::new(body))
            }
        };
        drop(wire);
        head.into_request(body)
    }

    /// Runs the handler. Returns `None` if the caller disconnected.
    async fn run_handler(
        &mut self,
        request: ServerRequest,
        options: ReplyOptions,
    ) -> Option<ServerReply> {
        let Self { wire, handler, connection, limits, timer, .. } = self;
        let probe = if options.is_http10 { b"" } else { PROBE_HEAD };
        let context = handler.context(request.head());
        let mut work = pin!(handler.answer(request, &context));
        poll_fn(|cx| {
            if let Poll::Ready(reply) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(reply));
            }
            connection.register_waker(cx);
            match connection.phase() {
                ShutdownPhase::Serve
                | ShutdownPhase::HandOver
                | ShutdownPhase::Linger
                | ShutdownPhase::Drain => {}
                ShutdownPhase::End => return Poll::Ready(Some(handler.stopped(&context))),
                ShutdownPhase::Cut => return Poll::Ready(None),
            }
            let left = wire.lock().poll_disconnect(cx, timer, limits.header_bytes, probe);
            left.map(|()| None)
        })
        .await
    }

    /// Sends a response. Returns true if the connection stays open, and `None` if it is lost.
    async fn send_reply(&mut self, reply: ServerReply, options: ReplyOptions) -> Option<bool> {
        self.connection.set_use(ConnectionUse::Answered);
        let now = self.handler.now();
        let (framing, keep_alive) = reply::write_head(&reply, options, now, &mut self.out.small);
        match self.write_body(reply.body, framing).await {
            SendOutcome::Complete => Some(keep_alive),
            SendOutcome::Truncated => Some(false),
            SendOutcome::Lost => None,
        }
    }

    /// Sends the buffered head and the body, and combines everything that is ready into one write.
    async fn write_body(&mut self, mut body: ServerBody, framing: ReplyFraming) -> SendOutcome {
        let Self { wire, connection, limits, timer, out, .. } = self;
        let mut body = (framing != ReplyFraming::Empty).then(|| Pin::new(&mut body));
        let mut sent = SendOutcome::Complete;
        let mut stalled: Option<Instant> = None;
        poll_fn(|cx| {
            // A body that waits wakes the task, so that it is not asked again after each write.
            let mut is_waiting = false;
            loop {
                while !is_waiting
                    && let Some(open) = &mut body
                    && out.has_room()
                {
                    match push_frame(open.as_mut(), framing, out, cx) {
                        Poll::Pending => is_waiting = true,
                        Poll::Ready(None) => {}
                        Poll::Ready(Some(end)) => {
                            sent = end;
                            body = None;
                        }
                    }
                }
                let mut wire = wire.lock();
                if out.is_empty() {
                    stalled = None;
                    match wire.poll_flush(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(SendOutcome::Lost),
                        Poll::Pending => {
                            connection.register_waker(cx);
                            return match connection.must_close() {
                                true => Poll::Ready(SendOutcome::Lost),
                                false => Poll::Pending,
                            };
                        }
                    }
                    if body.is_none() {
                        return Poll::Ready(std::mem::replace(&mut sent, SendOutcome::Complete));
                    }
                    connection.register_waker(cx);
                    if connection.must_close() {
                        return Poll::Ready(SendOutcome::Lost);
                    }
                    let probe = if framing == ReplyFraming::Chunked { PROBE_CHUNK } else { b"" };
                    let left = wire.poll_disconnect(cx, timer, limits.header_bytes, probe);
                    return left.map(|()| SendOutcome::Lost);
                }
                match wire.poll_send(cx, out) {
                    Poll::Ready(Ok(())) => stalled = None,
                    Poll::Ready(Err(_)) => return Poll::Ready(SendOutcome::Lost),
                    Poll::Pending => {
                        connection.register_waker(cx);
                        if connection.must_close() {
                            return Poll::Ready(SendOutcome::Lost);
                        }
                        let deadline =
                            *stalled.get_or_insert_with(|| Instant::now() + limits.stall);
                        return timer.poll(cx, deadline).map(|()| SendOutcome::Lost);
                    }
                }
            }
        })
        .await
    }

    /// Hands the connection to another protocol.
    async fn upgrade(self, upgrade: ProtocolUpgrade) {
        let Self { wire, connection, limits, .. } = self;
        connection.set_use(ConnectionUse::Busy);
        let Some(wire) = Arc::into_inner(wire) else { return };
        let (stream, read) = wire.into_inner().into_parts();
        let (stream, place) = (Box::new(stream), ConnectionPlace(connection));
        upgrade.run(UpgradedConnection { stream, read, limits, place }).await;
    }

    /// Answers an invalid request and closes the connection, because the next request cannot be
    /// located.
    async fn refuse(&mut self, error: &ApiError, path: &str) -> NextStep {
        let reply = self.handler.refuse(error, path);
        let options = ReplyOptions { head_only: false, is_http10: false, keep_alive: false };
        match self.send_reply(reply, options).await {
            Some(_) => self.close().await,
            None => NextStep::Close,
        }
    }

    /// Closes our direction and reads the rest. Closing with unread bytes would reset the
    /// connection and discard the response (RFC 9112, section 9.6).
    async fn close(&mut self) -> NextStep {
        let Self { wire, connection, timer, .. } = self;
        connection.set_use(ConnectionUse::Waiting);
        let deadline = Instant::now() + LINGER_TIMEOUT;
        let mut left = MAX_LINGER_BYTES;
        let mut open = true;
        poll_fn(|cx| {
            connection.register_waker(cx);
            if connection.is_replaced() {
                return Poll::Ready(());
            }
            let mut wire = wire.lock();
            if open {
                match wire.poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => open = false,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return timer.poll(cx, deadline),
                }
            }
            loop {
                wire.read.clear();
                match wire.poll_read(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(count)) if count < left => left -= count,
                    Poll::Ready(Ok(_)) => return Poll::Ready(()),
                    Poll::Pending => return timer.poll(cx, deadline),
                }
            }
        })
        .await;
        NextStep::Close
    }
}

/// Adds the next piece of a body; returns the outcome at its end.
fn push_frame(
    body: Pin<&mut ServerBody>,
    framing: ReplyFraming,
    out: &mut ReplyBuffer,
    cx: &mut Context<'_>,
) -> Poll<Option<SendOutcome>> {
    let body = body.get_mut();
    // A whole body is added at once, with its end.
    if framing == ReplyFraming::Length
        && let ServerBody::Whole(bytes) = body
    {
        out.push(std::mem::take(bytes), b"");
        return Poll::Ready(Some(SendOutcome::Complete));
    }
    Poll::Ready(match ready!(Pin::new(body).poll_frame(cx)) {
        Some(Ok(frame)) => {
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) if framing == ReplyFraming::Chunked => {
                    reply::write_chunk_size(data.len(), &mut out.small);
                    out.push(data, b"\r\n");
                }
                Ok(data) => out.push(data, b""),
                // No response has trailers.
                Err(_) => {}
            }
            None
        }
        Some(Err(_)) => Some(SendOutcome::Truncated),
        None => {
            if framing == ReplyFraming::Chunked {
                out.small.extend_from_slice(b"0\r\n\r\n");
            }
            Some(SendOutcome::Complete)
        }
    })
}
