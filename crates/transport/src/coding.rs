//! Compressed bodies: one coding, undone piece by piece, never beyond what is allowed.

use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::fmt;
use std::io::{self, Write};
use zstd::stream::raw::{DParameter, Decoder as Zstd, InBuffer, Operation as _, OutBuffer};

/// How much may come out whatever went in.
const FREE: usize = 1 << 20;
/// Beyond that, how many bytes may come out for one that went in.
const RATIO: usize = 100;
/// The largest window, as a power of two, that a zstd body may want; HTTP allows no more.
const WINDOW: u32 = 23;
/// How much is undone at once.
const STEP: usize = 16 << 10;

/// A way a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, also called `x-gzip`.
    Gzip,
    /// `deflate`, with the wrapping of zlib or, as some send it, without.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

/// The codings that can be undone, for whoever must be told.
pub const CODINGS: &str = "gzip, deflate, br, zstd";

impl Coding {
    /// The coding of a body by its headers. `Err` names what cannot be undone: an unknown coding, or
    /// more than one.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, String> {
        if !headers.contains_key(CONTENT_ENCODING) {
            return Ok(None);
        }
        let mut found = None;
        for value in headers.get_all(CONTENT_ENCODING) {
            let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            for word in text.split(',').map(str::trim) {
                let coding = match word {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ => return Err(word.chars().take(64).collect()),
                };
                if found.replace(coding).is_some() {
                    return Err(text.chars().take(64).collect());
                }
            }
        }
        Ok(found)
    }
}

/// Why a body cannot be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// More comes out than is allowed.
    TooLarge,
    /// It is not what it says it is, or not all of it.
    Broken(String),
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the body is too large once it is decompressed"),
            Self::Broken(why) => write!(f, "the body cannot be decompressed: {why}"),
        }
    }
}

impl std::error::Error for Undecodable {}

/// Undoes one body.
pub struct Decoder {
    inner: Inner,
    most: usize,
    taken: usize,
    given: usize,
}

enum Inner {
    /// A deflate body whose first byte must tell what it is.
    Unsure,
    Gzip(Box<MultiGzDecoder<Sink>>),
    /// With whether it is complete.
    Deflate(Box<Decompress>, bool),
    Brotli(Box<DecompressorWriter<Sink>>),
    /// With whether a frame is complete.
    Zstd(Box<Zstd<'static>>, bool),
}

impl Decoder {
    /// A decoder that gives `most` bytes at most.
    pub fn new(coding: Coding, most: usize) -> Result<Self, Undecodable> {
        let inner = match coding {
            Coding::Gzip => Inner::Gzip(Box::new(MultiGzDecoder::new(Sink::default()))),
            Coding::Deflate => Inner::Unsure,
            Coding::Brotli => {
                Inner::Brotli(Box::new(DecompressorWriter::new(Sink::default(), STEP)))
            }
            Coding::Zstd => {
                let mut zstd = Zstd::new().map_err(broken)?;
                zstd.set_parameter(DParameter::WindowLogMax(WINDOW)).map_err(broken)?;
                Inner::Zstd(Box::new(zstd), true)
            }
        };
        Ok(Self { inner, most, taken: 0, given: 0 })
    }

    /// Takes a piece; gives everything that can be told from the pieces so far.
    pub fn push(&mut self, piece: &[u8]) -> Result<Bytes, Undecodable> {
        let Some(first) = piece.first() else { return Ok(Bytes::new()) };
        if matches!(self.inner, Inner::Unsure) {
            // A zlib header names deflate in its low half; a raw block of that look is no use.
            self.inner = Inner::Deflate(Box::new(Decompress::new(first & 0x0f == 8)), false);
        }
        self.taken += piece.len();
        let room = self.taken.saturating_mul(RATIO).max(FREE).min(self.most) - self.given;
        let out = match &mut self.inner {
            Inner::Unsure => Ok(Vec::new()),
            Inner::Gzip(gzip) => through(&mut **gzip, piece, room, MultiGzDecoder::get_mut),
            Inner::Deflate(deflate, complete) => through_deflate(deflate, complete, piece, room),
            Inner::Brotli(brotli) => {
                through(&mut **brotli, piece, room, DecompressorWriter::get_mut)
            }
            Inner::Zstd(zstd, complete) => through_zstd(zstd, complete, piece, room),
        }?;
        self.given += out.len();
        Ok(Bytes::from(out))
    }

