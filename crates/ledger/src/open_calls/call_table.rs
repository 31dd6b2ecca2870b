//! The table of running and unposted calls.

use canon::Micros;
use foldhash::fast::RandomState;
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::journal_writer::KeptRecord;
use crate::{HoldRecord, KeyBalance, ProgressRecord, SettledCall};

#[derive(Default)]
pub(super) struct CallTable {
    /// By request id. The gateway makes the ids, so that nobody can choose ones of equal hash.
    pub(super) open: HashMap<OpenCallKey, RunningCall, RandomState>,
    pub(super) settled: VecDeque<UnpostedCall>,
    /// Number of calls, from the front of `settled`, that are being posted.
    pub(super) posting: usize,
}

/// A running call in the table. It is found by its request id.
pub(super) struct OpenCallKey(pub(super) Arc<HoldRecord>);

impl Borrow<str> for OpenCallKey {
    fn borrow(&self) -> &str {
        &self.0.request_id
    }
}

impl Hash for OpenCallKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.request_id.hash(state);
    }
}

impl PartialEq for OpenCallKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.request_id == other.0.request_id
    }
}

impl Eq for OpenCallKey {}

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
