//! HTTP/1, read and written by ourselves.
//!
//! One task per connection and nothing between it and the socket: a request costs one read and one
//! write, every limit and every refusal is our own, and a refusal speaks like any other answer.

mod body;
mod head;
mod reply;
mod wire;

pub(super) use head::is_host;
pub(super) use wire::{Alarm, Stream};

use crate::framing::{Framing, Step};
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, ErrorKind};
use http::{HeaderMap, Method, Request, Version};
use http_body::Body as _;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

use super::connections::{Connection as ConnectionGuard, ShutdownPhase};
use super::handler::RequestHandler;
use super::limits::HttpLimits;
use body::Incoming;
use head::{Head, Scan};
use reply::{Manner, Shape};
use wire::{Out, Wire};

/// How long a caller that still sends is heard out, so that it sees the answer and not a reset.
const LINGER: Duration = Duration::from_secs(2);
/// How much of what it still sends is thrown away.
const LINGER_BYTES: usize = 64 << 20;
/// What a caller whose answer is not ready is sent to see whether it is there.
const PROBE_HEAD: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The same in the middle of a chunked answer: the length of the next chunk may begin with a zero.
const PROBE_CHUNK: &[u8] = b"0";

/// The first bytes of HTTP/2, which are made to look like a request.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// A connection that turns out to speak HTTP/2, with everything read of it so far.
pub(super) struct Handed<S, H> {
    pub(super) stream: S,
    pub(super) read: BytesMut,
    pub(super) handler: H,
    pub(super) guest: ConnectionGuard,
}

/// Serves a connection to its end, or to where it turns out to speak HTTP/2.
pub(super) async fn serve<S: Stream, H: RequestHandler>(
    stream: S,
    read: BytesMut,
    handler: H,
    guest: ConnectionGuard,
    limits: HttpLimits,
) -> Option<Handed<S, H>> {
    let mut connection = Http1Connection {
        wire: Arc::new(Mutex::new(Wire::new(stream, read))),
        handler,
        guest,
        limits,
        alarm: Alarm::default(),
        out: Out::default(),
        spare: HeaderMap::new(),
    };
    let mut first = true;
    loop {
        match connection.one(first).await {
            After::Next => first = false,
            After::Over => return None,
            After::Other => break,
        }
    }
    let Http1Connection { wire, handler, guest, .. } = connection;
    let (stream, rest) = Arc::into_inner(wire)?.into_inner().into_parts();
    let mut read = BytesMut::from(PREFACE);
    read.extend_from_slice(&rest);
    Some(Handed { stream, read, handler, guest })
}

/// What follows a request.
enum After {
    /// The next one.
    Next,
    /// The end.
    Over,
    /// Another protocol.
    Other,
}

struct Http1Connection<S, H> {
    wire: Arc<Mutex<Wire<S>>>,
    handler: H,
    guest: ConnectionGuard,
    limits: HttpLimits,
    alarm: Alarm,
    out: Out,
    /// An empty map for the headers of the next request.
    spare: HeaderMap,
}

/// What comes before a request.
enum Next {
    Head(Bytes),
    Refused(ApiError, String),
    Over,
}

/// How the sending of an answer ended.
enum Sent {
    Whole,
    /// On purpose before its end, so that no client takes it for complete.
    Cut,
    /// The caller left, or takes nothing.
    Lost,
}

impl<S: Stream, H: RequestHandler> Http1Connection<S, H> {
    /// One request and its answer.
    async fn one(&mut self, first: bool) -> After {
        let bytes = match self.next_head(first).await {
            Next::Head(bytes) if first && bytes == PREFACE => return After::Other,
            Next::Head(bytes) => bytes,
            Next::Over => return After::Over,
            Next::Refused(fault, path) => return self.refuse(&fault, &path).await,
        };
        let spare = std::mem::take(&mut self.spare);
        let head = match head::read(&bytes, &self.limits, spare) {
            Ok(head) => head,
            Err(fault) => {
                let path = head::path_in(&bytes).to_owned();
                return self.refuse(&fault, &path).await;
            }
        };
        let mut manner =
            Manner { head_only: head.method == Method::HEAD, old: head.old, keep: head.keep };
        let request = self.request(head);
        let Some(response) = self.work(request, manner).await else { return After::Over };
        let finished = {
            let mut wire = self.wire.lock();
            wire.end();
            wire.framing == Framing::Done
        };
        manner.keep &= finished && self.guest.order() == ShutdownPhase::Serve;
        match self.reply(response, manner).await {
            Some(true) => After::Next,
            Some(false) => self.close().await,
            None => After::Over,
        }
    }

