//! Reading a journal that another process may be writing.

use canon::Micros;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{
    boot_id, damaged_files, numbers_aside, read_manifest, retired_numbers, retired_path,
    segment_numbers, segment_path,
};
use crate::journal::{recover, settled_entries};
use crate::segment_manifest::SegmentManifest;
use crate::segment_scan::scan;
use crate::{Disk, LedgerEntry, Segment, SegmentDamage, SettledCall};

/// Calls of a journal that the store may not have.
#[derive(Clone, Debug, Default)]
pub struct JournalInspection {
    /// Calls that were settled.
    pub settled: Vec<SettledCall>,
    /// Calls that run, or that ran when their process died, charged as recovery would.
    pub open: Vec<SettledCall>,
    /// Number of bytes at the ends of segments of records that were not written completely. A record
    /// that is being written counts too.
    pub torn_bytes: usize,
    /// Damaged segments: those of earlier processes, set aside and not accepted, those in use, and
    /// retired ones.
    pub damage: Vec<SegmentDamage>,
}

/// Retired segments of a journal, which have calls that were all posted.
#[derive(Clone, Debug)]
pub struct RetiredSegments {
    folder: ReadOnlyFolder,
    /// Numbers of those that are still to be read, oldest first.
    left: std::vec::IntoIter<u64>,
}

impl RetiredSegments {
    /// Finds them in a folder. A folder that does not exist has none.
    pub fn find(folder: &Path) -> io::Result<Self> {
        let folder = ReadOnlyFolder(folder.to_owned());
        let left = folder.retired()?.into_iter();
        Ok(Self { folder, left })
    }
}

/// The settled calls of each segment, as far as they can be read.
impl Iterator for RetiredSegments {
    type Item = io::Result<Vec<LedgerEntry>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = missing_is_empty(self.folder.read_retired(self.left.next()?));
        Some(bytes.map(|bytes| settled_entries(scan(&bytes).records).collect()))
    }
}

impl JournalInspection {
    /// Reads the journal in a folder without locking or changing it. A folder that does not exist
    /// has no calls.
    pub fn read(folder: &Path, now: Micros) -> io::Result<Self> {
        let disk = ReadOnlyFolder(folder.to_owned());
        let found = recover(&disk, now)?;
        let mut damage = Vec::new();
        for file in disk.damaged_files()? {
            let spans = scan(&missing_is_empty(std::fs::read(folder.join(&file)))?).damage;
            let number = file.split_once('.').and_then(|(number, _)| number.parse().ok());
            damage.push(SegmentDamage { segment: number.unwrap_or_default(), file, spans });
        }
        damage.extend(found.damage);
        damage.extend(disk.retired_damage()?);
        let mut settled = found.settled;
        // Recovery appends the calls that were left open.
        let open = settled.split_off(settled.len().saturating_sub(found.interrupted));
        Ok(Self { settled, open, torn_bytes: found.torn, damage })
    }
}

/// The folder of a journal, for reading.
#[derive(Clone, Debug)]
struct ReadOnlyFolder(PathBuf);

impl ReadOnlyFolder {
    /// Returns the damaged ones among the retired segments.
    fn retired_damage(&self) -> io::Result<Vec<SegmentDamage>> {
        let manifest = SegmentManifest::read(self)?;
        let mut damage = Vec::new();
        for segment in self.retired()? {
            // A running gateway deletes old ones.
            let Ok(bytes) = self.read_retired(segment) else { continue };
            let spans = scan(&bytes).require(bytes.len(), manifest.required(segment)).damage;
            if !spans.is_empty() {
                let path = retired_path(&self.0, segment);
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                damage.push(SegmentDamage { segment, file, spans });
            }
        }
        Ok(damage)
    }
}

impl Disk for ReadOnlyFolder {
    fn create(&self) -> io::Result<Arc<dyn Segment>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        missing_is_empty(segment_numbers(&self.0))
    }

    /// A running gateway retires segments whose calls are all in the store.
    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        match std::fs::read(segment_path(&self.0, segment)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing_is_empty(self.read_retired(segment))
            }
            read => read,
        }
    }

    fn remove(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_aside(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        missing_is_empty(damaged_files(&self.0))
    }

    fn retired(&self) -> io::Result<Vec<u64>> {
        missing_is_empty(retired_numbers(&self.0))
    }

    fn read_retired(&self, segment: u64) -> io::Result<Vec<u8>> {
        std::fs::read(retired_path(&self.0, segment))
    }

    fn numbers_aside(&self) -> io::Result<Vec<u64>> {
        missing_is_empty(numbers_aside(&self.0))
    }

    fn read_manifest(&self) -> io::Result<Option<Vec<u8>>> {
        read_manifest(&self.0)
    }

    fn boot_id(&self) -> String {
        boot_id()
    }
}

fn missing_is_empty<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        read => read,
    }
}
