//! Manifest of the journal: the segments that exist, and the bytes that each of them must have.
//!
//! Nothing in a segment shows that its end, or all of it, was cut off. So a second file has the length
//! of each segment. It is written after the records it counts, so that it never promises too much:
//! - After the death of the process every byte must be there that the kernel had taken, because only then
//!   a record counts as written.
//! - After a crash of the machine every byte must be there that was synced. The boot id of the kernel
//!   tells the two apart.
//!
//! Bytes behind that length may be half a record. That is no damage.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::{Disk, ManifestFile};

/// Length of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SegmentExtent {
    /// Bytes of whole records.
    written: u64,
    /// Bytes that survive a crash of the machine.
    synced: u64,
}

/// Lengths of all segments, in use and retired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentManifest {
    boot_id: String,
    extents: BTreeMap<u64, SegmentExtent>,
}

/// First word of the file.
const TITLE: &str = "portunus-journal-1";
/// Bytes of the line of a segment: three numbers of 20 digits, a checksum of 8, four separators.
const LINE_BYTES: usize = 72;

impl SegmentManifest {
    /// Reads the manifest of a journal. A journal of an earlier version has none.
    pub(crate) fn read(disk: &dyn Disk) -> io::Result<Self> {
        let bytes = disk.read_manifest()?.unwrap_or_default();
        let mut manifest = Self::from_text(&String::from_utf8_lossy(&bytes));
        let boot_id = disk.boot_id();
        if manifest.boot_id != boot_id || boot_id.is_empty() {
            for extent in manifest.extents.values_mut() {
                extent.written = extent.synced;
            }
        }
        manifest.boot_id = boot_id;
        Ok(manifest)
    }

    /// Parses the file. A line that cannot be read promises nothing.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut lines = text.lines();
        let head = lines.next().and_then(|head| head.strip_prefix(TITLE));
        let boot_id = head.unwrap_or_default().trim().to_owned();
        Self { boot_id, extents: lines.filter_map(parse_line).collect() }
    }

    fn to_text(&self) -> String {
        let mut text = self.head();
        for (segment, extent) in &self.extents {
            text.push_str(&line_of(*segment, extent));
        }
        text
    }

    fn head(&self) -> String {
        format!("{TITLE} {}\n", self.boot_id)
    }

    /// Returns the number of bytes that a segment must have.
    pub(crate) fn required(&self, segment: u64) -> usize {
        let written = self.extents.get(&segment).map_or(0, |extent| extent.written);
        usize::try_from(written).unwrap_or(usize::MAX)
    }

    /// Returns the numbers of all segments in it.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u64> {
        self.extents.keys().copied()
    }
}

/// Returns the line of a segment. It is written with every batch of records, so it is made without the
/// formatter, which is slow.
fn line_of(segment: u64, extent: &SegmentExtent) -> String {
    let mut line = String::with_capacity(LINE_BYTES);
    for number in [segment, extent.written, extent.synced] {
        line.extend(digits::<20>(number, 10));
        line.push(' ');
    }
    let sum = crc32fast::hash(line.trim_ascii_end().as_bytes());
    line.extend(digits::<8>(sum.into(), 16));
    line.push('\n');
    line
}

/// Returns the digits of a number, with zeros before it.
fn digits<const PLACES: usize>(mut number: u64, base: u32) -> [char; PLACES] {
    let mut digits = ['0'; PLACES];
    for digit in digits.iter_mut().rev() {
        let last = u32::try_from(number % u64::from(base)).unwrap_or_default();
        *digit = char::from_digit(last, base).unwrap_or_default();
        number /= u64::from(base);
    }
    digits
}

fn parse_line(line: &str) -> Option<(u64, SegmentExtent)> {
    let (numbers, sum) = line.rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(numbers.as_bytes()) {
        return None;
    }
    let mut numbers = numbers.split(' ').map(|number| number.parse::<u64>().ok());
    let (segment, written, synced) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((segment, SegmentExtent { written, synced }))
}

/// The writing side of the manifest.
pub(crate) struct ManifestWriter {
    /// Held while the file is replaced.
    replacing: Mutex<()>,
    state: Mutex<ManifestState>,
}

struct ManifestState {
    manifest: SegmentManifest,
    /// `None` if it could not be written yet.
    file: Option<WrittenManifest>,
    /// True if the file lacks a segment, because it could not be replaced.
    is_stale: bool,
}

struct WrittenManifest {
    file: Arc<dyn ManifestFile>,
    /// The content, but for the lines that were changed in place.
    content: SegmentManifest,
    offsets: BTreeMap<u64, usize>,
}

impl WrittenManifest {
    /// Writes the line of a segment in place.
    fn patch(&self, segment: u64, extent: &SegmentExtent) -> io::Result<()> {
        match self.offsets.get(&segment) {
            Some(offset) => self.file.patch(*offset as u64, line_of(segment, extent).as_bytes()),
            None => Ok(()),
        }
    }
}

