//! Decodes the AWS binary event stream (`application/vnd.amazon.eventstream`) into server-sent
//! events.
//!
//! A frame holds its length, the length of its headers and a checksum of both, then headers,
//! payload and a checksum of everything before:
//! <https://smithy.io/2.0/aws/amazon-eventstream.html>. Bedrock puts one event of the vendor's own
//! stream into each payload, as `{"bytes": "<base64>"}`. A reader sees the events as the vendor
//! sends them, and an exception as an `error` event.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use serde_json::{Value, json};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::client::body::{BodyError, ClientBody};
use crate::client::client_response::ClientResponse;
use crate::header_block::HeaderBlock;

const EVENT_STREAM_TYPE: &str = "application/vnd.amazon.eventstream";
/// Length of the two lengths and their checksum.
const PRELUDE_BYTES: usize = 12;
/// Length of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// Largest accepted frame.
const MAX_FRAME_BYTES: usize = 16 << 20;

impl ClientResponse {
    /// Returns true if the body is an AWS event stream.
    pub fn is_event_stream(&self) -> bool {
        let kind = self.headers.get("content-type").unwrap_or_default();
        self.status == 200 && kind.starts_with(EVENT_STREAM_TYPE.as_bytes())
    }

    /// Decodes the frames of an AWS event stream; returns any other response unchanged.
    #[must_use]
    pub fn decode_event_stream(mut self) -> Self {
        if !self.is_event_stream() {
            return self;
        }
        let mut headers = self.headers.to_map();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.remove(CONTENT_LENGTH);
        self.headers = HeaderBlock::from_map(&headers);
        let body = EventStreamBody { body: self.body, decoder: FrameDecoder::default() };
        Self { body: ClientBody::EventStream(Box::new(body)), ..self }
    }
}

/// A body whose frames are decoded while it is read.
#[derive(Debug)]
pub struct EventStreamBody {
    body: ClientBody,
    decoder: FrameDecoder,
}

impl HttpBody for EventStreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            let Some(frame) = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)) else {
                return Poll::Ready(this.decoder.finish().err().map(|why| Err(why.into())));
            };
            let Ok(data) = frame?.into_data() else { continue };
            let opened = this.decoder.push(&data)?;
            if !opened.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(opened))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // An incomplete frame at the end is an error, so the end is not reported yet.
        let FrameDecoder { buffer, error } = &self.decoder;
        self.body.is_end_stream() && buffer.is_empty() && error.is_none()
    }
}

/// Decodes frames from pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct FrameDecoder {
    buffer: BytesMut,
    /// Error that ended the decoding.
    error: Option<&'static str>,
}

impl FrameDecoder {
    /// Adds bytes and returns the events that are complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Bytes, &'static str> {
        if let Some(why) = self.error {
            return Err(why);
        }
        self.buffer.extend_from_slice(bytes);
        let mut out = Vec::new();
        loop {
            let frame = next_frame(&mut self.buffer);
            match frame
                .and_then(|frame| frame.map(|frame| write_frame(&frame, &mut out)).transpose())
            {
                Ok(Some(())) => {}
                Ok(None) => return Ok(Bytes::from(out)),
                Err(why) => {
                    self.error = Some(why);
                    // Events before the damaged frame are valid.
                    return if out.is_empty() { Err(why) } else { Ok(Bytes::from(out)) };
                }
            }
        }
    }

    /// Checks that the body did not end within a frame.
    pub(crate) fn finish(&self) -> Result<(), &'static str> {
        match self.error {
            Some(why) => Err(why),
            None if self.buffer.is_empty() => Ok(()),
            None => Err("an event stream ended in the middle of a frame"),
        }
    }
}

/// Returns the next complete frame after checking both checksums.
fn next_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, &'static str> {
    let Some(prelude) = buffer.first_chunk::<PRELUDE_BYTES>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *prelude;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let headers = u32::from_be_bytes([e, f, g, h]) as usize;
    if crc32fast::hash(&[a, b, c, d, e, f, g, h]) != u32::from_be_bytes([i, j, k, l]) {
        return Err("the head of an event stream's frame is damaged");
    }
    if length > MAX_FRAME_BYTES {
        return Err("a frame of an event stream is too large");
    }
    if length < PRELUDE_BYTES + CHECKSUM_BYTES || headers > length - PRELUDE_BYTES - CHECKSUM_BYTES
    {
        return Err("a frame of an event stream has impossible lengths");
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let frame = buffer.split_to(length).freeze();
    let (inside, tail) = frame.split_at_checked(length - CHECKSUM_BYTES).unwrap_or_default();
    if tail != crc32fast::hash(inside).to_be_bytes() {
        return Err("a frame of an event stream is damaged");
    }
    Ok(Some(frame))
}

