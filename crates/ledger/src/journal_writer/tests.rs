//! Batches, segments and a disk that hangs.

use super::*;
use crate::segment_table::SEGMENT_BYTES;
use crate::write_queue::MAX_QUEUED_BYTES;
use crate::{JournalReceipt, MemoryDisk, Segment};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::task::{Wake, Waker};

fn writer() -> (Arc<MemoryDisk>, JournalWriter) {
    let disk = Arc::new(MemoryDisk::default());
    let passed: Arc<dyn Disk> = Arc::clone(&disk) as _;
    (disk, JournalWriter::open(passed).unwrap())
}

/// Appends without a thread, and returns the segment that has the record.
fn append(writer: &JournalWriter, record: &[u8]) -> Option<(u64, KeptRecord)> {
    let record = writer.append_hold(record).ok()?;
    Some((record.0.segment()?, record))
}

#[test]
fn a_full_segment_is_replaced_only_by_a_prepared_one() {
    let (disk, writer) = writer();
    let record = vec![7; SEGMENT_BYTES / 2 + 1];
    let mut records = Vec::new();
    let mut append = || {
        let (segment, record) = append(&writer, &record).unwrap();
        records.push(record);
        segment
    };
    assert_eq!(append(), 1);
    assert_eq!(append(), 1);
    assert_eq!(append(), 1, "nothing is prepared: it grows");
    writer.maintain().unwrap();
    writer.maintain().unwrap();
    assert_eq!(disk.segments().unwrap(), [1, 2], "one segment is prepared, not two");
    assert_eq!(append(), 2);
    let mut segments_after = |released: usize| {
        writer.release(records.drain(..released));
        writer.maintain().unwrap();
        disk.segments().unwrap()
    };
    assert_eq!(segments_after(2), [1, 2, 3], "one record of it is still needed");
    assert_eq!(segments_after(1), [2, 3]);
    assert_eq!(segments_after(1), [2, 3], "the current segment stays");
    assert_eq!(writer.errors().so_far().0, 0);
    writer.sync().unwrap();
}

#[test]
fn nothing_is_written_behind_half_a_record() {
    let (disk, writer) = writer();
    append(&writer, b"whole").unwrap();
    disk.fail_after(2);
    assert!(writer.append_hold(b"torn").unwrap().failure().is_some());
    drop(writer.append_unkept(b"lost"));
    assert_eq!(writer.errors().so_far().0, 2);
    assert_eq!(disk.read(1).unwrap(), b"wholeto");
    disk.fail_after(100);
    writer.maintain().unwrap();
    let (segment, _) = append(&writer, b"next").unwrap();
    assert!(segment > 1);
    assert_eq!(disk.read(segment).unwrap(), b"next");
}

#[test]
fn a_full_disk_takes_settlements_and_nothing_else() {
    let (disk, writer) = writer();
    append(&writer, b"whole").unwrap();
    disk.set_free_space(Some(2));
    for _ in 0..100 {
        assert!(append(&writer, b"refused").is_none());
        writer.change_promised(-1);
        drop(writer.append_unkept(b"a checkpoint"));
        writer.maintain().unwrap();
    }
    assert_eq!(disk.segments().unwrap(), [1]);
    // A hold and a settlement that share a write: the settlement has its room.
    writer.defer_writes();
    let refused = writer.append_hold(b"refused").unwrap();
    let settled = writer.append_settlement(b"settled").unwrap();
    writer.write_queued();
    assert!(refused.failure().is_some() && settled.is_written());
    disk.set_free_space(None);
    writer.append_hold(b"next").unwrap();
    writer.write_queued();
    assert_eq!(disk.read(1).unwrap(), b"wholesettlednext");
}

#[test]
fn a_full_segment_goes_on_if_the_next_has_no_room_for_settlements() {
    let (disk, writer) = writer();
    append(&writer, &vec![7; SEGMENT_BYTES + 1]).unwrap();
    append(&writer, b"second").unwrap();
    disk.set_free_space(Some(SETTLEMENT_BYTES - 1));
    writer.maintain().unwrap();
    assert_eq!(disk.segments().unwrap(), [1, 2]);
    let first = writer.append_settlement(b"first").unwrap();
    assert_eq!(first.0.segment(), Some(1), "one call is still running");
    let second = writer.append_settlement(b"second").unwrap();
    assert_eq!(second.0.segment(), Some(2));
}

