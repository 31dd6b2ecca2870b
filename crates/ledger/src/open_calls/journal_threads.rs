//! Threads that write the journal, and the state of its disk.

use std::time::Duration;

use super::OpenCalls;
use crate::JournalError;

/// Period of looking if the disk of the journal hangs.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

impl OpenCalls {
    /// Starts the thread that writes the journal, so that no other one waits for the disk, and the one that
    /// looks if the disk hangs. They end with this value.
    pub fn start_writer(&self) -> Result<(), JournalError> {
        let mut thread = self.writer_thread.lock();
        if thread.is_none() {
            *thread = Some(self.journal.start_thread().map_err(JournalError)?);
            self.journal.start_watch(WATCH_PERIOD).map_err(JournalError)?;
        }
        Ok(())
    }

    /// Lets threads that serve calls write the journal, which saves two switches of threads per write. The
    /// process must have as many spare threads, which wait in [`Self::wait_for_stall`].
    pub fn allow_own_writes(&self) {
        self.journal.allow_own_writes();
    }

    /// Blocks the thread until the disk of the journal hangs. Returns false if this value is about to be
    /// dropped.
    pub fn wait_for_stall(&self) -> bool {
        self.journal.wait_for_stall()
    }

    /// Ends the threads of the journal, and [`Self::wait_for_stall`]. Records are still written.
    pub fn end_writer(&self) {
        self.journal.end_thread();
    }

    /// Sets whether a call waits until its records survive a crash of the machine, and not only one of
    /// the process.
    pub fn set_sync_writes(&self, on: bool) {
        self.journal.set_sync_writes(on);
    }

    /// Returns true while the disk of the journal hangs, so that no call is admitted.
    pub fn is_stalled(&self) -> bool {
        self.journal.is_stalled()
    }

    /// Returns true if the journal could not be written or synced, until it can be again. No call is
    /// admitted meanwhile.
    pub fn is_failing(&self) -> bool {
        self.journal.is_failing()
    }

    /// Looks if the disk of the journal hangs. If a write lasts from one call of this function to the
    /// next, calls no longer wait for it: new ones are refused, and settled ones are written later.
    #[cfg(test)]
    pub(crate) fn watch_journal(&self) {
        self.journal.watch();
    }
}
