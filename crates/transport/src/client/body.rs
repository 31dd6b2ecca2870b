//! Bodies of requests to providers and of their responses.

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use crate::client::event_stream::EventStreamBody;
use crate::client::h1::Http1Body;
use crate::content_coding::{BodyDecoder, ContentCoding, DecodeError};
use crate::header_block::HeaderBlock;

/// Largest decompressed response.
const MAX_DECODED_BYTES: usize = 256 << 20;

/// Bytes that are taken at once. The connection asks for more when the server has room for them.
const MAX_FRAME_BYTES: usize = 16 << 10;

/// A request body in pieces of known length, written with vectored I/O and never joined.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    pieces: VecDeque<Bytes>,
    left: u64,
    /// Set when the last bytes are taken.
    end: Option<Arc<AtomicBool>>,
}

impl RequestBody {
    /// Creates a body of these pieces.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into(), left, end: None }
    }

    /// Tells when the last bytes are taken.
    pub(crate) fn telling_end(self, end: &Arc<AtomicBool>) -> Self {
        end.store(self.pieces.is_empty(), Ordering::Relaxed);
        Self { end: Some(Arc::clone(end)), ..self }
    }

    /// Returns the unsent pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// Returns the number of unsent bytes.
    pub fn remaining_bytes(&self) -> u64 {
        self.left
    }

    /// Consumes the body and returns the unsent pieces.
    pub fn into_pieces(self) -> VecDeque<Bytes> {
        self.pieces
    }

    /// Joins the pieces into one.
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

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.pieces.front_mut() {
            Some(first) if first.len() > MAX_FRAME_BYTES => Some(first.split_to(MAX_FRAME_BYTES)),
            Some(_) | None => self.pieces.pop_front(),
        };
        self.left = self.left.saturating_sub(next.as_ref().map_or(0, |piece| piece.len() as u64));
        if let Some(end) = self.end.as_ref().filter(|_| self.pieces.is_empty()) {
            end.store(true, Ordering::Relaxed);
        }
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Body of a response.
#[derive(Debug)]
pub enum ClientBody {
    /// Body from the network.
    Network(NetworkBody),
    /// Compressed body from the network, though no compression was requested.
    Compressed(Box<DecodedBody>),
    /// Body from a service inside this process.
    Local(LocalBody),
    /// Body in AWS event-stream frames.
    EventStream(Box<EventStreamBody>),
}

/// A body from the network, before decoding.
#[derive(Debug)]
pub enum NetworkBody {
    /// Body on an HTTP/1 connection.
    Http1(Http1Body),
    /// Body on an HTTP/2 connection.
    Http2(Incoming),
}

impl NetworkBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Http1(flow) => flow.poll_frame(cx),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::Http1(flow) => flow.is_end(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }
}

/// Error while a body is read.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Body of a response from inside this process.
pub type LocalBody = UnsyncBoxBody<Bytes, BodyError>;

impl ClientBody {
    /// Wraps a body from the network and decompresses it if necessary.
    pub(crate) fn from_network(headers: &HeaderBlock, body: NetworkBody) -> Self {
        let decoder = match ContentCoding::from_values(headers.get_all("content-encoding")) {
            Ok(None) => return Self::Network(body),
            Ok(Some(coding)) => BodyDecoder::new(coding, MAX_DECODED_BYTES),
            Err(unknown) => Err(DecodeError::Broken(format!("the coding `{unknown}` is unknown"))),
        };
        Self::Compressed(Box::new(DecodedBody { body, decoder, rest: Bytes::new() }))
    }

    /// Returns a compressed body as it came, for a caller that decompresses the rest elsewhere. Another
    /// body, or one that cannot be decompressed, is returned as it is.
    pub fn into_undecoded(self) -> Result<UndecodedBody, Box<Self>> {
        match self {
            Self::Compressed(coded) => match *coded {
                DecodedBody { body, decoder: Ok(decoder), rest } => {
                    Ok(UndecodedBody { body: Self::Network(body), decoder, rest })
                }
                failed @ DecodedBody { decoder: Err(_), .. } => {
                    Err(Box::new(Self::Compressed(Box::new(failed))))
                }
            },
            other @ (Self::Network(_) | Self::Local(_) | Self::EventStream(_)) => {
                Err(Box::new(other))
            }
        }
    }
}

/// A compressed body whose beginning was decompressed.
#[derive(Debug)]
pub struct UndecodedBody {
    /// The compressed bytes that are to come.
    pub body: ClientBody,
    /// Decoder that has seen the beginning.
    pub decoder: BodyDecoder,
    /// Compressed bytes that it has not seen.
    pub rest: Bytes,
}

/// Compressed bytes that are decompressed before the reader gets its turn.
const DECODED_AT_ONCE_BYTES: usize = 2 << 10;

/// A compressed body, decompressed while it is read.
#[derive(Debug)]
pub struct DecodedBody {
    body: NetworkBody,
    /// Decoder, or the reason why there is none.
    decoder: Result<BodyDecoder, DecodeError>,
    /// Received bytes that are not decompressed yet.
    rest: Bytes,
}

impl DecodedBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let decoder = match &mut self.decoder {
            Ok(decoder) => decoder,
            Err(why) => return Poll::Ready(Some(Err(why.clone().into()))),
        };
        loop {
            let undone = if self.rest.is_empty() {
                match ready!(self.body.poll_frame(cx)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            self.rest = data;
                            Ok(Bytes::new())
                        }
                        Err(frame) => return Poll::Ready(Some(Ok(frame))),
                    },
                    Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                    None => match decoder.finish() {
                        Ok(()) => return Poll::Ready(None),
                        Err(why) => Err(why),
                    },
                }
            } else {
                let length = self.rest.len().min(DECODED_AT_ONCE_BYTES);
                decoder.push(&self.rest.split_to(length))
            };
            match undone {
                // A compressed piece may decode to nothing.
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

impl HttpBody for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Network(body) => body.poll_frame(cx),
            Self::Compressed(coded) => coded.poll_frame(cx),
            Self::Local(body) => Pin::new(body).poll_frame(cx),
            Self::EventStream(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Network(body) => body.is_end(),
            // The decoder must see the end, because the body may be truncated.
            Self::Compressed(_) => false,
            Self::Local(body) => body.is_end_stream(),
            Self::EventStream(body) => body.is_end_stream(),
        }
    }
}
