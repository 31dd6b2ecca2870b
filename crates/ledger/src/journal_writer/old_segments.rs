//! Segments that are not written to any more: retired, damaged and missing ones.

use std::io;
use std::time::Duration;

use super::JournalWriter;
use crate::disk::segment_name;
use crate::journal::{Written, framed, settled_entries};
use crate::segment_scan::scan;
use crate::{DamagedSpan, JournalRecord};

/// Age up to which retired segments are kept.
const MAX_RETIRED_AGE: Duration = Duration::from_secs(24 * 60 * 60);

impl JournalWriter {
    /// Retires segments whose calls are stored. One that stays is recovered again at the next start,
    /// and all its calls are found to be recorded already.
    pub(crate) fn retire(&self, segments: &[u64]) {
        for segment in segments {
            self.note(self.disk.retire(*segment));
        }
    }

    /// Retires all segments if no call needs them. To be called when nothing is written any more.
    pub(crate) fn close(&self) {
        let _upkeep = self.upkeep.lock();
        let _writing = self.writing.lock();
        let unused = {
            let mut table = self.table.lock();
            table.close();
            table.take_unused()
        };
        self.retire(&unused);
    }

    /// Deletes the oldest retired segments, except for so many bytes.
    pub(super) fn prune_retired(&self, kept: u64) -> io::Result<()> {
        let old = self.disk.prunable(kept, MAX_RETIRED_AGE)?;
        self.manifest.drop_segments(&*self.disk, &old)?;
        old.into_iter().try_for_each(|segment| self.disk.remove_retired(segment))
    }

    /// Looks at one of the retired segments of earlier processes.
    pub(super) fn check_retired(&self) {
        let next = self.unchecked.lock().pop();
        drop(next.map(|segment| self.read_retired(segment)));
    }

    /// Returns the records of a retired segment. If it is damaged, it is set aside, and the settlements
    /// that can be read are written again, so that the journal has them still.
    pub(crate) fn read_retired(&self, segment: u64) -> Vec<JournalRecord> {
        let bytes = match self.disk.read_retired(segment) {
            Ok(bytes) => bytes,
            // It was deleted because of its age.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(e) => {
                drop(self.count(e));
                return Vec::new();
            }
        };
        let found = scan(&bytes).require(bytes.len(), self.manifest.written(segment));
        if !found.damage.is_empty() {
            for entry in settled_entries(found.records.clone()) {
                drop(framed(&Written::settled(&entry), |record| self.append_unkept(record)));
            }
            self.errors.note(&damage_error(segment, &found.damage));
            self.set_aside(segment);
        }
        found.records
    }

    /// Keeps a damaged segment out of the way, because nothing in it may be lost for good. One that is
    /// missing leaves an empty file.
    pub(crate) fn set_aside(&self, segment: u64) {
        let aside = self.disk.set_aside(segment);
        self.note(aside.and_then(|()| self.manifest.drop_segments(&*self.disk, &[segment])));
        self.look_for_damage();
    }

    /// Notes which damaged files there are. An operator may accept one at any time.
    pub(super) fn look_for_damage(&self) {
        match self.disk.damaged_files() {
            Ok(files) => *self.damaged_files.lock() = files,
            Err(e) => drop(self.count(e)),
        }
    }

    /// Returns the names of damaged files that were set aside and not accepted.
    pub(crate) fn damaged_files(&self) -> Vec<String> {
        self.damaged_files.lock().clone()
    }

    /// Takes segments without a file from the manifest. Their calls are written again.
    pub(super) fn forget_lost(&self) {
        let found = self.disk.segments().and_then(|found| Ok([found, self.disk.retired()?]));
        let found = found.unwrap_or_default().concat();
        let lost: Vec<u64> =
            self.manifest.segments().into_iter().filter(|one| !found.contains(one)).collect();
        self.note(self.manifest.drop_segments(&*self.disk, &lost));
    }
}

fn damage_error(segment: u64, spans: &[DamagedSpan]) -> io::Error {
    let bytes: usize = spans.iter().map(|span| span.bytes).sum();
    let (name, kind) = (segment_name(segment), io::ErrorKind::InvalidData);
    io::Error::new(kind, format!("{bytes} bytes of the retired {name} cannot be read"))
}
