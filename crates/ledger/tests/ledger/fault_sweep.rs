//! Every single call to the lease store and to the disk fails once, in every possible way.

use canon::Micros;
use ledger::{Disk, ManifestFile, MemoryDisk, Segment};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cluster::Cluster;
use crate::store_line::{LineFaults, MessageFate};

/// Runs a fixed scenario on two nodes. The first one has that disk.
fn scenario(cluster: &mut Cluster, disk: Option<Arc<dyn Disk>>) {
    match disk {
        Some(disk) => {
            cluster.start_with_disk(0, disk);
        }
        None => {
            cluster.start(0);
        }
    }
    assert!(cluster.start(1));
    let work = |cluster: &mut Cluster, which: usize, rounds: usize| {
        for round in 0..rounds {
            cluster.call(which, 0, 100, 10);
            cluster.call(which, 0, 100, 10);
            cluster.call(which, 1, 100, 10);
            cluster.progress(which, 0, 20);
            cluster.pass(Micros::from_millis(1_200));
            cluster.tend(which);
            cluster.settle(which, 0, 40 + round as i64);
            cluster.post(which);
            cluster.settle(which, 1, 130);
            cluster.close_gone(which);
            cluster.finish(which);
            cluster.check();
        }
    };
    work(cluster, 0, 3);
    work(cluster, 1, 2);
    cluster.pass(Micros::from_secs(2));
    work(cluster, 0, 2);
    cluster.kill(0);
    cluster.check();
    cluster.pass(Micros::from_secs(45));
    work(cluster, 1, 2);
    if !cluster.start(0) {
        // The fault is over by now.
        assert!(cluster.start(0));
    }
    work(cluster, 0, 2);
}

fn cluster() -> Cluster {
    Cluster::new(2, &[Some(1_500), None])
}

#[test]
fn every_message_to_the_store_may_fail_once() {
    let fates = [
        MessageFate { lost: true, ..MessageFate::default() },
        MessageFate { lost: true, late: true, ..MessageFate::default() },
        MessageFate { answer_lost: true, ..MessageFate::default() },
        MessageFate { twice: true, ..MessageFate::default() },
        MessageFate { twice: true, answer_lost: true, ..MessageFate::default() },
    ];
    for fate in fates {
        let mut swept = 0;
        for number in 1.. {
            let mut cluster = cluster();
            let faults = cluster.machines[0].faults.clone();
            *faults.lock() = LineFaults::Nth { number, count: 0, fate };
            scenario(&mut cluster, None);
            let count = match &*faults.lock() {
                LineFaults::Nth { count, .. } => *count,
                LineFaults::Fine
                | LineFaults::Cut
                | LineFaults::NoGrants
                | LineFaults::SilentGrants
                | LineFaults::UnknownKey
                | LineFaults::Rough(_) => 0,
            };
            cluster.shut_down();
            swept = number;
            if number > count {
                break;
            }
        }
        assert!(swept > 30, "only {swept} messages were sent");
    }
}

/// Counts calls and makes some of them fail.
#[derive(Clone)]
struct CallFaults {
    /// Number of the first call that fails.
    from: usize,
    /// Number of calls that fail.
    lasts: usize,
    count: Arc<AtomicUsize>,
}

impl CallFaults {
    fn check(&self) -> io::Result<()> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = (self.from..self.from + self.lasts).contains(&number);
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

struct FailingDisk {
    inner: Arc<MemoryDisk>,
    faults: CallFaults,
}

struct FailingSegment {
    inner: Arc<dyn Segment>,
    faults: CallFaults,
}

impl Disk for FailingDisk {
    fn create(&self) -> io::Result<Arc<dyn Segment>> {
        self.faults.check()?;
        let inner = self.inner.create()?;
        Ok(Arc::new(FailingSegment { inner, faults: self.faults.clone() }))
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        self.faults.check()?;
        self.inner.segments()
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        self.faults.check()?;
        self.inner.read(segment)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.faults.check()?;
        self.inner.remove(segment)
    }

    fn set_aside(&self, segment: u64) -> io::Result<()> {
        self.faults.check()?;
        self.inner.set_aside(segment)
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        self.faults.check()?;
        self.inner.damaged_files()
    }

    fn numbers_aside(&self) -> io::Result<Vec<u64>> {
        self.faults.check()?;
        self.inner.numbers_aside()
    }

    fn read_manifest(&self) -> io::Result<Option<Vec<u8>>> {
        self.faults.check()?;
        self.inner.read_manifest()
    }

    fn write_manifest(&self, manifest: &[u8]) -> io::Result<Arc<dyn ManifestFile>> {
        self.faults.check()?;
        self.inner.write_manifest(manifest)
    }

    fn boot_id(&self) -> String {
        self.inner.boot_id()
    }
}

impl Segment for FailingSegment {
    fn number(&self) -> u64 {
        self.inner.number()
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.faults.check()?;
        self.inner.append(bytes)
    }

    fn reserve(&self, length: usize) -> io::Result<usize> {
        self.faults.check()?;
        self.inner.reserve(length)
    }

    fn cut(&self, length: usize) -> io::Result<()> {
        self.faults.check()?;
        self.inner.cut(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.check()?;
        self.inner.sync()
    }
}

#[test]
fn every_call_to_the_disk_may_fail_once_or_for_a_while() {
    for lasts in [1, 2, 7] {
        let mut swept = 0;
        for from in 1.. {
            let mut cluster = cluster();
            let count = Arc::new(AtomicUsize::new(0));
            let inner = cluster.machines[0].memory.clone();
            cluster.machines[0].has_failed = true;
            let faults = CallFaults { from, lasts, count: count.clone() };
            let failing = FailingDisk { inner, faults };
            scenario(&mut cluster, Some(Arc::new(failing)));
            cluster.shut_down();
            swept = from;
            if from > count.load(Ordering::Relaxed) {
                break;
            }
        }
        assert!(swept > 20, "only {swept} calls were made");
    }
}
