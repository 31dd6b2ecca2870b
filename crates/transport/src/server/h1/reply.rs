//! Head of an HTTP/1 response and the framing of its body.

use axum::body::Body;
use axum::response::Response;
use canon::Micros;
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING};
use http_body::Body as _;
use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use crate::digits::{write_decimal, write_hex};

/// Framing of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyFraming {
    /// No body.
    Empty,
    /// `Content-Length`.
    Length,
    /// Chunked transfer coding.
    Chunked,
    /// Until the connection closes, for HTTP/1.0.
    UntilClose,
}

/// Properties of the request that determine its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyOptions {
    /// True for a `HEAD` request.
    pub(super) head_only: bool,
    /// True for HTTP/1.0.
    pub(super) is_http10: bool,
    /// True if the connection may be used again.
    pub(super) keep_alive: bool,
}

/// Writes the head of a response. Returns the framing of its body, and true if the connection stays
/// open.
pub(super) fn write_head(
    response: &Response<Body>,
    options: ReplyOptions,
    now: Micros,
    out: &mut Vec<u8>,
) -> (ReplyFraming, bool) {
    let status = response.status();
    let headers = response.headers();
    let length = response.body().size_hint().exact();
    let bare = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match length {
        _ if bare => ReplyFraming::Empty,
        Some(_) => ReplyFraming::Length,
        None if options.is_http10 => ReplyFraming::UntilClose,
        None => ReplyFraming::Chunked,
    };
    let wants_close = headers.get(CONNECTION).is_some_and(|value| value == "close");
    let keep_alive = options.keep_alive
        && !wants_close
        && (framing != ReplyFraming::UntilClose || options.head_only);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("Unknown").as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        if !is_connection_header(name) {
            write_header(name.as_str(), value.as_bytes(), out);
        }
    }
    match framing {
        ReplyFraming::Empty | ReplyFraming::UntilClose => {}
        ReplyFraming::Chunked => write_header("transfer-encoding", b"chunked", out),
        ReplyFraming::Length => {
            // Only the response to `HEAD` may carry the length of a body that it does not have.
            match headers.get(CONTENT_LENGTH).filter(|_| options.head_only) {
                Some(declared) => write_header("content-length", declared.as_bytes(), out),
                None => {
                    out.extend_from_slice(b"content-length: ");
                    write_decimal(length.unwrap_or(0), out);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }
    if !headers.contains_key(DATE) {
        out.extend_from_slice(b"date: ");
        write_date(now, out);
        out.extend_from_slice(b"\r\n");
    }
    match (keep_alive, options.is_http10) {
        (false, _) => write_header("connection", b"close", out),
        (true, true) => write_header("connection", b"keep-alive", out),
        (true, false) => {}
    }
    out.extend_from_slice(b"\r\n");
    (if options.head_only { ReplyFraming::Empty } else { framing }, keep_alive)
}

/// Writes the size line of a chunk.
pub(super) fn write_chunk_size(length: usize, out: &mut Vec<u8>) {
    write_hex(length as u64, out);
    out.extend_from_slice(b"\r\n");
}

/// Returns true for headers that the server sets itself.
fn is_connection_header(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == CONTENT_LENGTH
        || *name == TRANSFER_ENCODING
        || name.as_str() == "keep-alive"
}

fn write_header(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes the `Date` value, formatted once per second and thread.
fn write_date(now: Micros, out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let second = now.to_duration().as_secs();
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second || text.is_empty() {
            *last = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        out.extend_from_slice(text.as_bytes());
    });
}
