//! A connection's two directions and what is known of the caller at the other end.

use crate::framing::Framing;
use bytes::{Bytes, BytesMut};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::{Instant, Sleep};

/// What a connection is made of: plain TCP, or TLS on top of it.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> ByteStream for T {}

/// How much is read at once where nothing better is known.
const READ_BYTES: usize = 8 << 10;
/// How much is read at once of a long body.
const LONG_READ_BYTES: usize = 256 << 10;
/// From how many bytes on a piece is written from where it lies instead of being copied.
const COPY_LIMIT_BYTES: usize = 16 << 10;
/// What a caller that waits with its body is told.
const CONTINUE_RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// How long the other end is given to refuse a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// The reading side of a connection, shared between its loop and the body of the running request.
pub(super) struct ServerWire<S> {
    stream: S,
    /// Bytes read and not yet used.
    pub(super) read: BytesMut,
    /// What is left of the running request's body.
    pub(super) framing: Framing,
    /// The number of the running request.
    pub(super) request_number: u64,
    /// How much of the go-ahead is still owed to a caller that waits for it.
    pending_continue: &'static [u8],
    peer: PeerState,
}

/// What is known of the caller while its answer is in the making.
#[derive(Clone, Copy, Debug)]
enum PeerState {
    /// It can send.
    Open,
    /// It will send nothing more. It may have left, or it may only wait for the answer.
    HalfClosed,
    /// It was sent something that whoever has left refuses.
    Probed(Instant),
    /// It only waits for the answer.
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
        }
    }

    /// The connection itself, and what was read of it and not used.
    pub(super) fn into_parts(self) -> (S, BytesMut) {
        (self.stream, self.read)
    }

    /// A request begins.
    pub(super) fn begin_request(&mut self, framing: Framing, expects: bool) -> u64 {
        self.request_number += 1;
        self.framing = framing;
        self.pending_continue =
            if expects && self.read.is_empty() { CONTINUE_RESPONSE } else { b"" };
        self.request_number
    }

    /// A request is over; a body somebody still holds reads nothing more.
    pub(super) fn end_request(&mut self) {
        self.request_number += 1;
        self.pending_continue = b"";
    }

    /// Reads more; nothing more comes after a zero.
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
        if self.read.capacity() - self.read.len() < wanted / 2 {
            self.read.reserve(wanted);
        }
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        if count == 0 {
            self.peer = PeerState::HalfClosed;
        }
        Poll::Ready(Ok(count))
    }

    /// Tells a caller that waits with its body to send it.
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

    /// Ready when the caller has left. The end of what it sends says only that it may have: then it
    /// is sent `probe`, which means nothing to a client that reads on and which the system at the
    /// other end refuses if nobody is there to read.
    pub(super) fn poll_disconnect(
        &mut self,
        cx: &mut Context<'_>,
        alarm: &mut DeadlineTimer,
        most: usize,
        probe: &'static [u8],
    ) -> Poll<()> {
        loop {
            match self.peer {
                PeerState::Open => {
                    // The rest of a body is its reader's, and only so much is read ahead.
                    if self.framing != Framing::Done || self.read.len() >= most {
                        return Poll::Pending;
                    }
                    if ready!(self.poll_read(cx)).is_err() {
                        return Poll::Ready(());
                    }
                }
                PeerState::HalfClosed => {
                    if probe.is_empty() || !self.accepts_bytes(cx, probe) {
                        return Poll::Ready(());
                    }
                    self.peer = PeerState::Probed(Instant::now() + PROBE_TIMEOUT);
                }
                PeerState::Probed(until) => {
                    ready!(alarm.poll(cx, until));
                    if !self.accepts_bytes(cx, probe) {
                        return Poll::Ready(());
                    }
                    self.peer = PeerState::Waiting;
                }
                PeerState::Waiting => return Poll::Pending,
            }
        }
    }

    /// Whether the other end still takes what it is sent, which is so little that it always fits.
    fn accepts_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> bool {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        matches!(sent, Poll::Ready(Ok(count)) if count == bytes.len())
            && !matches!(flushed, Poll::Ready(Err(_)))
    }

    /// Sends some of what is to be sent.
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

    /// Ends our direction.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What is to be sent: little things gathered in one place, and one large piece at a time.
#[derive(Debug, Default)]
pub(super) struct ReplyBuffer {
    pub(super) small: Vec<u8>,
    sent: usize,
    large: Bytes,
    /// What follows the large piece.
    tail: &'static [u8],
}

impl ReplyBuffer {
    /// Adds a piece of a body, with what follows it.
    pub(super) fn push(&mut self, piece: Bytes, tail: &'static [u8]) {
        if piece.len() < COPY_LIMIT_BYTES {
            self.small.extend_from_slice(&piece);
            self.small.extend_from_slice(tail);
        } else {
            self.large = piece;
            self.tail = tail;
        }
    }

    /// Whether there is room for another piece before it is time to send.
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
            // A busy moment must not cost an idle connection its memory.
            self.small.shrink_to(COPY_LIMIT_BYTES);
        }
    }
}

/// One timer for everything a connection waits for, made when it first has to wait. It is moved only
/// to an earlier time: most waits end before it rings, and the next one would have to move it again.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTimer(Option<Pin<Box<Sleep>>>);

impl DeadlineTimer {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}
