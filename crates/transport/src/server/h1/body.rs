//! The body of an HTTP/1 request: a reader that hands it to whoever wants it.

use crate::framing::{Framing, Step};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::wire::{Stream, Wire};

/// A body of this size is handed on in one piece, which nobody has to put together again.
const ONE_PIECE: u64 = 256 << 10;
/// For so long: whoever waits for a slow body must see that it is coming.
const HELD_BACK: Duration = Duration::from_secs(1);

/// The body as a handler gets it. It reads from the connection when it is asked.
pub(super) struct Incoming<S> {
    pub(super) wire: Arc<Mutex<Wire<S>>>,
    /// Which request it belongs to: kept for too long, it must not read from the next one.
    pub(super) turn: u64,
    pub(super) length: Option<u64>,
    /// When it last handed something on.
    pub(super) handed_on: Instant,
}

/// Whether more is to be read before anything is handed on.
fn waits(framing: &Framing, read: usize, handed_on: Instant) -> bool {
    match framing {
        Framing::Length(left) => {
            (read as u64) < (*left).min(ONE_PIECE) && handed_on.elapsed() < HELD_BACK
        }
        Framing::Done | Framing::Chunked(_) | Framing::UntilEnd | Framing::Broken => false,
    }
}

impl<S: Stream> HttpBody for Incoming<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Self { wire, turn, handed_on, .. } = &mut *self;
        let mut wire = wire.lock();
        if wire.turn != *turn {
            return Poll::Ready(Some(Err(io::Error::other("the request is over"))));
        }
        loop {
            let Wire { framing, read, .. } = &mut *wire;
            let step = match waits(framing, read.len(), *handed_on) {
                true => Ok(Step::More),
                false => framing.take(read),
            };
            match step {
                Ok(Step::Data(data)) => {
                    *handed_on = Instant::now();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(Step::End) => return Poll::Ready(None),
                // Nothing here reads trailers.
                Ok(Step::Trailer(_)) => continue,
                Ok(Step::More) => {}
                Err(why) => {
                    return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, why))));
                }
            }
            ready!(wire.poll_go_ahead(cx))?;
            if ready!(wire.poll_read(cx))? == 0 {
                wire.framing = Framing::Broken;
                let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "the body broke off");
                return Poll::Ready(Some(Err(ended)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.wire.lock();
        wire.turn == self.turn && wire.framing == Framing::Done
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
