//! Framing of HTTP/1 bodies (RFC 9112, section 6), for requests and responses.

use bytes::{Buf as _, Bytes, BytesMut};
use std::fmt;
use std::ops::Range;

/// Longest chunk-size line. Chunk extensions are ignored.
const MAX_SIZE_LINE_BYTES: usize = 256;

/// Framing of the rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Nothing is left.
    Done,
    /// This many bytes.
    Length(u64),
    /// Chunks with their own lengths.
    Chunked(ChunkState),
    /// Everything until the connection closes, valid only for a response.
    UntilClose,
    /// Invalid framing. The start of the next message is unknown.
    Broken,
}

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkState {
    position: ChunkPosition,
    /// Trailer bytes that may still follow.
    trailer_bytes_left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPosition {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    End,
}

/// Result of one step.
#[derive(Debug, PartialEq, Eq)]
pub enum FramingStep {
    /// A piece of the body.
    Data(Bytes),
    /// A trailer line.
    Trailer(Bytes),
    /// More bytes are needed.
    NeedMore,
    /// The body is complete.
    End,
}

/// Invalid framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError(pub &'static str);

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for FramingError {}

impl Framing {
    /// A chunked body with a limit for its trailers.
    pub const fn chunked(max_trailer_bytes: usize) -> Self {
        Self::Chunked(ChunkState {
            position: ChunkPosition::Size,
            trailer_bytes_left: max_trailer_bytes,
        })
    }

    /// Takes the next piece from `bytes`. The framing is `Done` after the last piece.
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<FramingStep, FramingError> {
        match self {
            Self::Done => Ok(FramingStep::End),
            Self::Broken => Err(FramingError("the body broke off")),
            Self::Length(_) | Self::UntilClose | Self::Chunked(_) if bytes.is_empty() => {
                Ok(FramingStep::NeedMore)
            }
            Self::UntilClose => Ok(FramingStep::Data(bytes.split().freeze())),
            Self::Length(left) => {
                let count = bytes_within(*left, bytes.len());
                *left -= count as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(FramingStep::Data(bytes.split_to(count).freeze()))
            }
            Self::Chunked(chunked) => {
                let step = chunked.take(bytes);
                match &step {
                    Ok(_) if chunked.position == ChunkPosition::End => *self = Self::Done,
                    Ok(_) => {}
                    Err(_) => *self = Self::Broken,
                }
                step
            }
        }
    }
}

impl ChunkState {
    /// Takes all complete chunks as one piece, joined in place, because many tiny chunks would be
    /// expensive for every later step.
    fn take(&mut self, bytes: &mut BytesMut) -> Result<FramingStep, FramingError> {
        let (mut start, mut length, mut next) = (0, 0, 0);
        let outcome = loop {
            if self.position == ChunkPosition::Size {
                let joined = join_whole_chunks(bytes, start..start + length, next);
                (start, length, next) = (joined.data.start, joined.data.len(), joined.next);
            }
            let rest = bytes.get(next..).unwrap_or_default();
            match self.position {
                ChunkPosition::Size | ChunkPosition::Data(_) if rest.is_empty() => {
                    break Ok(FramingStep::NeedMore);
                }
                ChunkPosition::Size => match any_size_line(rest) {
                    Ok(Some((size, skip))) => {
                        next += skip;
                        self.position = if size == 0 {
                            ChunkPosition::Trailers
                        } else {
                            ChunkPosition::Data(size)
                        };
                    }
                    Ok(None) => break Ok(FramingStep::NeedMore),
                    Err(why) => break Err(why),
                },
                ChunkPosition::Data(left) => {
                    let count = bytes_within(left, rest.len());
                    let from = next;
                    next += count;
                    self.position = match (left - count as u64, rest.get(count..count + 2)) {
                        (0, Some(b"\r\n")) => {
                            next += 2;
                            ChunkPosition::Size
                        }
                        (0, _) => ChunkPosition::DataEnd,
                        (left, _) => ChunkPosition::Data(left),
                    };
                    if length == 0 {
                        start = from;
                    } else {
                        bytes.copy_within(from..from + count, start + length);
                    }
                    length += count;
                }
                ChunkPosition::DataEnd => match rest.get(..2) {
                    None => break Ok(FramingStep::NeedMore),
                    Some(b"\r\n") => {
                        next += 2;
                        self.position = ChunkPosition::Size;
                    }
                    Some(_) => break Err(FramingError("a chunk is longer than it says")),
                },
                ChunkPosition::Trailers => match first_line(rest, self.trailer_bytes_left) {
                    Ok(None) => break Ok(FramingStep::NeedMore),
                    Ok(Some([])) => {
                        next += 2;
                        self.position = ChunkPosition::End;
                    }
                    // Returned after the piece before it.
                    Ok(Some(_)) if length > 0 => break Ok(FramingStep::NeedMore),
                    Ok(Some(line)) => {
                        // Trailers must be valid even if they are not read.
                        let folded = line.first().is_some_and(u8::is_ascii_whitespace);
                        if folded || !line.contains(&b':') {
                            break Err(FramingError("a trailer is not a header"));
                        }
                        let length = line.len();
                        self.trailer_bytes_left =
                            self.trailer_bytes_left.saturating_sub(length + 2);
                        bytes.advance(next);
                        let line = bytes.split_to(length).freeze();
                        bytes.advance(2);
                        return Ok(FramingStep::Trailer(line));
                    }
                    Err(why) => break Err(why),
                },
                ChunkPosition::End => break Ok(FramingStep::End),
            }
        };
        if length == 0 {
            bytes.advance(next);
            return outcome;
        }
        // Invalid bytes stay in the buffer; the next call returns the error.
        bytes.advance(start);
        let piece = bytes.split_to(length).freeze();
        bytes.advance(next - start - length);
        Ok(FramingStep::Data(piece))
    }
}

/// Chunks whose data was joined.
struct JoinedChunks {
    data: Range<usize>,
    /// The position behind the last of them.
    next: usize,
}

/// Moves the data of the whole chunks at `next` behind that of the chunks before them. Ends at a chunk
/// that is not complete, has an unusual size line, or is the last one.
fn join_whole_chunks(bytes: &mut [u8], data: Range<usize>, next: usize) -> JoinedChunks {
    let mut joined = JoinedChunks { data, next };
    while let Some(rest) = bytes.get(joined.next..)
        && let Some((size @ 1.., skip)) = plain_size_line(rest)
        && let Some(chunk) = rest.get(skip..)
        && let Some((_, [b'\r', b'\n', ..])) = chunk.split_at_checked(size)
    {
        let from = joined.next + skip;
        if joined.data.is_empty() {
            joined.data = from..from + size;
        } else {
            bytes.copy_within(from..from + size, joined.data.end);
            joined.data.end += size;
        }
        joined.next = from + size + 2;
    }
    joined
}

/// Returns the number of these bytes that belong to the rest.
fn bytes_within(left: u64, bytes: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(bytes)
}

/// Returns the first line without its line end, once it is complete.
fn first_line(bytes: &[u8], longest: usize) -> Result<Option<&[u8]>, FramingError> {
    let near = bytes.get(..longest + 2).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', near) else {
        return match bytes.len() <= longest + 1 {
            true => Ok(None),
            false => Err(FramingError("a line of the body is too long")),
        };
    };
    let line = near.get(..end).unwrap_or_default();
    match line.strip_suffix(b"\r") {
        None => Err(FramingError("a line of the body does not end in CR LF")),
        Some(line) if line.contains(&b'\r') => Err(FramingError("a line of the body holds a CR")),
        Some(line) => Ok(Some(line)),
    }
}

