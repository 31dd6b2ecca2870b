//! Progress of running calls.

use super::{CallPlace, OpenCalls};
use crate::journal::{Written, framed};
use crate::{CallProgress, HoldRecord, JournalReceipt, LaterAttempt, ProgressRecord};

impl OpenCalls {
    /// Records the usage of a running call so far.
    pub(crate) fn progress(&self, place: CallPlace, held: &HoldRecord, progress: CallProgress) {
        let CallProgress { lane, usage, cost } = progress;
        let (request_id, at) = (held.request_id.to_string(), self.now());
        let attempt = {
            let state = self.state.lock();
            let reached = state.open.get(place).and_then(|open| open.reached.as_ref());
            reached.and_then(|reached| reached.attempt.clone())
        };
        // A lost record makes recovery charge less. The writer counts the failure.
        drop(self.reach(place, ProgressRecord { request_id, at, lane, usage, cost, attempt }));
    }

    /// Records that another lane is asked, or the same one again.
    pub(crate) fn begin_later_attempt(
        &self,
        place: CallPlace,
        held: &HoldRecord,
        lane: &str,
        attempt: LaterAttempt,
    ) -> JournalReceipt {
        let at = self.now();
        let reached = ProgressRecord {
            request_id: held.request_id.to_string(),
            at,
            lane: lane.to_owned(),
            attempt: Some(Box::new(LaterAttempt { at, ..attempt })),
            ..ProgressRecord::default()
        };
        self.reach(place, reached)
    }

    fn reach(&self, place: CallPlace, reached: ProgressRecord) -> JournalReceipt {
        let record =
            framed(&Written::Reached(&reached), |record| self.journal.append_unkept(record));
        let mut state = self.state.lock();
        if let Some(open) = state.open.get_mut(place) {
            open.reached = Some(Box::new(reached));
            open.changes = open.changes.saturating_add(1);
        }
        JournalReceipt::new(&self.journal, record.as_ref())
    }
}