    /// Waits for the next head.
    async fn next_head(&mut self, first: bool) -> Next {
        let Self { wire, guest, limits, alarm, .. } = self;
        let mut scan = Scan::default();
        // Until its first byte a connection is idle; a new one has come to ask something.
        let begun = Instant::now();
        let mut until = begun + if first { limits.header_time } else { limits.idle };
        let mut begins = true;
        poll_fn(|cx| {
            let mut wire = wire.lock();
            loop {
                if !wire.read.is_empty() {
                    match scan.end(&wire.read, limits) {
                        Ok(Some(end)) => {
                            return Poll::Ready(Next::Head(wire.read.split_to(end).freeze()));
                        }
                        Ok(None) if begins && !first => {
                            begins = false;
                            until = Instant::now() + limits.header_time;
                        }
                        Ok(None) => begins = false,
                        Err(fault) => {
                            let path = head::path_in(&wire.read).to_owned();
                            return Poll::Ready(Next::Refused(fault, path));
                        }
                    }
                }
                match wire.poll_read(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Next::Over),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
            }
            guest.listen(cx);
            if guest.order() != ShutdownPhase::Serve && wire.read.is_empty() {
                return Poll::Ready(Next::Over);
            }
            ready!(alarm.poll(cx, until));
            if wire.read.is_empty() {
                return Poll::Ready(Next::Over);
            }
            let fault = ApiError::new(ErrorKind::RequestTimeout, "the headers did not arrive in time");
            Poll::Ready(Next::Refused(fault, head::path_in(&wire.read).to_owned()))
        })
        .await
    }

    /// The request as a handler gets it. A body that is here already needs no reader.
    fn request(&self, head: Head) -> Request<Body> {
        let Head { method, uri, headers, framing, old, expects, keep: _ } = head;
        let mut wire = self.wire.lock();
        let turn = wire.begin(framing, expects);
        let length = match framing {
            Framing::Length(length) => Some(length),
            Framing::Done | Framing::Chunked(_) | Framing::UntilEnd | Framing::Broken => None,
        };
        let body = match (framing, length) {
            (Framing::Done, _) => Body::empty(),
            (_, Some(length)) if length <= wire.read.len() as u64 => {
                let Wire { framing, read, .. } = &mut *wire;
                match framing.take(read) {
                    Ok(Step::Data(data)) => Body::from(data),
                    Ok(Step::Trailer(_) | Step::More | Step::End) | Err(_) => Body::empty(),
                }
            }
            _ => {
                let handed_on = std::time::Instant::now();
                Body::new(Incoming { wire: Arc::clone(&self.wire), turn, length, handed_on })
            }
        };
        drop(wire);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        *request.version_mut() = if old { Version::HTTP_10 } else { Version::HTTP_11 };
        request
    }

    /// Has a request answered. `None` when the caller left before.
    async fn work(&mut self, request: Request<Body>, manner: Manner) -> Option<Response> {
        let Self { wire, handler, guest, limits, alarm, .. } = self;
        let probe = if manner.old { b"" } else { PROBE_HEAD };
        let format = handler.format(request.uri().path(), request.headers());
        let mut work = pin!(handler.answer(request, format));
        poll_fn(|cx| {
            if let Poll::Ready(response) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            guest.listen(cx);
            match guest.order() {
                ShutdownPhase::Serve | ShutdownPhase::Drain => {}
                ShutdownPhase::End => return Poll::Ready(Some(handler.stopped(format))),
                ShutdownPhase::Cut => return Poll::Ready(None),
            }
            let left = wire.lock().poll_left(cx, alarm, limits.header_bytes, probe);
            left.map(|()| None)
        })
        .await
    }