#[test]
fn a_file_has_the_room_that_was_reserved_for_it() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = std::env::temp_dir().join(format!("journal-room-{}", std::process::id()));
    let disk = crate::FileDisk::open(&folder).unwrap();
    let segment = disk.create().unwrap();
    segment.append(b"record").unwrap();
    match segment.reserve(100_000) {
        Ok(room) => {
            assert!(room >= 100_000);
            let file = std::fs::metadata(folder.join("000000000001.journal")).unwrap();
            assert_eq!(file.len(), 6, "readers do not see the room");
            assert!(file.blocks() * 512 >= 100_000, "{} blocks", file.blocks());
            segment.cut(6).unwrap();
            let file = std::fs::metadata(folder.join("000000000001.journal")).unwrap();
            assert!(file.blocks() * 512 >= 100_000, "nothing was cut off");
        }
        Err(e) => assert_eq!(e.kind(), io::ErrorKind::Unsupported),
    }
    drop(segment);
    let file = std::fs::metadata(folder.join("000000000001.journal")).unwrap();
    assert!(file.blocks() * 512 < 100_000, "the room is given back");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_segment_without_a_record_is_deleted() {
    let (disk, writer) = writer();
    disk.fail_after(2);
    for _ in 0..100 {
        assert!(append(&writer, b"torn").is_none());
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

    fn set_aside(&self, segment: u64) -> io::Result<()> {
        self.inner.set_aside(segment)
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        self.inner.damaged_files()
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

    fn reserve(&self, length: usize) -> io::Result<usize> {
        self.inner.reserve(length)
    }

    fn cut(&self, length: usize) -> io::Result<()> {
        self.inner.cut(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

/// A writer with a thread, whose disk hangs in the write of `hangs`.
struct HangingWriter {
    writer: Arc<JournalWriter>,
    thread: WriterThread,
    has_begun: mpsc::Receiver<()>,
    end: mpsc::Sender<()>,
}

impl HangingWriter {
    fn open() -> Self {
        let (begun, has_begun) = mpsc::sync_channel(1);
        let (end, may_end) = mpsc::channel();
        let end_of_write = Arc::new(Mutex::new(may_end));
        let disk = HangingDisk { inner: MemoryDisk::default(), begun, end: end_of_write };
        let writer = Arc::new(JournalWriter::open(Arc::new(disk)).unwrap());
        let thread = writer.start_thread().unwrap();
        Self { writer, thread, has_begun, end }
    }
}

fn poll(receipt: &mut JournalReceipt) -> Poll<Result<(), JournalError>> {
    Pin::new(receipt).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn records_that_arrive_during_a_write_share_the_next_one() {
    let HangingWriter { writer, thread, has_begun, end } = HangingWriter::open();
    let first = writer.append_hold(b"hangs").unwrap();
    drop(JournalReceipt::new(&writer, Some(&first)));
    has_begun.recv().unwrap();
    let later: Vec<KeptRecord> =
        [b"a", b"b", b"c"].iter().map(|record| writer.append_hold(*record).unwrap()).collect();
    let mut receipts: Vec<_> =
        later.iter().map(|record| JournalReceipt::new(&writer, Some(record))).collect();
    assert!(receipts.iter_mut().all(|receipt| poll(receipt).is_pending()));
    assert!(later.iter().all(|record| Arc::ptr_eq(&record.0, &later[0].0)));
    // One of them is given up before it is written.
    writer.release(later.first().cloned());
    end.send(()).unwrap();
    writer.end_thread();
    thread.wait();
    assert!(receipts.iter_mut().all(|receipt| matches!(poll(receipt), Poll::Ready(Ok(())))));
    assert_eq!(writer.disk.read(1).unwrap(), b"hangsabc");
    assert_eq!(first.0.segment(), Some(1));
    assert_eq!(writer.users(), 3);
    // Without the thread an append writes by itself.
    assert!(writer.append_hold(b"d").unwrap().is_written());
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn one_task_of_a_batch_wakes_the_thread_for_all() {
    for first_leaves in [false, true] {
        let HangingWriter { writer, thread, has_begun, end } = HangingWriter::open();
        let records = [b"ha".as_slice(), b"ngs"].map(|record| writer.append_hold(record).unwrap());
        let [mut first, mut second] =
            records.each_ref().map(|record| JournalReceipt::new(&writer, Some(record)));
        let wakes: [Arc<WakeCount>; 2] = Default::default();
        let woken = || wakes.each_ref().map(|wakes| wakes.0.load(Ordering::SeqCst));
        let wakers = wakes.each_ref().map(|wakes| Waker::from(Arc::clone(wakes)));
        let [mut of_first, mut of_second] = wakers.each_ref().map(Context::from_waker);
        assert!(Pin::new(&mut first).poll(&mut of_first).is_pending());
        for _ in 0..2 {
            assert!(Pin::new(&mut second).poll(&mut of_second).is_pending());
        }
        assert_eq!(woken(), [1, 0], "the first one lets others append");
        assert!(has_begun.try_recv().is_err());
        if first_leaves {
            drop(first);
        } else {
            assert!(Pin::new(&mut first).poll(&mut of_first).is_pending());
        }
        has_begun.recv().unwrap();
        end.send(()).unwrap();
        writer.end_thread();
        thread.wait();
        assert!(matches!(poll(&mut second), Poll::Ready(Ok(()))));
        assert_eq!(woken(), [2, 1]);
    }
}

#[test]
fn the_only_call_wakes_the_thread_at_once() {
    let HangingWriter { writer, thread, has_begun, end } = HangingWriter::open();
    let record = writer.append_hold(b"hangs").unwrap();
    let mut receipt = JournalReceipt::new(&writer, Some(&record)).alone(true);
    assert!(poll(&mut receipt).is_pending());
    has_begun.recv().unwrap();
    end.send(()).unwrap();
    writer.end_thread();
    thread.wait();
    assert!(matches!(poll(&mut receipt), Poll::Ready(Ok(()))));
}

#[test]
fn nobody_waits_for_a_write_that_hangs() {
    let HangingWriter { writer, thread, has_begun, end } = HangingWriter::open();
    let first = writer.append_hold(b"hangs").unwrap();
    let mut waiting = JournalReceipt::new(&writer, Some(&first));
    assert!(poll(&mut waiting).is_pending(), "other tasks may append first");
    assert!(has_begun.try_recv().is_err());
    assert!(poll(&mut waiting).is_pending());
    has_begun.recv().unwrap();
    let second = writer.append_hold(b"waits").unwrap();
    let mut receipts =
        [JournalReceipt::new(&writer, Some(&first)), JournalReceipt::new(&writer, Some(&second))];
    writer.watch();
    assert!(receipts.iter_mut().all(|receipt| poll(receipt).is_pending()), "it may be slow");
    writer.check_stall().unwrap();
    writer.watch();
    assert!(receipts.iter_mut().all(|receipt| matches!(poll(receipt), Poll::Ready(Err(_)))));
    writer.check_stall().unwrap_err();
    assert_eq!(writer.errors().so_far().0, 1);
    // Neither the table nor the background waits for the write.
    writer.release([]);
    writer.maintain().unwrap();
    // The queue has a bound.
    let filled: Vec<_> = (0..10).map(|_| writer.append_hold(&[7; MAX_QUEUED_BYTES / 8])).collect();
    assert!(filled.first().unwrap().is_ok() && filled.last().unwrap().is_err());

    end.send(()).unwrap();
    writer.write_queued();
    assert!(first.is_written() && second.is_written());
    writer.check_stall().unwrap();
    writer.watch();
    writer.watch();
    writer.check_stall().unwrap();
    writer.end_thread();
    thread.wait();
}

#[test]
fn a_deleted_or_moved_file_takes_no_more_records() {
    for is_moved in [false, true] {
        let folder =
            std::env::temp_dir().join(format!("journal-{}-{is_moved}", std::process::id()));
        let elsewhere = folder.with_extension("moved");
        let disk = crate::FileDisk::open(&folder).unwrap();
        let writer = JournalWriter::open(Arc::new(disk)).unwrap();
        append(&writer, b"first").unwrap();
        writer.sync().unwrap();
        if is_moved {
            std::fs::rename(&folder, &elsewhere).unwrap();
        } else {
            std::fs::remove_file(folder.join("000000000001.journal")).unwrap();
        }
        assert!(!writer.is_failing());
        assert!(writer.sync().is_err(), "it is noticed");
        assert!(writer.is_failing() && writer.take_lost_segment());
        assert!(append(&writer, b"refused").is_none());
        writer.maintain().unwrap();
        assert!(!writer.is_failing());
        assert_eq!(append(&writer, b"next").unwrap().0, 2);
        writer.sync().unwrap();
        assert!(crate::FileDisk::open(&folder).is_err(), "the folder is locked, also a new one");
        std::fs::remove_dir_all(&folder).unwrap();
        drop(std::fs::remove_dir_all(&elsewhere));
    }
}

#[test]
fn a_full_or_failing_disk_is_told_until_it_works_again() {
    let (disk, writer) = writer();
    append(&writer, b"first").unwrap();
    disk.set_free_space(Some(0));
    assert!(append(&writer, b"refused").is_none());
    assert!(writer.is_failing());
    writer.change_promised(-1);
    writer.maintain().unwrap();
    assert!(writer.is_failing(), "there is no room for a call");
    disk.set_free_space(None);
    disk.fail_syncs(true);
    writer.maintain().unwrap();
    assert!(writer.is_failing(), "nothing written would stay");
    disk.fail_syncs(false);
    writer.maintain().unwrap();
    assert!(!writer.is_failing(), "without any call");
    disk.fail_syncs(true);
    assert!(writer.sync().is_err() && writer.is_failing());
}

#[test]
fn a_synced_journal_confirms_records_after_the_sync() {
    let (disk, writer) = writer();
    writer.set_sync_writes(true);
    disk.fail_syncs(true);
    assert!(append(&writer, b"refused").is_none());
    disk.fail_syncs(false);
    append(&writer, b"taken").unwrap();
}
