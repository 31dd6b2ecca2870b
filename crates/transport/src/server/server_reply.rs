//! A reply as the server sends it.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::sync::Arc;

use super::server_request::ServerBody;
use super::upgrade::ProtocolUpgrade;
use crate::header_fields::write_line;

const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A reply: status, headers and body.
#[derive(Debug)]
pub struct ServerReply {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: ReplyHeaders,
    /// Body.
    pub body: ServerBody,
    /// Protocol that the connection speaks after this reply, which is a 101.
    pub(super) upgrade: Option<ProtocolUpgrade>,
    request_id: Option<Arc<str>>,
}

/// Headers of a reply as the lines that are written, without those that the server sets itself.
#[derive(Debug, Default)]
pub struct ReplyHeaders {
    lines: Vec<u8>,
    /// True if the headers come from a map. Only then can a header be there before it is inserted.
    is_converted: bool,
    /// True if the reply asks to close the connection.
    wants_close: bool,
    has_date: bool,
    /// Length of the body that a reply to `HEAD` does not have.
    declared_length: Option<Box<HeaderValue>>,
}

impl ServerReply {
    /// Returns a 200 reply with these header lines, each with its line end.
    pub fn with_lines(lines: &'static str, body: ServerBody) -> Self {
        /// Room for the headers of most replies.
        const USUAL_BYTES: usize = 256;
        let mut headers = ReplyHeaders::default();
        headers.lines.reserve(USUAL_BYTES);
        headers.lines.extend_from_slice(lines.as_bytes());
        Self { status: StatusCode::OK, headers, body, upgrade: None, request_id: None }
    }

    /// Sets the headers that name the request.
    #[must_use]
    pub fn with_request_id(mut self, id: &Arc<str>) -> Self {
        if self.headers.is_converted {
            self.headers.remove(REQUEST_ID.as_str());
            self.headers.remove(X_REQUEST_ID.as_str());
        }
        self.request_id = is_value(id.as_bytes()).then(|| Arc::clone(id));
        self
    }

    /// Returns the reply for code that works with maps of headers.
    pub fn into_response(self) -> Response {
        let Self { status, headers, body, upgrade: _, request_id } = self;
        let mut response = Response::new(body.into_body());
        *response.status_mut() = status;
        let map = response.headers_mut();
        for (name, value) in headers.iter() {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                map.append(name, value);
            }
        }
        if headers.wants_close {
            map.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(length) = headers.declared_length {
            map.insert(CONTENT_LENGTH, *length);
        }
        if let Some(id) = request_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
            map.insert(REQUEST_ID, id.clone());
            map.insert(X_REQUEST_ID, id);
        }
        response
    }

    /// Writes the lines of all headers that the server does not set itself.
    pub(super) fn write_lines(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.headers.lines);
        if let Some(id) = &self.request_id {
            write_line("request-id", id.as_bytes(), out);
            write_line("x-request-id", id.as_bytes(), out);
        }
    }
}

impl ReplyHeaders {
    /// Sets a header, unless the value is invalid in a header.
    pub fn insert(&mut self, name: &str, value: &[u8]) {
        if !is_value(value) {
            return;
        }
        if self.is_converted {
            self.remove(name);
        }
        debug_assert!(self.get(name).is_none(), "{name} is set twice");
        write_line(name, value, &mut self.lines);
    }

    /// Sets a header unless there is one of that name.
    pub fn insert_default(&mut self, name: &str, value: &[u8]) {
        if self.get(name).is_none() {
            self.insert(name, value);
        }
    }

