//! Appending to the journal from many calls at once.
//!
//! An append works like this:
//! 1. The caller encodes its record, without any lock.
//! 2. It takes the pen, a lock that only a writer holds, and makes one `write(2)` of a few hundred
//!    bytes to the current segment.
//! 3. It counts itself as a user of that segment, under the lock of the segment table. No file is
//!    touched under that lock.
//!
//! A `write(2)` takes microseconds, but a disk may hang for seconds. Appends run on threads that
//! serve many calls, so they wait for the pen for [`MAX_PEN_WAIT`] at most, and not at all while
//! another one is known to wait in vain. Such an append fails as stalled: a hold waits for
//! [`JournalWriter::stall_end`] without blocking its thread, and a settled call is written later by
//! [`crate::OpenCalls::maintain_journal`]. Only the thread whose own write hangs is blocked.
//!
//! Segments are created, synced and deleted in the background, by [`JournalWriter::maintain`] and
//! [`JournalWriter::sync`]. The next segment is created when the current one is half full; the
//! append that finds the current segment full swaps it in. If the next segment is not ready, the
//! current one grows beyond its size, which is only a target.
//!
//! After a failed write the segment may end in half a record, and recovery stops reading there.
//! So the half record is cut off, and the background creates another segment, because the reason may
//! be this one file. If the cut fails too, the segment is abandoned, and appends fail until there is
//! another one. Every failed write, creation and deletion is counted.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;
use tokio::sync::Notify;

use crate::{Disk, JournalError, JournalErrors, Segment};

/// Size at which a segment is replaced by the next one.
const SEGMENT_BYTES: usize = 8 << 20;
/// Maximum time that an append waits for another one to finish its write.
const MAX_PEN_WAIT: Duration = Duration::from_millis(20);

/// Reason a record was not appended.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// Another write takes long: the disk hangs.
    Stalled,
    /// The disk refused it.
    Failed(JournalError),
}

/// The writing side of the journal.
pub(crate) struct JournalWriter {
    disk: Arc<dyn Disk>,
    /// Held during a write to the current segment. Only its holder replaces the current segment.
    pen: Mutex<()>,
    /// True while an append may wait in vain for the pen.
    stalled: AtomicBool,
    stall_ended: Notify,
    /// Never held while a file is touched.
    table: Mutex<SegmentTable>,
    /// Held while segments are created and deleted, so that two callers do not create the same one.
    upkeep: Mutex<()>,
    errors: JournalErrors,
}

#[derive(Default)]
struct SegmentTable {
    /// `None` after a failed write that could not be undone, until there is another segment.
    current: Option<Arc<dyn Segment>>,
    /// Bytes of whole records in the current segment.
    written: usize,
    /// True if the last write to the current segment failed and the segment has records. An empty one
    /// is as good as the next.
    worn: bool,
    /// The next segment, created ahead of its use.
    prepared: Option<Arc<dyn Segment>>,
    /// Replaced segments that were written to since the last sync.
    unsynced: Vec<Arc<dyn Segment>>,
    /// Number of open holds and unposted entries in each segment.
    users: BTreeMap<u64, usize>,
}

impl SegmentTable {
    /// Returns the segment to write to, and its length.
    fn writable(&mut self) -> Option<(Arc<dyn Segment>, usize)> {
        if (self.current.is_none() || self.worn || self.written > SEGMENT_BYTES)
            && let Some(prepared) = self.prepared.take()
        {
            self.unsynced.extend(self.current.replace(prepared));
            self.written = 0;
            self.worn = false;
        }
        Some((Arc::clone(self.current.as_ref()?), self.written))
    }

    /// Gives up the current segment, which ends in half a record.
    fn abandon(&mut self) {
        let Some(segment) = self.current.take() else { return };
        if self.written == 0 {
            // It has no record, so it is deleted as one without users.
            self.users.entry(segment.number()).or_default();
        } else {
            self.unsynced.push(segment);
        }
    }

    fn needs_segment(&self) -> bool {
        let wears_out = self.worn || self.written > SEGMENT_BYTES / 2;
        self.prepared.is_none() && (self.current.is_none() || wears_out)
    }

    /// Removes segments without users from the table and returns their numbers.
    fn take_unused(&mut self) -> Vec<u64> {
        let current = self.current.as_ref().map(|segment| segment.number());
        let unused =
            self.users.extract_if(.., |segment, count| *count == 0 && Some(*segment) != current);
        let unused: Vec<u64> = unused.map(|(segment, _)| segment).collect();
        self.unsynced.retain(|segment| !unused.contains(&segment.number()));
        unused
    }
}

