//! Bodies: what goes to a provider in pieces, and what comes back from one.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::client::event_stream::Unframed;
use crate::client::h1::Flow;
use crate::client::send::LocalBody;
use crate::coding::{Coding, Decoder, Undecodable};

/// The most that comes out of one compressed answer.
const MOST: usize = 256 << 20;

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
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The pieces that are left, for whoever sends them.
    pub fn into_pieces(self) -> VecDeque<Bytes> {
        self.pieces
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
    Net(NetBody),
    /// From the network, compressed though it was not asked to be.
    Coded(Box<Coded>),
    /// From a model inside this process.
    Local(LocalBody),
    /// From the network, in frames of AWS's own kind.
    Framed(Box<Unframed>),
}

/// A body from the network as it came.
#[derive(Debug)]
pub enum NetBody {
    /// Over HTTP/1.
    Own(Flow),
    /// Over HTTP/2.
    Shared(Incoming),
}

impl NetBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Own(flow) => flow.poll_frame(cx),
            Self::Shared(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::Own(flow) => flow.is_end(),
            Self::Shared(body) => body.is_end_stream(),
        }
    }
}

/// Why an answer's body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body {
    /// The body of an answer from the network, with its compression undone.
    pub(crate) fn net(headers: &HeaderMap, body: NetBody) -> Self {
        let decoder = match Coding::of(headers) {
            Ok(None) => return Self::Net(body),
            Ok(Some(coding)) => Decoder::new(coding, MOST),
            Err(unknown) => {
                Err(Undecodable::Broken(format!("nobody here knows the coding `{unknown}`")))
            }
        };
        Self::Coded(Box::new(Coded { body, decoder }))
    }
}

/// A compressed body on its way out of its compression.
#[derive(Debug)]
pub struct Coded {
    body: NetBody,
    /// What undoes it, or why nothing can.
    decoder: Result<Decoder, Undecodable>,
}

impl Coded {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let decoder = match &mut self.decoder {
            Ok(decoder) => decoder,
            Err(why) => return Poll::Ready(Some(Err(why.clone().into()))),
        };
        loop {
            let undone = match ready!(self.body.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => decoder.push(&data),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => match decoder.finish() {
                    Ok(()) => return Poll::Ready(None),
                    Err(why) => Err(why),
                },
            };
            match undone {
                // Not every piece of a compressed body says something by itself.
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(why) => {
                    self.decoder = Err(why.clone());
                    return Poll::Ready(Some(Err(why.into())));
                }
            }
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Net(body) => body.poll_frame(cx),
            Self::Coded(coded) => coded.poll_frame(cx),
            Self::Local(body) => Pin::new(body).poll_frame(cx),
            Self::Framed(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Net(body) => body.is_end(),
            // Its end must be looked at: it may have come too early.
            Self::Coded(_) => false,
            Self::Local(body) => body.is_end_stream(),
            Self::Framed(body) => body.is_end_stream(),
        }
    }
}
