//! A byte stream whose unfinished messages are counted and must keep arriving.

use canon::{ApiError, ErrorKind};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::h1::{ByteStream, DeadlineTimer};
use super::limits::HttpLimits;
use super::web_socket::CloseReason;

/// Memory of messages that are being read.
pub trait ReadMeter: Send {
    /// Reserves memory for bytes that were read.
    ///
    /// # Errors
    /// If there is none.
    fn grow(&mut self, bytes: u64) -> Result<(), ApiError>;

    /// Frees memory.
    fn shrink(&mut self, bytes: u64);
}

/// A byte stream whose unfinished messages are counted and must keep arriving.
pub(super) struct MeteredStream {
    stream: Box<dyn ByteStream>,
    meter: Box<dyn ReadMeter>,
    limits: HttpLimits,
    /// Bytes of the unfinished message.
    held: u64,
    /// Time until which the reader waits, and the bytes that must be held by then.
    due: Option<(Instant, u64)>,
    timer: DeadlineTimer,
    /// Time until which the peer must read more.
    stalled: Option<Instant>,
    stall_timer: DeadlineTimer,
}

impl MeteredStream {
    pub(super) fn new(
        stream: Box<dyn ByteStream>,
        limits: &HttpLimits,
        meter: Box<dyn ReadMeter>,
    ) -> Self {
        Self {
            stream,
            meter,
            limits: *limits,
            held: 0,
            due: None,
            timer: DeadlineTimer::default(),
            stalled: None,
            stall_timer: DeadlineTimer::default(),
        }
    }

    pub(super) fn into_stream(self) -> Box<dyn ByteStream> {
        self.stream
    }

    /// Frees the memory of a message that was read whole.
    pub(super) fn release_all(&mut self) {
        self.meter.shrink(self.held);
        (self.held, self.due) = (0, None);
    }

    /// Frees the memory of a control frame, which may stand between the pieces of a message.
    pub(super) fn release(&mut self, bytes: usize) {
        let bytes = self.held.min(bytes as u64);
        self.meter.shrink(bytes);
        self.held -= bytes;
        if self.held == 0 {
            self.due = None;
        }
    }

    /// Returns the reason to close and the error of a read that this stream refused.
    pub(super) fn refusal(error: io::Error) -> Option<(CloseReason, ApiError)> {
        if error.kind() == io::ErrorKind::TimedOut {
            let error =
                ApiError::new(ErrorKind::RequestTimeout, "the message did not arrive in time");
            return Some((CloseReason::PolicyViolation, error));
        }
        let error = error.into_inner()?.downcast::<ApiError>().ok()?;
        Some((CloseReason::TryLater, *error))
    }

    /// Fails a write of a peer that reads nothing for too long.
    fn check_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stall = self.limits.stall;
        let deadline = *self.stalled.get_or_insert_with(|| Instant::now() + stall);
        ready!(self.stall_timer.poll(cx, deadline));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Returns the time until which more of the unfinished message must arrive.
    fn deadline(&mut self) -> Option<Instant> {
        if self.held == 0 {
            return None;
        }
        if self.due.is_none_or(|(_, bytes)| self.held >= bytes) {
            let HttpLimits { body_time, body_rate, .. } = self.limits;
            let time = u64::try_from(body_time.as_millis()).unwrap_or(u64::MAX);
            let bytes = (body_rate.saturating_mul(time) / 1_000).max(1);
            let until = Instant::now().checked_add(body_time)?;
            self.due = Some((until, self.held.saturating_add(bytes)));
        }
        self.due.map(|(until, _)| until)
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            let bytes = (buffer.filled().len() - before) as u64;
            this.held += bytes;
            return Poll::Ready(
                read.and_then(|()| this.meter.grow(bytes).map_err(io::Error::other)),
            );
        }
        let Some(deadline) = this.deadline() else { return Poll::Pending };
        ready!(this.timer.poll(cx, deadline));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_stall(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_stall(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
