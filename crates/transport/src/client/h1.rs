//! One HTTP/1 exchange on one connection (RFC 9112).
//!
//! The bytes of one read are forwarded as one piece, and no task stands between a call and its
//! connection.

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri};
use http_body::Frame;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, ReadBuf};

use crate::client::body::{BodyError, RequestBody};
use crate::client::known_head::KnownHead;
use crate::client::outbound::ClientStream;
use crate::client::pool::HostPool;
use crate::client::response_head::{self, MAX_HEAD_BYTES, ResponseHead};
use crate::client::sent_mark::SentMark;
use crate::digits::write_decimal;
use crate::framing::{Framing, FramingStep};
use crate::header_fields::write_line;

/// Size of the first read, and of the largest.
const MIN_READ_BYTES: usize = 8 << 10;
const MAX_READ_BYTES: usize = 128 << 10;
/// Largest request body that is copied behind the head; a larger one is written with vectored I/O.
const MAX_COPIED_BYTES: usize = 16 << 10;
/// Pieces per write.
const MAX_SLICES: usize = 16;

/// A client connection that speaks HTTP/1.
pub(crate) struct ClientWire {
    stream: ClientStream,
    /// True if a proxy reads the requests, which then carry the absolute URL.
    is_proxied: bool,
    /// True if the connection has answered before.
    has_answered: bool,
    /// Bytes read and not yet parsed.
    read: BytesMut,
    /// Size of the next read.
    read_bytes: usize,
    known_head: KnownHead,
    out: RequestBuffer,
}

/// Unsent part of a request.
#[derive(Default)]
struct RequestBuffer {
    /// Head, followed by a small body.
    small: Vec<u8>,
    sent: usize,
    /// Pieces of a large body.
    pieces: VecDeque<Bytes>,
    /// True if everything is flushed, or if writing failed.
    is_finished: bool,
}

/// Error of an exchange without a response.
pub(crate) enum ExchangeError {
    /// The connection had answered before and was closed while idle, so the provider has not read
    /// the request.
    Stale(BodyError),
    /// The provider may have read the request.
    Sent(BodyError),
}

impl ClientWire {
    pub(crate) fn new(stream: ClientStream, is_proxied: bool) -> Self {
        let out = RequestBuffer { is_finished: true, ..RequestBuffer::default() };
        Self {
            stream,
            is_proxied,
            has_answered: false,
            read: BytesMut::new(),
            read_bytes: MIN_READ_BYTES,
            known_head: KnownHead::default(),
            out,
        }
    }

