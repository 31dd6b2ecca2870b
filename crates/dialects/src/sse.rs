//! Decoder for server-sent events. Avoids copies where possible.
//!
//! Format:
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>.

use crate::fields::ObjectWriter;
use crate::json;
use crate::write_json::WriteJson as _;
use bytes::{Buf, Bytes, BytesMut};
use canon::{ApiError, ErrorKind};
use memchr::{memchr, memchr2};
use serde::Deserialize;
use simdutf8::basic::from_utf8;
use std::borrow::Cow;

/// Maximum size of one event.
pub const MAX_FRAME_BYTES: usize = 8 << 20;
/// Maximum size of one event in an image stream, where one line holds a whole image.
const MAX_IMAGE_FRAME_BYTES: usize = 64 << 20;

/// One event of a stream: its name, if any, and its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFrame {
    /// Value of the `event:` line.
    pub event: Option<Bytes>,
    /// Values of the `data:` lines, joined by newlines.
    pub data: Bytes,
}

impl StreamFrame {
    /// Creates a frame without an event name.
    pub fn data(data: impl Into<Bytes>) -> Self {
        Self { event: None, data: data.into() }
    }

    /// Reads the data, which must be a JSON object. A list would be read as an object without
    /// fields, and a client would fail on anything else, without a word about the cause.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        let why = "the provider sent a piece that is not a JSON object";
        match self.data.trim_ascii_start().first() {
            Some(b'{') => json::read_bytes(&self.data).map_err(|e| not_json(&e)),
            _ => Err(ApiError::new(ErrorKind::Interrupted, why)),
        }
    }

    /// Writes the event with the name.
    pub(crate) fn write_named(&self, name: Option<&[u8]>, out: &mut Vec<u8>) {
        if let Some(name) = name {
            out.extend_from_slice(b"event: ");
            out.extend_from_slice(name);
            out.push(b'\n');
        }
        self.write_data(out);
    }

    /// Writes the data and the blank line that ends the event. Data with newlines is written as
    /// several `data:` lines, which decodes to the same value.
    pub(crate) fn write_data(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: ");
        let mut rest = &self.data[..];
        while let Some(at) = memchr(b'\n', rest) {
            let (line, more) = rest.split_at(at);
            out.extend_from_slice(line);
            out.extend_from_slice(b"\ndata: ");
            rest = more.get(1..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
        out.extend_from_slice(b"\n\n");
    }
}

/// Writes an event, with its name both on a line of its own and in its data, as clients require.
pub(crate) fn write_event(
    kind: &'static str,
    out: &mut Vec<u8>,
    fields: impl FnOnce(ObjectWriter) -> ObjectWriter,
) {
    for piece in ["event: ", kind, "\ndata: "] {
        out.extend_from_slice(piece.as_bytes());
    }
    fields(ObjectWriter::typed(kind)).write_json(out);
    out.extend_from_slice(b"\n\n");
}

/// Error of a stream with a piece that is not JSON.
pub(crate) fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider sent a piece that is not JSON")
        .with_log_note(format!("unreadable piece: {error}"))
}

/// Error of a stream whose events cannot be put in order.
pub(crate) fn out_of_order(what: &str) -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider's answer is out of order")
        .with_log_note(what.to_owned())
}

/// The mark of the byte order with which a stream may begin.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Splits a provider's bytes into events. Chunk boundaries do not matter.
///
/// Accepts everything the event-stream format allows: LF, CRLF or CR line ends, comments, `data:`
/// with or without a space, several data lines, a byte-order mark, unknown fields.
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// The last chunk, and the number of its bytes already consumed.
    bytes: Bytes,
    used: usize,
    /// Beginning of a line whose end has not arrived yet.
    partial_line: BytesMut,
    event: Option<Bytes>,
    data: DataLines,
    started: bool,
    /// True if the last line ended with CR. An LF right after it belongs to the same line end.
    after_cr: bool,
    /// True if the image limit applies.
    image_limit: bool,
}

/// Data lines of the current event. A single line is a slice of the received chunk.
#[derive(Debug, Default)]
enum DataLines {
    #[default]
    None,
    One(Bytes),
    Many(BytesMut),
}