impl JournalWriter {
    /// Starts a new segment on the disk.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<Self, JournalError> {
        let current = Some(disk.create().map_err(JournalError)?);
        Ok(Self {
            disk,
            pen: Mutex::new(()),
            stalled: AtomicBool::new(false),
            stall_ended: Notify::new(),
            table: Mutex::new(SegmentTable { current, ..SegmentTable::default() }),
            upkeep: Mutex::new(()),
            errors: JournalErrors::default(),
        })
    }

    /// Appends a record and returns its segment, which is kept until [`JournalWriter::release`].
    pub(crate) fn append(&self, record: &[u8]) -> Result<u64, AppendError> {
        let pen = self.take_pen().ok_or(AppendError::Stalled)?;
        self.write(pen, record, true).map_err(AppendError::Failed)
    }

    /// Appends a record that does not keep its segment.
    pub(crate) fn append_unkept(&self, record: &[u8]) -> Result<u64, AppendError> {
        let pen = self.take_pen().ok_or(AppendError::Stalled)?;
        self.write(pen, record, false).map_err(AppendError::Failed)
    }

    /// Does the same as [`JournalWriter::append`], but blocks while the disk hangs.
    pub(crate) fn append_blocking(&self, record: &[u8]) -> Result<u64, JournalError> {
        self.write(self.pen.lock(), record, true)
    }

    /// Waits until a write that hangs has ended. Returns at once if there is none.
    pub(crate) async fn stall_end(&self) {
        let mut ended = std::pin::pin!(self.stall_ended.notified());
        // Registered before the check, so that an end in between is not missed.
        ended.as_mut().enable();
        if self.stalled.load(Ordering::SeqCst) {
            ended.await;
        }
    }

    /// Takes the pen; `None` if the disk hangs.
    fn take_pen(&self) -> Option<MutexGuard<'_, ()>> {
        if let Some(pen) = self.pen.try_lock() {
            return Some(pen);
        }
        if !self.stalled.load(Ordering::SeqCst)
            && let Some(pen) = self.pen.try_lock_for(MAX_PEN_WAIT)
        {
            return Some(pen);
        }
        self.stalled.store(true, Ordering::SeqCst);
        // With the fence in `put_down`: either the pen is seen to be free here, or its holder sees
        // the flag after putting it down.
        fence(Ordering::SeqCst);
        let pen = self.pen.try_lock();
        if pen.is_none() {
            self.errors.note(&io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer"));
        }
        pen
    }

    fn put_down(&self, pen: MutexGuard<'_, ()>) {
        drop(pen);
        fence(Ordering::SeqCst);
        if self.stalled.load(Ordering::Relaxed) && self.stalled.swap(false, Ordering::SeqCst) {
            self.stall_ended.notify_waiters();
        }
    }

    fn write(
        &self,
        pen: MutexGuard<'_, ()>,
        record: &[u8],
        keep: bool,
    ) -> Result<u64, JournalError> {
        let written = self.write_current(record, keep);
        self.put_down(pen);
        written.map_err(|e| self.count(e))
    }

    /// Writes to the current segment. The caller holds the pen.
    fn write_current(&self, record: &[u8], keep: bool) -> io::Result<u64> {
        if record.is_empty() {
            return Err(io::Error::other("a record could not be encoded"));
        }
        let writable = self.table.lock().writable();
        let Some((segment, length)) = writable else {
            return Err(io::Error::other("the journal has no segment"));
        };
        if let Err(e) = segment.append(record) {
            let cut = segment.cut(length);
            let mut table = self.table.lock();
            match cut {
                Ok(()) => table.worn = length > 0,
                Err(_) => table.abandon(),
            }
            return Err(e);
        }
        let mut table = self.table.lock();
        table.worn = false;
        table.written += record.len();
        if keep {
            *table.users.entry(segment.number()).or_default() += 1;
        }
        Ok(segment.number())
    }

    /// Creates the next segment if it will be needed soon, and deletes segments without users.
    /// Blocks on the disk.
    pub(crate) fn maintain(&self) -> Result<(), JournalError> {
        let _upkeep = self.upkeep.lock();
        // Deleting comes first, because it frees space.
        let unused = self.table.lock().take_unused();
        self.remove(&unused);
        if self.table.lock().needs_segment() {
            let segment = self.disk.create().map_err(|e| self.count(e))?;
            self.table.lock().prepared = Some(segment);
        }
        Ok(())
    }

    /// Gives up one use of each of these segments. [`JournalWriter::maintain`] deletes those without
    /// any user left.
    pub(crate) fn release(&self, segments: impl IntoIterator<Item = u64>) {
        let mut table = self.table.lock();
        for segment in segments {
            if let Some(count) = table.users.get_mut(&segment) {
                *count = count.saturating_sub(1);
            }
        }
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
            let mut table = self.table.lock();
            (std::mem::take(&mut table.unsynced), table.current.clone())
        };
        for (index, segment) in replaced.iter().chain(&current).enumerate() {
            if let Err(e) = segment.sync() {
                let left = replaced.iter().skip(index).cloned();
                self.table.lock().unsynced.extend(left);
                return Err(self.count(e));
            }
        }
        Ok(())
    }

    /// Failed writes, creations, syncs and deletions.
    pub(crate) fn errors(&self) -> &JournalErrors {
        &self.errors
    }

    fn count(&self, error: io::Error) -> JournalError {
        self.errors.note(&error);
        JournalError(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;
    use std::sync::mpsc;

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
        writer.maintain().unwrap();
        writer.maintain().unwrap();
        assert_eq!(disk.segments().unwrap(), [1, 2], "one segment is prepared, not two");
        assert_eq!(writer.append(&record).unwrap(), 2);
        let segments_after = |released: &[u64]| {
            writer.release(released.iter().copied());
            writer.maintain().unwrap();
            disk.segments().unwrap()
        };
        assert_eq!(segments_after(&[1, 1]), [1, 2, 3], "one record of it is still needed");
        assert_eq!(segments_after(&[1]), [2, 3]);
        assert_eq!(segments_after(&[2]), [2, 3], "the current segment stays");
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
        writer.maintain().unwrap();
        let segment = writer.append(b"next").unwrap();
        assert!(segment > 1);
        assert_eq!(disk.read(segment).unwrap(), b"next");
    }

    #[test]
    fn a_full_disk_leaves_no_half_record_and_one_further_segment() {
        let (disk, writer) = writer();
        writer.append(b"whole").unwrap();
        disk.set_free_space(Some(2));
        for _ in 0..100 {
            assert!(writer.append(b"refused").is_err());
            writer.maintain().unwrap();
        }
        assert_eq!(disk.segments().unwrap(), [1, 2]);
        disk.set_free_space(None);
        assert_eq!(writer.append(b"next").unwrap(), 2);
        assert_eq!(disk.read(1).unwrap(), b"whole");
        assert_eq!(disk.read(2).unwrap(), b"next");
    }

    #[test]
    fn a_segment_without_a_record_is_deleted() {
        let (disk, writer) = writer();
        disk.fail_after(2);
        for _ in 0..100 {
            assert!(writer.append(b"torn").is_err());
            writer.maintain().unwrap();
        }
        assert!(disk.segments().unwrap().len() <= 2, "{:?}", disk.segments());
    }

    /// A disk whose first write waits for a test.
    struct HangingDisk {
        inner: MemoryDisk,
        begun: mpsc::SyncSender<()>,
        end: Arc<Mutex<mpsc::Receiver<()>>>,
    }

    struct HangingSegment {
        inner: Arc<dyn Segment>,
        begun: mpsc::SyncSender<()>,
        end: Arc<Mutex<mpsc::Receiver<()>>>,
    }

    impl Disk for HangingDisk {
        fn create(&self) -> io::Result<Arc<dyn Segment>> {
            let (begun, end) = (self.begun.clone(), Arc::clone(&self.end));
            Ok(Arc::new(HangingSegment { inner: self.inner.create()?, begun, end }))
        }

        fn segments(&self) -> io::Result<Vec<u64>> {
            self.inner.segments()
        }

        fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
            self.inner.read(segment)
        }

        fn remove(&self, segment: u64) -> io::Result<()> {
            self.inner.remove(segment)
        }
    }

    impl Segment for HangingSegment {
        fn number(&self) -> u64 {
            self.inner.number()
        }

        fn append(&self, bytes: &[u8]) -> io::Result<()> {
            if bytes == b"hangs" {
                self.begun.send(()).map_err(io::Error::other)?;
                self.end.lock().recv().map_err(io::Error::other)?;
            }
            self.inner.append(bytes)
        }

        fn cut(&self, length: usize) -> io::Result<()> {
            self.inner.cut(length)
        }

        fn sync(&self) -> io::Result<()> {
            self.inner.sync()
        }
    }

    #[test]
    fn appends_do_not_wait_for_a_write_that_hangs() {
        let (begun, has_begun) = mpsc::sync_channel(1);
        let (end, may_end) = mpsc::channel();
        let end_of_write = Arc::new(Mutex::new(may_end));
        let disk = HangingDisk { inner: MemoryDisk::default(), begun, end: end_of_write };
        let writer = JournalWriter::open(Arc::new(disk)).unwrap();
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| writer.append(b"hangs"));
            has_begun.recv().unwrap();
            for _ in 0..3 {
                assert!(matches!(writer.append(b"waits"), Err(AppendError::Stalled)));
            }
            // Neither the table nor the background waits for the write.
            writer.release([]);
            writer.maintain().unwrap();
            let mut ready = std::pin::pin!(writer.stall_end());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(ready.as_mut().poll(&mut context).is_pending());
            end.send(()).unwrap();
            assert_eq!(hanging.join().unwrap().unwrap(), 1);
            assert!(ready.as_mut().poll(&mut context).is_ready());
        });
        assert_eq!(writer.append(b"next").unwrap(), 1);
    }
}
