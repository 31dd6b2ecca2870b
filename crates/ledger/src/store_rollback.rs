//! A lease store that went back in time.
//!
//! A database that fails over to a stale replica, or is restored from a backup, has lost the calls that
//! were posted last, and their money could be spent again. Each node counts the calls it has posted and
//! writes the number into the store after each batch, as its mark. A mark below the node's own number
//! means that the store went back. The node then gives up its leases, which the store may have given to
//! others meanwhile, and posts the calls again that its journal still has.

use std::collections::VecDeque;
use std::io;

use crate::segment_scan::scan;
use crate::{
    JournalRecord, LeaseClient, LeaseStore, LeaseStoreError, MAX_BATCH_CALLS, OpenCalls,
    PostedMark, SettledCall, StoreRollback,
};

impl PostedMark {
    fn to_text(&self) -> String {
        format!("{} {} {}\n", self.store_id, self.posted, self.node_id)
    }

    fn from_text(text: &str) -> Option<Self> {
        let (store_id, rest) = text.trim_end().split_once(' ')?;
        let (posted, node_id) = rest.split_once(' ')?;
        let (node_id, store_id) = (node_id.to_owned(), store_id.to_owned());
        Some(Self { node_id, store_id, posted: posted.parse().ok()? })
    }
}

/// Segments whose calls are still to be posted again. Meanwhile no lease is requested, because money
/// that is spent looks free.
#[derive(Debug, Default)]
pub(crate) struct PendingRepost {
    found: StoreRollback,
    /// Retired segments and those in use, oldest first.
    retired: VecDeque<u64>,
    in_use: VecDeque<u64>,
}

impl OpenCalls {
    /// Returns the mark on this node's disk, if it is of that store.
    pub(crate) fn mark_of(&self, store_id: &str) -> Option<PostedMark> {
        self.own_mark().filter(|own| own.store_id == store_id)
    }

    fn own_mark(&self) -> Option<PostedMark> {
        // A mark that cannot be read only hides a rollback during the pause of this node.
        let text = self.disk().read_mark().ok()??;
        PostedMark::from_text(&text)
    }

    /// Returns the settled calls of the next segment, without their leases; `None` after the last one.
    fn next_calls(&self, pending: &PendingRepost) -> Option<Vec<SettledCall>> {
        let bytes = match (pending.retired.front(), pending.in_use.front()) {
            (Some(segment), _) => self.disk().read_retired(*segment),
            (None, Some(segment)) => self.disk().read(*segment),
            (None, None) => return None,
        };
        // A segment that cannot be read, or was retired meanwhile, has nothing to give.
        let records = scan(&bytes.unwrap_or_default()).records.into_iter();
        let settled = records.filter_map(|record| match record {
            JournalRecord::Settled(entry) => {
                Some(SettledCall { entry: entry.into(), lease: None, shown: true })
            }
            JournalRecord::Held(_) | JournalRecord::Reached(_) => None,
        });
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
                return Ok(());
            }
            self.enter_again().await?;
            let disk = self.book().disk();
            let found = StoreRollback { missing, reposted: count(recovered) };
            let retired = disk.retired().unwrap_or_default().into();
            let in_use = disk.segments().unwrap_or_default().into();
            *self.repost().lock() = Some(PendingRepost { found, retired, in_use });
        }
        let calls = self.repost().lock().as_ref().and_then(|one| self.book().next_calls(one));
        if let Some(calls) = calls {
            let mut reposted = 0;
            for batch in calls.chunks(MAX_BATCH_CALLS) {
                reposted += self.store().post(batch).await?;
            }
            if let Some(pending) = &mut *self.repost().lock() {
                pending.found.reposted = pending.found.reposted.saturating_add(count(reposted));
                if pending.retired.pop_front().is_none() {
                    pending.in_use.pop_front();
                }
            }
            return Ok(());
        }
        let found = self.repost().lock().as_ref().map(|pending| pending.found);
        if let Some(found) = found {
            let own = self.mark().lock().clone();
            self.store().note_rollback(&own.node_id, found).await?;
            self.store().mark_posted(&own.node_id, own.posted).await?;
            *self.repost().lock() = None;
            self.rollbacks().lock().push(found);
        }
        Ok(())
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
        if self.book().own_mark().as_ref() == Some(&mark) {
            return Ok(());
        }
        self.book().disk().write_mark(&mark.to_text())
    }
}

fn count(calls: usize) -> i64 {
    i64::try_from(calls).unwrap_or(i64::MAX)
}
