//! The body of an answer: whole, or piece by piece at a chosen pace.

use bytes::Bytes;
use canon::Event;
use dialects::Writer;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

use super::meter::Meter;

/// How fast a stream flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The pause before each piece; without one the pieces follow each other at once, but each
    /// still leaves by itself.
    pub per_piece: Duration,
}

/// The body of an answer.
pub struct Body(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Stream(Box<Stream>),
}

struct Stream {
    events: std::vec::IntoIter<Event>,
    writer: Option<Box<dyn Writer>>,
    /// Whether the pieces are server-sent events, which leave one by one.
    cut: bool,
    ready: VecDeque<Bytes>,
    pace: Pace,
    pause: Pause,
    meter: Arc<Meter>,
}

enum Pause {
    /// The next piece may leave.
    Over,
    /// Others go first once, so that pieces do not melt into one write.
    Yield,
    /// Until the pace allows.
    Sleep(Pin<Box<Sleep>>),
}

impl Body {
    /// A body that is complete.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(Inner::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    /// A body that is written while it is sent.
    pub(super) fn stream(
        events: Vec<Event>,
        writer: Box<dyn Writer>,
        cut: bool,
        pace: Pace,
        meter: Arc<Meter>,
    ) -> Self {
        let mut stream = Stream {
            events: events.into_iter(),
            writer: Some(writer),
            cut,
            ready: VecDeque::new(),
            pace,
            pause: Pause::Over,
            meter,
        };
        stream.rest();
        Self(Inner::Stream(Box::new(stream)))
    }
}

impl Stream {
    /// The next piece, written when it is wanted.
    fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            let writer = self.writer.as_mut()?;
            let mut out = Vec::new();
            match self.events.next() {
                Some(event) => writer.push(event, &mut out),
                None => {
                    // The demo model is its own caller here: nobody is left to tell of losses.
                    let _ = writer.finish(&mut out);
                    self.writer = None;
                }
            }
            self.split(Bytes::from(out));
        }
        self.ready.pop_front()
    }

    fn split(&mut self, mut bytes: Bytes) {
        while self.cut
            && let Some(end) = bytes.windows(2).position(|two| two == b"\n\n")
        {
            self.ready.push_back(bytes.split_to(end + 2));
        }
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    /// Sets the pause before the next piece.
    fn rest(&mut self) {
        self.pause = if self.pace.per_piece.is_zero() {
            Pause::Yield
        } else {
            Pause::Sleep(Box::pin(tokio::time::sleep(self.pace.per_piece)))
        };
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.pause {
            Pause::Over => {}
            Pause::Yield => {
                self.pause = Pause::Over;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Pause::Sleep(sleep) => {
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.pause = Pause::Over;
            }
        }
        let piece = self.next();
        if piece.is_some() {
            self.rest();
        }
        Poll::Ready(piece)
    }

    fn is_over(&self) -> bool {
        self.writer.is_none() && self.ready.is_empty()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_over() {
            self.meter.left_early();
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut self.0 {
            Inner::Whole(bytes) => Poll::Ready(bytes.take()),
            Inner::Stream(stream) => stream.poll(cx),
        };
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(bytes) => bytes.is_none(),
            Inner::Stream(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}
