//! Records on their way to the journal.

use std::sync::Arc;

use crate::write_batch::WriteBatch;

/// Size of the queue at which further records fail. It holds thousands of records.
pub(crate) const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Size up to which an emptied buffer is kept for the next batch.
const MAX_SPARE_BYTES: usize = 256 << 10;

/// Records of one kind that wait to be written.
#[derive(Default)]
pub(crate) struct QueuedRecords {
    pub(crate) bytes: Vec<u8>,
    pub(crate) batch: Arc<WriteBatch>,
}

/// Records that wait to be written.
#[derive(Default)]
pub(crate) struct WriteQueue {
    /// Holds and checkpoints. The disk may have no room for them.
    pub(crate) further: QueuedRecords,
    /// Settlements. Their room was reserved with their holds.
    pub(crate) settlements: QueuedRecords,
    /// Number of settlements that are still to come: of running calls, and of calls whose settlement
    /// could not be written yet.
    pub(crate) promised: usize,
    /// The batches that are being written.
    pub(crate) in_flight: Option<[Arc<WriteBatch>; 2]>,
    /// Empty buffers for the next batches.
    spare: [Vec<u8>; 2],
    /// Number of writes so far, and at the time of the last watch.
    pub(crate) writes: u64,
    pub(crate) watched: u64,
    /// True while the writer thread takes the records.
    pub(crate) has_thread: bool,
}

impl QueuedRecords {
    /// Adds a record that keeps the segment it is written to.
    pub(crate) fn push_kept(&mut self, record: &[u8]) -> Arc<WriteBatch> {
        self.bytes.extend_from_slice(record);
        self.batch.keep();
        Arc::clone(&self.batch)
    }
}

impl WriteQueue {
    /// Returns true if there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.further.bytes.is_empty() && self.settlements.bytes.is_empty()
    }

    /// Returns true if it takes no further record.
    pub(crate) fn is_full(&self) -> bool {
        self.further.bytes.len() + self.settlements.bytes.len() > MAX_QUEUED_BYTES
    }

    /// Takes all records, first the further ones, then the settlements; `None` if there are none.
    pub(crate) fn begin_write(&mut self) -> Option<[QueuedRecords; 2]> {
        if self.is_empty() {
            return None;
        }
        let [first, second] = std::mem::take(&mut self.spare);
        let take = |records: &mut QueuedRecords, spare| QueuedRecords {
            bytes: std::mem::replace(&mut records.bytes, spare),
            batch: std::mem::take(&mut records.batch),
        };
        let taken = [take(&mut self.further, first), take(&mut self.settlements, second)];
        self.in_flight = Some(taken.each_ref().map(|records| Arc::clone(&records.batch)));
        self.writes += 1;
        Some(taken)
    }

    /// Notes the end of the write, and keeps its buffers for the next one.
    pub(crate) fn end_write(&mut self, buffers: [Vec<u8>; 2]) {
        self.in_flight = None;
        for (spare, mut bytes) in self.spare.iter_mut().zip(buffers) {
            if bytes.capacity() <= MAX_SPARE_BYTES {
                bytes.clear();
                *spare = bytes;
            }
        }
    }
}
