//! Appending to the journal from many calls at once.
//!
//! A `write(2)` takes microseconds, but a disk may hang for seconds, and the threads that serve calls
//! must go on. So they never write:
//! 1. A call encodes its record and adds it to the queue, under a lock that no disk access holds.
//! 2. The writer thread takes all queued records as one batch and makes one `write(2)` of them.
//! 3. It wakes the calls that wait for the batch, see [`crate::JournalReceipt`].
//!
//! Records that arrive during a write share the next one. Before the thread is started, and after its
//! end, every append writes its record itself: tests and simulations stay deterministic.
//!
//! The disk hangs if a write lasts from one [`JournalWriter::watch`] to the next. Then nobody waits
//! for it any longer: calls are refused, and settled calls go on without their record, which is
//! written after the hang. The queue is bounded; a record beyond the bound fails.
//!
//! Every failed write, creation and deletion is counted.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::segment_table::SegmentTable;
use crate::write_batch::WriteBatch;
use crate::{Disk, JournalError, JournalErrors};

/// Size of the queue at which further records fail. It holds thousands of records.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Size up to which an emptied buffer is kept for the next batch.
const MAX_SPARE_BYTES: usize = 256 << 10;

/// Time that the end of the process waits for the last write.
const MAX_LAST_WRITE: Duration = Duration::from_secs(1);

/// The writing side of the journal.
pub(crate) struct JournalWriter {
    disk: Arc<dyn Disk>,
    /// Never held while a file is touched.
    queue: Mutex<WriteQueue>,
    /// Wakes the writer thread.
    queued: Condvar,
    /// Held during a write. Only its holder replaces the current segment.
    writing: Mutex<()>,
    /// True while the disk hangs. Changed under the lock of the queue.
    stalled: AtomicBool,
    /// True if a batch is synced before its records count as written.
    syncs_writes: AtomicBool,
    /// Never held while a file is touched.
    table: Mutex<SegmentTable>,
    /// Held while segments are created and deleted, so that two callers do not create the same one.
    upkeep: Mutex<()>,
    errors: JournalErrors,
    /// Names of damaged files that were set aside, as of the last upkeep.
    damaged_files: Mutex<Vec<String>>,
}

/// Records that wait to be written.
#[derive(Default)]
struct WriteQueue {
    bytes: Vec<u8>,
    batch: Arc<WriteBatch>,
    /// The batch that is being written.
    in_flight: Option<Arc<WriteBatch>>,
    /// An empty buffer for the next batch.
    spare: Vec<u8>,
    /// Number of writes so far, and at the time of the last watch.
    writes: u64,
    watched: u64,
    /// True while the writer thread takes the records.
    has_thread: bool,
}

impl WriteQueue {
    /// Takes all records as a batch; `None` if there are none.
    fn begin_write(&mut self) -> Option<(Arc<WriteBatch>, Vec<u8>)> {
        if self.bytes.is_empty() {
            return None;
        }
        let spare = std::mem::take(&mut self.spare);
        let bytes = std::mem::replace(&mut self.bytes, spare);
        let batch = std::mem::take(&mut self.batch);
        self.in_flight = Some(Arc::clone(&batch));
        self.writes += 1;
        Some((batch, bytes))
    }

    fn end_write(&mut self, mut bytes: Vec<u8>) {
        self.in_flight = None;
        if bytes.capacity() <= MAX_SPARE_BYTES {
            bytes.clear();
            self.spare = bytes;
        }
    }
}

/// The running writer thread.
pub(crate) struct WriterThread {
    /// Disconnected when the thread has ended.
    ended: mpsc::Receiver<()>,
}

impl WriterThread {
    /// Waits for the end of the thread, but not for a disk that hangs.
    pub(crate) fn wait(self) {
        let _ = self.ended.recv_timeout(MAX_LAST_WRITE);
    }
}

/// A record that was appended. It keeps its segment until [`JournalWriter::release`].
#[derive(Clone)]
pub(crate) struct KeptRecord(Arc<WriteBatch>);

