//! Parser of HTTP/1 request heads (RFC 9112).
//!
//! It is stricter than the RFC. A head that two parsers could read differently is refused, as a
//! defence against request smuggling (RFC 9112, section 11.2).

use crate::framing::Framing;
use crate::header_block::{FieldSpan, HeaderBlock, MAX_NAME_BYTES, span};
use crate::server::limits::{HttpLimits, MAX_HEADERS};
use crate::server::server_request::{RequestHead, RequestPath, ServerBody, ServerRequest};
use bytes::BytesMut;
use canon::{ApiError, ErrorKind};
use http::{Method, Uri, Version};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Longest request line. No path of the gateway is longer.
const MAX_REQUEST_LINE_BYTES: usize = 8 << 10;
/// Longest host name.
const MAX_HOST_BYTES: usize = 255;

/// A head as it was received, with what it says about the connection.
#[derive(Clone, Debug)]
pub(super) struct ReceivedHead {
    pub(super) head: Arc<RequestHead>,
    /// Declared length of the body.
    pub(super) length: Option<u64>,
    /// Position of the declared length within the head.
    pub(super) length_span: Option<(u32, u32)>,
    pub(super) framing: Framing,
    /// True for HTTP/1.0, which has no chunked coding.
    pub(super) is_http10: bool,
    /// True if the caller waits for `100 Continue` before the body.
    pub(super) expects_continue: bool,
    /// True if the connection may be used again.
    pub(super) keep_alive: bool,
}

impl ReceivedHead {
    /// Returns the same head with another length of the body.
    pub(super) fn with_length(&self, length: u64) -> Self {
        Self { length: Some(length), framing: length_framing(length), ..self.clone() }
    }

    /// Returns the request with this body.
    pub(super) fn into_request(self, body: ServerBody) -> ServerRequest {
        let Self { head, length, .. } = self;
        ServerRequest { head, length, body }
    }
}

/// Returns the framing of a body of this length.
const fn length_framing(length: u64) -> Framing {
    match length {
        0 => Framing::Done,
        length => Framing::Length(length),
    }
}

/// Progress of the search for the end of a head.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    line_start: usize,
    scanned: usize,
    lines: usize,
}

impl HeadScan {
    /// Returns the end of the head, once it is complete.
    pub(super) fn find_end(
        &mut self,
        bytes: &[u8],
        limits: &HttpLimits,
    ) -> Result<Option<usize>, ApiError> {
        while let Some(found) = memchr::memchr(b'\n', bytes.get(self.scanned..).unwrap_or_default())
        {
            let end = self.scanned + found;
            let line = bytes.get(self.line_start..end).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(invalid_request("a line of the request does not end in CR LF"));
            };
            self.scanned = end + 1;
            self.line_start = self.scanned;
            match (line.is_empty(), self.lines) {
                // RFC 9112, section 2.2: an empty line before a request is ignored.
                (true, 0) if self.scanned <= 4 => continue,
                (true, 0) => return Err(invalid_request("the request begins with empty lines")),
                (true, _) if self.scanned > limits.header_bytes => return Err(too_large(limits)),
                (true, _) => return Ok(Some(self.scanned)),
                (false, 0) if line.len() > MAX_REQUEST_LINE_BYTES => return Err(line_too_long()),
                (false, _) => self.lines += 1,
            }
        }
        self.scanned = bytes.len();
        // Bytes that are not HTTP, for example TLS, are refused at once.
        if self.lines == 0 {
            let start = bytes.get(self.line_start..).unwrap_or_default();
            if start.first().is_some_and(|byte| !byte.is_ascii_graphic() && *byte != b'\r') {
                return Err(invalid_request("this is not an HTTP request"));
            }
            if start.len() > MAX_REQUEST_LINE_BYTES {
                return Err(line_too_long());
            }
        }
        if bytes.len() > limits.header_bytes { Err(too_large(limits)) } else { Ok(None) }
    }
}