    /// Sends an answer. Tells whether the connection stays; `None` when it is lost.
    async fn reply(&mut self, response: Response, manner: Manner) -> Option<bool> {
        let now = self.handler.now();
        let (shape, keep) = reply::write_head(&response, manner, now, &mut self.out.small);
        let (head, body) = response.into_parts();
        let sent = self.send(body, shape).await;
        self.spare = reply::spare(head.headers);
        match sent {
            Sent::Whole => Some(keep),
            Sent::Cut => Some(false),
            Sent::Lost => None,
        }
    }

    /// Sends what was written and a body after it: everything that is ready in one go.
    async fn send(&mut self, mut body: Body, shape: Shape) -> Sent {
        let Self { wire, guest, limits, alarm, out, .. } = self;
        let mut body = (shape != Shape::Nothing).then(|| Pin::new(&mut body));
        let mut sent = Sent::Whole;
        let mut stalled: Option<Instant> = None;
        poll_fn(|cx| {
            loop {
                while let Some(open) = &mut body
                    && out.has_room()
                {
                    match gather(open.as_mut(), shape, out, cx) {
                        Poll::Pending => break,
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
                        Poll::Ready(Err(_)) => return Poll::Ready(Sent::Lost),
                        Poll::Pending => return Poll::Pending,
                    }
                    if body.is_none() {
                        return Poll::Ready(std::mem::replace(&mut sent, Sent::Whole));
                    }
                    guest.listen(cx);
                    if guest.order() == ShutdownPhase::Cut {
                        return Poll::Ready(Sent::Lost);
                    }
                    let probe = if shape == Shape::Chunks { PROBE_CHUNK } else { b"" };
                    let left = wire.poll_left(cx, alarm, limits.header_bytes, probe);
                    return left.map(|()| Sent::Lost);
                }
                match wire.poll_send(cx, out) {
                    Poll::Ready(Ok(())) => stalled = None,
                    Poll::Ready(Err(_)) => return Poll::Ready(Sent::Lost),
                    Poll::Pending => {
                        guest.listen(cx);
                        if guest.order() == ShutdownPhase::Cut {
                            return Poll::Ready(Sent::Lost);
                        }
                        let until = *stalled.get_or_insert_with(|| Instant::now() + limits.stall);
                        return alarm.poll(cx, until).map(|()| Sent::Lost);
                    }
                }
            }
        })
        .await
    }

    /// Answers what cannot be read as a request; nothing after it can be.
    async fn refuse(&mut self, fault: &ApiError, path: &str) -> After {
        let response = self.handler.refuse(fault, path);
        let manner = Manner { head_only: false, old: false, keep: false };
        match self.reply(response, manner).await {
            Some(_) => self.close().await,
            None => After::Over,
        }
    }

    /// Ends our direction and hears the caller out: closing with bytes unread would reset the
    /// connection and take the answer with it.
    async fn close(&mut self) -> After {
        let Self { wire, alarm, .. } = self;
        let until = Instant::now() + LINGER;
        let mut left = LINGER_BYTES;
        let mut open = true;
        poll_fn(|cx| {
            let mut wire = wire.lock();
            if open {
                match wire.poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => open = false,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return alarm.poll(cx, until),
                }
            }
            loop {
                wire.read.clear();
                match wire.poll_read(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(count)) if count < left => left -= count,
                    Poll::Ready(Ok(_)) => return Poll::Ready(()),
                    Poll::Pending => return alarm.poll(cx, until),
                }
            }
        })
        .await;
        After::Over
    }
}

/// Takes the next piece of a body; `Some` at its end.
fn gather(
    body: Pin<&mut Body>,
    shape: Shape,
    out: &mut Out,
    cx: &mut Context<'_>,
) -> Poll<Option<Sent>> {
    Poll::Ready(match ready!(body.poll_frame(cx)) {
        Some(Ok(frame)) => {
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) if shape == Shape::Chunks => {
                    reply::chunk(data.len(), &mut out.small);
                    out.push(data, b"\r\n");
                }
                Ok(data) => out.push(data, b""),
                // Trailers: nothing here has any.
                Err(_) => {}
            }
            None
        }
        Some(Err(_)) => Some(Sent::Cut),
        None => {
            if shape == Shape::Chunks {
                out.small.extend_from_slice(b"0\r\n\r\n");
            }
            Some(Sent::Whole)
        }
    })
}
