//! Head of an HTTP/1 response and the framing of its body.

use canon::Micros;
use http::StatusCode;
use http_body::Body as _;
use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use crate::digits::{write_decimal, write_hex};
use crate::header_fields::write_line;
use crate::server::server_reply::ServerReply;

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
    reply: &ServerReply,
    options: ReplyOptions,
    now: Micros,
    out: &mut Vec<u8>,
) -> (ReplyFraming, bool) {
    let ServerReply { status, headers, body, .. } = reply;
    let length = body.size_hint().exact();
    let bare = status.is_informational()
        || matches!(*status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match length {
        _ if bare => ReplyFraming::Empty,
        Some(_) => ReplyFraming::Length,
        None if options.is_http10 => ReplyFraming::UntilClose,
        None => ReplyFraming::Chunked,
    };
    let keep_alive = options.keep_alive
        && !headers.wants_close()
        && (framing != ReplyFraming::UntilClose || options.head_only);
    if *status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or("Unknown").as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    reply.write_lines(out);
    match framing {
        ReplyFraming::Empty | ReplyFraming::UntilClose => {}
        ReplyFraming::Chunked => write_line("transfer-encoding", b"chunked", out),
        ReplyFraming::Length => {
            // Only the response to `HEAD` may carry the length of a body that it does not have.
            match headers.declared_length().filter(|_| options.head_only) {
                Some(declared) => write_line("content-length", declared, out),
                None => {
                    out.extend_from_slice(b"content-length: ");
                    write_decimal(length.unwrap_or(0), out);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }
    if !headers.has_date() {
        out.extend_from_slice(b"date: ");
        write_date(now, out);
        out.extend_from_slice(b"\r\n");
    }
    match (keep_alive, options.is_http10) {
        (false, _) => write_line("connection", b"close", out),
        (true, true) => write_line("connection", b"keep-alive", out),
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
