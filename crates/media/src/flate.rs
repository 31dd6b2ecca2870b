//! Bounded inflation.

use flate2::{Decompress, FlushDecompress, Status};

/// Bytes that all streams of a file may unpack to.
const MAX_INFLATED_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: usize = 32 << 10;

/// Work that may still be done for a file.
pub(super) struct InflateBudget {
    /// Packed bytes: streams of a crafted file may overlap.
    packed: u64,
    unpacked: u64,
}

impl InflateBudget {
    pub(super) fn for_file(file: &[u8]) -> Self {
        Self { packed: (file.len() as u64).saturating_mul(4), unpacked: MAX_INFLATED_BYTES }
    }

    /// Takes bytes that are read as they are.
    pub(super) fn take(&mut self, bytes: usize) -> Option<()> {
        self.packed = self.packed.checked_sub(bytes as u64)?;
        Some(())
    }

    /// Unpacks the stream at the begin of `packed`, which ends by its own mark. `None` if it is broken
    /// or too large.
    pub(super) fn inflate(&mut self, packed: &[u8], mut emit: impl FnMut(&[u8])) -> Option<()> {
        let mut stream = Decompress::new(true);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let (before_in, before_out) = (stream.total_in(), stream.total_out());
            let rest = packed.get(usize::try_from(before_in).ok()?..)?;
            let status = stream.decompress(rest, &mut chunk, FlushDecompress::None).ok()?;
            let (read, made) = (stream.total_in() - before_in, stream.total_out() - before_out);
            self.packed = self.packed.checked_sub(read)?;
            self.unpacked = self.unpacked.checked_sub(made)?;
            emit(chunk.get(..usize::try_from(made).ok()?)?);
            match status {
                Status::StreamEnd => return Some(()),
                // A file that was cut is read by some as far as it goes.
                Status::Ok | Status::BufError if read == 0 && made == 0 => return None,
                Status::Ok | Status::BufError => {}
            }
        }
    }
}