impl KeptRecord {
    /// Waits until the record is written. `place` is that of the task among those that wait.
    pub(crate) fn poll_end(
        &self,
        place: &mut Option<usize>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), JournalError>> {
        self.0.poll_end(place, cx)
    }

    /// Returns true until the write of the record has ended.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.outcome().is_none()
    }

    /// Returns true if the journal has the record.
    pub(crate) fn is_written(&self) -> bool {
        self.0.outcome().is_some_and(|outcome| outcome.is_ok())
    }

    /// Returns the reason the journal does not have the record; `None` if it may still be written.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.0.outcome()?.err()
    }
}

fn stalled_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer")
}

impl JournalWriter {
    /// Starts a new segment on the disk.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<Self, JournalError> {
        let current = disk.create().map_err(JournalError)?;
        Ok(Self {
            disk,
            queue: Mutex::default(),
            queued: Condvar::new(),
            writing: Mutex::new(()),
            stalled: AtomicBool::new(false),
            syncs_writes: AtomicBool::new(false),
            table: Mutex::new(SegmentTable::new(current)),
            upkeep: Mutex::new(()),
            errors: JournalErrors::default(),
            damaged_files: Mutex::default(),
        })
    }

    /// Starts the writer thread. It ends at [`Self::end_thread`], after the last queued record.
    pub(crate) fn start_thread(self: &Arc<Self>) -> io::Result<WriterThread> {
        let writer = Arc::clone(self);
        let (ends, ended) = mpsc::channel::<()>();
        self.queue.lock().has_thread = true;
        let started = std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            writer.write_until_end();
            drop(writer);
            drop(ends);
        });
        self.queue.lock().has_thread = started.is_ok();
        started.map(|_| WriterThread { ended })
    }

    /// Sets whether a record counts as written only when it survives a crash of the machine.
    pub(crate) fn set_sync_writes(&self, on: bool) {
        self.syncs_writes.store(on, Ordering::Relaxed);
    }

    /// Leaves writing to [`Self::write_queued`] without a thread, so that a test decides when.
    #[cfg(test)]
    pub(crate) fn defer_writes(&self) {
        self.queue.lock().has_thread = true;
    }

    fn write_until_end(&self) {
        loop {
            let mut queue = self.queue.lock();
            while queue.bytes.is_empty() {
                if !queue.has_thread {
                    return;
                }
                self.queued.wait(&mut queue);
            }
            drop(queue);
            self.write_queued();
        }
    }

    /// Ends the writer thread.
    pub(crate) fn end_thread(&self) {
        self.queue.lock().has_thread = false;
        self.queued.notify_all();
    }

    /// Appends a record, which keeps its segment until [`JournalWriter::release`]. The thread writes it
    /// when its [`crate::JournalReceipt`] is polled or dropped.
    pub(crate) fn append(&self, record: &[u8]) -> Result<KeptRecord, JournalError> {
        self.enqueue(record, true).map(KeptRecord).map_err(|e| self.count(e))
    }

    /// Appends a record that does not keep its segment. A failure is counted.
    pub(crate) fn append_unkept(&self, record: &[u8]) {
        match self.enqueue(record, false) {
            Ok(_) => self.wake_thread(),
            Err(e) => self.errors.note(&e),
        }
    }

    fn enqueue(&self, record: &[u8], keep: bool) -> io::Result<Arc<WriteBatch>> {
        let mut queue = self.queue.lock();
        if queue.bytes.len() > MAX_QUEUED_BYTES {
            return Err(stalled_error());
        }
        queue.bytes.extend_from_slice(record);
        let batch = Arc::clone(&queue.batch);
        if keep {
            batch.keep();
        }
        let has_thread = queue.has_thread;
        drop(queue);
        if !has_thread {
            self.write_queued();
        }
        Ok(batch)
    }

    /// Wakes the thread to write what is queued.
    pub(crate) fn wake_thread(&self) {
        self.queued.notify_one();
    }

    /// Returns true while the disk hangs.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }

    /// Fails while the disk hangs. The failure is counted once, by [`Self::watch`].
    pub(crate) fn check_stall(&self) -> Result<(), JournalError> {
        if self.is_stalled() { Err(JournalError(stalled_error())) } else { Ok(()) }
    }

    /// Looks if the write of the last watch is still running. If so, the disk hangs, and nobody waits
    /// for it any longer. To be called periodically; never blocks on the disk.
    pub(crate) fn watch(&self) {
        let mut queue = self.queue.lock();
        let is_same = queue.watched == queue.writes;
        queue.watched = queue.writes;
        let Some(in_flight) = queue.in_flight.clone().filter(|_| is_same) else { return };
        let was_stalled = self.stalled.swap(true, Ordering::SeqCst);
        let waiting = [in_flight, Arc::clone(&queue.batch)];
        drop(queue);
        if !was_stalled {
            self.errors.note(&stalled_error());
        }
        for batch in waiting {
            batch.wake_all();
        }
    }

    /// Writes all queued records. Blocks on the disk; a failure is counted, and the records have it.
    pub(crate) fn write_queued(&self) {
        let _writing = self.writing.lock();
        let Some((batch, bytes)) = self.queue.lock().begin_write() else { return };
        let written = self.write_current(&bytes);
        if let Err(e) = &written {
            self.errors.note(e);
        }
        {
            let mut queue = self.queue.lock();
            queue.end_write(bytes);
            self.stalled.store(false, Ordering::SeqCst);
        }
        batch.end(written, &self.table);
    }

    /// Writes to the current segment and returns its number. The caller holds `writing`.
    fn write_current(&self, records: &[u8]) -> io::Result<u64> {
        let writable = self.table.lock().writable();
        let Some((segment, length)) = writable else {
            return Err(io::Error::other("the journal has no segment"));
        };
        if let Err(e) = segment.append(records) {
            let cut = segment.cut(length);
            let mut table = self.table.lock();
            match cut {
                Ok(()) => table.note_cut(),
                Err(_) => table.abandon(),
            }
            return Err(e);
        }
        self.table.lock().note_written(records.len());
        if self.syncs_writes.load(Ordering::Relaxed) {
            segment.sync()?;
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
        self.look_for_damage();
        if self.table.lock().needs_segment() {
            let segment = self.disk.create().map_err(|e| self.count(e))?;
            self.table.lock().prepare(segment);
        }
        Ok(())
    }

    /// Gives up records. [`JournalWriter::maintain`] deletes segments that none needs any more.
    pub(crate) fn release(&self, records: impl IntoIterator<Item = KeptRecord>) {
        for KeptRecord(batch) in records {
            batch.release(&self.table);
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

    /// Keeps a damaged segment out of the way, because nothing in it may be lost for good.
    pub(crate) fn set_aside(&self, segment: u64) {
        if let Err(e) = self.disk.set_aside(segment) {
            drop(self.count(e));
        }
        self.look_for_damage();
    }

    /// Notes which damaged files there are. An operator may accept one at any time.
    fn look_for_damage(&self) {
        match self.disk.damaged_files() {
            Ok(files) => *self.damaged_files.lock() = files,
            Err(e) => drop(self.count(e)),
        }
    }

    /// Returns the names of damaged files that were set aside and not accepted.
    pub(crate) fn damaged_files(&self) -> Vec<String> {
        self.damaged_files.lock().clone()
    }

    /// Waits until every written record survives a crash of the machine.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let segments = self.table.lock().take_unsynced();
        for (index, segment) in segments.iter().enumerate() {
            if let Err(e) = segment.sync() {
                let is_deleted = e.kind() == io::ErrorKind::NotFound;
                let left = segments.get(index + usize::from(is_deleted)..).unwrap_or_default();
                // Records in a deleted file would be lost, so no more are written to it.
                let _writing = is_deleted.then(|| self.writing.lock());
                let mut table = self.table.lock();
                if is_deleted {
                    table.forget(segment.number());
                }
                table.put_back_unsynced(left);
                return Err(self.count(e));
            }
        }
        Ok(())
    }

    /// Returns the number of kept records.
    #[cfg(test)]
    pub(crate) fn users(&self) -> usize {
        self.table.lock().users()
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
mod tests;