/// Reads a head that is complete, in one pass, and returns its end. Declines any head that needs a
/// closer look: an incomplete or unusual one, and one that is to be refused.
pub(super) fn read_usual_head(read: &[u8], limits: &HttpLimits) -> Option<(ReceivedHead, usize)> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let slots = slots.get_mut(..limits.headers)?;
    let mut request = httparse::Request::new(&mut []);
    // An empty line before a request is unusual.
    if !read.first()?.is_ascii_graphic() {
        return None;
    }
    let end = match request.parse_with_uninit_headers(read, slots) {
        Ok(httparse::Status::Complete(end)) if end <= limits.header_bytes => end,
        Ok(_) | Err(_) => return None,
    };
    let head = read.get(..end)?;
    // The parser accepts lines that end in LF alone, which are refused here.
    let (_, line_end) = span(request.path?.as_bytes(), head);
    let line_end = line_end as usize + b" HTTP/1.1".len();
    let ends_line = |at: usize| head.get(at..)?.starts_with(b"\r\n").then_some(());
    ends_line(line_end)?;
    if line_end > MAX_REQUEST_LINE_BYTES {
        return None;
    }
    for header in request.headers.iter() {
        let (_, value_end) = span(header.value, head);
        ends_line(value_end as usize)?;
    }
    if !head.ends_with(b"\r\n\r\n") {
        return None;
    }
    Some((read_head(&request, head, limits).ok()?, end))
}

/// Parses a complete head.
pub(super) fn parse_head(head: &[u8], limits: &HttpLimits) -> Result<ReceivedHead, ApiError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let slots = slots.get_mut(..limits.headers).unwrap_or_default();
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, slots) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(invalid_request("the request is not HTTP/1.1")),
        Err(httparse::Error::TooManyHeaders) => {
            let message = format!("a request may have {} headers at most", limits.headers);
            return Err(ApiError::new(ErrorKind::HeadersTooLarge, message));
        }
        Err(e) => {
            return Err(invalid_request("the request is not HTTP/1.1").with_log_note(e.to_string()));
        }
    }
    read_head(&request, head, limits)
}

/// Reads what the parser found in a head.
fn read_head(
    request: &httparse::Request<'_, '_>,
    head: &[u8],
    limits: &HttpLimits,
) -> Result<ReceivedHead, ApiError> {
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(invalid_request("the request is not HTTP/1.1"));
    };
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| invalid_request("the method is unknown"))?;
    let target = parse_target(&method, head, target)?;
    let is_http10 = version == 0;
    let mut fields = RequestFraming::default();
    let mut spans = Vec::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        if header.name.len() > MAX_NAME_BYTES {
            return Err(invalid_request("a header name is invalid"));
        }
        if fields.record(header.name, header.value, head)? == FieldUse::Kept {
            spans.push(FieldSpan::of(header, head));
        }
    }
    let RequestFraming {
        hosts,
        length,
        length_span,
        chunked,
        close,
        keep_alive,
        upgrade,
        expects_continue,
        unknown_expectation,
    } = fields;
    if hosts > 1 || (hosts == 0 && !is_http10) {
        return Err(invalid_request("a request has exactly one `Host` header").with_param("host"));
    }
    if chunked && (is_http10 || length.is_some()) {
        let message = "`Transfer-Encoding` goes neither with `Content-Length` nor with HTTP/1.0";
        return Err(invalid_request(message).with_param("transfer-encoding"));
    }
    if unknown_expectation {
        let message = "`Expect` can only be `100-continue`";
        return Err(ApiError::new(ErrorKind::ExpectationFailed, message).with_param("expect"));
    }
    let framing = match length {
        _ if chunked => Framing::chunked(limits.header_bytes),
        None => Framing::Done,
        Some(length) => length_framing(length),
    };
    // Bytes after an upgrade request may belong to another protocol, so the connection is not
    // reused.
    let keep_alive = !close && !upgrade && (!is_http10 || keep_alive);
    let version = if is_http10 { Version::HTTP_10 } else { Version::HTTP_11 };
    // Copied, so that a head that is kept does not keep the buffer of the connection.
    let headers = HeaderBlock::new(BytesMut::from(head), spans);
    Ok(ReceivedHead {
        head: Arc::new(RequestHead { method, target, version, headers }),
        length,
        length_span,
        framing,
        is_http10,
        expects_continue: expects_continue && !is_http10,
        keep_alive,
    })
}

/// Returns the path of an invalid head, which selects the error format.
pub(super) fn path_hint(bytes: &[u8]) -> &str {
    let line = bytes.get(..bytes.len().min(MAX_REQUEST_LINE_BYTES)).unwrap_or_default();
    let target = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let path = target.split(|byte| b"?\r\n".contains(byte)).next().unwrap_or_default();
    std::str::from_utf8(path).unwrap_or_default()
}