    /// The body has ended. `Err` when it should not have.
    pub fn finish(&mut self) -> Result<(), Undecodable> {
        let cut = || Undecodable::Broken("it ends too early".to_owned());
        match &mut self.inner {
            // Nothing at all is nothing, in every coding.
            _ if self.taken == 0 => Ok(()),
            Inner::Unsure => Err(cut()),
            Inner::Gzip(gzip) => gzip.try_finish().map_err(|_| cut()),
            Inner::Brotli(brotli) => brotli.close().map_err(|_| cut()),
            Inner::Deflate(_, complete) | Inner::Zstd(_, complete) => {
                complete.then_some(()).ok_or_else(cut)
            }
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("taken", &self.taken).field("given", &self.given).finish()
    }
}

/// Where a decoder writes, and how much it may.
#[derive(Default)]
struct Sink {
    out: Vec<u8>,
    room: usize,
    full: bool,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len() + bytes.len() > self.room {
            self.full = true;
            return Err(io::Error::other("too large"));
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a piece through a decoder, and has it give everything it can.
fn through<W: Write>(
    decoder: &mut W,
    piece: &[u8],
    room: usize,
    sink: fn(&mut W) -> &mut Sink,
) -> Result<Vec<u8>, Undecodable> {
    sink(decoder).room = room;
    let written = decoder.write_all(piece).and_then(|()| decoder.flush());
    let sink = sink(decoder);
    match written {
        _ if sink.full => Err(Undecodable::TooLarge),
        Ok(()) => Ok(std::mem::take(&mut sink.out)),
        Err(e) => Err(broken(e)),
    }
}

fn through_deflate(
    deflate: &mut Decompress,
    complete: &mut bool,
    piece: &[u8],
    room: usize,
) -> Result<Vec<u8>, Undecodable> {
    let mut out = Vec::new();
    let start = deflate.total_in();
    loop {
        let used = usize::try_from(deflate.total_in() - start).unwrap_or(usize::MAX);
        let rest = piece.get(used..).unwrap_or_default();
        if *complete && !rest.is_empty() {
            return Err(Undecodable::Broken("something follows its end".to_owned()));
        }
        if *complete {
            return Ok(out);
        }
        if out.capacity() - out.len() < STEP {
            out.reserve(STEP.max(out.len()));
        }
        let status = deflate.decompress_vec(rest, &mut out, FlushDecompress::None);
        *complete = status.map_err(|e| broken(e.into()))? == Status::StreamEnd;
        if out.len() > room {
            return Err(Undecodable::TooLarge);
        }
        // Room left over means that everything that could be said was said.
        if !*complete && out.len() < out.capacity() {
            return Ok(out);
        }
    }
}

fn through_zstd(
    zstd: &mut Zstd<'static>,
    complete: &mut bool,
    piece: &[u8],
    room: usize,
) -> Result<Vec<u8>, Undecodable> {
    let mut out = Vec::new();
    let mut step = vec![0; STEP];
    let mut from = InBuffer::around(piece);
    loop {
        let mut into = OutBuffer::around(step.as_mut_slice());
        let hint = zstd.run(&mut from, &mut into).map_err(broken)?;
        let (given, full) = (into.as_slice(), into.pos() == STEP);
        *complete = hint == 0;
        if out.len() + given.len() > room {
            return Err(Undecodable::TooLarge);
        }
        out.extend_from_slice(given);
        if *complete && from.pos < piece.len() {
            // Another frame follows.
            zstd.reinit().map_err(broken)?;
        } else if from.pos >= piece.len() && !full {
            return Ok(out);
        }
    }
}

fn broken(error: io::Error) -> Undecodable {
    Undecodable::Broken(error.to_string())
}
