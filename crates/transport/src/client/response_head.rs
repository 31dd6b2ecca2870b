//! Head of an HTTP/1 response and the framing of its body.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use std::mem::MaybeUninit;

use crate::client::body::BodyError;
use crate::client::known_head::{FittingHead, KnownHead, ResponseFraming};
use crate::framing::Framing;
use crate::header_block::{FieldSpan, HeaderBlock, MAX_NAME_BYTES};

/// Limits of a response head.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_RESPONSE_HEADERS: usize = 100;
/// Largest trailer section.
const MAX_TRAILER_BYTES: usize = 16 << 10;

/// Head of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) headers: HeaderBlock,
    pub(crate) framing: Framing,
    /// True if the connection may be used again.
    pub(crate) keep_alive: bool,
}

impl ResponseHead {
    /// Returns true if another head follows.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// Takes a head once it is complete. One like the known head of the connection needs no parser.
pub(crate) fn take_head(
    bytes: &mut BytesMut,
    known: &mut KnownHead,
) -> Result<Option<ResponseHead>, BodyError> {
    let Some(FittingHead { end, fields, seen, is_lower }) = known.fit(bytes) else {
        return parse_head(bytes, known);
    };
    let (framing, keep_alive) = seen.framing(200, false);
    let head = bytes.split_to(end);
    let headers = match is_lower {
        true => HeaderBlock::of_lower(head, fields),
        false => HeaderBlock::new(head, fields),
    };
    Ok(Some(ResponseHead { status: 200, headers, framing, keep_alive }))
}

/// Parses a head once it is complete, and keeps it as the known one.
fn parse_head(
    bytes: &mut BytesMut,
    known: &mut KnownHead,
) -> Result<Option<ResponseHead>, BodyError> {
    // The parser skips any number of empty lines before a head, which are the end of one here.
    let head = match bytes.first() {
        Some(b'H') => &**bytes,
        Some(_) => match head_end(bytes).and_then(|end| bytes.get(..end)) {
            Some(head) => head,
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    let mut slots = [const { MaybeUninit::uninit() }; MAX_RESPONSE_HEADERS];
    let mut read = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let end = match config.parse_response_with_uninit_headers(&mut read, head, &mut slots) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => {
            return head_end(bytes)
                .map_or(Ok(None), |_| Err("the response is not HTTP/1.1".into()));
        }
        // A head is refused once it is complete.
        Err(e) => return head_end(bytes).map_or(Ok(None), |_| Err(e.into())),
    };
    let status = read.code.unwrap_or_default();
    if status < 100 || status == 101 {
        return Err(format!("the status {status} is invalid").into());
    }
    let is_http10 = read.version == Some(0);
    let mut seen = ResponseFraming::default();
    let mut fields = Vec::with_capacity(read.headers.len());
    for header in read.headers.iter() {
        if header.name.len() > MAX_NAME_BYTES {
            return Err("a header has too long a name".into());
        }
        seen.record(header.name, header.value)?;
        fields.push(FieldSpan::of(header, head));
    }
    if seen.has_transfer_coding && is_http10 {
        return Err("HTTP/1.0 has no `Transfer-Encoding`".into());
    }
    let (framing, keep_alive) = seen.framing(status, is_http10);
    if status == 200 && !is_http10 {
        known.learn(head.get(..end).unwrap_or_default(), &fields, seen);
    }
    let headers = HeaderBlock::new(bytes.split_to(end), fields);
    Ok(Some(ResponseHead { status, headers, framing, keep_alive }))
}

/// Adds a trailer line; an invalid line is skipped.
pub(crate) fn add_trailer(line: &Bytes, trailers: &mut HeaderMap) {
    let Some((name, value)) = memchr::memchr(b':', line).and_then(|at| line.split_at_checked(at))
    else {
        return;
    };
    let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        trailers.append(name, value);
    }
}

/// Returns the position behind the first empty line.
fn head_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        match rest {
            [b'\n', ..] => Some(at + 2),
            [b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        }
    })
}

impl ResponseFraming {
    /// Returns the framing of the body, and true if the connection may be used again.
    fn framing(self, status: u16, is_http10: bool) -> (Framing, bool) {
        let Self { length, lengths: _, has_transfer_coding, chunked, close, keep_alive } = self;
        let framing = match length {
            _ if status < 200 || status == 204 || status == 304 => Framing::Done,
            _ if chunked => Framing::chunked(MAX_TRAILER_BYTES),
            _ if has_transfer_coding => Framing::UntilClose,
            Some(0) => Framing::Done,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        // RFC 9112, section 6.3: a message with both lengths may be an attempt at response splitting.
        let is_certain =
            framing != Framing::UntilClose && !(has_transfer_coding && length.is_some());
        (framing, is_certain && !close && (!is_http10 || keep_alive))
    }

    /// Takes another value of a header; `None` if it has to be parsed with the other headers.
    pub(crate) fn replace(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = short_number(value)?;
                // A second length must be the same.
                self.length = (self.lengths == 1).then_some(length);
                self.length.map(drop)
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => None,
            10 if name.eq_ignore_ascii_case(b"connection") => None,
            _ => Some(()),
        }
    }