/// Writes the event in a frame.
fn write_frame(frame: &Bytes, out: &mut Vec<u8>) -> Result<(), &'static str> {
    const UNREADABLE_HEADERS: &str = "the headers of an event stream's frame cannot be read";
    let headers =
        frame.get(4..8).and_then(|four| four.first_chunk::<4>()).ok_or(UNREADABLE_HEADERS)?;
    let headers = u32::from_be_bytes(*headers) as usize;
    let payload = frame.slice(PRELUDE_BYTES + headers..frame.len() - CHECKSUM_BYTES);
    let parsed = FrameHeaders::read(frame.slice(PRELUDE_BYTES..PRELUDE_BYTES + headers))
        .ok_or(UNREADABLE_HEADERS)?;
    match &*parsed.message_type {
        "event" if parsed.event_type == "chunk" => {
            let json =
                canon::read_value(&payload).ok_or("a frame of an event stream holds no JSON")?;
            let bytes = json.get("bytes").and_then(Value::as_str);
            let bytes = bytes.ok_or("a frame of an event stream holds no `bytes`")?;
            let event =
                STANDARD.decode(bytes).map_err(|_| "a frame of an event stream is not base64")?;
            write_event(None, &event, out);
        }
        // Other events are not part of the vendor's stream.
        "event" => {}
        _ => {
            let message = canon::read_value(&payload).unwrap_or_default();
            let message =
                message.get("message").and_then(Value::as_str).unwrap_or(&parsed.error_message);
            let kind = error_type(&parsed.exception_type);
            let error = json!({ "type": "error", "error": { "type": kind, "message": message } })
                .to_string();
            write_event(Some("error"), error.as_bytes(), out);
        }
    }
    Ok(())
}

