//! Bodies: what goes to a provider in pieces, and what comes back from one.

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::client::LocalBody;
use crate::event_stream::Unframed;

/// A request body in pieces of known length: written in one go, never joined.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl Pieces {
    /// A body of these pieces.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into(), left }
    }

    /// The pieces that are left.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// The body in one piece.
    pub fn join(mut self) -> Bytes {
        match (self.pieces.len(), self.pieces.pop_front()) {
            (_, None) => Bytes::new(),
            (1, Some(only)) => only,
            (_, Some(first)) => {
                let mut all = Vec::with_capacity(usize::try_from(self.left).unwrap_or(0));
                all.extend_from_slice(&first);
                for piece in self.pieces {
                    all.extend_from_slice(&piece);
                }
                Bytes::from(all)
            }
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.pieces.pop_front();
        self.left = self.left.saturating_sub(next.as_ref().map_or(0, |piece| piece.len() as u64));
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The body of a provider's answer.
#[derive(Debug)]
pub enum Body {
    /// From the network.
    Net(Incoming),
    /// From a model inside this process.
    Local(LocalBody),
    /// From the network, in frames of AWS's own kind.
    Framed(Box<Unframed>),
}

/// Why an answer's body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Net(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Local(body) => Pin::new(body).poll_frame(cx),
            Self::Framed(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Net(body) => body.is_end_stream(),
            Self::Local(body) => body.is_end_stream(),
            Self::Framed(body) => body.is_end_stream(),
        }
    }
}
