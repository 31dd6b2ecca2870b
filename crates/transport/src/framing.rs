//! Where the body of an HTTP/1 message ends, read the same way whoever sent it.

use bytes::{Buf as _, Bytes, BytesMut};
use std::fmt;

/// The longest line in front of a chunk. Extensions mean nothing to us.
const LONGEST_SIZE: usize = 256;

/// How the rest of a body is found among the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Nothing is left.
    Done,
    /// So many bytes.
    Length(u64),
    /// Chunks, each with its own length.
    Chunked(Chunked),
    /// Everything until the connection ends, which only an answer may do.
    UntilEnd,
    /// It makes no sense; where the next message begins cannot be known.
    Broken,
}

/// Where in a chunked body we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked {
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
    End,
}

/// What bytes come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A piece of the body.
    Data(Bytes),
    /// A line of the trailers.
    Trailer(Bytes),
    /// More bytes are needed.
    More,
    /// The body is complete.
    End,
}

/// A body that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense(pub &'static str);

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Nonsense {}

impl Framing {
    /// A body in chunks, with trailers of that many bytes at most.
    pub const fn chunked(trailers: usize) -> Self {
        Self::Chunked(Chunked { at: At::Size, trailers })
    }

    /// Takes what can be taken of the bytes; after the last piece the framing is done.
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<Step, Nonsense> {
        match self {
            Self::Done => Ok(Step::End),
            Self::Broken => Err(Nonsense("the body broke off")),
            Self::Length(_) | Self::UntilEnd if bytes.is_empty() => Ok(Step::More),
            Self::UntilEnd => Ok(Step::Data(bytes.split().freeze())),
            Self::Length(left) => {
                let most = within(*left, bytes.len());
                *left -= most as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(Step::Data(bytes.split_to(most).freeze()))
            }
            Self::Chunked(chunked) => {
                let step = chunked.take(bytes);
                match &step {
                    Ok(_) if chunked.at == At::End => *self = Self::Done,
                    Ok(_) => {}
                    Err(_) => *self = Self::Broken,
                }
                step
            }
        }
    }
}

impl Chunked {
    /// Takes all the chunks there are as one piece, pushed together where they lie: whoever sends
    /// many small ones must not make everybody behind us work on each of them.
    fn take(&mut self, bytes: &mut BytesMut) -> Result<Step, Nonsense> {
        let (mut start, mut length, mut next) = (0, 0, 0);
        let outcome = loop {
            let rest = bytes.get(next..).unwrap_or_default();
            match self.at {
                At::Size => match line(rest, LONGEST_SIZE)
                    .and_then(|line| line.map(|line| Ok((size(line)?, line.len() + 2))).transpose())
                {
                    Ok(Some((size, skip))) => {
                        next += skip;
                        self.at = if size == 0 { At::Trailers } else { At::Data(size) };
                    }
                    Ok(None) => break Ok(Step::More),
                    Err(why) => break Err(why),
                },
                At::Data(_) if rest.is_empty() => break Ok(Step::More),
                At::Data(left) => {
                    let most = within(left, rest.len());
                    if length == 0 {
                        start = next;
                    } else {
                        bytes.copy_within(next..next + most, start + length);
                    }
                    length += most;
                    next += most;
                    self.at = match left - most as u64 {
                        0 => At::DataEnd,
                        left => At::Data(left),
                    };
                }
                At::DataEnd => match rest.get(..2) {
                    None => break Ok(Step::More),
                    Some(b"\r\n") => {
                        next += 2;
                        self.at = At::Size;
                    }
                    Some(_) => break Err(Nonsense("a chunk is longer than it says")),
                },
                At::Trailers => match line(rest, self.trailers) {
                    Ok(None) => break Ok(Step::More),
                    Ok(Some([])) => {
                        next += 2;
                        self.at = At::End;
                    }
                    // Told after the piece before it.
                    Ok(Some(_)) if length > 0 => break Ok(Step::More),
                    Ok(Some(line)) => {
                        // They must look like trailers, whether anyone reads them or not.
                        let folded = line.first().is_some_and(u8::is_ascii_whitespace);
                        if folded || !line.contains(&b':') {
                            break Err(Nonsense("a trailer is not a header"));
                        }
                        let length = line.len();
                        self.trailers = self.trailers.saturating_sub(length + 2);
                        bytes.advance(next);
                        let line = bytes.split_to(length).freeze();
                        bytes.advance(2);
                        return Ok(Step::Trailer(line));
                    }
                    Err(why) => break Err(why),
                },
                At::End => break Ok(Step::End),
            }
        };
        if length == 0 {
            bytes.advance(next);
            return outcome;
        }
        // What makes no sense stays where it is: the next step meets it again.
        bytes.advance(start);
        let piece = bytes.split_to(length).freeze();
        bytes.advance(next - start - length);
        Ok(Step::Data(piece))
    }
}