impl SseDecoder {
    /// Creates a decoder for a stream of images.
    pub fn for_images() -> Self {
        Self { image_limit: true, ..Self::default() }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: Bytes) {
        let rest = self.rest();
        self.bytes = if rest.is_empty() { bytes } else { [rest, &bytes].concat().into() };
        self.used = 0;
        // Nearly no stream begins with a mark of the byte order.
        if !self.started && self.partial_line.is_empty() {
            let mark = self.bytes.get(..BYTE_ORDER_MARK.len());
            self.started = mark.is_some_and(|mark| mark != BYTE_ORDER_MARK);
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    /// Copies an incomplete line into `partial_line`. Nothing else is copied.
    fn keep_partial_line(&mut self) {
        let rest = self.bytes.get(self.used..).unwrap_or_default();
        self.partial_line.extend_from_slice(rest);
        self.used = self.bytes.len();
    }

    /// Returns the next complete event, or `None` until more bytes arrive.
    pub fn next_frame(&mut self) -> Result<Option<StreamFrame>, ApiError> {
        if self.release_idle() {
            return Ok(None);
        }
        if let Some(frame) = self.whole_frame() {
            return Ok(Some(frame));
        }
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                if let Some(frame) = self.dispatch() {
                    return Ok(Some(frame));
                }
                continue;
            }
            self.read_field(line)?;
        }
        if self.partial_line.len() + self.data.len() > self.max_bytes() {
            return Err(too_large());
        }
        Ok(None)
    }

    /// Returns the received bytes behind the last event, if no part of the next one is taken.
    pub fn events(&self) -> Option<&[u8]> {
        self.is_between().then(|| self.rest())
    }

    /// Returns true if everything that has arrived is taken, and it ended with an event. The buffer of
    /// the last chunk can then be used again.
    pub fn release_idle(&mut self) -> bool {
        let is_idle = self.is_between() && self.rest().is_empty();
        if is_idle {
            (self.bytes, self.used) = (Bytes::new(), 0);
        }
        is_idle
    }

    /// Skips events that were taken from these bytes.
    pub fn skip(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// Returns true between two events.
    fn is_between(&self) -> bool {
        let is_new = self.event.is_none() && matches!(self.data, DataLines::None);
        is_new && self.started && !self.after_cr && self.partial_line.is_empty()
    }

    /// Returns the next event if it has the usual form: an event name or none, one line of data and
    /// a blank line, all received and ended by line feeds.
    fn whole_frame(&mut self) -> Option<StreamFrame> {
        if !self.is_between() {
            return None;
        }
        let rest = self.rest();
        let name = match rest.strip_prefix(b"event: ") {
            Some(line) => Some(line_feed(line)? + 7),
            None => None,
        };
        let begin = name.map_or(0, |end| end + 1);
        let line = rest.get(begin..)?.strip_prefix(b"data: ")?;
        let end = line_feed(line)?;
        if line.get(end + 1) != Some(&b'\n') || end > self.max_bytes() {
            return None;
        }
        let from = self.used;
        let data = from + begin + 6;
        self.used = data + end + 2;
        let slice = |range| valid_utf8(self.bytes.slice(range));
        let event = name.map(|end| slice(from + 7..from + end));
        Some(StreamFrame { event, data: slice(data..data + end) })
    }

    const fn max_bytes(&self) -> usize {
        if self.image_limit { MAX_IMAGE_FRAME_BYTES } else { MAX_FRAME_BYTES }
    }

    /// Returns the last event if the body ended without the final blank line.
    pub fn finish(&mut self) -> Result<Option<StreamFrame>, ApiError> {
        self.keep_partial_line();
        if !self.partial_line.is_empty() {
            let mut line = self.partial_line.split().freeze();
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            self.read_field(line)?;
        }
        Ok(self.dispatch())
    }

    fn next_line(&mut self) -> Option<Bytes> {
        if !self.started {
            if !self.partial_line.is_empty() || self.rest().len() < BYTE_ORDER_MARK.len() {
                self.keep_partial_line();
                if self.partial_line.len() < BYTE_ORDER_MARK.len()
                    && BYTE_ORDER_MARK.starts_with(&self.partial_line)
                {
                    return None;
                }
                self.bytes = self.partial_line.split().freeze();
                self.used = 0;
            }
            self.used +=
                if self.rest().starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            self.started = true;
        }
        if self.after_cr {
            let next = *self.rest().first()?;
            self.used += usize::from(next == b'\n');
            self.after_cr = false;
        }
        let rest = self.rest();
        let Some(end) = memchr2(b'\n', b'\r', rest) else {
            self.keep_partial_line();
            return None;
        };
        self.after_cr = rest.get(end) == Some(&b'\r');
        let from = self.used;
        self.used += end + 1;
        if self.partial_line.is_empty() {
            return Some(self.bytes.slice(from..from + end));
        }
        self.partial_line.extend_from_slice(self.bytes.get(from..from + end).unwrap_or_default());
        Some(self.partial_line.split().freeze())
    }

    fn read_field(&mut self, line: Bytes) -> Result<(), ApiError> {
        let value = |mut line: Bytes, prefix: usize| {
            let space = usize::from(line.get(prefix) == Some(&b' '));
            line.advance(prefix + space);
            line
        };
        if line.starts_with(b"data:") {
            self.data.add(value(line, 5));
        } else if line.starts_with(b"event:") {
            self.event = Some(value(line, 6));
        } else if &*line == b"data" {
            self.data.add(Bytes::new());
        }
        if self.data.len() > self.max_bytes() { Err(too_large()) } else { Ok(()) }
    }

    fn dispatch(&mut self) -> Option<StreamFrame> {
        let event = self.event.take().map(valid_utf8);
        let data = match std::mem::take(&mut self.data) {
            DataLines::None => return None,
            DataLines::One(data) => data,
            DataLines::Many(data) => data.freeze(),
        };
        Some(StreamFrame { event, data: valid_utf8(data) })
    }
}

impl DataLines {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Many(lines) => lines.len(),
        }
    }

    fn add(&mut self, line: Bytes) {
        let mut lines = match std::mem::take(self) {
            Self::None => {
                *self = Self::One(line);
                return;
            }
            Self::One(first) => BytesMut::from(&first[..]),
            Self::Many(lines) => lines,
        };
        lines.extend_from_slice(b"\n");
        lines.extend_from_slice(&line);
        *self = Self::Many(lines);
    }
}

