//! The head of an HTTP/1 answer, and how its body is framed.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use http_body::Body as _;
use std::cell::RefCell;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

/// How a body is told from what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// There is none.
    Nothing,
    /// By its length, told beforehand.
    Length,
    /// In chunks.
    Chunks,
    /// By the end of the connection, for HTTP/1.0.
    UntilEnd,
}

/// What the request says of how its answer may look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Whether only the head is wanted.
    pub(super) head_only: bool,
    /// Whether the caller speaks HTTP/1.0.
    pub(super) old: bool,
    /// Whether the connection may be used again.
    pub(super) keep: bool,
}

/// Writes the head of an answer. Tells the shape of its body and whether the connection stays.
pub(super) fn write_head(
    response: &Response<Body>,
    manner: Manner,
    now: i64,
    out: &mut Vec<u8>,
) -> (Shape, bool) {
    let status = response.status();
    let headers = response.headers();
    let length = response.body().size_hint().exact();
    let bare = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let shape = match length {
        _ if bare => Shape::Nothing,
        Some(_) => Shape::Length,
        None if manner.old => Shape::UntilEnd,
        None => Shape::Chunks,
    };
    let asked = headers.get(CONNECTION).is_some_and(|value| value == "close");
    let keep = manner.keep && !asked && (shape != Shape::UntilEnd || manner.head_only);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("Unknown").as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        if !is_ours(name) {
            header(name.as_str(), value.as_bytes(), out);
        }
    }
    match shape {
        Shape::Nothing | Shape::UntilEnd => {}
        Shape::Chunks => header("transfer-encoding", b"chunked", out),
        Shape::Length => {
            // Only a head may tell a length its body does not have.
            match headers.get(CONTENT_LENGTH).filter(|_| manner.head_only) {
                Some(told) => header("content-length", told.as_bytes(), out),
                None => {
                    let _ = write!(out, "content-length: {}\r\n", length.unwrap_or(0));
                }
            }
        }
    }
    if !headers.contains_key(DATE) {
        out.extend_from_slice(b"date: ");
        date(now, out);
        out.extend_from_slice(b"\r\n");
    }
    match (keep, manner.old) {
        (false, _) => header("connection", b"close", out),
        (true, true) => header("connection", b"keep-alive", out),
        (true, false) => {}
    }
    out.extend_from_slice(b"\r\n");
    (if manner.head_only { Shape::Nothing } else { shape }, keep)
}

/// Begins a chunk.
pub(super) fn chunk(length: usize, out: &mut Vec<u8>) {
    let _ = write!(out, "{length:x}\r\n");
}

/// The map of headers of an answer that was sent, for the next request.
pub(super) fn spare(mut headers: HeaderMap) -> HeaderMap {
    headers.clear();
    headers
}

/// Headers that belong to the connection, not to the answer.
fn is_ours(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == CONTENT_LENGTH
        || *name == TRANSFER_ENCODING
        || name.as_str() == "keep-alive"
}

fn header(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The time as HTTP writes it; the text is made once a second.
fn date(now: i64, out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let second = u64::try_from(now / 1_000_000).unwrap_or(0);
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second || text.is_empty() {
            *last = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        out.extend_from_slice(text.as_bytes());
    });
}
