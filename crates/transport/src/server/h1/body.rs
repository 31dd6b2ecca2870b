//! The body of an HTTP/1 request: a reader that hands it to whoever wants it.

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

/// A body of this size is handed on in one piece, which nobody has to put together again.
const MAX_COALESCED_BYTES: u64 = 256 << 10;
/// For so long: whoever waits for a slow body must see that it is coming.
const MAX_COALESCE_DELAY: Duration = Duration::from_secs(1);

/// The body as a handler gets it. It reads from the connection when it is asked.
pub(super) struct IncomingBody<S> {
    pub(super) wire: Arc<Mutex<ServerWire<S>>>,
    /// Which request it belongs to: kept for too long, it must not read from the next one.
    pub(super) request_number: u64,
    pub(super) length: Option<u64>,
    /// When it last handed something on.
    pub(super) last_frame_at: Instant,
}

/// Whether more is to be read before anything is handed on.
fn should_read_more(framing: &Framing, read: usize, handed_on: Instant) -> bool {
    match framing {
        Framing::Length(left) => {
            (read as u64) < (*left).min(MAX_COALESCED_BYTES)
                && handed_on.elapsed() < MAX_COALESCE_DELAY
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
        let Self { wire, request_number: turn, last_frame_at: handed_on, .. } = &mut *self;
        let mut wire = wire.lock();
        if wire.request_number != *turn {
            return Poll::Ready(Some(Err(io::Error::other("the request is over"))));
        }
        loop {
            let ServerWire { framing, read, .. } = &mut *wire;
            let step = match should_read_more(framing, read.len(), *handed_on) {
                true => Ok(FramingStep::NeedMore),
                false => framing.take(read),
            };
            match step {
                Ok(FramingStep::Data(data)) => {
                    *handed_on = Instant::now();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(FramingStep::End) => return Poll::Ready(None),
                // Nothing here reads trailers.
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
