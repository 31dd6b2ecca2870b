//! Records that one write takes.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::JournalError;
use crate::segment_table::SegmentTable;

/// Records that one write takes, and the tasks that wait for it.
#[derive(Default)]
pub(crate) struct WriteBatch(Mutex<BatchState>);

#[derive(Default)]
struct BatchState {
    /// Number of records that keep the segment they are written to.
    kept: usize,
    /// `None` until the write has ended.
    outcome: Option<WriteOutcome>,
    wakers: Vec<Waker>,
}

enum WriteOutcome {
    Written { segment: u64 },
    Failed(Arc<io::Error>),
}

impl WriteOutcome {
    fn to_result(&self) -> Result<(), JournalError> {
        match self {
            Self::Written { .. } => Ok(()),
            Self::Failed(e) => Err(JournalError(io::Error::new(e.kind(), Arc::clone(e)))),
        }
    }
}

impl WriteBatch {
    /// Adds a record that keeps its segment until it is released.
    pub(crate) fn keep(&self) {
        self.0.lock().kept += 1;
    }

    /// Gives up one record. Fails if it could not be written.
    pub(crate) fn release(&self, table: &Mutex<SegmentTable>) -> Result<(), JournalError> {
        let mut state = self.0.lock();
        let Some(outcome) = &state.outcome else {
            state.kept = state.kept.saturating_sub(1);
            return Ok(());
        };
        match outcome {
            WriteOutcome::Written { segment } => table.lock().release(*segment),
            WriteOutcome::Failed(_) => {}
        }
        outcome.to_result()
    }

    /// Returns the number of records that keep the segment they are written to.
    pub(crate) fn kept(&self) -> usize {
        self.0.lock().kept
    }

    /// Ends the write and wakes the tasks that wait for it. Returns the number of records that were
    /// to be kept.
    pub(crate) fn end(
        &self,
        written: &Result<u64, Arc<io::Error>>,
        table: &Mutex<SegmentTable>,
    ) -> usize {
        let mut state = self.0.lock();
        state.outcome = Some(match written {
            Ok(segment) => {
                table.lock().keep(*segment, state.kept);
                WriteOutcome::Written { segment: *segment }
            }
            Err(e) => WriteOutcome::Failed(Arc::clone(e)),
        });
        let kept = state.kept;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        kept
    }

    /// Wakes the tasks that wait, because the write hangs.
    pub(crate) fn wake_all(&self) {
        // The wakers stay, because tasks remember their place among them.
        let wakers = self.0.lock().wakers.clone();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the result of the write; `None` until it has ended.
    pub(crate) fn outcome(&self) -> Option<Result<(), JournalError>> {
        self.0.lock().outcome.as_ref().map(WriteOutcome::to_result)
    }

    /// Returns the segment that has the records.
    #[cfg(test)]
    pub(crate) fn segment(&self) -> Option<u64> {
        match &self.0.lock().outcome {
            Some(WriteOutcome::Written { segment }) => Some(*segment),
            Some(WriteOutcome::Failed(_)) | None => None,
        }
    }

    /// Waits for the end of the write. `place` is that of the task's waker, `None` at first.
    pub(crate) fn poll_end(
        &self,
        place: &mut Option<usize>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), JournalError>> {
        let mut state = self.0.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.to_result());
        }
        match place.and_then(|place| state.wakers.get_mut(place)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => {
                *place = Some(state.wakers.len());
                state.wakers.push(cx.waker().clone());
            }
        }
        Poll::Pending
    }
}
