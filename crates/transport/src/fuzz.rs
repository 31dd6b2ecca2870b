//! Ways into private parsers, for the targets in `fuzz/`.

use bytes::BytesMut;
use http::HeaderMap;

use crate::client::event_stream::FrameDecoder;
use crate::client::known_head::KnownHead;
use crate::client::response_head;
use crate::framing::{Framing, FramingStep};

/// A message as a parser understood it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// First line and headers.
    pub head: String,
    /// The body so far.
    pub body: Vec<u8>,
    /// True if the body is known to have ended.
    pub complete: bool,
}

/// Decodes an AWS event stream that arrives in these pieces: the events, and the error at its end.
pub fn event_stream(pieces: &[&[u8]]) -> (Vec<u8>, Option<&'static str>) {
    let mut decoder = FrameDecoder::default();
    let mut events = Vec::new();
    for piece in pieces {
        match decoder.push(piece) {
            Ok(bytes) => events.extend_from_slice(&bytes),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, decoder.finish().err())
}

/// Reads the HTTP/1 requests of a connection that arrive in these pieces.
pub fn requests(pieces: &[&[u8]]) -> Vec<Message> {
    crate::server::h1::fuzz::requests(pieces)
}

/// Reads the HTTP/1 answers of a connection that arrive in these pieces, up to the first bad one.
pub fn answers(pieces: &[&[u8]]) -> Vec<Message> {
    let mut read = BytesMut::new();
    let mut known = KnownHead::default();
    let mut messages: Vec<Message> = Vec::new();
    let mut trailers = HeaderMap::new();
    let mut body: Option<(Framing, bool)> = None;
    for piece in pieces {
        read.extend_from_slice(piece);
        loop {
            let Some((framing, keep)) = &mut body else {
                let Ok(head) = response_head::take_head(&mut read, &mut known) else {
                    return messages;
                };
                let Some(head) = head else { break };
                let line = format!("{} {:?}", head.status, head.headers.to_map());
                messages.push(Message { head: line, ..Message::default() });
                body = Some((head.framing, head.keep_alive || head.is_interim()));
                continue;
            };
            let Some(message) = messages.last_mut() else { break };
            match framing.take(&mut read) {
                Ok(FramingStep::Data(data)) => message.body.extend_from_slice(&data),
                Ok(FramingStep::Trailer(line)) => response_head::add_trailer(&line, &mut trailers),
                Ok(FramingStep::NeedMore) => break,
                Ok(FramingStep::End) => {
                    message.complete = true;
                    if !*keep {
                        return messages;
                    }
                    body = None;
                }
                Err(_) => return messages,
            }
        }
    }
    messages
}
