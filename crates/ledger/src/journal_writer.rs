//! Appending to the journal from many calls at once.
//!
//! An append works like this:
//! 1. The caller encodes its record, without any lock.
//! 2. It takes the writer's lock, makes one `write(2)` of a few hundred bytes to the current
//!    segment and counts itself as a user of that segment. Nothing else happens under this lock.
//! 3. It updates the table of open calls, which has a lock of its own.
//!
//! Segments are created, synced and deleted outside the lock. [`JournalWriter::prepare`] runs in the
//! background and creates the next segment when the current one is half full; the append that finds
//! the current segment full swaps it in. If the next segment is not ready, the current one grows
//! beyond its size, which is only a target.
//!
//! After a failed write the segment may end in half a record, and recovery stops reading there.
//! So the segment is abandoned at once. The next append creates another one if none is prepared,
//! outside the lock as well. Every failed write, creation and deletion is counted.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Disk, JournalError, JournalErrors, Segment};

/// Size at which a segment is replaced by the next one.
const SEGMENT_BYTES: usize = 8 << 20;

/// The writing side of the journal.
pub(crate) struct JournalWriter {
    disk: Arc<dyn Disk>,
    state: Mutex<WriterState>,
    /// Held while a segment is created, so that two callers do not create the same one.
    creating: Mutex<()>,
    errors: JournalErrors,
}

#[derive(Default)]
struct WriterState {
    /// `None` after a failed write, until there is another segment.
    current: Option<Arc<dyn Segment>>,
    /// Bytes written to the current segment.
    written: usize,
    /// The next segment, created ahead of its use.
    prepared: Option<Arc<dyn Segment>>,
    /// Replaced segments that were written to since the last sync.
    unsynced: Vec<Arc<dyn Segment>>,
    /// Number of open holds and unposted entries in each segment.
    users: BTreeMap<u64, usize>,
}

impl WriterState {
    fn install(&mut self, segment: Arc<dyn Segment>) {
        self.unsynced.extend(self.current.replace(segment));
        self.written = 0;
    }

    fn needs_segment(&self) -> bool {
        self.prepared.is_none() && (self.current.is_none() || self.written > SEGMENT_BYTES / 2)
    }
}

