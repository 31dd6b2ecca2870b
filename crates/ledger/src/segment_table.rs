//! Segments of the journal that are in use.
//!
//! Segments are created, synced and deleted in the background. The next segment is created when the
//! current one is half full; the write that finds the current segment full swaps it in. If the next
//! segment is not ready, or the disk has no room in it for the settlements that are still to come, the
//! current one grows beyond its size, which is only a target.
//!
//! After a failed write the segment may end in half a record. So the half record is cut off, and the
//! background creates another segment, because the reason may be this one file. If the cut fails too,
//! the segment is abandoned, and writes fail until there is another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Segment;

/// Size at which a segment is replaced by the next one.
pub(crate) const SEGMENT_BYTES: usize = 8 << 20;

/// A segment to write to.
#[derive(Clone)]
pub(crate) struct WritableSegment {
    pub(crate) segment: Arc<dyn Segment>,
    /// Bytes of whole records in it.
    pub(crate) written: usize,
    /// Length up to which the disk has room for it.
    pub(crate) reserved: usize,
}

impl WritableSegment {
    /// Creates an empty one.
    pub(crate) fn new(segment: Arc<dyn Segment>) -> Self {
        Self { segment, written: 0, reserved: 0 }
    }

    fn number(&self) -> u64 {
        self.segment.number()
    }
}

/// Segments that are written to, and those that calls still need.
#[derive(Default)]
pub(crate) struct SegmentTable {
    /// `None` after a failed write that could not be undone, until there is another segment.
    current: Option<WritableSegment>,
    /// True if the last write to the current segment failed and the segment has records. An empty one
    /// is as good as the next.
    worn: bool,
    /// The next segment, created ahead of its use.
    prepared: Option<WritableSegment>,
    /// Replaced segments that were written to since the last sync.
    unsynced: Vec<Arc<dyn Segment>>,
    /// Number of open holds and unposted entries in each segment.
    users: BTreeMap<u64, usize>,
}

impl SegmentTable {
    /// Creates a table that writes to this segment.
    pub(crate) fn new(current: Arc<dyn Segment>) -> Self {
        Self { current: Some(WritableSegment::new(current)), ..Self::default() }
    }

    /// Returns the segment to write to.
    pub(crate) fn current(&self) -> Option<WritableSegment> {
        self.current.clone()
    }

    /// Returns the prepared segment, if the current one should be replaced.
    pub(crate) fn successor(&self) -> Option<WritableSegment> {
        let is_full = self.current.as_ref().is_none_or(|one| one.written > SEGMENT_BYTES);
        self.prepared.clone().filter(|_| is_full || self.worn)
    }

    /// Replaces the current segment by the prepared one.
    pub(crate) fn replace_current(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.unsynced.extend(self.current.replace(prepared).map(|old| old.segment));
            self.worn = false;
        }
    }

    /// Notes that the disk has room for a segment up to that length.
    pub(crate) fn note_reserved(&mut self, segment: u64, length: usize) {
        for one in self.current.iter_mut().chain(&mut self.prepared) {
            if one.number() == segment {
                one.reserved = length;
            }
        }
    }

    /// Records a write of that many bytes to the current segment.
    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.worn = false;
        if let Some(current) = &mut self.current {
            current.written += bytes;
        }
    }

    /// Records a failed write whose bytes were cut off again, perhaps with the reserved room.
    pub(crate) fn note_cut(&mut self) {
        if let Some(current) = &mut self.current {
            self.worn = current.written > 0;
            current.reserved = current.written;
        }
    }

    /// Gives up the current segment, which ends in half a record.
    pub(crate) fn abandon(&mut self) {
        let Some(current) = self.current.take() else { return };
        if current.written == 0 {
            // It has no record, so it is deleted as one without users.
            self.users.entry(current.number()).or_default();
        } else {
            self.unsynced.push(current.segment);
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
        let wears_out = |current: &WritableSegment| current.written > SEGMENT_BYTES / 2;
        self.prepared.is_none() && (self.worn || self.current.as_ref().is_none_or(wears_out))
    }

    /// Sets the next segment.
    pub(crate) fn prepare(&mut self, segment: WritableSegment) {
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
        let current = self.current.as_ref().map(|current| Arc::clone(&current.segment));
        replaced.into_iter().chain(current).collect()
    }

    /// Puts segments back that could not be synced.
    pub(crate) fn put_back_unsynced(&mut self, segments: &[Arc<dyn Segment>]) {
        let current = self.current.as_ref().map(WritableSegment::number);
        let replaced = segments.iter().filter(|segment| Some(segment.number()) != current);
        self.unsynced.extend(replaced.cloned());
    }

    /// Gives up the current segment if no call needs a record of any segment. One without records stays,
    /// because it costs the next process nothing.
    pub(crate) fn close(&mut self) {
        if self.users.values().all(|count| *count == 0)
            && let Some(current) = self.current.take_if(|current| current.written > 0)
        {
            self.users.entry(current.number()).or_default();
        }
    }

    /// Removes segments without users from the table and returns their numbers.
    pub(crate) fn take_unused(&mut self) -> Vec<u64> {
        let current = self.current.as_ref().map(WritableSegment::number);
        let unused =
            self.users.extract_if(.., |segment, count| *count == 0 && Some(*segment) != current);
        let unused: Vec<u64> = unused.map(|(segment, _)| segment).collect();
        self.unsynced.retain(|segment| !unused.contains(&segment.number()));
        unused
    }
}
