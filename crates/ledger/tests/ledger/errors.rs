//! A disk that fails: every failure is counted, and nothing is written behind half a record.

use canon::{Money, Usage};
use ledger::{Book, Disk, Entry, Held, MemoryDisk, NotHeld, Progress, Purse, TestClock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk on which no segment can be begun or removed while it is full.
#[derive(Default)]
struct FullDisk {
    inner: MemoryDisk,
    full: AtomicBool,
}

impl FullDisk {
    /// Half a record more fits.
    fn fill(&self) {
        self.inner.fail_after(20);
        self.full.store(true, Ordering::Relaxed);
    }

    fn empty(&self) {
        self.inner.fail_after(usize::MAX);
        self.full.store(false, Ordering::Relaxed);
    }

    fn check(&self) -> io::Result<()> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl Disk for FullDisk {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.check()
    }

    fn begin(&self) -> io::Result<u64> {
        self.check()?;
        self.inner.begin()
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        self.inner.segments()
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        self.inner.read(segment)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.check()?;
        self.inner.remove(segment)
    }
}

fn held(id: &str) -> Arc<Held> {
    Arc::new(Held {
        request_id: id.to_owned(),
        key_id: "k".to_owned(),
        account_id: "a".to_owned(),
        at: 0,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: true,
        price_version: "1".to_owned(),
        lease: None,
    })
}

#[test]
fn every_failure_is_counted_and_the_journal_goes_on_in_a_new_segment() {
    let disk = Arc::new(FullDisk::default());
    let open = || Book::open(Arc::new(TestClock::at(1_000)), disk.clone()).unwrap();
    let book = open().book;
    let purse = Purse::new("k", None, Money::ZERO);
    let hold = |id: &str| book.hold(&purse, held(id), Money::nanos(9), Money::nanos(9));
    let count = || book.errors().so_far().0;
    let (first, second) = (hold("first").unwrap(), hold("second").unwrap());
    assert_eq!(count(), 0);

    disk.fill();
    let progress =
        |cost| Progress { lane: "l".to_owned(), usage: Usage::default(), cost: Money::nanos(cost) };
    first.progress(progress(3));
    assert_eq!(count(), 1, "a checkpoint was not written");
    first.settle(Entry { request_id: "first".to_owned(), ..Entry::default() });
    assert_eq!(count(), 2, "a settlement was not written");
    assert!(matches!(hold("third"), Err(NotHeld::Journal(_))));
    assert!(book.sync().is_err());
    assert_eq!(count(), 4);
    book.recovered(&[1]);
    assert_eq!(count(), 5, "a segment was not removed");
    assert!(!book.errors().so_far().1.is_empty());

    disk.empty();
    second.progress(progress(5));
    second.settle(Entry {
        request_id: "second".to_owned(),
        cost: Money::nanos(7),
        ..Entry::default()
    });
    assert_eq!(count(), 5);
    // What was written after the disk had room again is read after a crash.
    let found = open().found;
    let second = found.settled.iter().find(|one| one.entry.request_id == "second").unwrap();
    assert_eq!((found.interrupted, second.entry.cost), (1, Money::nanos(7)));
}
