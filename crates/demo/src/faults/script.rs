//! Scripts: a head, steps and an end that replace a proper answer. Built without a socket.

use bytes::Bytes;
use std::time::Duration;

/// A faulty answer.
#[derive(Clone, Debug)]
pub(crate) struct AnswerScript {
    /// Raw bytes before the head, for example interim responses.
    pub(super) before: Bytes,
    /// The head; `None` sends nothing.
    pub(super) head: Option<ScriptHead>,
    /// Delay before the head.
    pub(super) wait: Option<Duration>,
    /// Steps of the body.
    pub(super) body: Vec<ScriptStep>,
    /// End of the answer.
    pub(super) end: ScriptEnd,
    /// Time during which no connection is accepted afterwards.
    pub(super) refuse: Option<Duration>,
}

/// Status line and headers.
#[derive(Clone, Debug)]
pub(super) struct ScriptHead {
    /// Text in place of the status code and reason.
    pub(super) status: String,
    /// The headers.
    pub(super) headers: Vec<(String, Bytes)>,
    /// Framing of the body.
    pub(super) framing: BodyFraming,
}

/// Framing of a body (RFC 9112, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// Chunked transfer coding.
    Chunked,
    /// `Content-Length`, correct or not.
    Length(u64),
    /// No body.
    None,
}

/// One step of a body.
#[derive(Clone, Debug)]
pub(super) enum ScriptStep {
    /// Bytes that are sent together, and the output tokens in them.
    Send { bytes: Bytes, tokens: u64 },
    /// The same bytes many times.
    Repeat { bytes: Bytes, times: u64 },
    /// A pause.
    Wait(Duration),
}

/// End of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScriptEnd {
    /// Proper end; the connection stays open for the next request.
    Proper,
    /// Proper end; then the connection closes without a prior notice.
    Stale,
    /// Proper end with these trailers.
    Trailers(Vec<(&'static str, &'static str)>),
    /// Proper end followed by stray bytes; the connection stays open.
    Extra,
    /// Close, regardless of the framing.
    Close,
    /// Reset of the connection.
    Reset,
    /// No end until the caller leaves.
    Hold,
    /// Reset of the HTTP/2 stream with that code; over HTTP/1 a reset of the connection.
    Stream(h2::Reason),
    /// GOAWAY over HTTP/2; over HTTP/1 the connection closes.
    Goodbye,
}

impl ScriptStep {
    pub(super) fn send(bytes: impl Into<Bytes>) -> Self {
        Self::Send { bytes: bytes.into(), tokens: 0 }
    }
}

impl ScriptHead {
    /// Returns the head in HTTP/1 syntax.
    pub(super) fn to_bytes(&self, end: &ScriptEnd) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        match self.framing {
            BodyFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            BodyFraming::Length(length) => {
                out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            BodyFraming::None => {}
        }
        // A faulty answer ends its connection. Only the ends that hide this omit the header.
        if !matches!(end, ScriptEnd::Stale | ScriptEnd::Extra) {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

impl BodyFraming {
    /// Returns payload bytes in this framing.
    pub(super) fn wrap(self, bytes: &Bytes) -> Bytes {
        match self {
            Self::Chunked if bytes.is_empty() => Bytes::new(),
            Self::Chunked => {
                let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
                out.into()
            }
            Self::Length(_) | Self::None => bytes.clone(),
        }
    }
}

/// Gzip encoder with stored blocks (RFC 1951, section 3.2.4), one per piece, so that every piece is
/// readable on arrival.
pub(super) struct StoredGzip {
    sum: crc32fast::Hasher,
    length: u32,
}

impl StoredGzip {
    /// Returns an encoder and the gzip header.
    pub(super) fn begin() -> (Self, Bytes) {
        let head: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        (Self { sum: crc32fast::Hasher::new(), length: 0 }, Bytes::from_static(head))
    }

    /// Encodes a piece as stored blocks.
    pub(super) fn piece(&mut self, bytes: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(bytes.len() + 5);
        for block in bytes.chunks(usize::from(u16::MAX)) {
            let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
            out.push(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(!length).to_le_bytes());
            out.extend_from_slice(block);
        }
        self.sum.update(bytes);
        self.length = self.length.wrapping_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        out.into()
    }

    /// Returns the last, empty block and the checksum.
    pub(super) fn end(self) -> Bytes {
        let mut out = vec![1, 0, 0, 0xff, 0xff];
        out.extend_from_slice(&self.sum.finalize().to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.into()
    }
}
