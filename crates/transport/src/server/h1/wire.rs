//! A server connection: reading, writing and the detection of a disconnect.

use crate::deadline_timer::DeadlineTimer;
use crate::framing::Framing;
use bytes::{Bytes, BytesMut};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::Instant;

use super::read_alarm::ReadAlarm;

/// A connection over TCP, with or without TLS.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for T {}

/// Default size of a read.
const READ_BYTES: usize = 8 << 10;
/// Size of a read within a long body.
const LONG_READ_BYTES: usize = 256 << 10;
/// A piece from this size on is written without copying.
const COPY_LIMIT_BYTES: usize = 16 << 10;
/// Interim response to `Expect: 100-continue`.
const CONTINUE_RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Time in which the peer's system must refuse a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// A connection, shared by its loop and the body of the running request.
pub(super) struct ServerWire<S> {
    stream: S,
    /// Bytes read and not yet parsed.
    pub(super) read: BytesMut,
    /// Framing of the rest of the running request's body.
    pub(super) framing: Framing,
    /// Number of the running request.
    pub(super) request_number: u64,
    /// Unsent part of the interim response.
    pending_continue: &'static [u8],
    peer: PeerState,
    /// Alarm of the reads that look for a disconnect.
    alarm: ReadAlarm,
}

/// State of the caller's direction.
#[derive(Clone, Copy, Debug)]
enum PeerState {
    /// The caller can send.
    Open,
    /// The caller sends nothing more. It may be gone, or it may wait for the response.
    HalfClosed,
    /// A probe was sent, which the system of a caller that is gone refuses.
    Probed(Instant),
    /// The caller waits for the response.
    Waiting,
}

impl<S: ByteStream> ServerWire<S> {
    pub(super) fn new(stream: S, read: BytesMut) -> Self {
        Self {
            stream,
            read,
            framing: Framing::Done,
            request_number: 0,
            pending_continue: b"",
            peer: PeerState::Open,
            alarm: ReadAlarm::default(),
        }
    }

