//! Appending to the journal from many calls at once.
//!
//! A `write(2)` takes microseconds, but a disk may hang for seconds, and the threads that serve calls
//! must go on. So they never write:
//! 1. A call encodes its record and adds it to the queue, under a lock that no disk access holds.
//! 2. The writer thread takes all queued records as one batch and makes one `write(2)` of them.
//! 3. It wakes the calls that wait for the batch, see [`crate::JournalReceipt`].
//!
//! Room for its settlement is reserved on the disk together with the hold of a call
//! ([`crate::Segment::reserve`]). A hold without such room fails, and so does a checkpoint; a
//! settlement never needs new room, so that a full disk loses none.
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
use std::time::{Duration, Instant};

use crate::segment_manifest::ManifestWriter;
use crate::segment_table::{SegmentTable, WritableSegment};
use crate::write_batch::WriteBatch;
use crate::write_queue::{QueuedRecords, WriteQueue};
use crate::{Disk, JournalError, JournalErrors, JournalTimes, Segment};

/// Size up to which retired segments are kept.
const MAX_RETIRED_BYTES: u64 = 256 << 20;

/// Time that the end of the process waits for the last write.
const MAX_LAST_WRITE: Duration = Duration::from_secs(1);

/// The writing side of the journal.
pub(crate) struct JournalWriter {
    disk: Arc<dyn Disk>,
    manifest: ManifestWriter,
    /// Segments that were retired by earlier processes and are still to be looked at for damage.
    unchecked: Mutex<Vec<u64>>,
    /// Never held while a file is touched.
    queue: Mutex<WriteQueue>,
    /// Wakes the writer thread.
    queued: Condvar,
    /// Held during a write. Only its holder replaces the current segment.
    writing: Mutex<()>,
    /// True while the disk hangs. Changed under the lock of the queue.
    stalled: AtomicBool,
    /// True after a failure, until the disk takes records again.
    failing: AtomicBool,
    /// True if a segment was deleted or moved by somebody else, with records that calls need.
    lost_segment: AtomicBool,
    /// True if a batch is synced before its records count as written.
    syncs_writes: AtomicBool,
    /// True if the file system cannot reserve room.
    is_unreserved: AtomicBool,
    /// Never held while a file is touched.
    table: Mutex<SegmentTable>,
    /// Held while segments are created and deleted, so that two callers do not create the same one.
    upkeep: Mutex<()>,
    errors: JournalErrors,
    times: JournalTimes,
    /// Names of damaged files that were set aside, as of the last upkeep.
    damaged_files: Mutex<Vec<String>>,
}