    /// Returns the first value of a header.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Iterates over the headers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.lines.split_inclusive(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r\n")?;
            let at = memchr::memchr(b':', line)?;
            let name = std::str::from_utf8(line.get(..at)?).ok()?;
            Some((name, line.get(at + 2..)?))
        })
    }

    /// Returns true if the reply asks to close the connection.
    pub(super) const fn wants_close(&self) -> bool {
        self.wants_close
    }

    /// Returns true if the reply has a `Date` of its own.
    pub(super) const fn has_date(&self) -> bool {
        self.has_date
    }

    /// Returns the length of the body that a reply to `HEAD` does not have.
    pub(super) fn declared_length(&self) -> Option<&[u8]> {
        self.declared_length.as_ref().map(|length| length.as_bytes())
    }

    fn remove(&mut self, name: &str) {
        if self.get(name).is_none() {
            return;
        }
        let mut kept = Vec::with_capacity(self.lines.len());
        for (own, value) in self.iter().filter(|(own, _)| *own != name) {
            write_line(own, value, &mut kept);
        }
        self.lines = kept;
    }
}

/// Returns true for bytes that a header value may have.
fn is_value(value: &[u8]) -> bool {
    // Without an early end, so that the compiler can compare many bytes at once.
    let fits = |byte: u8| ((byte >= 32) & (byte != 127)) | (byte == b'\t');
    value.iter().fold(true, |all, byte| all & fits(*byte))
}

impl From<&HeaderMap> for ReplyHeaders {
    fn from(map: &HeaderMap) -> Self {
        let mut headers = Self { is_converted: true, ..Self::default() };
        headers.wants_close = map.get(CONNECTION).is_some_and(|value| value == "close");
        headers.has_date = map.contains_key(DATE);
        headers.declared_length = map.get(CONTENT_LENGTH).map(|length| Box::new(length.clone()));
        for (name, value) in map {
            let is_own = *name == CONNECTION
                || *name == CONTENT_LENGTH
                || *name == TRANSFER_ENCODING
                || name.as_str() == "keep-alive";
            if !is_own {
                write_line(name.as_str(), value.as_bytes(), &mut headers.lines);
            }
        }
        headers
    }
}

impl From<Response> for ServerReply {
    fn from(response: Response) -> Self {
        let (head, body): (_, Body) = response.into_parts();
        let headers = ReplyHeaders::from(&head.headers);
        let body = ServerBody::Stream(body);
        Self { status: head.status, headers, body, upgrade: None, request_id: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(reply: &ServerReply) -> String {
        let mut out = Vec::new();
        reply.write_lines(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reply_and_its_response_have_the_same_headers() {
        let mut reply = ServerReply::with_lines("content-type: a/b\r\n", ServerBody::Empty);
        reply.headers.insert("x-one", b"1, 2: 3");
        reply.headers.insert("x-empty", b"");
        for unsafe_value in ["a\r\nb: c", "a\nb", "\0", "\u{7f}"] {
            reply.headers.insert("x-unsafe", unsafe_value.as_bytes());
        }
        reply.headers.insert_default("content-type", b"other");
        let reply = reply.with_request_id(&"r".into());
        let written = "content-type: a/b\r\nx-one: 1, 2: 3\r\nx-empty: \r\n\
                       request-id: r\r\nx-request-id: r\r\n";
        assert_eq!(lines(&reply), written);
        let again = ServerReply::from(reply.into_response());
        assert_eq!(lines(&again), written);
        // Headers of a response are replaced.
        let mut again = again.with_request_id(&"s".into());
        again.headers.insert("x-one", b"2");
        let written = "content-type: a/b\r\nx-empty: \r\nx-one: 2\r\n\
                       request-id: s\r\nx-request-id: s\r\n";
        assert_eq!(lines(&again), written);
    }

    #[test]
    fn headers_of_the_connection_are_kept_apart() {
        let mut response = Response::new(Body::from("x"));
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        let before = headers.clone();
        let reply = ServerReply::from(response);
        assert_eq!(lines(&reply), "");
        assert!(reply.headers.wants_close() && !reply.headers.has_date());
        assert_eq!(reply.headers.declared_length(), Some(&b"7"[..]));
        let after = reply.into_response();
        assert_eq!(after.headers().get(CONNECTION), before.get(CONNECTION));
        assert_eq!(after.headers().get(CONTENT_LENGTH), before.get(CONTENT_LENGTH));
    }
}