impl ManifestWriter {
    /// Goes on with the manifest that an earlier process left.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Self> {
        let manifest = SegmentManifest::read(disk)?;
        let state = ManifestState { manifest, file: None, is_stale: true };
        Ok(Self { replacing: Mutex::new(()), state: Mutex::new(state) })
    }

    /// Adds a new segment. To be called before a record is written to it.
    pub(crate) fn add(&self, disk: &dyn Disk, segment: u64) -> io::Result<()> {
        self.replace(disk, |extents| {
            extents.insert(segment, SegmentExtent::default());
        })
    }

    /// Drops segments: before their files are deleted, or when their damage is noted elsewhere.
    pub(crate) fn drop_segments(&self, disk: &dyn Disk, segments: &[u64]) -> io::Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        self.replace(disk, |extents| extents.retain(|segment, _| !segments.contains(segment)))
    }

    /// Writes the file again if that failed before.
    pub(crate) fn complete(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.state.lock().is_stale { self.replace(disk, |_| ()) } else { Ok(()) }
    }

    /// Changes the set of segments and replaces the file. The writer of records does not wait for that.
    fn replace(
        &self,
        disk: &dyn Disk,
        change: impl FnOnce(&mut BTreeMap<u64, SegmentExtent>),
    ) -> io::Result<()> {
        let _replacing = self.replacing.lock();
        let content = {
            let mut state = self.state.lock();
            change(&mut state.manifest.extents);
            state.is_stale = true;
            state.manifest.clone()
        };
        let file = disk.write_manifest(content.to_text().as_bytes())?;
        let head = content.head().len();
        let offsets = content.segments().enumerate();
        let offsets = offsets.map(|(index, one)| (one, head + index * LINE_BYTES)).collect();
        let mut state = self.state.lock();
        let written = WrittenManifest { file, content, offsets };
        // Records may have been written meanwhile.
        let mut changed = state
            .manifest
            .extents
            .iter()
            .filter(|(segment, extent)| written.content.extents.get(segment) != Some(extent));
        let patched = changed.try_for_each(|(segment, extent)| written.patch(*segment, extent));
        state.file = Some(written);
        state.is_stale = false;
        patched
    }

    /// Notes that a segment has so many bytes of whole records.
    pub(crate) fn note_written(&self, segment: u64, length: usize) -> io::Result<()> {
        self.raise(segment, |extent| extent.written = extent.written.max(length as u64))
    }

    /// Returns the number of bytes of whole records in a segment.
    pub(crate) fn written(&self, segment: u64) -> usize {
        self.state.lock().manifest.required(segment)
    }

    /// Returns the numbers of all segments.
    pub(crate) fn segments(&self) -> Vec<u64> {
        self.state.lock().manifest.segments().collect()
    }

    /// Notes that so many bytes of a segment survive a crash of the machine.
    pub(crate) fn note_synced(&self, segment: u64, length: usize) -> io::Result<()> {
        self.raise(segment, |extent| extent.synced = extent.synced.max(length as u64))
    }

    fn raise(&self, segment: u64, change: impl FnOnce(&mut SegmentExtent)) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(extent) = state.manifest.extents.get_mut(&segment) else { return Ok(()) };
        let before = *extent;
        change(extent);
        match &state.file {
            Some(file) if before != *extent => file.patch(segment, extent),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;

    #[test]
    fn a_manifest_is_read_back_and_broken_lines_promise_nothing() {
        let disk = MemoryDisk::default();
        let writer = ManifestWriter::open(&disk).unwrap();
        for segment in [3, 4, 9] {
            writer.add(&disk, segment).unwrap();
        }
        writer.note_written(4, 700).unwrap();
        writer.note_synced(4, 300).unwrap();
        writer.note_written(9, 50).unwrap();
        writer.note_written(5, 50).unwrap();
        writer.drop_segments(&disk, &[3]).unwrap();
        writer.note_written(9, 60).unwrap();
        let manifest = SegmentManifest::read(&disk).unwrap();
        assert_eq!(manifest.segments().collect::<Vec<_>>(), [4, 9]);
        assert_eq!((manifest.required(4), manifest.required(9)), (700, 60));
        assert_eq!((manifest.required(3), manifest.required(5)), (0, 0));
        let text = manifest.to_text();
        assert_eq!(text.len(), manifest.head().len() + 2 * LINE_BYTES);
        let numbers = "00000000000000000009 00000000000000000060 00000000000000000000";
        let sum = crc32fast::hash(numbers.as_bytes());
        assert_eq!(text.lines().last(), Some(&*format!("{numbers} {sum:08x}")));
        let broken = SegmentManifest::from_text(&text.replace("700", "800"));
        assert_eq!((broken.required(4), broken.required(9)), (0, 60));
    }

    #[test]
    fn after_a_crash_of_the_machine_synced_bytes_are_required() {
        let disk = MemoryDisk::default();
        let writer = ManifestWriter::open(&disk).unwrap();
        writer.add(&disk, 1).unwrap();
        writer.note_written(1, 700).unwrap();
        writer.note_synced(1, 300).unwrap();
        assert_eq!(SegmentManifest::read(&disk.after_crash()).unwrap().required(1), 700);
        let restarted = disk.after_power_loss();
        assert_eq!(SegmentManifest::read(&restarted).unwrap().required(1), 300);
        // The next process of the same boot must not require more again.
        ManifestWriter::open(&restarted).unwrap().add(&restarted, 2).unwrap();
        assert_eq!(SegmentManifest::read(&restarted).unwrap().required(1), 300);
    }
}
