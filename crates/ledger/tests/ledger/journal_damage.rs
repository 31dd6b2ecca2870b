//! Segments of the journal that were cut short, emptied, deleted or changed.

use canon::{Micros, Money};
use ledger::{
    Disk, FileDisk, JournalInspection, KeyBalance, MemoryDisk, OpenCalls, SegmentDamage, TestClock,
};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

use crate::cluster::{entry, held, run};
use crate::laws::TestNode;
use crate::memory_store::MemoryStore;

const CALLS: usize = 3;

fn clock() -> Arc<TestClock> {
    Arc::new(TestClock::at(Micros::new(5)))
}

/// Settles calls that only the journal has.
fn settle_calls(book: &Arc<OpenCalls>) {
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let hundred = Money::from_nanos(100);
    for id in 0..CALLS {
        let id = format!("r{id}");
        let pending = book.hold(&balance, Arc::new(held(&id, "k0")), hundred, hundred).unwrap();
        run(pending.written()).unwrap().settle(entry(&id, "k0", 30));
    }
}

/// Returns a disk with a journal of some calls, and the number of its segment.
fn journal_of_calls() -> (Arc<MemoryDisk>, u64) {
    let disk = Arc::new(MemoryDisk::default());
    settle_calls(&OpenCalls::open(clock(), disk.clone()).unwrap().book);
    let [segment] = disk.segments().unwrap()[..] else { panic!("one segment") };
    (disk, segment)
}

fn damage_after(disk: &MemoryDisk) -> Vec<SegmentDamage> {
    OpenCalls::open(clock(), Arc::new(disk.after_crash())).unwrap().found.damage
}

#[test]
fn every_byte_that_counts_as_written_is_missed() {
    let (disk, segment) = journal_of_calls();
    let whole = disk.read(segment).unwrap().len();
    assert_eq!(damage_after(&disk), []);
    for length in 0..whole {
        let short = disk.after_crash();
        short.truncate(segment, length);
        let [SegmentDamage { segment: found, spans, .. }] = &damage_after(&short)[..] else {
            panic!("one of {length} bytes is damaged")
        };
        assert_eq!(*found, segment);
        let last = spans.last().unwrap();
        assert_eq!(last.offset + last.bytes, whole, "{length} bytes are left");
    }
    let lost = disk.after_crash();
    lost.lose(segment);
    assert_eq!(damage_after(&lost).len(), 1);
}

#[test]
fn half_a_record_behind_the_written_ones_is_no_damage() {
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock(), disk.clone()).unwrap().book;
    settle_calls(&book);
    disk.fail_after(20);
    let balance = KeyBalance::new("k0", None, Money::ZERO);
    let ten = Money::from_nanos(10);
    let refused = book.hold(&balance, Arc::new(held("torn", "k0")), ten, ten).unwrap();
    assert!(run(refused.written()).is_err());
    let found = OpenCalls::open(clock(), Arc::new(disk.after_crash())).unwrap().found;
    assert_eq!((found.damage, found.torn, found.settled.len()), (vec![], 20, CALLS));
}

#[test]
fn a_crash_of_the_machine_may_lose_what_was_not_synced() {
    let disk = Arc::new(MemoryDisk::default());
    let book = OpenCalls::open(clock(), disk.clone()).unwrap().book;
    settle_calls(&book);
    let [segment] = disk.segments().unwrap()[..] else { panic!("one segment") };
    let synced = disk.read(segment).unwrap().len();
    book.sync().unwrap();
    settle_calls(&book);
    for (length, is_damaged) in [(synced + 1, false), (synced, false), (synced - 1, true)] {
        let crashed = disk.after_power_loss();
        crashed.truncate(segment, length);
        assert_eq!(!damage_after(&crashed).is_empty(), is_damaged, "{length} of {synced}");
    }
}

/// A start reports the loss until it is accepted, also if the first one dies half way.
#[test]
fn a_missing_segment_is_reported_until_it_is_accepted() {
    for is_deleted in [false, true] {
        let (disk, segment) = journal_of_calls();
        if is_deleted {
            disk.lose(segment);
        } else {
            disk.truncate(segment, 0);
        }
        drop(OpenCalls::open(clock(), disk.clone()).unwrap());
        let disk = Arc::new(disk.after_crash());
        let store = MemoryStore::new(&[None]);
        let node = TestNode::open(&clock(), disk.clone(), &store);
        assert_eq!(node.book.damaged_files().len(), 1);
        assert!(!disk.segments().unwrap().contains(&segment), "its number is not used again");
        drop(node);
        let again = TestNode::open(&clock(), Arc::new(disk.after_crash()), &store);
        again.book.maintain_journal().unwrap();
        assert_eq!(again.book.damaged_files().len(), 1);
    }
}

