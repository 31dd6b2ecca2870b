//! The body of an HTTP/1 request: where it ends, and a reader that hands it to whoever wants it.

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::wire::{Stream, Wire};

/// The longest line in front of a chunk. Extensions mean nothing to us.
const LONGEST_SIZE: usize = 256;

/// How the rest of a body is found among the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Nothing is left.
    Done,
    /// So many bytes.
    Length(u64),
    /// Chunks, each with its own length.
    Chunked(Chunked),
    /// It makes no sense; where the next request begins cannot be known.
    Broken,
}

/// Where in a chunked body we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunked {
    at: At,
    /// How many bytes of trailers may still come.
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// What bytes come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A piece of the body.
    Data(Bytes),
    /// More bytes are needed.
    More,
    /// The body is complete.
    End,
}

/// A body that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense(&'static str);

impl Framing {
    /// A body in chunks, with trailers of that many bytes at most.
    pub(super) const fn chunked(trailers: usize) -> Self {
        Self::Chunked(Chunked { at: At::Size, trailers })
    }

    /// Takes what can be taken of the bytes.
    pub(super) fn take(&mut self, bytes: &mut BytesMut) -> Result<Step, Nonsense> {
        match self {
            Self::Done => Ok(Step::End),
            Self::Broken => Err(Nonsense("the body broke off")),
            Self::Length(_) if bytes.is_empty() => Ok(Step::More),
            Self::Length(left) => {
                let piece = piece(bytes, left);
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(Step::Data(piece))
            }
            Self::Chunked(chunked) => {
                let step = chunked.take(bytes);
                match &step {
                    Ok(Step::End) => *self = Self::Done,
                    Ok(Step::Data(_) | Step::More) => {}
                    Err(_) => *self = Self::Broken,
                }
                step
            }
        }
    }
}

impl Chunked {
    fn take(&mut self, bytes: &mut BytesMut) -> Result<Step, Nonsense> {
        loop {
            match &mut self.at {
                At::Size => {
                    let Some(line) = line(bytes, LONGEST_SIZE)? else { return Ok(Step::More) };
                    self.at = match size(&line)? {
                        0 => At::Trailers,
                        size => At::Data(size),
                    };
                }
                At::Data(_) if bytes.is_empty() => return Ok(Step::More),
                At::Data(left) => {
                    let piece = piece(bytes, left);
                    if *left == 0 {
                        self.at = At::DataEnd;
                    }
                    return Ok(Step::Data(piece));
                }
                At::DataEnd => match bytes.get(..2) {
                    None => return Ok(Step::More),
                    Some(b"\r\n") => {
                        bytes.advance(2);
                        self.at = At::Size;
                    }
                    Some(_) => return Err(Nonsense("a chunk is longer than it says")),
                },
                At::Trailers => {
                    let Some(line) = line(bytes, self.trailers)? else { return Ok(Step::More) };
                    if line.is_empty() {
                        return Ok(Step::End);
                    }
                    // Nothing here reads trailers, but they must look like some.
                    if line.first().is_some_and(u8::is_ascii_whitespace) || !line.contains(&b':') {
                        return Err(Nonsense("a trailer is not a header"));
                    }
                    self.trailers = self.trailers.saturating_sub(line.len() + 2);
                }
            }
        }
    }
}

fn piece(bytes: &mut BytesMut, left: &mut u64) -> Bytes {
    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= most as u64;
    bytes.split_to(most).freeze()
}

/// The next line without its end, once it is there.
fn line(bytes: &mut BytesMut, longest: usize) -> Result<Option<BytesMut>, Nonsense> {
    match memchr::memchr(b'\n', bytes) {
        Some(end) if end <= longest + 1 => {
            let mut line = bytes.split_to(end + 1);
            line.truncate(end);
            if line.last() != Some(&b'\r') {
                return Err(Nonsense("a line of the body does not end in CR LF"));
            }
            line.truncate(end - 1);
            if line.contains(&b'\r') {
                return Err(Nonsense("a line of the body holds a CR"));
            }
            Ok(Some(line))
        }
        None if bytes.len() <= longest + 1 => Ok(None),
        Some(_) | None => Err(Nonsense("a line of the body is too long")),
    }
}

fn size(line: &[u8]) -> Result<u64, Nonsense> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let fits = !digits.is_empty() && digits.len() < 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| fits);
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or(Nonsense("the length of a chunk is not one"))
}

/// The body as a handler gets it. It reads from the connection when it is asked.
pub(super) struct Incoming<S> {
    pub(super) wire: Arc<Mutex<Wire<S>>>,
    /// Which request it belongs to: kept for too long, it must not read from the next one.
    pub(super) turn: u64,
    pub(super) length: Option<u64>,
}

impl<S: Stream> HttpBody for Incoming<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut wire = self.wire.lock();
        if wire.turn != self.turn {
            return Poll::Ready(Some(Err(io::Error::other("the request is over"))));
        }
        loop {
            let Wire { framing, read, .. } = &mut *wire;
            match framing.take(read) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::More) => {}
                Err(Nonsense(why)) => {
                    return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, why))));
                }
            }
            ready!(wire.poll_go_ahead(cx))?;
            if ready!(wire.poll_read(cx))? == 0 {
                wire.framing = Framing::Broken;
                let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "the body broke off");
                return Poll::Ready(Some(Err(ended)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let wire = self.wire.lock();
        wire.turn == self.turn && wire.framing == Framing::Done
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a body comes to when it arrives in pieces of that size, and what follows it.
    fn read(
        mut framing: Framing,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), Nonsense> {
        let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(size) {
            buffer.extend_from_slice(piece);
            while framing != Framing::Done {
                match framing.take(&mut buffer)? {
                    Step::Data(data) => body.extend_from_slice(&data),
                    Step::More | Step::End => break,
                }
            }
        }
        if framing == Framing::Done { Ok((body, buffer.to_vec())) } else { Err(Nonsense("short")) }
    }

    #[test]
    fn where_the_bytes_are_cut_changes_nothing() {
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
    fn nonsense_is_nonsense_however_it_is_cut() {
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
}
