//! Body of an answer: complete, or in pieces at a chosen pace.

use bytes::Bytes;
use canon::{Event, PartDelta};
use dialects::StreamWriter;
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

use super::meter::MeterTicket;
use crate::tokens;

/// Speed of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPace {
    /// Pause before each piece. Without one, the pieces follow each other at once, but each is
    /// written separately.
    pub pause: Duration,
}

/// The body of an answer.
pub struct DemoBody {
    inner: BodyState,
    /// Row of the meter, if this is a model's answer. Closed with the last byte.
    ticket: Option<MeterTicket>,
}

enum BodyState {
    /// The rest of the body, and the output tokens in it.
    Whole(Option<Bytes>, u64),
    StreamState(Box<StreamState>),
}

struct StreamState {
    events: std::vec::IntoIter<Event>,
    writer: Option<Box<dyn StreamWriter>>,
    /// True if the pieces are server-sent events, which are written one by one.
    cut: bool,
    ready: VecDeque<Bytes>,
    /// Output tokens in what is ready.
    tokens: u64,
    /// Speed of the pieces; `None` hands on all of them at once, each in a chunk of its own.
    pace: Option<StreamPace>,
    pause: PieceGate,
}

enum PieceGate {
    /// The next piece may be sent.
    Over,
    /// Yield once, so that pieces are not merged into one write.
    Yield,
    /// Wait until the pace allows the next piece.
    Sleep(Pin<Box<Sleep>>),
}

impl DemoBody {
    /// Creates a complete body.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { inner: BodyState::Whole((!bytes.is_empty()).then_some(bytes), 0), ticket: None }
    }

    /// Creates the complete body of a model's answer.
    pub(super) fn answer(bytes: impl Into<Bytes>, tokens: u64, ticket: MeterTicket) -> Self {
        Self { inner: BodyState::Whole(Some(bytes.into()), tokens), ticket: Some(ticket) }
    }

    /// Creates a body that is written while it is sent.
    pub(super) fn stream(
        events: Vec<Event>,
        writer: Box<dyn StreamWriter>,
        cut: bool,
        pace: StreamPace,
        ticket: MeterTicket,
    ) -> Self {
        let mut stream = StreamState {
            events: events.into_iter(),
            writer: Some(writer),
            cut,
            ready: VecDeque::new(),
            tokens: 0,
            pace: Some(pace),
            pause: PieceGate::Over,
        };
        stream.rest();
        Self { inner: BodyState::StreamState(Box::new(stream)), ticket: Some(ticket) }
    }

    /// Creates a body of ready pieces. The first piece counts for all tokens.
    pub(super) fn pieces(
        pieces: Vec<Bytes>,
        tokens: u64,
        pace: StreamPace,
        ticket: MeterTicket,
    ) -> Self {
        let mut stream = StreamState {
            events: Vec::new().into_iter(),
            writer: None,
            cut: true,
            ready: pieces.into(),
            tokens,
            pace: Some(pace),
            pause: PieceGate::Over,
        };
        stream.rest();
        Self { inner: BodyState::StreamState(Box::new(stream)), ticket: Some(ticket) }
    }

    /// Creates a prepared stream with one event in each chunk. Without a pause all events leave at
    /// once, as those of a provider that has finished before its caller reads.
    pub(super) fn prepared(events: Vec<Bytes>, pace: StreamPace) -> Self {
        let mut stream = StreamState {
            events: Vec::new().into_iter(),
            writer: None,
            cut: true,
            ready: events.into(),
            tokens: 0,
            pace: (!pace.pause.is_zero()).then_some(pace),
            pause: PieceGate::Over,
        };
        stream.rest();
        Self { inner: BodyState::StreamState(Box::new(stream)), ticket: None }
    }

    /// Returns all pieces, each with its output tokens, and the row of the meter.
    pub(crate) fn into_pieces(self) -> (Vec<(Bytes, u64)>, Option<MeterTicket>) {
        let pieces = match self.inner {
            BodyState::Whole(bytes, tokens) => {
                bytes.map(|bytes| (bytes, tokens)).into_iter().collect()
            }
            BodyState::StreamState(mut stream) => std::iter::from_fn(|| stream.next()).collect(),
        };
        (pieces, self.ticket)
    }
}

impl StreamState {
    /// Writes and returns the next piece, with its output tokens.
    fn next(&mut self) -> Option<(Bytes, u64)> {
        while self.ready.is_empty() {
            let writer = self.writer.as_mut()?;
            let mut out = Vec::new();
            match self.events.next() {
                Some(event) => {
                    if let Event::PartDelta(_, PartDelta::Text(text)) = &event {
                        self.tokens += tokens::count(text);
                    }
                    writer.push(event, &mut out);
                }
                None => {
                    // The demo model is its own caller here, so losses have no receiver.
                    let _ = writer.finish(&mut out);
                    self.writer = None;
                }
            }
            self.split(Bytes::from(out));
        }
        Some((self.ready.pop_front()?, std::mem::take(&mut self.tokens)))
    }

    fn split(&mut self, bytes: Bytes) {
        if self.cut {
            self.ready.extend(split_events(bytes));
        } else if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    /// Sets the pause before the next piece.
    fn rest(&mut self) {
        self.pause = match self.pace {
            None => PieceGate::Over,
            Some(pace) if pace.pause.is_zero() => PieceGate::Yield,
            Some(pace) => PieceGate::Sleep(Box::pin(tokio::time::sleep(pace.pause))),
        };
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Bytes, u64)>> {
        match &mut self.pause {
            PieceGate::Over => {}
            PieceGate::Yield => {
                self.pause = PieceGate::Over;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            PieceGate::Sleep(sleep) => {
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.pause = PieceGate::Over;
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

/// Splits a stream behind each of its server-sent events.
pub(super) fn split_events(mut bytes: Bytes) -> Vec<Bytes> {
    let mut events = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\n\n") {
        events.push(bytes.split_to(end + 2));
    }
    if !bytes.is_empty() {
        events.push(bytes);
    }
    events
}

impl http_body::Body for DemoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { inner, ticket } = &mut *self;
        let piece = match inner {
            BodyState::Whole(bytes, tokens) => {
                Poll::Ready(bytes.take().map(|bytes| (bytes, *tokens)))
            }
            BodyState::StreamState(stream) => stream.poll(cx),
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
            BodyState::Whole(bytes, _) => bytes.is_none(),
            BodyState::StreamState(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            BodyState::Whole(bytes, _) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            BodyState::StreamState(_) => SizeHint::default(),
        }
    }
}