    fn record(&mut self, name: &str, value: &[u8]) -> Result<(), BodyError> {
        let mut words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let length = text.parse().ok().filter(|_| digits);
                let length = length.ok_or("`Content-Length` is not a number")?;
                if self.length.is_some_and(|known| known != length) {
                    return Err("the response has two lengths".into());
                }
                self.length = Some(length);
                self.lengths = self.lengths.saturating_add(1);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                self.has_transfer_coding = true;
                self.chunked =
                    words.next_back().is_some_and(|word| word.eq_ignore_ascii_case(b"chunked"));
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for word in words {
                    self.close |= word.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns a number of few digits; `None` for any other value.
fn short_number(value: &[u8]) -> Option<u64> {
    let add =
        |sum: u64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'));
    (1..=18).contains(&value.len()).then(|| value.iter().try_fold(0, add)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_head(bytes: &mut BytesMut) -> Result<Option<ResponseHead>, BodyError> {
        super::parse_head(bytes, &mut KnownHead::default())
    }

    fn read(text: impl AsRef<[u8]>) -> Result<Option<ResponseHead>, BodyError> {
        parse_head(&mut BytesMut::from(text.as_ref()))
    }

    #[test]
    fn takes_a_complete_head_and_nothing_behind_it() {
        let text = "HTTP/1.1 200 OK\r\ncontent-type: a\r\ncontent-length: 5\r\n\r\nhello";
        for size in 0..text.len() - 5 {
            assert!(read(&text.as_bytes()[..size]).unwrap().is_none(), "{size}");
        }
        let mut bytes = BytesMut::from(text);
        let head = parse_head(&mut bytes).unwrap().unwrap();
        assert_eq!((head.status, head.framing, head.keep_alive), (200, Framing::Length(5), true));
        assert_eq!(bytes.as_ref(), b"hello");
    }

    #[test]
    fn determines_framing_and_reuse() {
        let until = (Framing::UntilClose, false);
        for (head, want) in [
            ("1.1 200 OK\r\n", until),
            ("1.1 204 No\r\ncontent-length: 5\r\n", (Framing::Done, true)),
            ("1.1 200 OK\r\ncontent-length: 0\r\n", (Framing::Done, true)),
            (
                "1.1 200 OK\r\ncontent-length: 7\r\nconnection: Close\r\n",
                (Framing::Length(7), false),
            ),
            ("1.0 200 OK\r\ncontent-length: 7\r\n", (Framing::Length(7), false)),
            (
                "1.0 200 OK\r\ncontent-length: 7\r\nconnection: keep-alive\r\n",
                (Framing::Length(7), true),
            ),
            (
                "1.1 200 OK\r\ntransfer-encoding: chunked\r\n",
                (Framing::chunked(MAX_TRAILER_BYTES), true),
            ),
            (
                "1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n",
                (Framing::chunked(MAX_TRAILER_BYTES), true),
            ),
            ("1.1 200 OK\r\ntransfer-encoding: gzip\r\n", until),
            (
                "1.1 200 OK\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n",
                (Framing::chunked(MAX_TRAILER_BYTES), false),
            ),
        ] {
            let read = read(format!("HTTP/{head}\r\n")).unwrap().unwrap();
            assert_eq!((read.framing, read.keep_alive), want, "{head}");
        }
    }

    #[test]
    fn refuses_invalid_responses() {
        for head in [
            "HTTP/1.1 099 No\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n",
            "HTTP/1.1 abc\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n",
            "hello\r\n",
        ] {
            assert!(read(format!("{head}\r\n")).is_err(), "{head}");
        }
        let named = |bytes| format!("HTTP/1.1 200 OK\r\n{}: b\r\n\r\n", "a".repeat(bytes));
        assert!(read(named(MAX_NAME_BYTES)).is_ok());
        assert!(read(named(MAX_NAME_BYTES + 1)).is_err());
        let many = "a: b\r\n".repeat(MAX_RESPONSE_HEADERS + 1);
        assert!(read(format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    }

    /// Finds the end of a head first and parses the bytes before it.
    fn read_bounded(bytes: &[u8]) -> Option<Result<(usize, HeaderMap), ()>> {
        let end = head_end(bytes)?;
        let mut slots = [httparse::EMPTY_HEADER; MAX_RESPONSE_HEADERS];
        let mut read = httparse::Response::new(&mut slots);
        let parsed = read.parse(&bytes[..end]);
        if parsed != Ok(httparse::Status::Complete(end)) {
            return Some(Err(()));
        }
        let mut headers = HeaderMap::new();
        for header in read.headers.iter() {
            let name = HeaderName::from_bytes(header.name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(header.value).unwrap());
        }
        Some(Ok((end, headers)))
    }

    #[test]
    fn heads_end_where_their_first_empty_line_is() {
        let samples = [
            "HTTP/1.1 200 OK\r\nA: b\r\nc:d\r\nA: e\r\n\r\nx\r\n\r\n",
            "HTTP/1.1 200 OK\nA: b\n\nrest\n\n",
            "\r\nHTTP/1.1 404 No\r\n\r\n",
            "H",
            "",
        ];
        let pieces = ["\r", "\n", "\r\n", "\n\n", ":", " ", "\0", "a", "\u{e9}", "HTTP/1.1"];
        let mut seen = [0; 3];
        for sample in samples {
            for at in (0..=sample.len()).filter(|at| sample.is_char_boundary(*at)) {
                for piece in pieces {
                    for skipped in 0..3 {
                        let rest = sample.as_bytes().get(at + skipped..).unwrap_or_default();
                        let bytes = [&sample.as_bytes()[..at], piece.as_bytes(), rest].concat();
                        let mut left = BytesMut::from(&bytes[..]);
                        match (parse_head(&mut left), read_bounded(&bytes)) {
                            (Ok(None), None) => seen[0] += 1,
                            (Err(_), Some(Err(()))) => seen[1] += 1,
                            (Ok(Some(head)), Some(Ok((end, headers)))) => {
                                seen[2] += 1;
                                assert_eq!(bytes.len() - left.len(), end, "{bytes:?}");
                                assert_eq!(head.headers.to_map(), headers, "{bytes:?}");
                            }
                            // The parser accepts any status.
                            (Err(_), Some(Ok(_))) => {}
                            (own, other) => panic!("{own:?} {other:?} {bytes:?}"),
                        }
                    }
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }

    const HEADS: [&str; 6] = [
        "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 12\r\ndate: Mon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\nX-Id: 1 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nx: y \r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 \r\na:b\r\ncontent-length: 1\r\ncontent-length: 1\r\nA: \te\r\n\r\n",
        "HTTP/1.1 200 OK\na: b\nc: \u{e9}\ncontent-length: 0\n\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\nempty:\r\n\r\n",
    ];

    proptest! {
        /// A head that is like the known one means what a parser reads.
        #[test]
        fn fitting_heads_are_read_as_parsed_ones_are(
            known in 0..HEADS.len(),
            other in prop::option::of(0..HEADS.len()),
            at in any::<prop::sample::Index>(),
            removed in 0..4_usize,
            added in prop_oneof![
                Just(""), Just("7"), Just(" "), Just("x"), Just("\r"), Just("\n"), Just("\r\n"), Just(":"), Just("\0"),
                Just("\t"), Just("\u{7f}"), Just("\u{e9}"), Just("12345678901234567890"), Just("close"), Just(","),
                Just("\r\ncontent-length: 4"), Just("\r\n "), Just("+"),
            ],
        ) {
            let known = HEADS[known];
            let head = HEADS[other.unwrap_or_default()];
            let head = if other.is_some() { head } else { known };
            let at = at.index(head.len());
            let rest = head.as_bytes().get(at + removed..).unwrap_or_default();
            let bytes = [&head.as_bytes()[..at], added.as_bytes(), rest, b"body\r\n\r\n"].concat();
            let mut memory = KnownHead::default();
            take_head(&mut BytesMut::from(known), &mut memory).unwrap().unwrap();
            let (mut own, mut other) = (BytesMut::from(&bytes[..]), BytesMut::from(&bytes[..]));
            match (take_head(&mut own, &mut memory), parse_head(&mut other)) {
                (Ok(None), Ok(None)) => {}
                (Ok(Some(own)), Ok(Some(other))) => {
                    prop_assert_eq!(own.headers.to_map(), other.headers.to_map());
                    prop_assert_eq!(own.headers.len(), other.headers.len());
                    prop_assert_eq!(
                        (own.status, own.framing, own.keep_alive),
                        (other.status, other.framing, other.keep_alive)
                    );
                }
                (Err(own), Err(other)) => prop_assert_eq!(own.to_string(), other.to_string()),
                (own, other) => prop_assert!(false, "{own:?} {other:?}"),
            }
            prop_assert_eq!(own, other);
        }
    }

    #[test]
    fn heads_with_other_values_fit() {
        let mut memory = KnownHead::default();
        let mut fits = |head: &str| {
            memory.fit(head.as_bytes()).is_some()
                || take_head(&mut BytesMut::from(head), &mut memory).is_err()
        };
        for (head, is_like) in [
            (HEADS[0].to_owned(), false),
            (HEADS[0].to_owned(), true),
            (HEADS[0].replace("Mon", "Tue, 3").replace("12", "99999"), true),
            (HEADS[0].replace("200", "201"), false),
            (HEADS[0].replace("date", "Date"), false),
        ] {
            assert_eq!(fits(&head), is_like, "{head}");
        }
    }
}
