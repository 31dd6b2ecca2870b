//! A compressed request body. The first bytes are decompressed as they arrive. Those of a large body
//! wait for its end, and are decompressed at a place for work on large inputs.

use access::limits::Admission;
use bytes::Bytes;
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
