//! The table of running and unposted calls.

use canon::Micros;
use std::collections::VecDeque;
use std::sync::Arc;

use super::call_places::CallPlaces;
use crate::journal_writer::KeptRecord;
use crate::{HoldRecord, KeyBalance, ProgressRecord, SettledCall};

#[derive(Default)]
pub(super) struct CallTable {
    /// Calls with reserved money.
    pub(super) open: CallPlaces<RunningCall>,
    pub(super) settled: VecDeque<UnpostedCall>,
    /// Number of calls, from the front of `settled`, that are being posted.
    pub(super) posting: usize,
}

/// A call with reserved money.
pub(super) struct RunningCall {
    /// Its hold in the journal.
    pub(super) record: KeptRecord,
    pub(super) held: Arc<HoldRecord>,
    /// True once the journal has the hold. Other nodes hear of it only then.
    pub(super) is_admitted: bool,
    /// Boxed because few calls have some.
    pub(super) reached: Option<Box<ProgressRecord>>,
    /// When it was admitted, by the steady clock.
    pub(super) since: Micros,
    /// True if a heartbeat may have reported it.
    pub(super) shown: bool,
    /// True once the lease store has confirmed a report of it.
    pub(super) is_reported: bool,
    /// Number of changes, and number of changes the lease store has confirmed.
    pub(super) changes: u32,
    pub(super) confirmed: u32,
}

/// A settled call that is not yet confirmed by the lease store.
pub(super) struct UnpostedCall {
    pub(super) settled: SettledCall,
    /// The balance it was paid from.
    pub(super) balance: Arc<KeyBalance>,
    /// Its hold in the journal.
    pub(super) hold_record: Option<KeptRecord>,
    /// Its entry in the journal; `None` if the journal did not take it.
    pub(super) record: Option<KeptRecord>,
}

impl UnpostedCall {
    /// Returns true if the journal does not have the entry.
    pub(super) fn is_unwritten(&self) -> bool {
        !self.record.as_ref().is_some_and(KeptRecord::is_written)
    }

    /// Returns true if the entry must be written again.
    pub(super) fn must_be_rewritten(&self) -> bool {
        let has_failed = |record: &KeptRecord| record.failure().is_some();
        self.record.as_ref().is_none_or(has_failed)
    }
}
