//! Reading a journal that another process may be writing.

use canon::Micros;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{damaged_files, segment_numbers, segment_path};
use crate::journal::recover;
use crate::segment_scan::scan;
use crate::{Disk, LedgerEntry, Segment, SegmentDamage};

/// Calls of a journal that the store may not have.
#[derive(Clone, Debug, Default)]
pub struct JournalInspection {
    /// Calls that were settled.
    pub settled: Vec<Arc<LedgerEntry>>,
    /// Calls that run, or that ran when their process died, charged as recovery would.
    pub open: Vec<Arc<LedgerEntry>>,
    /// Number of bytes at the ends of segments of records that were not written completely. A record
    /// that is being written counts too.
    pub torn_bytes: usize,
    /// Damaged segments: those of earlier processes, set aside and not accepted, and those in use.
    pub damage: Vec<SegmentDamage>,
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
        let mut settled: Vec<_> = found.settled.into_iter().map(|call| call.entry).collect();
        // Recovery appends the calls that were left open.
        let open = settled.split_off(settled.len().saturating_sub(found.interrupted));
        Ok(Self { settled, open, torn_bytes: found.torn, damage })
    }
}

/// The folder of a journal, for reading.
struct ReadOnlyFolder(PathBuf);

impl Disk for ReadOnlyFolder {
    fn create(&self) -> io::Result<Arc<dyn Segment>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        missing_is_empty(segment_numbers(&self.0))
    }

    /// A running gateway deletes segments whose calls are all in the store.
    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        missing_is_empty(std::fs::read(segment_path(&self.0, segment)))
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
}

fn missing_is_empty<T: Default>(read: io::Result<T>) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        read => read,
    }
}
