//! The bytes of an HTTP/2 connection, whose control frames are counted before hyper reads them.
//!
//! A PING, SETTINGS, PRIORITY, WINDOW_UPDATE or unknown frame costs its sender nothing and is work
//! here, without end (CVE-2019-9512, CVE-2019-9515). So do headers of a stream that is over. Other floods are bounded elsewhere: requests and
//! their resets by `h2`, headers and empty data by the library.

use bytes::{Buf as _, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::h1::ByteStream;

/// The preface of a client (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// Length, type, flags and stream of a frame (RFC 9113, section 4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// GOAWAY with `ENHANCE_YOUR_CALM` (RFC 9113, sections 6.8 and 7).
const CALM_DOWN: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb];
/// Sent bytes that allow one more control frame. A caller that answers every small event with two
/// WINDOW_UPDATE frames, as some libraries do, needs less.
const BYTES_PER_FRAME: f64 = 32.0;
/// Seconds for which allowance can be saved.
const MAX_SAVED_SECONDS: f64 = 10.0;

/// Counts the control frames of one connection as its bytes arrive in any pieces.
struct FrameCounter {
    /// Bytes up to the next frame head: of the preface or of a payload.
    skipped: usize,
    head: [u8; FRAME_HEAD_BYTES],
    head_len: usize,
    /// The latest stream that was opened.
    last_stream: u32,
    per_second: f64,
    /// Control frames that may still come.
    allowance: f64,
    refilled: Instant,
}

impl FrameCounter {
    fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self {
            skipped: PREFACE_BYTES,
            head: [0; FRAME_HEAD_BYTES],
            head_len: 0,
            last_stream: 0,
            per_second,
            allowance: per_second,
            refilled: Instant::now(),
        }
    }

    /// Reads bytes that arrived. Returns false if there were too many control frames.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let frames = self.count_frames(bytes);
        if frames == 0 {
            return true;
        }
        let now = Instant::now();
        let passed = now.duration_since(self.refilled).as_secs_f64();
        self.refilled = now;
        self.add(passed * self.per_second);
        self.allowance -= f64::from(frames);
        self.allowance >= 0.0
    }

    /// Counts bytes that were sent: they are a reason for control frames of the caller.
    fn send(&mut self, bytes: usize) {
        self.add(bytes as f64 / BYTES_PER_FRAME);
    }

    fn add(&mut self, frames: f64) {
        self.allowance = (self.allowance + frames).min(self.per_second * MAX_SAVED_SECONDS);
    }

    /// Returns the number of control frames that begin in these bytes.
    fn count_frames(&mut self, mut bytes: &[u8]) -> u32 {
        let mut count = 0_u32;
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes.advance(skipped);
            let (Some(rest), true) = (self.head.get_mut(self.head_len..), self.skipped == 0) else {
                continue;
            };
            let taken = rest.len().min(bytes.len());
            bytes.copy_to_slice(rest.get_mut(..taken).unwrap_or_default());
            self.head_len += taken;
            if self.head_len == FRAME_HEAD_BYTES {
                let [a, b, c, kind, _, stream @ ..] = self.head;
                self.skipped = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.head_len = 0;
                let is_control = self.is_control(kind, u32::from_be_bytes(stream) & 0x7fff_ffff);
                count = count.saturating_add(u32::from(is_control));
            }
        }
        count
    }

    /// Returns true for frames that are neither part of a request nor its reset (RFC 9113, section
    /// 6). Headers of a stream that was opened before are trailers, or belong to nothing any more.
    fn is_control(&mut self, kind: u8, stream: u32) -> bool {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const RST_STREAM: u8 = 3;
        const CONTINUATION: u8 = 9;
        let is_opened = stream > self.last_stream;
        match kind {
            HEADERS => {
                self.last_stream = self.last_stream.max(stream);
                !is_opened
            }
            DATA | RST_STREAM | CONTINUATION => false,
            _ => true,
        }
    }
}

/// A stream whose first bytes were already read. Its end comes early if it has too many control
/// frames.
pub(super) struct PrefixedStream<S> {
    stream: S,
    prefix: BytesMut,
    frames: FrameCounter,
}

impl<S> PrefixedStream<S> {
    pub(super) fn new(stream: S, prefix: BytesMut, control_frames: u32) -> Self {
        Self { stream, prefix, frames: FrameCounter::new(control_frames) }
    }
}

impl<S: ByteStream> PrefixedStream<S> {
    fn poll_bytes(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, into);
        }
        let count = self.prefix.len().min(into.remaining());
        into.put_slice(self.prefix.get(..count).unwrap_or_default());
        self.prefix.advance(count);
        Poll::Ready(Ok(()))
    }

    /// Ends the connection. GOAWAY is best effort: it says why, wherever it meets the other frames.
    fn end_flood(&mut self, cx: &mut Context<'_>) -> io::Error {
        tracing::debug!("closing a connection with too many HTTP/2 control frames");
        if Pin::new(&mut self.stream).poll_write(cx, &CALM_DOWN).is_ready() {
            let _ = Pin::new(&mut self.stream).poll_flush(cx);
        }
        io::Error::other("too many control frames")
    }

    fn count_sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.send(bytes);
        }
        written
    }
}

impl<S: ByteStream> AsyncRead for PrefixedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = self.poll_bytes(cx, into);
        let arrived = into.filled().get(before..).unwrap_or_default();
        if self.frames.receive(arrived) { polled } else { Poll::Ready(Err(self.end_flood(cx))) }
    }
}

impl<S: ByteStream> AsyncWrite for PrefixedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count_sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u8::try_from(payload).unwrap();
        [&[0, 0, length, kind, 0, 0, 0, 0, 1][..], &vec![6; payload]].concat()
    }

    #[test]
    fn control_frames_are_counted_wherever_the_bytes_are_cut() {
        // The second headers are trailers.
        let kinds = [4, 1, 9, 0, 3, 1, 2, 6, 8, 7, 5, 0x10, 0xee];
        let frames = kinds.into_iter().enumerate().flat_map(|(at, kind)| frame(kind, at * 3));
        let bytes: Vec<u8> = [6; PREFACE_BYTES].into_iter().chain(frames).collect();
        for size in 1..bytes.len() {
            let mut counter = FrameCounter::new(1);
            let count: u32 = bytes.chunks(size).map(|piece| counter.count_frames(piece)).sum();
            assert_eq!(count, 9, "pieces of {size} bytes");
        }
    }

    #[test]
    fn a_flood_is_over_the_allowance_and_answers_to_data_are_not() {
        let mut counter = FrameCounter::new(10);
        let (ping, window) = (frame(6, 8), frame(8, 4));
        assert!(counter.receive(&[0; PREFACE_BYTES]));
        for _ in 0..10 {
            assert!(counter.receive(&ping));
        }
        for _ in 0..1_000 {
            counter.send(100);
            assert!(counter.receive(&window) && counter.receive(&window));
            assert!(counter.receive(&frame(0, 200)), "data is not counted");
        }
        assert!(counter.allowance <= 100.0, "what is saved has a limit");
        assert!(!counter.receive(&ping.repeat(10_000)));
    }
}
