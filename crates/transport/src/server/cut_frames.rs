//! Cuts large frames of a WebSocket into small ones before they are read.
//!
//! tungstenite reserves the memory of a frame when it has read its header. A header of 14 bytes would
//! then reserve as much as the largest message. A message in small frames takes memory as it arrives.

use bytes::{Buf as _, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::metered_stream::MeteredStream;

/// Payload of a frame that is not cut, and of each frame but the last of one that is. A multiple of
/// the mask's four bytes, so that every frame begins with the first of them.
const MAX_PAYLOAD: u64 = 16 << 10;
const FIN: u8 = 0x80;
const OPCODE: u8 = 0x0f;
/// First opcode of control frames, which are never large.
const FIRST_CONTROL: u8 = 0x8;
const MASKED: u8 = 0x80;

/// The frames of a stream, cut.
#[derive(Default)]
struct FrameCutter {
    /// Part of a header.
    header: BytesMut,
    /// Payload bytes until the next header.
    payload: u64,
    /// Rest of a frame that is being cut.
    rest: Option<FrameRest>,
}

/// Rest of a frame behind its first piece.
struct FrameRest {
    /// First byte of the header: the last piece has its final bit.
    first: u8,
    /// Second byte without the length.
    masked: u8,
    mask: BytesMut,
    bytes: u64,
}

impl FrameCutter {
    /// Appends the frames in `read` to `out`. A frame beyond the limit is left whole for the reader to
    /// refuse.
    fn cut(&mut self, mut read: &[u8], limit: u64, out: &mut BytesMut) {
        while !read.is_empty() {
            if self.payload > 0 {
                let count = usize::try_from(self.payload).unwrap_or(usize::MAX).min(read.len());
                let (payload, behind) = read.split_at(count);
                out.extend_from_slice(payload);
                self.payload -= count as u64;
                read = behind;
            } else if let Some((byte, behind)) = read.split_first() {
                self.header.extend_from_slice(&[*byte]);
                read = behind;
                self.end_header(limit, out);
            }
            if self.payload == 0 {
                self.begin_piece(out);
            }
        }
    }

    /// Takes the header if it is whole.
    fn end_header(&mut self, limit: u64, out: &mut BytesMut) {
        let [first, second, more @ ..] = &*self.header else { return };
        let length_bytes = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if second & MASKED == 0 { 0 } else { 4 };
        if more.len() < length_bytes + mask_bytes {
            return;
        }
        let (long, mask) = more.split_at(length_bytes);
        let long = long.iter().fold(0, |length: u64, byte| length << 8 | u64::from(*byte));
        let length = if length_bytes == 0 { u64::from(second & !MASKED) } else { long };
        if length <= MAX_PAYLOAD || length > limit || first & OPCODE >= FIRST_CONTROL {
            self.payload = length;
            out.extend_from_slice(&self.header);
        } else {
            let (first, masked, mask) = (*first, second & MASKED, BytesMut::from(mask));
            self.rest = Some(FrameRest { first, masked, mask, bytes: length });
        }
        self.header.clear();
    }

    /// Writes the header of the next piece of a frame that is being cut.
    fn begin_piece(&mut self, out: &mut BytesMut) {
        let Some(rest) = &mut self.rest else { return };
        self.payload = rest.bytes.min(MAX_PAYLOAD);
        rest.bytes -= self.payload;
        let is_last = rest.bytes == 0;
        let first = if is_last { rest.first } else { rest.first & !FIN };
        // 16 KiB at most, and the long form is allowed to any reader.
        let length = u16::try_from(self.payload).unwrap_or(u16::MAX).to_be_bytes();
        out.extend_from_slice(&[first, rest.masked | 126]);
        out.extend_from_slice(&length);
        out.extend_from_slice(&rest.mask);
        // The next piece continues the message.
        rest.first &= FIN;
        if is_last {
            self.rest = None;
        }
    }
}

/// A stream whose large frames are cut.
pub(super) struct CutFrames {
    stream: MeteredStream,
    cutter: FrameCutter,
    limit: u64,
    /// Cut frames that were not read yet.
    ready: BytesMut,
    buffer: Box<[u8]>,
}

impl CutFrames {
    /// Cuts the frames of a stream that begins with these bytes.
    pub(super) fn new(stream: MeteredStream, read: &[u8], limit: usize, buffer: usize) -> Self {
        let (mut cutter, mut ready) = (FrameCutter::default(), BytesMut::new());
        cutter.cut(read, limit as u64, &mut ready);
        let buffer = vec![0; buffer].into_boxed_slice();
        Self { stream, cutter, limit: limit as u64, ready, buffer }
    }

    pub(super) fn stream(&mut self) -> &mut MeteredStream {
        &mut self.stream
    }

    pub(super) fn into_stream(self) -> MeteredStream {
        self.stream
    }
}

impl AsyncRead for CutFrames {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.ready.is_empty() {
            let mut read = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.cutter.cut(read.filled(), this.limit, &mut this.ready);
        }
        let count = this.ready.len().min(buffer.remaining());
        if let Some(taken) = this.ready.get(..count) {
            buffer.put_slice(taken);
        }
        this.ready.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CutFrames {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
    use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameSocket};

    const LIMIT: u64 = 100 << 10;
    /// Bytes of the longest header (RFC 6455, section 5.2).
    const MAX_HEADER: usize = 14;

    /// Reads all frames of these bytes.
    fn frames(bytes: &[u8]) -> Vec<Frame> {
        let mut socket =
            FrameSocket::from_partially_read(io::Cursor::new(Vec::new()), bytes.into());
        std::iter::from_fn(|| socket.read(None).unwrap()).collect()
    }

    /// Joins frames that continue another.
    fn joined(frames: Vec<Frame>) -> Vec<(bool, OpCode, Vec<u8>)> {
        let mut whole: Vec<(bool, OpCode, Vec<u8>)> = Vec::new();
        for frame in frames {
            let (header, mut payload) = (frame.header().clone(), frame.into_payload().to_vec());
            if let Some(mask) = header.mask {
                payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
            }
            let last = whole.last_mut().filter(|(is_final, ..)| !is_final);
            match last.filter(|_| header.opcode == OpCode::Data(Data::Continue)) {
                Some((is_final, _, start)) => {
                    *is_final = header.is_final;
                    start.extend(payload);
                }
                None => whole.push((header.is_final, header.opcode, payload)),
            }
        }
        whole
    }

    proptest! {
        /// Law: cut frames have the same content in frames of a small size, however they arrive. One
        /// beyond the limit is not cut.
        #[test]
        fn content_is_kept(
            sizes in prop::collection::vec(prop_oneof![0..200_usize, 15_000..120_000_usize], 1..5),
            mask in any::<[u8; 4]>(),
            is_masked in any::<bool>(),
            piece in 1..70_000_usize,
        ) {
            let mut sent = Vec::new();
            for (number, size) in sizes.iter().enumerate() {
                let payload: Vec<u8> = (0..*size).map(|at| (at * 7 + number) as u8).collect();
                let mut frame = Frame::message(payload, OpCode::Data(Data::Text), true);
                if is_masked {
                    frame.header_mut().mask = Some(mask);
                }
                frame.format(&mut sent).unwrap();
            }
            let (mut cutter, mut out) = (FrameCutter::default(), BytesMut::new());
            for piece in sent.chunks(piece) {
                cutter.cut(piece, LIMIT, &mut out);
            }
            let got = frames(&out);
            for frame in &got {
                let size = frame.payload().len() as u64;
                prop_assert!(size <= MAX_PAYLOAD || size > LIMIT, "{size}");
            }
            prop_assert_eq!(joined(got), joined(frames(&sent)));
        }
    }

    #[test]
    fn a_header_alone_makes_a_small_frame() {
        let (mut cutter, mut out) = (FrameCutter::default(), BytesMut::new());
        let header = [&[FIN | 1, MASKED | 127][..], &(90_u64 << 10).to_be_bytes(), &[1, 2, 3, 4]];
        let header = header.concat();
        assert_eq!(header.len(), MAX_HEADER);
        cutter.cut(&header, LIMIT, &mut out);
        assert_eq!(&*out, [1, MASKED | 126, 0x40, 0, 1, 2, 3, 4]);
    }
}
