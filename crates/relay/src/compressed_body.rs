//! Compressed bodies of requests and answers. The first bytes are decompressed as they arrive. Those of a
//! large body wait for its end, and are decompressed at a place for work on large inputs.

use access::limits::Admission;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, ErrorKind, is_abandoned_now};
use store::is_large;
use transport::{BodyDecoder, ContentCoding, DecodeError, MAX_EXPANSION};

use super::call::BodyBuffer;
use crate::large_work::HeavyWork;

/// Compressed bytes that are decompressed before the next look at the limits.
const PIECE_BYTES: usize = 16 << 10;

/// A compressed body that is being received.
pub(super) struct CompressedBody<'a> {
    decoder: BodyDecoder,
    limit: usize,
    admission: &'a Admission,
    /// Bytes that were decompressed, and their output.
    bytes_in: usize,
    bytes_out: usize,
    /// Memory of the decoder that is counted.
    window_bytes: usize,
    /// Compressed bytes that wait for the end of the body.
    waiting: Vec<Bytes>,
}

impl<'a> CompressedBody<'a> {
    pub(super) fn new(
        coding: ContentCoding,
        limit: usize,
        admission: &'a Admission,
    ) -> Result<Self, ApiError> {
        let decoder =
            BodyDecoder::new(coding, limit).map_err(|why| undecodable_error(why, limit))?;
        let (bytes_in, bytes_out, window_bytes) = (0, 0, 0);
        let waiting = Vec::new();
        Ok(Self { decoder, limit, admission, bytes_in, bytes_out, window_bytes, waiting })
    }

    /// Takes received bytes. The output of a small body is appended at once.
    pub(super) fn push(&mut self, mut data: Bytes, out: &mut BodyBuffer) -> Result<(), ApiError> {
        while !data.is_empty() && !self.is_large() {
            let piece = data.split_to(data.len().min(PIECE_BYTES));
            self.decode(&piece, out)?;
        }
        if !data.is_empty() {
            self.waiting.push(data);
        }
        Ok(())
    }

    /// Ends the body and appends the rest of its output.
    pub(super) async fn finish(
        mut self,
        heavy_work: &HeavyWork,
        out: &mut BodyBuffer,
    ) -> Result<(), ApiError> {
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            let decode_all = || {
                let mut pieces = waiting.iter().flat_map(|data| data.chunks(PIECE_BYTES));
                // The result of work whose caller has left is not used.
                pieces.try_for_each(|piece| match is_abandoned_now() {
                    true => Ok(()),
                    false => self.decode(piece, out),
                })
            };
            heavy_work.permit(usize::MAX).await.run(decode_all).await?;
        }
        if let Some(permit) = &self.admission.buffer {
            permit.shrink(self.window_bytes as u64);
        }
        self.decoder.finish().map_err(|why| undecodable_error(why, self.limit))
    }

    const fn is_large(&self) -> bool {
        is_large(self.bytes_in) || is_large(self.bytes_out)
    }

    fn decode(&mut self, piece: &[u8], out: &mut BodyBuffer) -> Result<(), ApiError> {
        let decoded = self.decoder.push(piece).map_err(|why| undecodable_error(why, self.limit))?;
        self.bytes_in += piece.len();
        self.bytes_out += decoded.len();
        if let Some(permit) = &self.admission.buffer {
            let window = self.decoder.window_bytes().saturating_sub(self.window_bytes);
            permit.grow(decoded.len().saturating_add(window) as u64)?;
            self.window_bytes += window;
        }
        out.push(decoded);
        Ok(())
    }
}

/// The compressed rest of a provider's answer that has become large.
pub(super) struct CompressedRest {
    decoder: BodyDecoder,
    limit: usize,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
}

impl CompressedRest {
    /// Begins with bytes that the decoder has not seen. The answer may have at most so many bytes.
    pub(super) fn new(decoder: BodyDecoder, rest: Bytes, limit: usize) -> Self {
        Self { decoder, limit, waiting_bytes: rest.len(), waiting: vec![rest] }
    }