/// Returns the size in a complete line of up to seven digits and the length of the line, which is the
/// most frequent one; `None` for any other line.
#[inline]
fn plain_size_line(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut size = 0;
    for (at, byte) in bytes.iter().take(8).enumerate() {
        let (digit, letter) = (byte.wrapping_sub(b'0'), (byte | 32).wrapping_sub(b'a'));
        let value = if digit < 10 {
            digit
        } else if letter < 6 {
            letter + 10
        } else {
            let is_end = at > 0 && bytes.get(at..at + 2) == Some(b"\r\n");
            return is_end.then_some((size, at + 2));
        };
        size = size << 4 | usize::from(value);
    }
    None
}

/// Returns the size in a line and the length of the line, once it is complete.
fn any_size_line(bytes: &[u8]) -> Result<Option<(u64, usize)>, FramingError> {
    let Some(line) = first_line(bytes, MAX_SIZE_LINE_BYTES)? else { return Ok(None) };
    Ok(Some((parse_chunk_size(line)?, line.len() + 2)))
}

fn parse_chunk_size(line: &[u8]) -> Result<u64, FramingError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let fits = !digits.is_empty() && digits.len() < 16;
    let sum = digits.iter().try_fold(0u64, |sum, digit| {
        char::from(*digit).to_digit(16).map(|digit| sum << 4 | u64::from(digit))
    });
    sum.filter(|_| fits).ok_or(FramingError("the size of a chunk is invalid"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the body and the bytes behind it, for input in pieces of this size.
    fn read(
        mut framing: Framing,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), FramingError> {
        let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(size) {
            buffer.extend_from_slice(piece);
            while framing != Framing::Done {
                match framing.take(&mut buffer)? {
                    FramingStep::Data(data) => body.extend_from_slice(&data),
                    FramingStep::Trailer(_) => {}
                    FramingStep::NeedMore | FramingStep::End => break,
                }
            }
        }
        if framing == Framing::Done {
            Ok((body, buffer.to_vec()))
        } else {
            Err(FramingError("short"))
        }
    }

    #[test]
    fn result_is_independent_of_piece_boundaries() {
        let chunks = b"5\r\nhello\r\n00000A;a=b\r\n, harbours\r\n0\r\na: b\r\nc: d\r\n\r\nGET /";
        for size in 1..=chunks.len() {
            let (body, rest) = read(Framing::chunked(100), chunks, size).unwrap();
            assert_eq!(
                (body.as_slice(), rest.as_slice()),
                (&b"hello, harbours"[..], &b"GET /"[..])
            );
            let (body, rest) = read(Framing::Length(7), chunks, size).unwrap();
            assert_eq!((body.as_slice(), rest.len()), (&chunks[..7], chunks.len() - 7));
        }
    }

    #[test]
    fn available_chunks_are_one_piece_with_the_end() {
        let mut framing = Framing::chunked(100);
        let mut bytes = BytesMut::from(&b"2\r\nab\r\n3\r\ncde\r\n1\r\nf\r\n0\r\n\r\nrest"[..]);
        let piece = Bytes::from_static(b"abcdef");
        assert_eq!(framing.take(&mut bytes), Ok(FramingStep::Data(piece)));
        assert_eq!((framing, bytes.as_ref()), (Framing::Done, &b"rest"[..]));
    }

    #[test]
    fn returns_valid_data_before_the_error() {
        let mut framing = Framing::chunked(100);
        let mut bytes = BytesMut::from(&b"2\r\nab\r\nx\r\n"[..]);
        assert_eq!(framing.take(&mut bytes), Ok(FramingStep::Data(Bytes::from_static(b"ab"))));
        assert!(framing.take(&mut bytes).is_err());
        assert_eq!(framing, Framing::Broken);
    }

    #[test]
    fn returns_trailers_line_by_line_after_the_body() {
        let mut framing = Framing::chunked(100);
        let mut bytes = BytesMut::from(&b"1\r\na\r\n0\r\nb: c\r\nd: e\r\n\r\n"[..]);
        let mut steps = Vec::new();
        while framing != Framing::Done {
            steps.push(framing.take(&mut bytes).unwrap());
        }
        let expected = [&b"a"[..], b"b: c", b"d: e"].map(Bytes::from_static);
        let [a, b, d] = expected;
        assert_eq!(
            steps,
            [
                FramingStep::Data(a),
                FramingStep::Trailer(b),
                FramingStep::Trailer(d),
                FramingStep::End
            ]
        );
    }

    #[test]
    fn refuses_invalid_chunks_in_pieces_of_any_size() {
        for chunks in [
            "5\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "\r\n0\r\n\r\n",
            "fffffffffffffffff\r\n",
            "0\r\n folded: 1\r\n\r\n",
            "0\r\na: b\n\r\n",
        ] {
            for size in 1..=chunks.len() {
                assert!(
                    read(Framing::chunked(100), chunks.as_bytes(), size).is_err(),
                    "{chunks:?}"
                );
            }
        }
        let endless = format!("0\r\n{}", "a: b\r\n".repeat(100));
        assert!(read(Framing::chunked(100), endless.as_bytes(), 7).is_err());
    }

    proptest! {
        #[test]
        fn plain_lines_have_the_size_that_any_line_has(line in "[0-9a-fA-Fg;\\r\\n ]{0,12}(\r\n)?[a-z]{0,2}") {
            if let Some(plain) = plain_size_line(line.as_bytes()) {
                let (size, length) = plain;
                prop_assert_eq!(any_size_line(line.as_bytes()), Ok(Some((size as u64, length))));
            }
        }
    }
}