/// Parses the request target: a path, an absolute URL (its authority is ignored), or `*` for
/// `OPTIONS`.
fn parse_target(method: &Method, head: &[u8], target: &str) -> Result<RequestPath, ApiError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    if target.starts_with('/') && *method != Method::CONNECT && target.bytes().all(is_plain) {
        let (start, end) = span(target.as_bytes(), head);
        return Ok(RequestPath::Plain(start, end));
    }
    let invalid = || invalid_request("the target of the request is not a path");
    let is_absolute = || {
        let start = target.get(..8).unwrap_or_default().to_ascii_lowercase();
        start.starts_with("http://") || start == "https://"
    };
    let is_all = target == "*" && *method == Method::OPTIONS;
    if *method == Method::CONNECT {
        return Err(ApiError::new(ErrorKind::MethodNotAllowed, "CONNECT is not served here"));
    }
    if target.starts_with('/') || is_all || is_absolute() {
        let uri: Uri = target.parse().map_err(|_| invalid())?;
        Ok(RequestPath::Parsed(Box::new(uri)))
    } else {
        Err(invalid())
    }
}

/// Headers that determine the framing and the reuse of the connection.
#[derive(Default)]
struct RequestFraming {
    hosts: usize,
    length: Option<u64>,
    length_span: Option<(u32, u32)>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    expects_continue: bool,
    unknown_expectation: bool,
}

/// Use of a header field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldUse {
    /// It is one of the headers of the request.
    Kept,
    /// It is the length of the body, which is kept apart.
    Length,
}

impl RequestFraming {
    fn record(&mut self, name: &str, value: &[u8], head: &[u8]) -> Result<FieldUse, ApiError> {
        let is = |own: &str| name.eq_ignore_ascii_case(own);
        match name.len() {
            4 if is("host") => {
                self.hosts += 1;
                if !is_host(value) {
                    return Err(
                        invalid_request("`Host` is not the name of a host").with_param("host")
                    );
                }
            }
            14 if is("content-length") => {
                let invalid = || {
                    invalid_request("`Content-Length` is not one number")
                        .with_param("content-length")
                };
                if self.length.is_some() || !is_tightly_spaced(value, head) {
                    return Err(invalid());
                }
                self.length = Some(parse_length(value).ok_or_else(invalid)?);
                self.length_span = Some(span(value, head));
                return Ok(FieldUse::Length);
            }
            17 if is("transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    let message = "`Transfer-Encoding` can only be `chunked`";
                    return Err(invalid_request(message).with_param("transfer-encoding"));
                }
                self.chunked = true;
            }
            10 if is("connection") => {
                for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.close |= word.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            7 if is("upgrade") => self.upgrade = true,
            6 if is("expect") => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expects_continue |= known;
                self.unknown_expectation |= !known;
            }
            _ => {}
        }
        Ok(FieldUse::Kept)
    }
}

/// Returns true if a value follows its colon after at most one space and nothing follows the value.
fn is_tightly_spaced(value: &[u8], head: &[u8]) -> bool {
    let start = (value.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize);
    let before = head.get(..start).unwrap_or_default();
    let before = before.strip_suffix(b" ").unwrap_or(before);
    before.ends_with(b":") && head.get(start + value.len()) == Some(&b'\r')
}

pub(super) fn parse_length(digits: &[u8]) -> Option<u64> {
    let mut length: u64 = 0;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        length = length.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!digits.is_empty()).then_some(length)
}

/// Returns true for a name or an address, with or without a port, and for an empty value.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(byte);
    value.len() <= MAX_HOST_BYTES && value.iter().all(fits)
}

fn invalid_request(message: &'static str) -> ApiError {
    ApiError::invalid("", message)
}

fn too_large(limits: &HttpLimits) -> ApiError {
    let message =
        format!("the headers are larger than {} bytes, the limit here", limits.header_bytes);
    ApiError::new(ErrorKind::HeadersTooLarge, message)
}