/// Room on the disk that is kept for the settlement of each running call. A larger settlement needs
/// room of its own, or is written without its details.
pub(crate) const SETTLEMENT_BYTES: usize = 4_096;

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
        let manifest = ManifestWriter::open(&*disk).map_err(JournalError)?;
        let unchecked = disk.retired().map_err(JournalError)?;
        let damaged_files = disk.damaged_files().map_err(JournalError)?;
        let current = disk.create().map_err(JournalError)?;
        let errors = JournalErrors::default();
        // Without room for the manifest the node starts all the same; it is completed later.
        if let Err(e) = manifest.add(&*disk, current.number()) {
            errors.note(&e);
        }
        Ok(Self {
            disk,
            manifest,
            unchecked: Mutex::new(unchecked),
            queue: Mutex::default(),
            queued: Condvar::new(),
            writing: Mutex::new(()),
            stalled: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            lost_segment: AtomicBool::new(false),
            syncs_writes: AtomicBool::new(false),
            is_unreserved: AtomicBool::new(false),
            table: Mutex::new(SegmentTable::new(current)),
            upkeep: Mutex::new(()),
            errors,
            times: JournalTimes::default(),
            damaged_files: Mutex::new(damaged_files),
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
            while queue.is_empty() {
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

    /// Appends the hold of a call and reserves room for its settlement. The record keeps its segment
    /// until [`JournalWriter::release`]. The thread writes it when its [`crate::JournalReceipt`] is
    /// polled or dropped.
    pub(crate) fn append_hold(&self, record: &[u8]) -> Result<KeptRecord, JournalError> {
        let queued = self.enqueue(|queue| {
            queue.promised += 1;
            queue.further.push_kept(record)
        });
        queued.map(KeptRecord).map_err(|e| self.count(e))
    }

    /// Appends the settlement of a call, which has its room. The record keeps its segment like a hold.
    pub(crate) fn append_settlement(&self, record: &[u8]) -> Result<KeptRecord, JournalError> {
        let queued = self.enqueue(|queue| {
            queue.promised = queue.promised.saturating_sub(1);
            queue.settlements.push_kept(record)
        });
        queued.map(KeptRecord).map_err(|e| self.count(e))
    }

    /// Appends a record that does not keep its segment: it must not be released. A failure is counted.
    pub(crate) fn append_unkept(&self, record: &[u8]) -> Option<KeptRecord> {
        let append = |queue: &mut WriteQueue| {
            queue.further.bytes.extend_from_slice(record);
            Arc::clone(&queue.further.batch)
        };
        match self.enqueue(append) {
            Ok(batch) => {
                self.wake_thread();
                Some(KeptRecord(batch))
            }
            Err(e) => {
                self.errors.note(&e);
                None
            }
        }
    }

    /// Changes the number of settlements that are still to come.
    pub(crate) fn change_promised(&self, by: isize) {
        let mut queue = self.queue.lock();
        queue.promised = queue.promised.saturating_add_signed(by);
    }

    fn enqueue(
        &self,
        append: impl FnOnce(&mut WriteQueue) -> Arc<WriteBatch>,
    ) -> io::Result<Arc<WriteBatch>> {
        let mut queue = self.queue.lock();
        if queue.is_full() {
            return Err(stalled_error());
        }
        let batch = append(&mut queue);
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
        let queued = [&queue.further, &queue.settlements].map(|records| Arc::clone(&records.batch));
        drop(queue);
        if !was_stalled {
            self.errors.note(&stalled_error());
        }
        for batch in in_flight.into_iter().chain(queued) {
            batch.wake_all();
        }
    }

    /// Writes all queued records. Blocks on the disk; a failure is counted, and the records have it.
    pub(crate) fn write_queued(&self) {
        let _writing = self.writing.lock();
        let (taken, promised) = {
            let mut queue = self.queue.lock();
            (queue.begin_write(), queue.promised)
        };
        let Some([mut further, settlements]) = taken else { return };
        let bytes = further.bytes.len() + settlements.bytes.len();
        let room = self.make_room(bytes.saturating_add(promised.saturating_mul(SETTLEMENT_BYTES)));
        let (further_written, settlements_written) = match room {
            // One write for all of them, the usual case.
            Ok(target) => {
                further.bytes.extend_from_slice(&settlements.bytes);
                let written = self.write_to(&target, &further.bytes);
                (written.clone(), written)
            }
            Err(e) => {
                self.errors.note(&e);
                let e = Arc::new(e);
                (Err(Arc::clone(&e)), self.write_settlements(&settlements, e))
            }
        };
        {
            let mut queue = self.queue.lock();
            queue.end_write([further.bytes, settlements.bytes]);
            self.stalled.store(false, Ordering::SeqCst);
            self.failing.store(further_written.is_err(), Ordering::SeqCst);
            if settlements_written.is_err() {
                // They are written again later, and keep their room until then. Under the lock, so that
                // whoever sees the failure sees the room.
                queue.promised += settlements.batch.end(&settlements_written, &self.table);
            }
        }
        further.batch.end(&further_written, &self.table);
        if settlements_written.is_ok() {
            settlements.batch.end(&settlements_written, &self.table);
        }
    }

    /// Writes settlements on a disk without room for more than them.
    fn write_settlements(
        &self,
        settlements: &QueuedRecords,
        why_full: Arc<io::Error>,
    ) -> Result<u64, Arc<io::Error>> {
        // More than their room would take that of others.
        let room = settlements.batch.kept().saturating_mul(SETTLEMENT_BYTES);
        let current = self.table.lock().current();
        match current.filter(|_| settlements.bytes.len() <= room) {
            Some(target) if !settlements.bytes.is_empty() => {
                self.write_to(&target, &settlements.bytes)
            }
            Some(_) | None => Err(why_full),
        }
    }

    /// Reserves room for that many bytes in the segment to write to, and returns the segment. The
    /// caller holds `writing`.
    fn make_room(&self, bytes: usize) -> io::Result<WritableSegment> {
        let (successor, current) = {
            let table = self.table.lock();
            (table.successor(), table.current())
        };
        if let Some(successor) = successor {
            match self.reserve(successor, bytes) {
                Ok(target) => {
                    self.table.lock().replace_current();
                    return Ok(target);
                }
                // A segment that is full or worn still has the room for settlements.
                Err(e) if current.is_none() => {
                    self.table.lock().replace_current();
                    return Err(e);
                }
                Err(_) => {}
            }
        }
        match current {
            Some(current) => self.reserve(current, bytes),
            None => Err(io::Error::other("the journal has no segment")),
        }
    }

    /// Reserves room for that many further bytes in a segment.
    fn reserve(&self, mut target: WritableSegment, bytes: usize) -> io::Result<WritableSegment> {
        let needed = target.written.saturating_add(bytes);
        if needed > target.reserved {
            target.reserved = match target.segment.reserve(needed) {
                Ok(reserved) => reserved,
                Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                    self.note_unreserved(&e);
                    usize::MAX
                }
                Err(e) => return Err(e),
            };
            self.table.lock().note_reserved(target.segment.number(), target.reserved);
        }
        Ok(target)
    }

    /// Reports once that the file system reserves no room.
    fn note_unreserved(&self, error: &io::Error) {
        if !self.is_unreserved.swap(true, Ordering::Relaxed) {
            self.errors.note(&io::Error::new(
                error.kind(),
                "the file system of the journal cannot reserve room: a full disk may lose the cost of \
                 calls that are running",
            ));
        }
    }

    /// Writes to the current segment and returns its number. The caller holds `writing`. A failure is
    /// counted.
    fn write_to(&self, target: &WritableSegment, records: &[u8]) -> Result<u64, Arc<io::Error>> {
        let WritableSegment { segment, written, .. } = target;
        let failed = |e: io::Error| {
            self.errors.note(&e);
            Arc::new(e)
        };
        let begun = Instant::now();
        let appended = segment.append(records);
        self.times.write.record(begun.elapsed());
        if let Err(e) = appended {
            let cut = segment.cut(*written);
            let mut table = self.table.lock();
            match cut {
                Ok(()) => table.note_cut(),
                Err(_) => table.abandon(),
            }
            return Err(failed(e));
        }
        self.table.lock().note_written(records.len());
        let (number, length) = (segment.number(), written.saturating_add(records.len()));
        self.note(self.manifest.note_written(number, length));
        if self.syncs_writes.load(Ordering::Relaxed) {
            self.sync_segment(&**segment).map_err(failed)?;
            self.note(self.manifest.note_synced(number, length));
        }
        Ok(number)
    }

    /// Creates the next segment if it will be needed soon, and deletes segments without users.
    /// Blocks on the disk.
    pub(crate) fn maintain(&self) -> Result<(), JournalError> {
        let _upkeep = self.upkeep.lock();
        let unused = self.table.lock().take_unused();
        self.retire(&unused);
        // Comes before a new segment, because it frees space. On a full disk nothing is kept.
        let kept = if self.is_failing() { 0 } else { MAX_RETIRED_BYTES };
        self.note(self.prune_retired(kept));
        self.check_retired();
        self.look_for_damage();
        self.note(self.manifest.complete(&*self.disk));
        if self.table.lock().needs_segment() {
            let segment = self.disk.create().map_err(|e| self.fail(e))?;
            self.note(self.manifest.add(&*self.disk, segment.number()));
            let promised = self.queue.lock().promised;
            // Done here, so that the writer need not. If it fails, the writer tries again.
            let target = WritableSegment::new(segment);
            let reserved = self.reserve(target.clone(), promised.saturating_mul(SETTLEMENT_BYTES));
            self.table.lock().prepare(reserved.unwrap_or(target));
        }
        if self.is_failing() {
            self.look_if_writable();
        }
        Ok(())
    }

    /// Looks if the disk has room for a call again and keeps what is written. Nobody may call a node
    /// that is not ready, so that no record would tell.
    fn look_if_writable(&self) {
        let _writing = self.writing.lock();
        let promised = self.queue.lock().promised;
        let call = promised.saturating_add(2).saturating_mul(SETTLEMENT_BYTES);
        if self.make_room(call).and_then(|target| target.segment.sync()).is_ok() {
            self.failing.store(false, Ordering::SeqCst);
        }
    }

    /// Returns true after a failure, until the disk takes records again.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
    }

    /// Returns true, once, if records that calls need were lost with their file.
    pub(crate) fn take_lost_segment(&self) -> bool {
        self.lost_segment.swap(false, Ordering::SeqCst)
    }

    /// Gives up records. [`JournalWriter::maintain`] deletes segments that none needs any more.
    pub(crate) fn release(&self, records: impl IntoIterator<Item = KeptRecord>) {
        for KeptRecord(batch) in records {
            // One that was not written keeps no segment.
            drop(batch.release(&self.table));
        }
    }

    /// Gives up a settlement; `None` for one that the journal did not take. The room of one that could
    /// not be written is given up too.
    pub(crate) fn release_settlement(&self, record: Option<KeptRecord>) {
        let is_unwritten =
            record.is_none_or(|KeptRecord(batch)| batch.release(&self.table).is_err());
        if is_unwritten {
            self.change_promised(-1);
        }
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Waits until every written record survives a crash of the machine.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let segments = self.table.lock().take_unsynced();
        for (index, segment) in segments.iter().enumerate() {
            let (number, length) = (segment.number(), self.manifest.written(segment.number()));
            let synced = self.sync_segment(&**segment);
            if synced.is_ok() {
                self.note(self.manifest.note_synced(number, length));
            }
            if let Err(e) = synced {
                let is_deleted = e.kind() == io::ErrorKind::NotFound;
                let left = segments.get(index + usize::from(is_deleted)..).unwrap_or_default();
                // Records in a deleted file would be lost, so no more are written to it.
                let _writing = is_deleted.then(|| self.writing.lock());
                let mut table = self.table.lock();
                if is_deleted {
                    table.forget(segment.number());
                    self.lost_segment.store(true, Ordering::SeqCst);
                }
                table.put_back_unsynced(left);
                drop(table);
                if is_deleted {
                    self.forget_lost();
                }
                return Err(self.fail(e));
            }
        }
        Ok(())
    }

    /// Returns the number of kept records.
    #[cfg(test)]
    pub(crate) fn users(&self) -> usize {
        self.table.lock().users()
    }

    /// Writes a segment through to the disk.
    fn sync_segment(&self, segment: &dyn Segment) -> io::Result<()> {
        let begun = Instant::now();
        let synced = segment.sync();
        self.times.sync.record(begun.elapsed());
        synced
    }

    /// Durations of writes and syncs.
    pub(crate) const fn times(&self) -> &JournalTimes {
        &self.times
    }

    /// Failed writes, creations, syncs and deletions.
    pub(crate) fn errors(&self) -> &JournalErrors {
        &self.errors
    }

    /// Counts a failure after which no call can be admitted for now.
    fn fail(&self, error: io::Error) -> JournalError {
        self.failing.store(true, Ordering::SeqCst);
        self.count(error)
    }

    /// Counts a failure that nobody has to hear of.
    fn note(&self, done: io::Result<()>) {
        if let Err(e) = done {
            self.errors.note(&e);
        }
    }

    fn count(&self, error: io::Error) -> JournalError {
        self.errors.note(&error);
        JournalError(error)
    }
}

mod old_segments;
#[cfg(test)]
mod tests;
