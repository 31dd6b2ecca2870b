//! Spare threads of the runtime, for a disk that hangs.
//!
//! Threads that serve calls write the journal themselves, and a disk that hangs keeps every one of them
//! that writes. So the runtime has two threads per processor. Half of them block and cost nothing, until
//! the disk hangs: then they serve calls, of which new ones are refused.

use ledger::OpenCalls;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

/// Period of looking if the disk works again.
const RETURN_PERIOD: Duration = Duration::from_millis(100);

/// The spare threads. They end with this value.
pub(crate) struct SpareWorkers(Arc<OpenCalls>);

/// Returns the number of spare threads, which is that of the threads that serve calls.
pub(crate) fn spare_threads() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

impl SpareWorkers {
    /// Takes so many threads of this runtime, which has twice as many, and lets the others write the
    /// journal.
    pub(crate) fn take(calls: Arc<OpenCalls>, threads: usize) -> Self {
        for _ in 0..threads {
            let calls = Arc::clone(&calls);
            tokio::spawn(async move {
                // Blocks the thread on purpose.
                while calls.wait_for_stall() {
                    while calls.is_stalled() {
                        tokio::time::sleep(RETURN_PERIOD).await;
                    }
                }
            });
        }
        calls.allow_own_writes();
        Self(calls)
    }
}

impl Drop for SpareWorkers {
    fn drop(&mut self) {
        self.0.end_writer();
    }
}

#[cfg(test)]
mod tests {
    use canon::Money;
    use ledger::{
        Disk, HoldRecord, JournalError, KeyBalance, MemoryDisk, PendingHold, Segment, SystemClock,
    };
    use std::io;
    use std::sync::{Mutex, mpsc};

    use super::*;

    /// A disk whose writes wait while a test has the lock.
    #[derive(Default)]
    struct LockedDisk {
        inner: MemoryDisk,
        lock: Arc<Mutex<()>>,
    }

    struct LockedSegment {
        inner: Arc<dyn Segment>,
        lock: Arc<Mutex<()>>,
    }

    impl Disk for LockedDisk {
        fn create(&self) -> io::Result<Arc<dyn Segment>> {
            Ok(Arc::new(LockedSegment {
                inner: self.inner.create()?,
                lock: Arc::clone(&self.lock),
            }))
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

    impl Segment for LockedSegment {
        fn number(&self) -> u64 {
            self.inner.number()
        }

        fn append(&self, bytes: &[u8]) -> io::Result<()> {
            drop(self.lock.lock());
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

    /// Time after which a test fails.
    const LONG: Duration = Duration::from_secs(60);

    /// Reserves nothing for a call with that id.
    fn hold(calls: &Arc<OpenCalls>, request_id: &str) -> PendingHold {
        let balance = KeyBalance::new("k", None, Money::ZERO);
        let record = HoldRecord { request_id: request_id.into(), ..HoldRecord::default() };
        calls.hold(&balance, Arc::new(record), Money::ZERO, Money::ZERO).unwrap()
    }

    #[test]
    fn a_thread_serves_calls_while_the_disk_keeps_another() {
        let disk = LockedDisk::default();
        let lock = Arc::clone(&disk.lock);
        let calls = OpenCalls::open(Arc::new(SystemClock), Arc::new(disk)).unwrap().book;
        calls.start_writer().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let entered = runtime.enter();
        let spare = SpareWorkers::take(Arc::clone(&calls), 1);
        for round in ["first", "second"] {
            let hang = lock.lock();
            // The only call of a node leaves the write to the journal's thread, so there is another one.
            let other = hold(&calls, &format!("{round}-other"));
            let (ends, ended) = mpsc::channel::<Result<(), JournalError>>();
            for name in ["writes", "waits"] {
                let (ends, held) = (ends.clone(), hold(&calls, &format!("{round}-{name}")));
                tokio::spawn(async move { ends.send(held.written().await.map(drop)) });
            }
            // It is refused on the other thread. The one that writes waits for the disk.
            assert!(ended.recv_timeout(LONG).unwrap().is_err());
            assert!(calls.is_stalled() && ended.try_recv().is_err());
            drop(hang);
            assert!(ended.recv_timeout(LONG).unwrap().is_ok());
            drop(other);
        }
        drop(spare);
        drop(entered);
        let (ends, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            drop(runtime);
            drop(ends);
        });
        assert_eq!(ended.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
