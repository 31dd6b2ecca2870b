//! What is done instead of a proper answer: a head, steps, and an end. Made without a socket.

use bytes::Bytes;
use std::time::Duration;

/// A faulty answer.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Raw bytes before the head, such as interim answers.
    pub(super) before: Bytes,
    /// The head; without one nothing is ever said.
    pub(super) head: Option<Head>,
    /// How long the head is waited for.
    pub(super) wait: Option<Duration>,
    /// What follows.
    pub(super) body: Vec<Step>,
    /// How it ends.
    pub(super) end: End,
    /// For how long no connection is taken afterwards.
    pub(super) refuse: Option<Duration>,
}

/// Status line and headers.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// What stands where a status should, reason and all.
    pub(super) status: String,
    /// The headers.
    pub(super) headers: Vec<(String, Bytes)>,
    /// How the length of the body is told.
    pub(super) framing: Framing,
}

/// How the length of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// In chunks.
    Chunked,
    /// As a number, true or not.
    Length(u64),
    /// Not at all: there is no body.
    None,
}

/// One step of a body.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Bytes that leave together, and the output tokens in them.
    Send { bytes: Bytes, tokens: u64 },
    /// The same bytes many times.
    Repeat { bytes: Bytes, times: u64 },
    /// Silence.
    Wait(Duration),
}

/// How an answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As it should, and the connection may be used again.
    Proper,
    /// As it should, then the connection is closed although nobody was told.
    Stale,
    /// As it should, with these trailers.
    Trailers(Vec<(&'static str, &'static str)>),
    /// As it should, with bytes behind it that belong to nothing; the connection stays open.
    Extra,
    /// The connection is closed, whatever was promised.
    Close,
    /// The connection is reset.
    Reset,
    /// Never, until the caller leaves.
    Hold,
    /// Over HTTP/2 with that code; the connection is reset otherwise.
    Stream(h2::Reason),
    /// Over HTTP/2 after a goodbye to the whole connection; it is closed otherwise.
    Goodbye,
}

impl Step {
    pub(super) fn send(bytes: impl Into<Bytes>) -> Self {
        Self::Send { bytes: bytes.into(), tokens: 0 }
    }
}

impl Head {
    /// The head as HTTP/1 has it.
    pub(super) fn to_bytes(&self, end: &End) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        match self.framing {
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Framing::Length(length) => {
                out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            Framing::None => {}
        }
        // A fault answers one request; only an end that lies about it keeps silent.
        if !matches!(end, End::Stale | End::Extra) {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

impl Framing {
    /// Payload as it goes over the wire.
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

/// Bytes as gzip without compressing them, a block for each piece, so that every piece can be read
/// as soon as it is there.
pub(super) struct Gzip {
    sum: crc32fast::Hasher,
    length: u32,
}

impl Gzip {
    /// The header, and a writer for what follows it.
    pub(super) fn begin() -> (Self, Bytes) {
        let head: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        (Self { sum: crc32fast::Hasher::new(), length: 0 }, Bytes::from_static(head))
    }

    /// A piece as stored blocks.
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

    /// The last, empty block and the checksum.
    pub(super) fn end(self) -> Bytes {
        let mut out = vec![1, 0, 0, 0xff, 0xff];
        out.extend_from_slice(&self.sum.finalize().to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.into()
    }
}
