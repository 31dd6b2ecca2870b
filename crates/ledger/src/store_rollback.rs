//! A lease store that went back in time.
//!
//! A database that fails over to a stale replica, or is restored from a backup, has lost the calls that
//! were posted last, and their money could be spent again. Each node counts the calls it has posted and
//! writes the number into the store together with each batch, as its mark. A mark below the node's own number
//! means that the store went back. The node then gives up its leases, which the store may have given to
//! others meanwhile, and posts the calls again that its journal still has. The order does not matter: of
//! several settlements of a call the store keeps the one that knows most.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use crate::disk::read_mark;
use crate::journal::settled_entries;
use crate::segment_scan::scan;
use crate::{
    LeaseClient, LeaseStore, LeaseStoreError, MAX_BATCH_CALLS, MarkRaise, OpenCalls, PostedBatch,
    PostedMark, SettledCall, StoreRollback,
};

/// Number that stands for all segments of a lost journal. The first segment has the number 1.
const LOST_JOURNAL: u64 = 0;

impl PostedMark {
    /// Reads the mark of the node whose journal is in that folder. A node that has posted nothing yet
    /// may have none.
    pub fn read(journal: &Path) -> io::Result<Option<Self>> {
        Ok(read_mark(journal)?.and_then(|text| Self::from_text(&text)))
    }

    /// Returns the mark as a batch raises it.
    pub(crate) fn raise(&self) -> MarkRaise {
        MarkRaise { node_id: self.node_id.clone(), before: self.posted }
    }

    /// Notes a batch of so many calls. A mark that the store did not raise is above that of the store
    /// then, which the next heartbeat finds.
    pub(crate) fn note(&mut self, batch: PostedBatch, calls: usize) {
        self.posted = batch.mark.unwrap_or_else(|| self.posted.saturating_add(count(calls)));
    }

    fn to_text(&self) -> String {
        format!("{} {} {}\n", self.store_id, self.posted, self.node_id)
    }

    fn from_text(text: &str) -> Option<Self> {
        let (store_id, rest) = text.trim_end().split_once(' ')?;
        let (posted, node_id) = rest.split_once(' ')?;
        let (node_id, store_id) = (node_id.to_owned(), store_id.to_owned());
        let (posted, is_adopted, has_leases) = (posted.parse().ok()?, false, false);
        Some(Self { node_id, store_id, posted, is_adopted, has_leases })
    }
}

/// Segments whose calls are still to be posted again. Meanwhile no lease is requested, because money
/// that is spent looks free.
#[derive(Debug, Default)]
pub(crate) struct PendingRepost {
    found: StoreRollback,
    /// Mark of this node in the store.
    stored: i64,
    /// True if an operator has set the store back on purpose.
    is_adopted: bool,
    /// Retired segments and those in use, oldest first.
    retired: VecDeque<u64>,
    in_use: VecDeque<u64>,
}

impl OpenCalls {
    /// Returns the mark on this node's disk, if it is of that store.
    pub(crate) fn mark_of(&self, store_id: &str) -> Option<PostedMark> {
        self.own_mark().filter(|own| own.store_id == store_id)
    }

    /// Notes that the journal of a node that has posted calls or leased money is gone, with calls that
    /// the store perhaps does not have. Every start writes a mark. Returns true if it is gone.
    pub(crate) fn look_for_journal(&self) -> bool {
        let is_lost = matches!(self.disk().read_mark(), Ok(None));
        if is_lost {
            self.set_aside(LOST_JOURNAL);
        }
        is_lost
    }

    /// Returns true if there are no retired segments.
    pub(crate) fn has_no_retired(&self) -> bool {
        self.disk().retired().is_ok_and(|retired| retired.is_empty())
    }

    fn own_mark(&self) -> Option<PostedMark> {
        // A mark that cannot be read only hides a rollback during the pause of this node.
        let text = self.disk().read_mark().ok()??;
        PostedMark::from_text(&text)
    }

    /// Writes the mark to this node's disk, if it has another one. Blocks on the disk.
    pub(crate) fn write_mark(&self, mark: &PostedMark) -> io::Result<()> {
        let own = self.own_mark();
        if own.is_some_and(|own| own.to_text() == mark.to_text()) {
            return Ok(());
        }
        self.disk().write_mark(&mark.to_text())
    }

    /// Returns the settled calls of the next segment, without their leases; `None` after the last one.
    fn next_calls(&self, pending: &PendingRepost) -> Option<Vec<SettledCall>> {
        let records = match (pending.retired.front(), pending.in_use.front()) {
            (Some(segment), _) => self.read_retired(*segment),
            // A segment that was retired meanwhile has nothing to give.
            (None, Some(segment)) => scan(&self.disk().read(*segment).unwrap_or_default()).records,
            (None, None) => return None,
        };
        let settled = settled_entries(records);
        let settled =
            settled.map(|entry| SettledCall { entry: entry.into(), lease: None, shown: true });
        Some(settled.collect())
    }
}

