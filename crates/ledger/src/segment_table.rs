//! Segments of the journal that are in use.
//!
//! Segments are created, synced and deleted in the background. The next segment is created when the
//! current one is half full; the write that finds the current segment full swaps it in. If the next
//! segment is not ready, the current one grows beyond its size, which is only a target.
//!
//! After a failed write the segment may end in half a record, and recovery stops reading there. So
//! the half record is cut off, and the background creates another segment, because the reason may be
//! this one file. If the cut fails too, the segment is abandoned, and writes fail until there is
//! another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Segment;

/// Size at which a segment is replaced by the next one.
pub(crate) const SEGMENT_BYTES: usize = 8 << 20;

/// Segments that are written to, and those that calls still need.
#[derive(Default)]
pub(crate) struct SegmentTable {
    /// `None` after a failed write that could not be undone, until there is another segment.
    current: Option<Arc<dyn Segment>>,
    /// Bytes of whole records in the current segment.
    written: usize,
    /// True if the last write to the current segment failed and the segment has records. An empty one
    /// is as good as the next.
    worn: bool,
    /// The next segment, created ahead of its use.
    prepared: Option<Arc<dyn Segment>>,
    /// Replaced segments that were written to since the last sync.
    unsynced: Vec<Arc<dyn Segment>>,
    /// Number of open holds and unposted entries in each segment.
    users: BTreeMap<u64, usize>,
}

impl SegmentTable {
    /// Creates a table that writes to this segment.
    pub(crate) fn new(current: Arc<dyn Segment>) -> Self {
        Self { current: Some(current), ..Self::default() }
    }

    /// Returns the segment to write to, and its length.
    pub(crate) fn writable(&mut self) -> Option<(Arc<dyn Segment>, usize)> {
        if (self.current.is_none() || self.worn || self.written > SEGMENT_BYTES)
            && let Some(prepared) = self.prepared.take()
        {
            self.unsynced.extend(self.current.replace(prepared));
            self.written = 0;
            self.worn = false;
        }
        Some((Arc::clone(self.current.as_ref()?), self.written))
    }

    /// Records a write of that many bytes to the current segment.
    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.worn = false;
        self.written += bytes;
    }

    /// Records a failed write whose bytes were cut off again.
    pub(crate) fn note_cut(&mut self) {
        self.worn = self.written > 0;
    }

    /// Gives up the current segment, which ends in half a record.
    pub(crate) fn abandon(&mut self) {
        let Some(segment) = self.current.take() else { return };
        if self.written == 0 {
            // It has no record, so it is deleted as one without users.
            self.users.entry(segment.number()).or_default();
        } else {
            self.unsynced.push(segment);
        }
    }

    /// Forgets a segment whose file was deleted by somebody else.
    pub(crate) fn forget(&mut self, segment: u64) {
        self.users.remove(&segment);
        self.current = self.current.take().filter(|current| current.number() != segment);
        self.prepared = self.prepared.take().filter(|prepared| prepared.number() != segment);
    }

    /// Returns true if the next segment must be created.
    pub(crate) fn needs_segment(&self) -> bool {
        let wears_out = self.worn || self.written > SEGMENT_BYTES / 2;
        self.prepared.is_none() && (self.current.is_none() || wears_out)
    }

    /// Sets the next segment.
    pub(crate) fn prepare(&mut self, segment: Arc<dyn Segment>) {
        self.prepared = Some(segment);
    }

    /// Adds users of a segment.
    pub(crate) fn keep(&mut self, segment: u64, users: usize) {
        *self.users.entry(segment).or_default() += users;
    }

    /// Gives up one use of a segment. The last one leaves it to [`Self::take_unused`].
    pub(crate) fn release(&mut self, segment: u64) {
        if let Some(count) = self.users.get_mut(&segment) {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns the number of users of all segments.
    #[cfg(test)]
    pub(crate) fn users(&self) -> usize {
        self.users.values().sum()
    }

    /// Takes the segments to sync: replaced ones that were written to since the last sync, and the
    /// current one.
    pub(crate) fn take_unsynced(&mut self) -> Vec<Arc<dyn Segment>> {
        let replaced = std::mem::take(&mut self.unsynced);
        replaced.into_iter().chain(self.current.clone()).collect()
    }

    /// Puts segments back that could not be synced.
    pub(crate) fn put_back_unsynced(&mut self, segments: &[Arc<dyn Segment>]) {
        let current = self.current.as_ref().map(|segment| segment.number());
        let replaced = segments.iter().filter(|segment| Some(segment.number()) != current);
        self.unsynced.extend(replaced.cloned());
    }

    /// Removes segments without users from the table and returns their numbers.
    pub(crate) fn take_unused(&mut self) -> Vec<u64> {
        let current = self.current.as_ref().map(|segment| segment.number());
        let unused =
            self.users.extract_if(.., |segment, count| *count == 0 && Some(*segment) != current);
        let unused: Vec<u64> = unused.map(|(segment, _)| segment).collect();
        self.unsynced.retain(|segment| !unused.contains(&segment.number()));
        unused
    }
}
