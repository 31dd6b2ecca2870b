//! Head of an HTTP/1 response and the framing of its body.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use std::mem::MaybeUninit;

use crate::client::body::BodyError;
use crate::framing::Framing;

/// Limits of a response head.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_RESPONSE_HEADERS: usize = 100;
/// Largest trailer section.
const MAX_TRAILER_BYTES: usize = 16 << 10;

/// Head of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
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

/// Parses a head once it is complete.
pub(crate) fn parse_head(bytes: &mut BytesMut) -> Result<Option<ResponseHead>, BodyError> {
    let Some(end) = head_end(bytes) else { return Ok(None) };
    let head = bytes.split_to(end).freeze();
    let mut slots = [const { MaybeUninit::uninit() }; MAX_RESPONSE_HEADERS];
    let mut read = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut read, &head, &mut slots)? {
        httparse::Status::Complete(length) if length == head.len() => {}
        httparse::Status::Complete(_) | httparse::Status::Partial => {
            return Err("the response is not HTTP/1.1".into());
        }
    }
    let status = read.code.unwrap_or_default();
    if status < 100 || status == 101 {
        return Err(format!("the status {status} is invalid").into());
    }
    let is_http10 = read.version == Some(0);
    let mut seen = ResponseFraming::default();
    let mut headers = HeaderMap::with_capacity(read.headers.len());
    for header in read.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes())?;
        seen.record(&name, header.value)?;
        headers.append(name, HeaderValue::from_maybe_shared(head.slice_ref(header.value))?);
    }
    let ResponseFraming { length, has_transfer_coding, chunked, close, keep_alive } = seen;
    if has_transfer_coding && is_http10 {
        return Err("HTTP/1.0 has no `Transfer-Encoding`".into());
    }
    let framing = match length {
        _ if status < 200 || status == 204 || status == 304 => Framing::Done,
        _ if chunked => Framing::chunked(MAX_TRAILER_BYTES),
        _ if has_transfer_coding => Framing::UntilClose,
        Some(0) => Framing::Done,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    // RFC 9112, section 6.3: a message with both lengths may be an attempt at response splitting.
    let is_certain = framing != Framing::UntilClose && !(has_transfer_coding && length.is_some());
    let keep_alive = is_certain && !close && (!is_http10 || keep_alive);
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

/// Headers that determine the framing and the reuse of the connection.
#[derive(Default)]
struct ResponseFraming {
    length: Option<u64>,
    /// True if the body has a transfer coding. `chunked` is true if chunks are the outermost one.
    has_transfer_coding: bool,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl ResponseFraming {
    fn record(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), BodyError> {
        let mut words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        match *name {
            CONTENT_LENGTH => {
                let text = std::str::from_utf8(value).unwrap_or_default();
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let length = text.parse().ok().filter(|_| digits);
                let length = length.ok_or("`Content-Length` is not a number")?;
                if self.length.is_some_and(|known| known != length) {
                    return Err("the response has two lengths".into());
                }
                self.length = Some(length);
            }
            TRANSFER_ENCODING => {
                self.has_transfer_coding = true;
                self.chunked =
                    words.next_back().is_some_and(|word| word.eq_ignore_ascii_case(b"chunked"));
            }
            CONNECTION => {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let many = "a: b\r\n".repeat(MAX_RESPONSE_HEADERS + 1);
        assert!(read(format!("HTTP/1.1 200 OK\r\n{many}\r\n")).is_err());
    }
}