/// Returns the length of a line that a line feed ends; `None` for any other line.
fn line_feed(bytes: &[u8]) -> Option<usize> {
    memchr2(b'\n', b'\r', bytes).filter(|end| bytes.get(*end) == Some(&b'\n'))
}

/// Replaces invalid UTF-8, as the event-stream format requires.
fn valid_utf8(bytes: Bytes) -> Bytes {
    // Fast path: nearly every event is valid UTF-8.
    if from_utf8(&bytes).is_ok() {
        return bytes;
    }
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(_) => bytes,
        Cow::Owned(mended) => mended.into(),
    }
}

fn too_large() -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider sent an event larger than the limit")
        .with_log_note("an event of a stream was too large")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let mut cutter = SseDecoder::default();
        let mut frames = Vec::new();
        for piece in pieces {
            cutter.push(Bytes::copy_from_slice(piece));
            while let Some(frame) = cutter.next_frame().unwrap() {
                frames.push(frame);
            }
        }
        frames.extend(cutter.finish().unwrap());
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        frames.iter().map(|f| (f.event.as_ref().map(text), text(&f.data))).collect()
    }

    #[test]
    fn accepts_every_line_form() {
        let stream = "\u{feff}: hello\nid: 7\nretry: 10\ndata: one\n\nevent: two\r\ndata:2\r\n\r\n\
                      data: a\ndata: b\n\nevent: lonely\n\ndata\n\rdata: last";
        let expected =
            [(None, "one"), (Some("two"), "2"), (None, "a\nb"), (None, ""), (None, "last")];
        let expected: Vec<_> =
            expected.iter().map(|(e, d)| (e.map(str::to_owned), (*d).to_owned())).collect();
        assert_eq!(cut(&[stream.as_bytes()]), expected);
    }

    #[test]
    fn replaces_invalid_utf8_and_joins_split_characters() {
        let frames = cut(&[b"data: \xe6\xb8", b"\xaf \xff ok\n\n"]);
        assert_eq!(frames, [(None, "港 \u{fffd} ok".to_owned())]);
        let mut cutter = SseDecoder::default();
        cutter.push(Bytes::from_static(b"data: \xff\n\n"));
        assert_eq!(cutter.next_frame().unwrap(), Some(StreamFrame::data("\u{fffd}")));
    }

    #[test]
    fn rejects_an_oversized_line() {
        let mut cutter = SseDecoder::default();
        let megabyte = Bytes::from(vec![b'x'; 1 << 20]);
        let mut outcome = Ok(None);
        for _ in 0..=(MAX_FRAME_BYTES >> 20) {
            cutter.push(megabyte.clone());
            outcome = cutter.next_frame();
        }
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Interrupted);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(
            lines in prop::collection::vec("(data: ?|event: |: |id:)?[ -~é]{0,12}(\n|\r\n|\r|\n\n)", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream = lines.concat().into_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
            prop_assert_eq!(cut(&pieces), cut(&[&stream]));
        }
    }
}