    /// Returns true if a pooled connection can be used: nothing arrived on it, not even its end.
    pub(crate) fn is_idle(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        let mut stream = Pin::new(&mut self.stream);
        stream.as_mut().poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Sends the buffered request and waits for the head of the response.
    pub(crate) async fn exchange(
        &mut self,
        mark: &SentMark,
    ) -> Result<ResponseHead, ExchangeError> {
        let mut received = false;
        let outcome = poll_fn(|cx| self.poll_head(cx, mark, &mut received)).await;
        let stale = self.has_answered && !received;
        self.has_answered = true;
        outcome
            .map_err(|why| if stale { ExchangeError::Stale(why) } else { ExchangeError::Sent(why) })
    }

    /// Takes the next request. It is not an argument of [`Self::exchange`], because futures would move
    /// it from one to the next.
    pub(crate) fn buffer_request(&mut self, request: Request<RequestBody>) {
        let (head, body) = request.into_parts();
        let small = &mut self.out.small;
        small.clear();
        write_head(&head, body.remaining_bytes(), self.is_proxied, small);
        self.buffer_body(body);
    }

    /// Takes the next request like [`Self::buffer_request`], with its head from `write_head`, which is
    /// given the length of the body. No proxy reads it.
    pub(crate) fn buffer_with(
        &mut self,
        body: RequestBody,
        write_head: impl FnOnce(u64, &mut Vec<u8>),
    ) {
        let small = &mut self.out.small;
        small.clear();
        write_head(body.remaining_bytes(), small);
        self.buffer_body(body);
    }

    /// Takes the body behind the head that is written.
    fn buffer_body(&mut self, body: RequestBody) {
        self.out.pieces.clear();
        if body.remaining_bytes() <= MAX_COPIED_BYTES as u64 {
            body.pieces().for_each(|piece| self.out.small.extend_from_slice(piece));
        } else {
            self.out.pieces = body.into_pieces();
        }
        self.out.sent = 0;
        self.out.is_finished = false;
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        mark: &SentMark,
        received: &mut bool,
    ) -> Poll<Result<ResponseHead, BodyError>> {
        loop {
            // A response may arrive before the request is sent completely, and then takes
            // precedence.
            let sent = self.poll_send(cx);
            if let Poll::Ready(Ok(())) = sent {
                mark.set_whole();
            }
            while let Some(head) = response_head::take_head(&mut self.read, &mut self.known_head)? {
                if !head.is_interim() {
                    return Poll::Ready(Ok(head));
                }
            }
            if self.read.len() > MAX_HEAD_BYTES {
                return Poll::Ready(Err("the head of the response is too large".into()));
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    let why = "the connection was closed before the response";
                    return Poll::Ready(Err(why.into()));
                }
                Poll::Ready(Ok(_)) => *received = true,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e.into())),
                Poll::Pending => {
                    return match sent {
                        Poll::Ready(Err(e)) => Poll::Ready(Err(e.into())),
                        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }

    /// Sends the rest of the request.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, out, .. } = self;
        if out.is_finished {
            return Poll::Ready(Ok(()));
        }
        let mut stream = Pin::new(stream);
        let outcome = loop {
            if out.is_empty() {
                break ready!(stream.as_mut().poll_flush(cx));
            }
            match ready!(out.poll_write(stream.as_mut(), cx)) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => out.advance(count),
                Err(e) => break Err(e),
            }
        };
        out.is_finished = true;
        Poll::Ready(outcome)
    }

    /// Reads more bytes; zero means the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // The buffer grows with the response, so that a short one stays cheap.
        if self.read.capacity() - self.read.len() < self.read_bytes / 2 {
            self.read.reserve(self.read_bytes);
        }
        let free = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        if count == free && self.read_bytes < MAX_READ_BYTES {
            self.read_bytes *= 2;
        }
        Poll::Ready(Ok(count))
    }

    /// Frees the buffers before the connection goes to the pool.
    fn shrink(&mut self) {
        self.read = BytesMut::new();
        self.read_bytes = MIN_READ_BYTES;
        self.out.small.clear();
        self.out.small.shrink_to(MIN_READ_BYTES);
    }
}

impl RequestBuffer {
    fn is_empty(&self) -> bool {
        self.sent >= self.small.len() && self.pieces.is_empty()
    }