/// Writes one server-sent event.
fn write_event(name: Option<&str>, data: &[u8], out: &mut Vec<u8>) {
    if let Some(name) = name {
        out.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Maps the name of an exception to an error type of the vendor's stream.
fn error_type(exception: &str) -> &'static str {
    match exception {
        "throttlingException" | "ThrottlingException" => "rate_limit_error",
        "serviceUnavailableException" | "ServiceUnavailableException" => "overloaded_error",
        "validationException" | "ValidationException" => "invalid_request_error",
        "modelTimeoutException" | "ModelTimeoutException" => "timeout_error",
        _ => "api_error",
    }
}

/// Headers of a frame that are used.
#[derive(Debug, Default)]
struct FrameHeaders {
    message_type: String,
    event_type: String,
    exception_type: String,
    error_message: String,
}

impl FrameHeaders {
    fn read(mut rest: Bytes) -> Option<Self> {
        let mut parsed = Self::default();
        while !rest.is_empty() {
            let length = usize::from(rest.try_get_u8().ok()?);
            let name = take_bytes(&mut rest, length)?;
            // The type byte of a value determines its length.
            let length = match rest.try_get_u8().ok()? {
                0 | 1 => 0,
                2 => 1,
                3 => 2,
                4 => 4,
                5 | 8 => 8,
                6 | 7 => usize::from(rest.try_get_u16().ok()?),
                9 => 16,
                _ => return None,
            };
            let value = take_bytes(&mut rest, length)?;
            let text = || String::from_utf8_lossy(&value).into_owned();
            match &name[..] {
                b":message-type" => parsed.message_type = text(),
                b":event-type" => parsed.event_type = text(),
                b":exception-type" | b":error-code" => parsed.exception_type = text(),
                b":error-message" => parsed.error_message = text(),
                _ => {}
            }
        }
        Some(parsed)
    }
}

fn take_bytes(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
        let mut head = Vec::new();
        for (name, value) in headers {
            head.push(u8::try_from(name.len()).unwrap());
            head.extend_from_slice(name.as_bytes());
            head.push(7);
            head.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            head.extend_from_slice(value.as_bytes());
        }
        let total =
            u32::try_from(PRELUDE_BYTES + head.len() + payload.len() + CHECKSUM_BYTES).unwrap();
        let mut bytes = total.to_be_bytes().to_vec();
        bytes.extend_from_slice(&u32::try_from(head.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    fn chunk(event: &str) -> Vec<u8> {
        let payload = json!({ "bytes": STANDARD.encode(event), "p": "abc" }).to_string();
        let headers = [
            (":event-type", "chunk"),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ];
        frame(&headers, payload.as_bytes())
    }

    fn exception(kind: &str, message: &str) -> Vec<u8> {
        let headers = [(":exception-type", kind), (":message-type", "exception")];
        frame(&headers, json!({ "message": message }).to_string().as_bytes())
    }

    fn opened(pieces: &[&[u8]]) -> (String, Option<&'static str>) {
        let mut opener = FrameDecoder::default();
        let mut text = Vec::new();
        for piece in pieces {
            match opener.push(piece) {
                Ok(bytes) => text.extend_from_slice(&bytes),
                Err(why) => return (String::from_utf8(text).unwrap(), Some(why)),
            }
        }
        (String::from_utf8(text).unwrap(), opener.finish().err())
    }

    #[test]
    fn decodes_the_published_frames() {
        // Published test vectors: an empty frame, and a payload without headers.
        let empty = [0, 0, 0, 0x10, 0, 0, 0, 0, 0x05, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff];
        assert_eq!(frame(&[], b""), empty);
        let mut buffer = BytesMut::from(&empty[..]);
        assert_eq!(next_frame(&mut buffer).unwrap().unwrap(), &empty[..]);
        let mut plain = vec![0, 0, 0, 0x1d, 0, 0, 0, 0, 0xfd, 0x52, 0x8c, 0x5a];
        plain.extend_from_slice(b"{'foo':'bar'}");
        plain.extend_from_slice(&[0xc3, 0x65, 0x39, 0x36]);
        let mut buffer = BytesMut::from(&plain[..]);
        assert_eq!(next_frame(&mut buffer).unwrap().unwrap(), &plain[..]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn writes_events_unchanged_and_exceptions_as_errors() {
        let stream = [chunk("{\"type\":\"ping\"}"), exception("throttlingException", "slow")];
        let (text, end) = opened(&[&stream.concat()]);
        assert_eq!(
            text,
            "data: {\"type\":\"ping\"}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":\
             {\"type\":\"rate_limit_error\",\"message\":\"slow\"}}\n\n"
        );
        assert_eq!(end, None);
        let headers =
            [(":message-type", "error"), (":error-code", "X"), (":error-message", "went wrong")];
        let (text, _) = opened(&[&frame(&headers, b"")]);
        assert!(text.contains("api_error") && text.contains("went wrong"), "{text}");
        let unknown = [(":message-type", "event"), (":event-type", "metadata")];
        assert_eq!(opened(&[&frame(&unknown, b"{}")]), (String::new(), None));
    }

    #[test]
    fn refuses_impossible_lengths_before_buffering() {
        let head = |length: u32, headers: u32| {
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend_from_slice(&headers.to_be_bytes());
            bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
            bytes
        };
        for (length, headers) in [(0, 0), (15, 0), (16, 1), (u32::MAX, 0), (100, u32::MAX)] {
            assert!(opened(&[&head(length, headers)]).1.is_some(), "{length} {headers}");
        }
        assert!(opened(&[&head(100, 4)]).1.unwrap().contains("middle"));
    }

    proptest! {
        #[test]
        fn result_is_independent_of_piece_boundaries(
            events in prop::collection::vec("[ -~é\n]{0,40}", 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream: Vec<u8> = events.iter().flat_map(|event| chunk(event)).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut done = 0;
            for cut in cuts.into_iter().chain([stream.len()]) {
                pieces.push(&stream[done..cut]);
                done = cut;
            }
            let whole = opened(&[&stream]);
            prop_assert_eq!(whole.1, None);
            prop_assert_eq!(opened(&pieces), whole);
        }

        #[test]
        fn damaged_byte_never_becomes_an_event(
            events in prop::collection::vec("[a-z]{0,20}", 1..4),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let good: Vec<u8> = events.iter().flat_map(|event| chunk(event)).collect();
            let mut bad = good.clone();
            let at = at.index(bad.len());
            bad[at] ^= flip;
            let (text, end) = opened(&[&bad]);
            prop_assert!(end.is_some());
            prop_assert!(opened(&[&good]).0.starts_with(&text));
        }
    }
}
