//! Decompression of a body, piece by piece and with limits.

use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use std::fmt;
use std::io::{self, Write};
use zstd::zstd_safe::{
    DCtx, DParameter, ErrorCode, InBuffer, OutBuffer, ResetDirective, get_error_name,
};

/// Output that is allowed regardless of the input.
const FREE_OUTPUT_BYTES: usize = 1 << 20;
/// Output bytes per input byte beyond [`FREE_OUTPUT_BYTES`].
pub const MAX_EXPANSION: usize = 100;
/// Largest zstd window, as a power of two: 8 MiB, the limit of RFC 9659.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
/// Largest block of zstd (RFC 8878), which yields its output when it is complete, and its header.
const MAX_ZSTD_BLOCK_BYTES: usize = (128 << 10) + STEP_BYTES;
/// Size of one decompression step.
const STEP_BYTES: usize = 16 << 10;
/// Input that may hold almost nothing. Blocks and members without content take much work for each byte,
/// and no encoder writes so many.
const FREE_INPUT_BYTES: usize = 64 << 10;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip`, also called `x-gzip`.
    Gzip,
    /// `deflate`, with a zlib header (RFC 9110, section 8.4.1.2) or, as some senders do, without.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

/// Supported codings, for error messages and headers.
pub const SUPPORTED_CODINGS: &str = "gzip, deflate, br, zstd";

impl ContentCoding {
    /// Returns the coding named by the values of `Content-Encoding`. The error names an unknown coding,
    /// or several.
    pub fn from_values<'a>(
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Self>, UnknownCoding> {
        let mut found = None;
        for value in values {
            let text = String::from_utf8_lossy(value).to_ascii_lowercase();
            for word in text.split(',').map(str::trim) {
                let coding = match word {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ => return Err(UnknownCoding::new(word)),
                };
                if found.replace(coding).is_some() {
                    return Err(UnknownCoding::new(&text));
                }
            }
        }
        Ok(found)
    }
}

/// Content coding that is not supported, or a list of several. Displayed as the sender wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownCoding(String);

impl UnknownCoding {
    fn new(text: &str) -> Self {
        Self(text.chars().take(64).collect())
    }
}

/// Error of a decompression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The output exceeds the limit of size.
    TooLarge,
    /// The output exceeds [`MAX_EXPANSION`] bytes for each byte of the input.
    TooDense,
    /// The body is corrupt or truncated.
    Broken(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the body is too large once it is decompressed"),
            Self::TooDense => {
                write!(f, "the body expands to more than {MAX_EXPANSION} times its compressed size")
            }
            Self::Broken(why) => write!(f, "the body cannot be decompressed: {why}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decompresses one body.
pub struct BodyDecoder {
    inner: DecoderState,
    max_bytes: usize,
    bytes_in: usize,
    bytes_out: usize,
    /// Memory for output that is not handed out yet.
    window_bytes: usize,
}

enum DecoderState {
    /// A deflate body before its first byte, which shows if it has a zlib header.
    UnknownDeflate,
    Gzip(Box<MultiGzDecoder<LimitedSink>>),
    /// True once the stream is complete.
    Deflate(Box<Decompress>, bool),
    Brotli(Box<DecompressorWriter<LimitedSink>>),
    /// True once a frame is complete.
    Zstd(Box<DCtx<'static>>, bool),
}

impl BodyDecoder {
    /// Creates a decoder with an output limit in bytes.
    pub fn new(coding: ContentCoding, max_bytes: usize) -> Result<Self, DecodeError> {
        let inner = match coding {
            ContentCoding::Gzip => {
                DecoderState::Gzip(Box::new(MultiGzDecoder::new(LimitedSink::default())))
            }
            ContentCoding::Deflate => DecoderState::UnknownDeflate,
            ContentCoding::Brotli => DecoderState::Brotli(Box::new(DecompressorWriter::new(
                LimitedSink::default(),
                STEP_BYTES,
            ))),
            ContentCoding::Zstd => {
                let mut zstd = DCtx::create();
                zstd.init().map_err(corrupt_frame)?;
                zstd.set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG))
                    .map_err(corrupt_frame)?;
                DecoderState::Zstd(Box::new(zstd), true)
            }
        };
        Ok(Self { inner, max_bytes, bytes_in: 0, bytes_out: 0, window_bytes: 0 })
    }

    /// Returns the memory that the decoder itself takes, as far as the body has told.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// Adds a piece and returns all output that is available.
    pub fn push(&mut self, piece: &[u8]) -> Result<Bytes, DecodeError> {
        let mut all = Vec::new();
        for step in piece.chunks(STEP_BYTES) {
            let out = self.push_step(step)?;
            match all.is_empty() {
                true => all = out,
                false => all.extend_from_slice(&out),
            }
            // Input whose output is still to come.
            let pending = match self.inner {
                DecoderState::Brotli(_) => self.bytes_in,
                DecoderState::Zstd(..) => MAX_ZSTD_BLOCK_BYTES,
                _ => 0,
            };
            let judged = self.bytes_in.saturating_sub(pending);
            if judged > FREE_INPUT_BYTES && self.bytes_out < judged / 2 {
                return Err(DecodeError::Broken("it holds almost nothing".to_owned()));
            }
        }
        Ok(Bytes::from(all))
    }

    fn push_step(&mut self, piece: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let Some(first) = piece.first() else { return Ok(Vec::new()) };
        if self.bytes_in == 0 && matches!(self.inner, DecoderState::Brotli(_)) {
            self.window_bytes = brotli_window(*first);
        }
        if matches!(self.inner, DecoderState::UnknownDeflate) {
            // The low half of the first byte of a zlib header (RFC 1950) is 8. A raw stream with
            // that first byte would be a stored block with non-zero padding, which encoders do not
            // write.
            self.inner = DecoderState::Deflate(Box::new(Decompress::new(first & 0x0f == 8)), false);
        }
        self.bytes_in += piece.len();
        let expanded = self.bytes_in.saturating_mul(MAX_EXPANSION).max(FREE_OUTPUT_BYTES);
        let room = expanded.min(self.max_bytes) - self.bytes_out;
        let out = match &mut self.inner {
            DecoderState::UnknownDeflate => Ok(Vec::new()),
            DecoderState::Gzip(gzip) => {
                decode_writer(&mut **gzip, piece, room, MultiGzDecoder::get_mut)
            }
            DecoderState::Deflate(deflate, complete) => {
                decode_deflate(deflate, complete, piece, room)
            }
            DecoderState::Brotli(brotli) => {
                decode_writer(&mut **brotli, piece, room, DecompressorWriter::get_mut)
            }
            DecoderState::Zstd(zstd, complete) => {
                let out = decode_zstd(zstd, complete, piece, room);
                self.window_bytes = zstd.sizeof();
                out
            }
        };
        let out = out.map_err(|error| match error {
            DecodeError::TooLarge if expanded < self.max_bytes => DecodeError::TooDense,
            other => other,
        })?;
        self.bytes_out += out.len();
        Ok(out)
    }

    /// Ends the body; a truncated body is an error.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        let cut = || DecodeError::Broken("it ends too early".to_owned());
        match &mut self.inner {
            // An empty body is valid in every coding.
            _ if self.bytes_in == 0 => Ok(()),
            DecoderState::UnknownDeflate => Err(cut()),
            DecoderState::Gzip(gzip) => gzip.try_finish().map_err(|_| cut()),
            DecoderState::Brotli(brotli) => brotli.close().map_err(|_| cut()),
            DecoderState::Deflate(_, complete) | DecoderState::Zstd(_, complete) => {
                complete.then_some(()).ok_or_else(cut)
            }
        }
    }
}

impl fmt::Debug for BodyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyDecoder")
            .field("bytes_in", &self.bytes_in)
            .field("bytes_out", &self.bytes_out)
            .finish()
    }
}

/// Output of a decoder, with a limit.
#[derive(Default)]
struct LimitedSink {
    out: Vec<u8>,
    max_bytes: usize,
    is_full: bool,
}

impl Write for LimitedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len() + bytes.len() > self.max_bytes {
            self.is_full = true;
            return Err(io::Error::other("too large"));
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a piece through a decoder and returns all output.
fn decode_writer<W: Write>(
    decoder: &mut W,
    piece: &[u8],
    room: usize,
    sink: fn(&mut W) -> &mut LimitedSink,
) -> Result<Vec<u8>, DecodeError> {
    sink(decoder).max_bytes = room;
    let written = decoder.write_all(piece).and_then(|()| decoder.flush());
    let sink = sink(decoder);
    match written {
        _ if sink.is_full => Err(DecodeError::TooLarge),
        Ok(()) => Ok(std::mem::take(&mut sink.out)),
        Err(e) => Err(corrupt_body(e)),
    }
}

fn decode_deflate(
    deflate: &mut Decompress,
    complete: &mut bool,
    piece: &[u8],
    room: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    let start = deflate.total_in();
    loop {
        let used = usize::try_from(deflate.total_in() - start).unwrap_or(usize::MAX);
        let rest = piece.get(used..).unwrap_or_default();
        if *complete && !rest.is_empty() {
            return Err(DecodeError::Broken("bytes follow its end".to_owned()));
        }
        if *complete {
            return Ok(out);
        }
        if out.capacity() - out.len() < STEP_BYTES {
            out.reserve(STEP_BYTES.max(out.len()));
        }
        let (total_in, made) = (deflate.total_in(), out.len());
        let status = deflate.decompress_vec(rest, &mut out, FlushDecompress::None);
        *complete = status.map_err(|e| corrupt_body(e.into()))? == Status::StreamEnd;
        if out.len() > room {
            return Err(DecodeError::TooLarge);
        }
        // The decoder may hand out its window and stop, with free capacity and without reading. It has
        // nothing left when it does neither.
        if !*complete && out.len() == made && deflate.total_in() == total_in {
            return match rest {
                [] => Ok(out),
                _ => Err(DecodeError::Broken("it cannot be read on".to_owned())),
            };
        }
    }
}

fn decode_zstd(
    zstd: &mut DCtx<'static>,
    complete: &mut bool,
    piece: &[u8],
    room: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    let mut step = vec![0; STEP_BYTES];
    let mut from = InBuffer::around(piece);
    loop {
        let mut into = OutBuffer::around(step.as_mut_slice());
        let hint = zstd.decompress_stream(&mut into, &mut from).map_err(corrupt_frame)?;
        let (output, full) = (into.as_slice(), into.pos() == STEP_BYTES);
        *complete = hint == 0;
        if out.len() + output.len() > room {
            return Err(DecodeError::TooLarge);
        }
        out.extend_from_slice(output);
        match (*complete, from.pos < piece.len()) {
            // Another frame follows.
            (true, true) => {
                zstd.reset(ResetDirective::SessionOnly).map_err(corrupt_frame)?;
            }
            // All output of a complete frame has come. A further step would begin another frame.
            (true, false) => return Ok(out),
            (false, false) if !full => return Ok(out),
            (false, _) => {}
        }
    }
}

/// Returns the window of a Brotli stream by its first byte (RFC 7932, section 9.1).
fn brotli_window(first: u8) -> usize {
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, ..) => 16,
        (_, 0, 0 | 1) => 17,
        (_, 0, few) => 8 + few,
        (_, many, _) => 17 + many,
    };
    1 << bits
}

fn corrupt_body(error: io::Error) -> DecodeError {
    DecodeError::Broken(error.to_string())
}

fn corrupt_frame(code: ErrorCode) -> DecodeError {
    DecodeError::Broken(get_error_name(code).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(coding: ContentCoding, body: &[u8]) -> Result<usize, DecodeError> {
        BodyDecoder::new(coding, 32 << 20)?.push(body).map(|out| out.len())
    }

    #[test]
    fn a_body_that_holds_almost_nothing_is_refused_early() {
        let blocks = [0x02, 0x08, 0x20, 0x80, 0x00].repeat(100_000);
        let member =
            [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0].repeat(10_000);
        // A frame of four bytes that a decoder skips.
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4].repeat(20_000);
        for (coding, body) in [
            (ContentCoding::Deflate, &blocks),
            (ContentCoding::Gzip, &member),
            (ContentCoding::Zstd, &skipped),
        ] {
            let mut decoder = BodyDecoder::new(coding, 32 << 20).unwrap();
            let error = decoder.push(body).unwrap_err();
            assert_eq!(error, DecodeError::Broken("it holds almost nothing".to_owned()));
            let most = FREE_INPUT_BYTES + MAX_ZSTD_BLOCK_BYTES + STEP_BYTES;
            assert!(decoder.bytes_in <= most, "{decoder:?}");
        }
        // Few of them are harmless.
        assert_eq!(decode(ContentCoding::Deflate, &blocks[..5_000]), Ok(0));
    }

    /// Words with repetitions near and far, and parts that cannot be compressed.
    fn text(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut bytes = Vec::with_capacity(length + 64);
        while bytes.len() < length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match state >> 61 {
                0 => bytes.extend_from_slice(&state.to_le_bytes()),
                1 => bytes.extend([b'a'; 40]),
                _ => bytes.extend_from_slice(format!("word {} ", state >> 52).as_bytes()),
            }
        }
        bytes.truncate(length);
        bytes
    }

    /// Letters that hardly compress.
    fn random(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b' ' + u8::try_from(state >> 58).unwrap_or_default()
        };
        (0..length).map(|_| letter()).collect()
    }

    #[test]
    fn every_coding_gives_back_what_was_encoded() {
        fn written<W: Write>(mut to: W, body: &[u8], end: fn(W) -> io::Result<Vec<u8>>) -> Vec<u8> {
            to.write_all(body).unwrap();
            end(to).unwrap()
        }
        let level = flate2::Compression::default();
        let lengths = [1, 16_383, 16_384, 16_385, 32_768, 65_536, 200_001, 262_144, 1_000_000];
        for (length, is_random) in
            lengths.iter().flat_map(|length| [(*length, false), (*length, true)])
        {
            let body = if is_random { random(length) } else { text(length) };
            let encoded = [
                (
                    ContentCoding::Gzip,
                    written(flate2::write::GzEncoder::new(Vec::new(), level), &body, |to| {
                        to.finish()
                    }),
                ),
                (
                    ContentCoding::Deflate,
                    written(flate2::write::ZlibEncoder::new(Vec::new(), level), &body, |to| {
                        to.finish()
                    }),
                ),
                (
                    ContentCoding::Deflate,
                    written(flate2::write::DeflateEncoder::new(Vec::new(), level), &body, |to| {
                        to.finish()
                    }),
                ),
                (ContentCoding::Zstd, zstd::encode_all(&*body, 3).unwrap()),
            ];
            for (coding, encoded) in encoded {
                for piece in [1_000, 16_384, 20_000, usize::MAX] {
                    let mut decoder = BodyDecoder::new(coding, 32 << 20).unwrap();
                    let mut out = Vec::new();
                    for piece in encoded.chunks(piece) {
                        out.extend_from_slice(&decoder.push(piece).unwrap());
                    }
                    decoder.finish().unwrap();
                    assert!(out == body, "{coding:?} {length} in pieces of {piece}");
                }
            }
        }
    }

    #[test]
    fn the_window_of_a_brotli_body_is_told_by_its_first_byte() {
        for (first, bits) in
            [(0b0, 16), (0b1, 17), (0b0011, 18), (0b1011, 22), (0b1111, 24), (0b010_0001, 10)]
        {
            assert_eq!(brotli_window(first), 1 << bits, "{first:b}");
        }
        let mut decoder = BodyDecoder::new(ContentCoding::Brotli, 32 << 20).unwrap();
        assert_eq!(decoder.window_bytes(), 0);
        assert_eq!(decoder.push(&[0x0f]).unwrap().len(), 0);
        assert_eq!(decoder.window_bytes(), 16 << 20);
    }

    #[test]
    fn the_window_of_a_zstd_body_is_memory() {
        // The header of a frame with a window of 8 MiB, and a block of four bytes (RFC 8878).
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3, 0x20, 0, 0, 1, 2, 3, 4];
        let mut decoder = BodyDecoder::new(ContentCoding::Zstd, 32 << 20).unwrap();
        assert_eq!(decoder.push(&frame).unwrap()[..], [1, 2, 3, 4]);
        assert!(decoder.window_bytes() >= 8 << 20, "{}", decoder.window_bytes());
    }
}