/// How many of those bytes belong to what is left.
fn within(left: u64, bytes: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(bytes)
}

/// The first line without its end, once it is there.
fn line(bytes: &[u8], longest: usize) -> Result<Option<&[u8]>, Nonsense> {
    let near = bytes.get(..longest + 2).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', near) else {
        return match bytes.len() <= longest + 1 {
            true => Ok(None),
            false => Err(Nonsense("a line of the body is too long")),
        };
    };
    let line = near.get(..end).unwrap_or_default();
    match line.strip_suffix(b"\r") {
        None => Err(Nonsense("a line of the body does not end in CR LF")),
        Some(line) if line.contains(&b'\r') => Err(Nonsense("a line of the body holds a CR")),
        Some(line) => Ok(Some(line)),
    }
}

fn size(line: &[u8]) -> Result<u64, Nonsense> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let fits = !digits.is_empty() && digits.len() < 16;
    let sum = digits.iter().try_fold(0u64, |sum, digit| {
        char::from(*digit).to_digit(16).map(|digit| sum << 4 | u64::from(digit))
    });
    sum.filter(|_| fits).ok_or(Nonsense("the length of a chunk is not one"))
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
                    Step::Trailer(_) => {}
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
    fn what_is_there_is_one_piece_and_its_end_is_known_with_it() {
        let mut framing = Framing::chunked(100);
        let mut bytes = BytesMut::from(&b"2\r\nab\r\n3\r\ncde\r\n1\r\nf\r\n0\r\n\r\nrest"[..]);
        let piece = Bytes::from_static(b"abcdef");
        assert_eq!(framing.take(&mut bytes), Ok(Step::Data(piece)));
        assert_eq!((framing, bytes.as_ref()), (Framing::Done, &b"rest"[..]));
    }

    #[test]
    fn what_came_before_the_nonsense_is_told_and_then_the_nonsense() {
        let mut framing = Framing::chunked(100);
        let mut bytes = BytesMut::from(&b"2\r\nab\r\nx\r\n"[..]);
        assert_eq!(framing.take(&mut bytes), Ok(Step::Data(Bytes::from_static(b"ab"))));
        assert!(framing.take(&mut bytes).is_err());
        assert_eq!(framing, Framing::Broken);
    }

    #[test]
    fn trailers_are_told_line_by_line_after_the_body() {
        let mut framing = Framing::chunked(100);
        let mut bytes = BytesMut::from(&b"1\r\na\r\n0\r\nb: c\r\nd: e\r\n\r\n"[..]);
        let mut steps = Vec::new();
        while framing != Framing::Done {
            steps.push(framing.take(&mut bytes).unwrap());
        }
        let told = [&b"a"[..], b"b: c", b"d: e"].map(Bytes::from_static);
        let [a, b, d] = told;
        assert_eq!(steps, [Step::Data(a), Step::Trailer(b), Step::Trailer(d), Step::End]);
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