    /// Takes received bytes.
    pub(super) fn push(&mut self, data: Bytes) -> Result<(), DecodeError> {
        self.waiting_bytes = self.waiting_bytes.saturating_add(data.len());
        self.waiting.push(data);
        if self.waiting_bytes > self.limit { Err(DecodeError::TooLarge) } else { Ok(()) }
    }

    /// Decompresses all of it, behind what was decompressed before.
    pub(super) async fn finish(
        mut self,
        heavy_work: &HeavyWork,
        out: &mut BytesMut,
    ) -> Result<(), DecodeError> {
        let decode_all = || {
            for piece in self.waiting.iter().flat_map(|data| data.chunks(PIECE_BYTES)) {
                // The result of work whose caller has left is not used.
                if is_abandoned_now() {
                    return Ok(());
                }
                out.extend_from_slice(&self.decoder.push(piece)?);
                if out.len() > self.limit {
                    return Err(DecodeError::TooLarge);
                }
            }
            self.decoder.finish()
        };
        heavy_work.permit(usize::MAX).await.run(decode_all).await
    }
}

fn undecodable_error(why: DecodeError, limit: usize) -> ApiError {
    match why {
        DecodeError::TooLarge => {
            let message = format!(
                "the body is larger than {limit} bytes, the limit here, once it is decompressed"
            );
            ApiError::new(ErrorKind::BodyTooLarge, message)
        }
        DecodeError::TooDense => {
            let message = format!(
                "the body expands to more than {MAX_EXPANSION} times its compressed size; send it \
                 with less compression or none"
            );
            ApiError::new(ErrorKind::BodyTooLarge, message).with_param("content-encoding")
        }
        DecodeError::Broken(why) => {
            let message = "the body does not match its `Content-Encoding`";
            ApiError::invalid("content-encoding", message).with_log_note(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn gzip(text: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        Bytes::from(encoder.finish().unwrap())
    }

    /// Splits a compressed body behind its first bytes, which are decompressed.
    fn begun(body: &Bytes, limit: usize) -> (CompressedRest, BytesMut, Bytes) {
        let mut decoder = BodyDecoder::new(ContentCoding::Gzip, usize::MAX).unwrap();
        let (first, mut more) = (body.slice(..2_000), body.slice(2_000..));
        let out = BytesMut::from(&decoder.push(&first).unwrap()[..]);
        (CompressedRest::new(decoder, more.split_to(100), limit), out, more)
    }

    #[tokio::test]
    async fn the_rest_of_a_large_answer_is_decompressed_at_a_place_for_large_work() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        let body = gzip(&text);
        let work = HeavyWork::new(1);
        let (mut rest, mut out, more) = begun(&body, text.len());
        let held = work.permit(usize::MAX).await;
        rest.push(more).unwrap();
        {
            let mut waits = Box::pin(rest.finish(&work, &mut out));
            for _ in 0..3 {
                assert!(futures_util::poll!(&mut waits).is_pending(), "there is no place");
            }
            drop(held);
            waits.await.unwrap();
        }
        assert_eq!(work.usage().begun, 2);
        assert!(out == text, "{} of {} bytes", out.len(), text.len());
    }

    #[tokio::test]
    async fn an_answer_is_bounded_before_and_behind_its_decompression() {
        let text = vec![b'x'; 1 << 20];
        let body = gzip(&text);
        let work = HeavyWork::new(1);
        let (mut rest, mut out, more) = begun(&body, text.len() - 1);
        rest.push(more.clone()).unwrap();
        assert_eq!(rest.finish(&work, &mut out).await, Err(DecodeError::TooLarge));
        let (mut rest, _, _) = begun(&body, 1_000);
        assert_eq!(rest.push(more), Err(DecodeError::TooLarge));
        let (rest, mut out, _) = begun(&body, text.len());
        assert!(matches!(rest.finish(&work, &mut out).await, Err(DecodeError::Broken(_))));
    }
}