    /// Returns the stream and the unparsed bytes.
    pub(super) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.read)
    }

    /// Begins a request and returns its number.
    pub(super) fn begin_request(&mut self, framing: Framing, expects_continue: bool) -> u64 {
        self.request_number += 1;
        self.framing = framing;
        // The head, and then the body, are read with the waker of the task.
        self.alarm.reset();
        self.pending_continue =
            if expects_continue && self.read.is_empty() { CONTINUE_RESPONSE } else { b"" };
        self.request_number
    }

    /// Ends a request. A body that still exists reads nothing more.
    pub(super) fn end_request(&mut self) {
        self.request_number += 1;
        self.pending_continue = b"";
    }

    /// Reads more bytes; zero means the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !matches!(self.peer, PeerState::Open) {
            return Poll::Ready(Ok(0));
        }
        let wanted = match self.framing {
            Framing::Length(left) => {
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                left.saturating_sub(self.read.len()).clamp(READ_BYTES, LONG_READ_BYTES)
            }
            Framing::Chunked(_) => READ_BYTES * 4,
            Framing::Done | Framing::UntilClose | Framing::Broken => READ_BYTES,
        };
        let count = ready!(read_more(&mut self.stream, &mut self.read, cx, wanted))?;
        if count == 0 {
            self.peer = PeerState::HalfClosed;
        }
        Poll::Ready(Ok(count))
    }

    /// Sends the interim response that the caller waits for.
    pub(super) fn poll_continue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending_continue.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, self.pending_continue))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending_continue = self.pending_continue.get(count..).unwrap_or_default();
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Completes when the caller has disconnected. A half-close alone does not prove that, so
    /// `probe` is sent: a client that still reads ignores it, and the system of a client that is
    /// gone answers with a reset.
    pub(super) fn poll_disconnect(
        &mut self,
        cx: &mut Context<'_>,
        timer: &mut DeadlineTimer,
        max_read_ahead: usize,
        probe: &'static [u8],
    ) -> Poll<()> {
        loop {
            match self.peer {
                PeerState::Open => {
                    // The reader of the body reads the rest, and the read-ahead is limited.
                    if self.framing != Framing::Done || self.read.len() >= max_read_ahead {
                        return Poll::Pending;
                    }
                    let Self { stream, read, alarm, .. } = self;
                    match ready!(alarm.poll(cx, |cx| read_more(stream, read, cx, READ_BYTES))) {
                        Ok(0) => self.peer = PeerState::HalfClosed,
                        Ok(_) => {}
                        Err(_) => return Poll::Ready(()),
                    }
                }
                PeerState::HalfClosed => {
                    if probe.is_empty() || !self.accepts_bytes(cx, probe) {
                        return Poll::Ready(());
                    }
                    self.peer = PeerState::Probed(Instant::now() + PROBE_TIMEOUT);
                }
                PeerState::Probed(deadline) => {
                    ready!(timer.poll(cx, deadline));
                    if !self.accepts_bytes(cx, probe) {
                        return Poll::Ready(());
                    }
                    self.peer = PeerState::Waiting;
                }
                PeerState::Waiting => return Poll::Pending,
            }
        }
    }

    /// Returns true if the peer accepts these bytes, which are few enough to fit the socket buffer.
    fn accepts_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> bool {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        matches!(sent, Poll::Ready(Ok(count)) if count == bytes.len())
            && !matches!(flushed, Poll::Ready(Err(_)))
    }

    /// Sends a part of the buffer.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReplyBuffer,
    ) -> Poll<io::Result<()>> {
        let stream = Pin::new(&mut self.stream);
        let small = out.small.get(out.sent..).unwrap_or_default();
        let count = if out.large.is_empty() {
            ready!(stream.poll_write(cx, small))?
        } else {
            let all = [IoSlice::new(small), IoSlice::new(&out.large), IoSlice::new(out.tail)];
            ready!(stream.poll_write_vectored(cx, &all))?
        };
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        out.advance(count);
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Closes our direction.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Reads more bytes into a buffer with room for so many; zero means the end.
fn read_more<S: ByteStream>(
    stream: &mut S,
    read: &mut BytesMut,
    cx: &mut Context<'_>,
    wanted: usize,
) -> Poll<io::Result<usize>> {
    if read.capacity() - read.len() < wanted / 2 {
        read.reserve(wanted);
    }
    pin!(stream.read_buf(read)).poll(cx)
}

/// Output buffer: small pieces are copied together, one large piece is kept as it is.
#[derive(Debug, Default)]
pub(super) struct ReplyBuffer {
    pub(super) small: Vec<u8>,
    sent: usize,
    large: Bytes,
    /// Bytes behind the large piece.
    tail: &'static [u8],
}

impl ReplyBuffer {
    /// Adds a piece of a body and the bytes behind it.
    pub(super) fn push(&mut self, piece: Bytes, tail: &'static [u8]) {
        if piece.len() < COPY_LIMIT_BYTES {
            self.small.extend_from_slice(&piece);
            self.small.extend_from_slice(tail);
        } else {
            self.large = piece;
            self.tail = tail;
        }
    }

    /// Returns true if another piece fits before the buffer must be sent.
    pub(super) fn has_room(&self) -> bool {
        self.large.is_empty() && self.tail.is_empty() && self.small.len() < COPY_LIMIT_BYTES * 4
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent >= self.small.len() && self.large.is_empty() && self.tail.is_empty()
    }

    fn advance(&mut self, count: usize) {
        let small = count.min(self.small.len() - self.sent);
        let large = (count - small).min(self.large.len());
        let tail = count - small - large;
        self.sent += small;
        let _ = self.large.split_to(large);
        self.tail = self.tail.get(tail..).unwrap_or_default();
        if self.is_empty() {
            self.small.clear();
            self.sent = 0;
            self.large = Bytes::new();
            // A burst must not keep memory allocated on an idle connection.
            self.small.shrink_to(COPY_LIMIT_BYTES);
        }
    }
}