/// Posts calls, lets two later starts retire their segment, and returns the disk with its number.
fn retired_journal(store: &Arc<Mutex<MemoryStore>>) -> (Arc<MemoryDisk>, u64) {
    let disk = Arc::new(MemoryDisk::default());
    let node = TestNode::open(&clock(), disk.clone(), store);
    settle_calls(&node.book);
    run(node.client.post()).unwrap();
    node.client.save_mark().unwrap();
    let [segment] = disk.segments().unwrap()[..] else { panic!("one segment") };
    drop(node);
    let disk = Arc::new(disk.after_crash());
    drop(TestNode::open(&clock(), disk.clone(), store));
    assert!(disk.retired().unwrap().contains(&segment));
    (Arc::new(disk.after_crash()), segment)
}

#[test]
fn damage_of_a_retired_segment_is_found_without_a_rollback() {
    type Harm = fn(&MemoryDisk, u64);
    let harms: [Harm; 4] = [
        |disk, segment| disk.flip_bit(segment, 900),
        |disk, segment| disk.truncate(segment, 200),
        |disk, segment| disk.truncate(segment, 0),
        |disk, segment| disk.lose(segment),
    ];
    for harm in harms {
        let store = MemoryStore::new(&[None]);
        let (disk, segment) = retired_journal(&store);
        harm(&disk, segment);
        let node = TestNode::open(&clock(), disk.clone(), &store);
        for _ in 0..4 {
            // One segment at a time.
            node.book.maintain_journal().unwrap();
        }
        assert_eq!(node.book.damaged_files().len(), 1);
        assert!(!disk.retired().unwrap().contains(&segment));
    }
}

#[test]
fn damage_of_a_retired_segment_is_found_by_a_rollback_and_its_other_calls_are_kept() {
    let store = MemoryStore::new(&[None]);
    let empty = store.lock().clone();
    let (disk, segment) = retired_journal(&store);
    let last_bit = disk.read_retired(segment).unwrap().len() * 8 - 1;
    disk.flip_bit(segment, last_bit);
    store.lock().restore(&empty);
    let node = TestNode::open(&clock(), disk.clone(), &store);
    assert_eq!(node.book.damaged_files().len(), 1);
    let [found] = node.client.take_rollbacks()[..] else { panic!("one rollback") };
    assert_eq!((found.missing, found.reposted), (CALLS as i64, CALLS as i64 - 1));
    // A second rollback finds them too.
    store.lock().restore(&empty);
    for _ in 0..6 {
        run(node.client.heartbeat()).unwrap();
    }
    assert_eq!(store.lock().entries.len(), CALLS - 1);
}

#[test]
fn a_journal_that_is_gone_altogether_is_reported() {
    let store = MemoryStore::new(&[None]);
    drop(retired_journal(&store));
    let node = TestNode::open(&clock(), Arc::new(MemoryDisk::default()), &store);
    assert_eq!(node.book.damaged_files().len(), 1);
    let new = MemoryStore::new(&[None]);
    let node = TestNode::open(&clock(), Arc::new(MemoryDisk::default()), &new);
    assert_eq!(node.book.damaged_files().len(), 0);
}

fn inspected(folder: &Path) -> Vec<String> {
    let found = JournalInspection::read(folder, Micros::new(9)).unwrap();
    found.damage.into_iter().map(|damage| damage.file).collect()
}

/// The same on a real disk, read while the process runs and after its end.
#[test]
fn an_inspection_names_missing_bytes_and_files() {
    let folder = std::env::temp_dir().join(format!("damaged-journal-{}", std::process::id()));
    let disk = Arc::new(FileDisk::open(&folder).unwrap());
    let book = OpenCalls::open(clock(), disk.clone()).unwrap().book;
    settle_calls(&book);
    assert_eq!(inspected(&folder), [""; 0]);
    drop((book, disk));
    let file = "000000000001.journal";
    let path = folder.join(file);
    let whole = std::fs::read(&path).unwrap();
    for harm in [None, Some(0), Some(10), Some(whole.len() - 1)] {
        match harm {
            Some(length) => std::fs::write(&path, &whole[..length]).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        assert_eq!(inspected(&folder), [file], "{harm:?}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(inspected(&folder), [""; 0]);
    // The number of a deleted file is not given to another one.
    std::fs::remove_file(&path).unwrap();
    let disk = Arc::new(FileDisk::open(&folder).unwrap());
    let store = MemoryStore::new(&[None]);
    let node = TestNode::open(&clock(), disk.clone(), &store);
    assert_eq!(disk.segments().unwrap(), [2]);
    assert_eq!(node.book.damaged_files(), [format!("{file}.damaged")]);
    assert_eq!(inspected(&folder), [format!("{file}.damaged")]);
    ledger::accept_damage(&folder, &format!("{file}.damaged")).unwrap();
    assert_eq!(inspected(&folder), [""; 0]);
    settle_calls(&node.book);
    node.book.sync().unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(folder.join("000000000002.journal"))
        .and_then(|file| file.set_len(5))
        .unwrap();
    assert!(node.book.sync().is_err(), "a file that is cut short in use is noticed");
    node.book.maintain_journal().unwrap();
    node.book.sync().unwrap();
    let found = JournalInspection::read(&folder, Micros::new(9)).unwrap();
    assert_eq!(found.settled.len(), CALLS, "all calls are written again");
    std::fs::remove_dir_all(&folder).unwrap();
}