impl JournalWriter {
    /// Starts a new segment on the disk.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<Self, JournalError> {
        let current = Some(disk.create().map_err(JournalError)?);
        let state = Mutex::new(WriterState { current, ..WriterState::default() });
        Ok(Self { disk, state, creating: Mutex::new(()), errors: JournalErrors::default() })
    }

    /// Appends a record and returns its segment, which is kept until [`JournalWriter::release`].
    pub(crate) fn append(&self, record: &[u8]) -> Result<u64, JournalError> {
        self.write(record, true)
    }

    /// Appends a record that does not keep its segment.
    pub(crate) fn append_unkept(&self, record: &[u8]) -> Result<u64, JournalError> {
        self.write(record, false)
    }

    fn write(&self, record: &[u8], keep: bool) -> Result<u64, JournalError> {
        if record.is_empty() {
            return Err(self.count(std::io::Error::other("a record could not be encoded")));
        }
        let mut state = self.state.lock();
        if (state.current.is_none() || state.written > SEGMENT_BYTES)
            && let Some(prepared) = state.prepared.take()
        {
            state.install(prepared);
        }
        if state.current.is_none() {
            drop(state);
            self.prepare()?;
            state = self.state.lock();
            if let Some(prepared) = state.prepared.take() {
                state.install(prepared);
            }
        }
        let Some(current) = &state.current else {
            drop(state);
            return Err(self.count(std::io::Error::other("the journal has no segment")));
        };
        let segment = current.number();
        if let Err(e) = current.append(record) {
            let abandoned = state.current.take();
            state.unsynced.extend(abandoned);
            drop(state);
            return Err(self.count(e));
        }
        state.written += record.len();
        if keep {
            *state.users.entry(segment).or_default() += 1;
        }
        Ok(segment)
    }

    /// Creates the next segment if it will be needed soon.
    pub(crate) fn prepare(&self) -> Result<(), JournalError> {
        if !self.state.lock().needs_segment() {
            return Ok(());
        }
        let _creating = self.creating.lock();
        // Another caller may have created it in the meantime.
        if !self.state.lock().needs_segment() {
            return Ok(());
        }
        let segment = self.disk.create().map_err(|e| self.count(e))?;
        self.state.lock().prepared = Some(segment);
        Ok(())
    }

    /// Gives up one use of each of these segments and deletes those without any user left.
    pub(crate) fn release(&self, segments: impl IntoIterator<Item = u64>) {
        let unused: Vec<u64> = {
            let mut state = self.state.lock();
            for segment in segments {
                if let Some(count) = state.users.get_mut(&segment) {
                    *count = count.saturating_sub(1);
                }
            }
            let current = state.current.as_ref().map(|segment| segment.number());
            let unused = state
                .users
                .extract_if(.., |segment, count| *count == 0 && Some(*segment) != current);
            let unused: Vec<u64> = unused.map(|(segment, _)| segment).collect();
            state.unsynced.retain(|segment| !unused.contains(&segment.number()));
            unused
        };
        self.remove(&unused);
    }

    /// Deletes segments. One that stays is recovered again at the next start, and all its calls are
    /// found to be recorded already.
    pub(crate) fn remove(&self, segments: &[u64]) {
        for segment in segments {
            if let Err(e) = self.disk.remove(*segment) {
                drop(self.count(e));
            }
        }
    }

    /// Waits until every append so far survives a crash of the machine.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let (replaced, current) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.unsynced), state.current.clone())
        };
        for (index, segment) in replaced.iter().chain(&current).enumerate() {
            if let Err(e) = segment.sync() {
                let left = replaced.iter().skip(index).cloned();
                self.state.lock().unsynced.extend(left);
                return Err(self.count(e));
            }
        }
        Ok(())
    }

    /// Failed writes, creations, syncs and deletions.
    pub(crate) fn errors(&self) -> &JournalErrors {
        &self.errors
    }

    fn count(&self, error: std::io::Error) -> JournalError {
        self.errors.note(&error);
        JournalError(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;

    fn writer() -> (Arc<MemoryDisk>, JournalWriter) {
        let disk = Arc::new(MemoryDisk::default());
        let passed: Arc<dyn Disk> = Arc::clone(&disk) as _;
        (disk, JournalWriter::open(passed).unwrap())
    }

    #[test]
    fn a_full_segment_is_replaced_only_by_a_prepared_one() {
        let (disk, writer) = writer();
        let record = vec![7; SEGMENT_BYTES / 2 + 1];
        assert_eq!(writer.append(&record).unwrap(), 1);
        assert_eq!(writer.append(&record).unwrap(), 1);
        assert_eq!(writer.append(&record).unwrap(), 1, "nothing is prepared: it grows");
        writer.prepare().unwrap();
        writer.prepare().unwrap();
        assert_eq!(disk.segments().unwrap(), [1, 2], "one segment is prepared, not two");
        assert_eq!(writer.append(&record).unwrap(), 2);
        writer.release([1, 1]);
        assert_eq!(disk.segments().unwrap(), [1, 2], "one record of it is still needed");
        writer.release([1]);
        assert_eq!(disk.segments().unwrap(), [2]);
        writer.release([2]);
        assert_eq!(disk.segments().unwrap(), [2], "the current segment stays");
        assert_eq!(writer.errors().so_far().0, 0);
        writer.sync().unwrap();
    }

    #[test]
    fn nothing_is_written_behind_half_a_record() {
        let (disk, writer) = writer();
        writer.append(b"whole").unwrap();
        disk.fail_after(2);
        assert!(writer.append(b"torn").is_err());
        assert!(writer.append_unkept(b"lost").is_err());
        assert_eq!(writer.errors().so_far().0, 2);
        assert_eq!(disk.read(1).unwrap(), b"wholeto");
        disk.fail_after(100);
        let segment = writer.append(b"next").unwrap();
        assert!(segment > 1);
        assert_eq!(disk.read(segment).unwrap(), b"next");
    }
}