fn line_too_long() -> ApiError {
    let message =
        format!("the request line is longer than {MAX_REQUEST_LINE_BYTES} bytes, the limit here");
    ApiError::new(ErrorKind::HeadersTooLarge, message)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    pub(in crate::server::h1) const LIMITS: HttpLimits = HttpLimits {
        connections: 1,
        connections_per_address: 1,
        headers: 10,
        header_bytes: 16 << 10,
        header_time: Duration::from_secs(1),
        body_time: Duration::from_secs(1),
        body_rate: 1,
        idle: Duration::from_secs(1),
        stall: Duration::from_secs(1),
        streams: 1,
        resets: 1,
        control_frames: 1_000,
    };

    /// Returns the end of a head that arrives in pieces of this size.
    fn end(bytes: &[u8], size: usize) -> Result<Option<usize>, ApiError> {
        let mut scan = HeadScan::default();
        let mut sent = 0;
        while sent < bytes.len() {
            sent = bytes.len().min(sent + size);
            if let Some(end) = scan.find_end(&bytes[..sent], &LIMITS)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    #[test]
    fn finds_the_end_of_a_head_in_pieces_of_any_size() {
        let head = b"\r\nPOST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n";
        let bytes = [head.as_slice(), b"hello"].concat();
        for size in 1..=bytes.len() {
            assert_eq!(end(&bytes, size).unwrap(), Some(head.len()), "{size}");
        }
        let read = parse_head(head, &LIMITS).unwrap();
        assert_eq!(read.framing, Framing::Length(5));
        assert!(read.keep_alive && !read.is_http10 && !read.expects_continue);
        assert_eq!(read.into_request(ServerBody::Empty).path(), "/v1/messages");
    }

    /// Reads a head the long way: its end first, then its bytes.
    fn read_in_two_passes(bytes: &[u8]) -> Option<(ReceivedHead, usize)> {
        let end = HeadScan::default().find_end(bytes, &LIMITS).ok()??;
        let head = parse_head(&bytes[..end], &LIMITS).ok()?;
        Some((head, end))
    }

    #[test]
    fn a_usual_head_is_read_as_in_two_passes() {
        let samples = [
            "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nA: b \r\n\r\nhello",
            "GET /v1/models?key=x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\nGET / HTTP/1.1",
            "HEAD / HTTP/1.0\r\nempty:\r\nexpect: 100-continue\r\n\r\n",
            "POST /x HTTP/1.1\r\nhost:a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
            "\r\nPOST /v1/messages HTTP/1.1\r\nhost: a\r\n\r\n",
        ];
        let pieces =
            ["", "\r", "\n", "\r\n", "\n\n", ":", " ", "\t", "\0", "a", "/", "host: b\r\n"];
        let (mut taken, mut declined) = (0, 0);
        for sample in samples {
            for at in 0..=sample.len() {
                for (piece, skipped) in pieces.iter().flat_map(|piece| [(piece, 0), (piece, 1)]) {
                    let rest = sample.as_bytes().get(at + skipped..).unwrap_or_default();
                    let bytes = [&sample.as_bytes()[..at], piece.as_bytes(), rest].concat();
                    let Some((head, end)) = read_usual_head(&bytes, &LIMITS) else {
                        declined += 1;
                        continue;
                    };
                    taken += 1;
                    let (other, other_end) = read_in_two_passes(&bytes).unwrap();
                    assert_eq!(end, other_end, "{bytes:?}");
                    assert_eq!(format!("{head:?}"), format!("{other:?}"), "{bytes:?}");
                    let maps = [&head, &other].map(|head| head.head.headers().to_map());
                    assert_eq!(maps[0], maps[1], "{bytes:?}");
                }
            }
            let usual = read_usual_head(sample.as_bytes(), &LIMITS).is_some();
            assert_eq!(usual, !sample.contains("b \r") && !sample.starts_with('\r'), "{sample}");
        }
        assert!(taken > 1_000 && declined > 1_000, "{taken} {declined}");
    }

    #[test]
    fn refuses_invalid_heads_at_once() {
        for bytes in ["GET / HTTP/1.1\nhost: a\r\n\r\n", "\u{16}\u{3}\u{1}", "\r\n\r\n\r\n"] {
            for size in 1..=bytes.len() {
                assert!(end(bytes.as_bytes(), size).is_err(), "{bytes:?}");
            }
        }
        let long = format!("GET /{}", "x".repeat(MAX_REQUEST_LINE_BYTES));
        assert_eq!(end(long.as_bytes(), 1000).unwrap_err().kind(), ErrorKind::HeadersTooLarge);
        let large = format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(LIMITS.header_bytes));
        assert_eq!(end(large.as_bytes(), 1000).unwrap_err().kind(), ErrorKind::HeadersTooLarge);
    }
}