    fn poll_write(
        &self,
        stream: Pin<&mut ClientStream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let small = self.small.get(self.sent..).unwrap_or_default();
        if self.pieces.is_empty() {
            return stream.poll_write(cx, small);
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let all = std::iter::once(small).chain(self.pieces.iter().map(AsRef::as_ref));
        for (slice, bytes) in slices.iter_mut().zip(all) {
            *slice = IoSlice::new(bytes);
        }
        stream.poll_write_vectored(cx, &slices)
    }

    fn advance(&mut self, count: usize) {
        let small = count.min(self.small.len() - self.sent);
        self.sent += small;
        let mut left = count - small;
        while let Some(piece) = self.pieces.front_mut() {
            let taken = left.min(piece.len());
            piece.advance(taken);
            left -= taken;
            if !piece.is_empty() {
                break;
            }
            self.pieces.pop_front();
        }
    }
}

pub(crate) fn write_head(
    head: &http::request::Parts,
    length: u64,
    is_proxied: bool,
    out: &mut Vec<u8>,
) {
    write_request_line(&head.method, &head.uri, is_proxied, out);
    if !head.headers.contains_key(HOST) {
        write_host(&head.uri, out);
    }
    for (name, value) in &head.headers {
        if *name != CONTENT_LENGTH {
            write_line(name.as_str(), value.as_bytes(), out);
        }
    }
    if length > 0 || head.method == Method::POST {
        out.extend_from_slice(b"content-length: ");
        write_decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn write_request_line(method: &Method, uri: &Uri, is_proxied: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    if is_proxied {
        let _ = write!(out, "{uri}");
    } else {
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        out.extend_from_slice(path.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes the `Host` header without a default port.
pub(crate) fn write_host(uri: &Uri, out: &mut Vec<u8>) {
    let default_port: &[u8] = if uri.scheme() == Some(&Scheme::HTTPS) { b":443" } else { b":80" };
    let authority = uri.authority().map_or("", Authority::as_str).as_bytes();
    let user = memchr::memrchr(b'@', authority).map_or(0, |at| at + 1);
    let host = authority.get(user..).unwrap_or_default();
    let host = host.strip_suffix(default_port).or(host.strip_suffix(b":")).unwrap_or(host);
    out.extend_from_slice(b"host: ");
    out.extend_from_slice(host);
    out.extend_from_slice(b"\r\n");
}

/// Body of a response, read from the connection on demand.
pub struct Http1Body {
    /// Present until the body ends.
    wire: Option<Box<ClientWire>>,
    framing: Framing,
    /// True if the connection may be used again.
    keep_alive: bool,
    pool: Arc<HostPool>,
    /// Trailers, boxed because they are rare: bodies move from step to step.
    trailers: Option<Box<http::HeaderMap>>,
}

impl Http1Body {
    /// Creates the body that follows a head.
    pub(crate) fn new(
        mut wire: Box<ClientWire>,
        framing: Framing,
        keep_alive: bool,
        pool: Arc<HostPool>,
    ) -> Self {
        if let Framing::Length(left) = framing {
            wire.read_bytes = usize::try_from(left)
                .unwrap_or(MAX_READ_BYTES)
                .clamp(MIN_READ_BYTES, MAX_READ_BYTES);
        }
        let mut body = Self { wire: Some(wire), framing, keep_alive, pool, trailers: None };
        body.release_connection();
        body
    }

    /// Returns true if everything was read.
    pub(crate) fn is_end(&self) -> bool {
        self.framing == Framing::Done && self.trailers.is_none()
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Some(wire) = &mut self.wire else {
                let trailers = self.trailers.take().filter(|trailers| !trailers.is_empty());
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(*trailers))));
            };
            match self.framing.take(&mut wire.read) {
                Ok(FramingStep::Data(data)) => {
                    self.release_connection();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(FramingStep::Trailer(line)) => {
                    response_head::add_trailer(&line, self.trailers.get_or_insert_default());
                    continue;
                }
                Ok(FramingStep::End) => {
                    self.release_connection();
                    continue;
                }
                Ok(FramingStep::NeedMore) => {}
                Err(why) => return self.fail(why.into()),
            }
            // Sends the rest of the request. A failure shows up when reading.
            let _ = wire.poll_send(cx);
            match ready!(wire.poll_read(cx)) {
                Ok(0) if self.framing == Framing::UntilClose => {
                    self.framing = Framing::Done;
                    self.release_connection();
                }
                Ok(0) => return self.fail("the connection was closed within the body".into()),
                Ok(_) => {}
                Err(e) => return self.fail(e.into()),
            }
        }
    }

    fn fail(&mut self, why: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.framing = Framing::Broken;
        self.wire = None;
        Poll::Ready(Some(Err(why)))
    }

    /// Returns the connection to the pool at the end of the body, if request and response are
    /// complete.
    fn release_connection(&mut self) {
        if self.framing == Framing::Done
            && let Some(mut wire) = self.wire.take()
            && self.keep_alive
            && wire.out.is_finished
            && wire.out.is_empty()
            && wire.read.is_empty()
        {
            wire.shrink();
            self.pool.put(wire);
        }
    }
}

impl fmt::Debug for Http1Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Body").field("framing", &self.framing).finish_non_exhaustive()
    }
}
