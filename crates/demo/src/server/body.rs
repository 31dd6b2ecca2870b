//! The body of an answer: whole, or piece by piece at a chosen pace.

use bytes::Bytes;
use canon::{Event, Growth};
use dialects::Writer;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

use super::meter::Ticket;
use crate::tokens;

/// How fast a stream flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The pause before each piece; without one the pieces follow each other at once, but each
    /// still leaves by itself.
    pub per_piece: Duration,
}

/// The body of an answer.
pub struct Body {
    inner: Inner,
    /// The row of the meter, where this is a model's answer. Closed with the last byte.
    ticket: Option<Ticket>,
}

enum Inner {
    /// What is left of it, and the output tokens in it.
    Whole(Option<Bytes>, u64),
    Stream(Box<Stream>),
}

struct Stream {
    events: std::vec::IntoIter<Event>,
    writer: Option<Box<dyn Writer>>,
    /// Whether the pieces are server-sent events, which leave one by one.
    cut: bool,
    ready: VecDeque<Bytes>,
    /// Output tokens in what is ready.
    tokens: u64,
    pace: Pace,
    pause: Pause,
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
        Self { inner: Inner::Whole((!bytes.is_empty()).then_some(bytes), 0), ticket: None }
    }

    /// A model's answer that is complete.
    pub(super) fn answer(bytes: impl Into<Bytes>, tokens: u64, ticket: Ticket) -> Self {
        Self { inner: Inner::Whole(Some(bytes.into()), tokens), ticket: Some(ticket) }
    }

    /// A body that is written while it is sent.
    pub(super) fn stream(
        events: Vec<Event>,
        writer: Box<dyn Writer>,
        cut: bool,
        pace: Pace,
        ticket: Ticket,
    ) -> Self {
        let mut stream = Stream {
            events: events.into_iter(),
            writer: Some(writer),
            cut,
            ready: VecDeque::new(),
            tokens: 0,
            pace,
            pause: Pause::Over,
        };
        stream.rest();
        Self { inner: Inner::Stream(Box::new(stream)), ticket: Some(ticket) }
    }

    /// A body whose pieces are there already; the first one counts for all tokens.
    pub(super) fn pieces(pieces: Vec<Bytes>, tokens: u64, pace: Pace, ticket: Ticket) -> Self {
        let mut stream = Stream {
            events: Vec::new().into_iter(),
            writer: None,
            cut: true,
            ready: pieces.into(),
            tokens,
            pace,
            pause: Pause::Over,
        };
        stream.rest();
        Self { inner: Inner::Stream(Box::new(stream)), ticket: Some(ticket) }
    }

    /// A stream that was made beforehand, an event at a time.
    pub(super) fn paced(bytes: Bytes, pace: Pace) -> Self {
        let mut stream = Stream {
            events: Vec::new().into_iter(),
            writer: None,
            cut: true,
            ready: VecDeque::new(),
            tokens: 0,
            pace,
            pause: Pause::Over,
        };
        stream.split(bytes);
        stream.rest();
        Self { inner: Inner::Stream(Box::new(stream)), ticket: None }
    }

    /// All pieces at once, each with the output tokens in it, and the row of the meter.
    pub(crate) fn into_pieces(self) -> (Vec<(Bytes, u64)>, Option<Ticket>) {
        let pieces = match self.inner {
            Inner::Whole(bytes, tokens) => bytes.map(|bytes| (bytes, tokens)).into_iter().collect(),
            Inner::Stream(mut stream) => std::iter::from_fn(|| stream.next()).collect(),
        };
        (pieces, self.ticket)
    }
}

impl Stream {
    /// The next piece, written when it is wanted, and the output tokens in it.
    fn next(&mut self) -> Option<(Bytes, u64)> {
        while self.ready.is_empty() {
            let writer = self.writer.as_mut()?;
            let mut out = Vec::new();
            match self.events.next() {
                Some(event) => {
                    if let Event::Grow(_, Growth::Text(text)) = &event {
                        self.tokens += tokens::count(text);
                    }
                    writer.push(event, &mut out);
                }
                None => {
                    // The demo model is its own caller here: nobody is left to tell of losses.
                    let _ = writer.finish(&mut out);
                    self.writer = None;
                }
            }
            self.split(Bytes::from(out));
        }
        Some((self.ready.pop_front()?, std::mem::take(&mut self.tokens)))
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

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Bytes, u64)>> {
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

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { inner, ticket } = &mut *self;
        let piece = match inner {
            Inner::Whole(bytes, tokens) => Poll::Ready(bytes.take().map(|bytes| (bytes, *tokens))),
            Inner::Stream(stream) => stream.poll(cx),
        };
        if let (Poll::Ready(Some((_, tokens))), Some(ticket)) = (&piece, ticket) {
            ticket.produced(*tokens);
        }
        if piece.is_ready()
            && self.is_end_stream()
            && let Some(ticket) = self.ticket.take()
        {
            ticket.sent();
        }
        piece.map(|piece| piece.map(|(bytes, _)| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes, _) => bytes.is_none(),
            Inner::Stream(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes, _) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}
