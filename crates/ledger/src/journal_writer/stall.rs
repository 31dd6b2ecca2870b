//! Disks that hang: noticing it, and the threads that may meet it.

use parking_lot::MutexGuard;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{JournalWriter, stalled_error};
use crate::JournalError;

impl JournalWriter {
    /// Starts the thread that calls [`Self::watch`]. It is one of its own, because every other one may
    /// wait for the disk. It ends at [`Self::end_thread`].
    pub(crate) fn start_watch(self: &Arc<Self>, period: Duration) -> io::Result<()> {
        let writer = Arc::clone(self);
        let watch = move || {
            loop {
                let mut queue = writer.queue.lock();
                let is_over = writer.stall_changed.wait_for(&mut queue, period).timed_out();
                if !queue.has_thread {
                    return;
                }
                drop(queue);
                if is_over {
                    writer.watch();
                }
            }
        };
        std::thread::Builder::new().name("journal-watch".to_owned()).spawn(watch).map(drop)
    }

    /// Lets threads that serve calls write. The process must have spare ones that wait in
    /// [`Self::wait_for_stall`].
    pub(crate) fn allow_own_writes(&self) {
        self.allows_own_writes.store(true, Ordering::Relaxed);
    }

    /// Blocks until the disk hangs. Returns false if the writer thread has ended.
    pub(crate) fn wait_for_stall(&self) -> bool {
        let mut queue = self.queue.lock();
        while queue.has_thread && !self.is_stalled() {
            self.stall_changed.wait(&mut queue);
        }
        queue.has_thread
    }

    /// Lets the calling thread write what is queued with [`Self::write_taken`]. `None` if that is left to
    /// the writer thread.
    pub(crate) fn begin_own_write(&self) -> Option<MutexGuard<'_, ()>> {
        // A sync takes milliseconds, and a disk that failed may hang.
        let is_quick = self.allows_own_writes.load(Ordering::Relaxed)
            && !self.syncs_writes.load(Ordering::Relaxed)
            && !self.is_stalled()
            && !self.is_failing();
        is_quick.then(|| self.writing.try_lock()).flatten()
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
            self.stall_changed.notify_all();
        }
        for batch in in_flight.into_iter().chain(queued) {
            batch.wake_all();
        }
    }
}
