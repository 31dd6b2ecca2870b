//! Body of an HTTP/1 request, read on demand.

use crate::framing::{Framing, FramingStep};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::wire::{ByteStream, ServerWire};

/// A body up to this size is forwarded in one piece, so that a reader need not join it.
const MAX_COALESCED_BYTES: u64 = 256 << 10;
/// Longest delay for that. A reader of a slow body must see its progress.
const MAX_COALESCE_DELAY: Duration = Duration::from_secs(1);

/// Body that a handler reads from the connection.
pub(super) struct IncomingBody<S> {
    pub(super) wire: Arc<Mutex<ServerWire<S>>>,
    /// Request this body belongs to. A body kept for too long must not read from the next request.
    pub(super) request_number: u64,
    pub(super) length: Option<u64>,
    /// Time of the last forwarded piece.
    pub(super) last_frame_at: Instant,
}

impl<S> IncomingBody<S> {
    /// Returns the bytes that have arrived and are not forwarded yet.
    pub(super) fn held_bytes(&self) -> u64 {
        let wire = self.wire.lock();
        if wire.request_number == self.request_number { wire.read.len() as u64 } else { 0 }
    }
}

/// Returns true if more bytes should be read before a piece is forwarded.
fn should_read_more(framing: &Framing, read: usize, last_frame_at: Instant) -> bool {
    match framing {
        Framing::Length(left) => {
            (read as u64) < (*left).min(MAX_COALESCED_BYTES)
                && last_frame_at.elapsed() < MAX_COALESCE_DELAY
        }
        Framing::Done | Framing::Chunked(_) | Framing::UntilClose | Framing::Broken => false,
    }
}

impl<S: ByteStream> HttpBody for IncomingBody<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Self { wire, request_number, last_frame_at, .. } = &mut *self;
        let mut wire = wire.lock();
        if wire.request_number != *request_number {
            return Poll::Ready(Some(Err(io::Error::other("the request has ended"))));
        }
        loop {
            let ServerWire { framing, read, .. } = &mut *wire;
            let step = match should_read_more(framing, read.len(), *last_frame_at) {
                true => Ok(FramingStep::NeedMore),
                false => framing.take(read),
            };
            match step {
                Ok(FramingStep::Data(data)) => {
                    *last_frame_at = Instant::now();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(FramingStep::End) => return Poll::Ready(None),
                // Trailers of requests are ignored.
                Ok(FramingStep::Trailer(_)) => continue,
                Ok(FramingStep::NeedMore) => {}
                Err(why) => {
                    return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, why))));
                }
            }
            ready!(wire.poll_continue(cx))?;
            if ready!(wire.poll_read(cx))? == 0 {
                wire.framing = Framing::Broken;
                let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "the body broke off");
                return Poll::Ready(Some(Err(ended)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.wire.lock();
        wire.request_number == self.request_number && wire.framing == Framing::Done
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