impl<S: LeaseStore> LeaseClient<S> {
    /// Looks if the store has lost calls of this node, and posts some of them again. The start of the
    /// node has posted so many new ones already. To be called again until [`Self::is_reposting`] is
    /// false; each time is short enough for a heartbeat.
    pub(crate) async fn check_mark(&self, recovered: usize) -> Result<(), LeaseStoreError> {
        if !self.is_reposting() {
            let own = self.mark().lock().clone();
            let stored = self.store().posted_mark(&own.node_id).await?;
            if stored.store_id != own.store_id {
                // Another database: its calls are none of this node's business.
                *self.mark().lock() = stored;
                return Ok(());
            }
            let missing = own.posted.saturating_sub(stored.posted);
            if missing <= 0 {
                // The process before may have died between its last batch and the write of its mark.
                self.mark().lock().posted = stored.posted;
                return Ok(());
            }
            self.enter_again().await?;
            let disk = self.book().disk();
            let found = StoreRollback { missing, reposted: count(recovered) };
            let retired = disk.retired().unwrap_or_default().into();
            let in_use = disk.segments().unwrap_or_default().into();
            let PostedMark { posted: stored, is_adopted, .. } = stored;
            *self.repost().lock() =
                Some(PendingRepost { found, stored, is_adopted, retired, in_use });
        }
        let calls = self.repost().lock().as_ref().and_then(|one| self.book().next_calls(one));
        if let Some(calls) = calls {
            let mut reposted = 0;
            for batch in calls.chunks(MAX_BATCH_CALLS) {
                let PostedBatch { new, corrected, .. } = self.post_and_mark(batch).await?;
                reposted += new + corrected;
            }
            if let Some(pending) = &mut *self.repost().lock() {
                pending.found.reposted = pending.found.reposted.saturating_add(count(reposted));
                if pending.retired.pop_front().is_none() {
                    pending.in_use.pop_front();
                }
            }
            return Ok(());
        }
        let found = self.repost().lock().as_ref().map(|one| (one.found, one.is_adopted));
        if let Some((found, is_adopted)) = found {
            // Calls that cannot be found again are told all the same.
            let is_expected = is_adopted && found.reposted >= found.missing;
            let (raise, own) = (self.mark_raise(), self.mark().lock().posted);
            let posted = own.max(raise.before);
            self.store().note_rollback(&raise.node_id, found, is_expected).await?;
            let is_marked = self.store().mark_posted(&raise, posted).await?;
            *self.repost().lock() = None;
            if !is_expected {
                self.rollbacks().lock().push(found);
            }
            if is_marked {
                self.mark().lock().posted = posted;
            }
            // Otherwise the store went back once more, and all begins again.
        }
        Ok(())
    }

    /// Returns the mark that the next batch raises.
    fn mark_raise(&self) -> MarkRaise {
        let own = self.mark().lock().raise();
        match &*self.repost().lock() {
            Some(pending) => MarkRaise { before: pending.stored, ..own },
            None => own,
        }
    }

    /// Posts calls, and raises the mark of this node together with them. While calls are posted again,
    /// this node's own number stays above the mark, so that a start in between notices it too.
    pub(crate) async fn post_and_mark(
        &self,
        calls: &[SettledCall],
    ) -> Result<PostedBatch, LeaseStoreError> {
        let raise = self.mark_raise();
        let posted = self.store().post(calls, Some(&raise)).await?;
        match &mut *self.repost().lock() {
            Some(pending) => {
                pending.stored = posted.mark.unwrap_or(pending.stored);
                let mut own = self.mark().lock();
                own.posted = own.posted.max(pending.stored.saturating_add(1));
            }
            None => self.mark().lock().note(posted, calls.len()),
        }
        Ok(posted)
    }

    /// Returns true while calls are posted again that the store has lost.
    pub(crate) fn is_reposting(&self) -> bool {
        self.repost().lock().is_some()
    }

    /// Takes the rollbacks that were found since the last call.
    pub fn take_rollbacks(&self) -> Vec<StoreRollback> {
        std::mem::take(&mut *self.rollbacks().lock())
    }

    /// Writes the number of posted calls to the disk, so that a rollback is noticed after a restart
    /// too. To be called several times a second. Blocks on the disk.
    pub fn save_mark(&self) -> io::Result<()> {
        let mark = self.mark().lock().clone();
        self.book().write_mark(&mark)
    }
}

fn count(calls: usize) -> i64 {
    i64::try_from(calls).unwrap_or(i64::MAX)
}
