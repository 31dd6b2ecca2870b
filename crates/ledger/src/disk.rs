//! Storage of the journal: a folder of segment files.

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::segment_manifest::SegmentManifest;

/// A store of journal segments. A segment is written by the process that created it; older ones
/// are only read.
pub trait Disk: Send + Sync {
    /// Creates a segment with a higher number than all others.
    fn create(&self) -> io::Result<Arc<dyn Segment>>;
    /// Returns the numbers of all segments, oldest first.
    fn segments(&self) -> io::Result<Vec<u64>>;
    /// Returns the bytes of a segment.
    fn read(&self, segment: u64) -> io::Result<Vec<u8>>;
    /// Deletes a segment.
    fn remove(&self, segment: u64) -> io::Result<()>;
    /// Keeps a damaged segment, in use or retired, for people to look at. It is a segment no longer. If
    /// its file is missing, an empty one takes its place.
    fn set_aside(&self, segment: u64) -> io::Result<()>;
    /// Returns the names of the files that were set aside and not accepted yet.
    fn damaged_files(&self) -> io::Result<Vec<String>>;
    /// Keeps a segment whose calls are all stored, in case the store loses them. It is a segment no
    /// longer.
    fn retire(&self, segment: u64) -> io::Result<()> {
        self.remove(segment)
    }
    /// Returns the numbers of the retired segments, oldest first.
    fn retired(&self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }
    /// Returns the bytes of a retired segment.
    fn read_retired(&self, _segment: u64) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
    /// Returns the oldest retired segments, except for so many bytes up to a certain age.
    fn prunable(&self, _bytes: u64, _age: Duration) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }
    /// Deletes a retired segment.
    fn remove_retired(&self, _segment: u64) -> io::Result<()> {
        Ok(())
    }
    /// Returns the numbers of the segments that were set aside, accepted or not.
    fn numbers_aside(&self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }
    /// Returns the bytes that [`Disk::write_manifest`] wrote, with all patches.
    fn read_manifest(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Replaces the manifest, see [`crate::segment_manifest`].
    fn write_manifest(&self, _manifest: &[u8]) -> io::Result<Arc<dyn ManifestFile>> {
        Ok(Arc::new(NoManifest))
    }
    /// Returns an id that changes when the machine starts again; empty if it is not known.
    fn boot_id(&self) -> String {
        String::new()
    }
    /// Returns the text that [`Disk::write_mark`] wrote.
    fn read_mark(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
    /// Replaces the text that is kept beside the segments.
    fn write_mark(&self, _mark: &str) -> io::Result<()> {
        Ok(())
    }
}

/// The manifest that is in use.
pub trait ManifestFile: Send + Sync {
    /// Overwrites some bytes of it, which then survive a crash of this process.
    fn patch(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// The manifest of a disk that keeps none.
struct NoManifest;

impl ManifestFile for NoManifest {
    fn patch(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl ManifestFile for File {
    fn patch(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// An open segment. The caller serialises appends.
pub trait Segment: Send + Sync {
    /// Its number.
    fn number(&self) -> u64;
    /// Appends bytes, which then survive a crash of this process.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    /// Reserves room on the disk, so that appends up to that length do not fail for want of it, and
    /// returns the length up to which there is room. The error is [`io::ErrorKind::Unsupported`] if
    /// the file system cannot do this.
    fn reserve(&self, length: usize) -> io::Result<usize>;
    /// Cuts off everything behind that length, to undo a failed append. Reserved room may be lost.
    fn cut(&self, length: usize) -> io::Result<()>;
    /// Waits until all appended bytes survive a crash of the machine. The error is
    /// [`io::ErrorKind::NotFound`] if the segment was deleted, moved or cut short by somebody else.
    fn sync(&self) -> io::Result<()>;
}

/// A folder on a real disk, locked by one process at a time.
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    /// Number of the next segment. The folder is not listed for each.
    next: AtomicU64,
    /// Holds the advisory lock until this value is dropped.
    lock: Mutex<File>,
}

impl FileDisk {
    /// Opens the folder and creates it if necessary. Fails when another process has locked it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let lock = Mutex::new(lock_folder(folder)?);
        // Files that were set aside keep their number, and so do files that somebody has deleted.
        let listed = read_optional(&folder.join(MANIFEST_FILE))?.unwrap_or_default();
        let listed = SegmentManifest::from_text(&String::from_utf8_lossy(&listed));
        let used = numbers_of(folder, |_| true)?.into_iter().chain(listed.segments());
        let next = used.max().map_or(1, |last| last.saturating_add(1));
        Ok(Self { folder: folder.to_owned(), next: AtomicU64::new(next), lock })
    }

    fn path(&self, segment: u64) -> PathBuf {
        segment_path(&self.folder, segment)
    }
}

/// Creates a folder if necessary and locks it for this process.
fn lock_folder(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    lock.try_lock().map_err(|e| match e {
        fs::TryLockError::WouldBlock => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another portunus process is using this data folder",
        ),
        fs::TryLockError::Error(e) => e,
    })?;
    Ok(lock)
}

impl Disk for FileDisk {
    fn create(&self) -> io::Result<Arc<dyn Segment>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path(number);
        let open = || OpenOptions::new().create_new(true).append(true).open(&path);
        let file = open().or_else(|e| match e.kind() {
            // Somebody deleted or moved the folder. The lock went with it.
            io::ErrorKind::NotFound => {
                *self.lock.lock() = lock_folder(&self.folder)?;
                open()
            }
            _ => Err(e),
        })?;
        Ok(Arc::new(FileSegment { number, path, file, length: AtomicU64::new(0) }))
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        segment_numbers(&self.folder)
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(segment))
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        fs::remove_file(self.path(segment))
    }

    fn set_aside(&self, segment: u64) -> io::Result<()> {
        let aside = self.folder.join(format!("{}{DAMAGED_SUFFIX}", segment_name(segment)));
        for path in [self.path(segment), retired_path(&self.folder, segment)] {
            match fs::rename(path, &aside) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                renamed => return renamed,
            }
        }
        File::create(aside).map(drop)
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        damaged_files(&self.folder)
    }

    fn retire(&self, segment: u64) -> io::Result<()> {
        let path = self.path(segment);
        // One without records is of no use.
        if fs::metadata(&path)?.len() == 0 {
            return fs::remove_file(path);
        }
        fs::rename(path, retired_path(&self.folder, segment))
    }

    fn retired(&self) -> io::Result<Vec<u64>> {
        retired_numbers(&self.folder)
    }

    fn read_retired(&self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(retired_path(&self.folder, segment))
    }

    fn prunable(&self, bytes: u64, age: Duration) -> io::Result<Vec<u64>> {
        let mut kept: u64 = 0;
        let mut prunable = Vec::new();
        for segment in self.retired()?.into_iter().rev() {
            let data = fs::metadata(retired_path(&self.folder, segment))?;
            kept = kept.saturating_add(data.len());
            // A clock that was set back makes nothing old.
            let is_old = data.modified()?.elapsed().is_ok_and(|elapsed| elapsed > age);
            if kept > bytes || is_old {
                prunable.push(segment);
            }
        }
        Ok(prunable)
    }

    fn remove_retired(&self, segment: u64) -> io::Result<()> {
        fs::remove_file(retired_path(&self.folder, segment))
    }

    fn numbers_aside(&self) -> io::Result<Vec<u64>> {
        numbers_aside(&self.folder)
    }

    fn read_manifest(&self) -> io::Result<Option<Vec<u8>>> {
        read_manifest(&self.folder)
    }

    fn write_manifest(&self, manifest: &[u8]) -> io::Result<Arc<dyn ManifestFile>> {
        let part = self.folder.join("manifest.part");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&part)?;
        file.write_all_at(manifest, 0)?;
        file.sync_all()?;
        fs::rename(part, self.folder.join(MANIFEST_FILE))?;
        Ok(Arc::new(file))
    }

    fn boot_id(&self) -> String {
        boot_id()
    }

    fn read_mark(&self) -> io::Result<Option<String>> {
        read_mark(&self.folder)
    }

    fn write_mark(&self, mark: &str) -> io::Result<()> {
        let part = self.folder.join("posted.part");
        fs::write(&part, mark)?;
        fs::rename(part, self.folder.join(MARK_FILE))
    }
}

/// File with the mark.
const MARK_FILE: &str = "posted";
/// File with the manifest.
const MANIFEST_FILE: &str = "manifest";

/// Returns the manifest of a journal, if it has one.
pub(crate) fn read_manifest(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    read_optional(&folder.join(MANIFEST_FILE))
}

/// Returns the mark beside the segments of a journal, if it has one.
pub(crate) fn read_mark(folder: &Path) -> io::Result<Option<String>> {
    let mark = read_optional(&folder.join(MARK_FILE))?;
    Ok(mark.map(|mark| String::from_utf8_lossy(&mark).into_owned()))
}

fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the id of the running kernel, see `proc_sys_kernel(5)`
/// (<https://man7.org/linux/man-pages/man5/proc_sys_kernel.5.html>).
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// Returns the numbers of the segments in a folder that were set aside, accepted or not.
pub(crate) fn numbers_aside(folder: &Path) -> io::Result<Vec<u64>> {
    numbers_of(folder, |ending| ending == DAMAGED_SUFFIX || ending == ACCEPTED_SUFFIX)
}

/// Returns the numbers of the retired segments in a folder, oldest first.
pub(crate) fn retired_numbers(folder: &Path) -> io::Result<Vec<u64>> {
    numbers_of(folder, |ending| ending == RETIRED_SUFFIX)
}
/// Ending of the name of a retired segment.
const RETIRED_SUFFIX: &str = ".posted";

/// Returns the path of a retired segment in a folder.
pub(crate) fn retired_path(folder: &Path, segment: u64) -> PathBuf {
    folder.join(format!("{}{RETIRED_SUFFIX}", segment_name(segment)))
}

/// Ending of the name of a damaged segment.
const DAMAGED_SUFFIX: &str = ".damaged";
/// Ending of the name of a damaged segment that an operator has accepted.
const ACCEPTED_SUFFIX: &str = ".accepted";

/// Returns the name of the file of a segment.
pub(crate) fn segment_name(segment: u64) -> String {
    format!("{segment:012}.journal")
}

/// Returns the path of a segment in a folder.
pub(crate) fn segment_path(folder: &Path, segment: u64) -> PathBuf {
    folder.join(segment_name(segment))
}

/// Returns the numbers of the segments in a folder, oldest first.
pub(crate) fn segment_numbers(folder: &Path) -> io::Result<Vec<u64>> {
    numbers_of(folder, str::is_empty)
}

/// Returns the numbers of the files of a journal whose names have such an ending behind that of a
/// segment.
fn numbers_of(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once(".journal"));
        let number = parts.filter(|(_, ending)| is_wanted(ending));
        numbers.extend(number.and_then(|(number, _)| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the names of damaged segments in a folder that were set aside and not accepted, oldest
/// first.
pub fn damaged_files(folder: &Path) -> io::Result<Vec<String>> {
    let numbers = numbers_of(folder, |ending| ending == DAMAGED_SUFFIX)?;
    Ok(numbers.into_iter().map(|one| format!("{}{DAMAGED_SUFFIX}", segment_name(one))).collect())
}

/// Accepts the loss in a damaged segment: the file stays in the folder of the journal under another
/// name, and nothing reports it any more. Fails with [`io::ErrorKind::NotFound`] if no file of that
/// name was set aside.
pub fn accept_damage(folder: &Path, file: &str) -> io::Result<()> {
    let name = damaged_files(folder)?.into_iter().find(|name| name == file);
    let name = name.ok_or(io::ErrorKind::NotFound)?;
    let plain = name.strip_suffix(DAMAGED_SUFFIX).unwrap_or(&name);
    fs::rename(folder.join(&name), folder.join(format!("{plain}{ACCEPTED_SUFFIX}")))
}

struct FileSegment {
    number: u64,
    path: PathBuf,
    file: File,
    /// Bytes that were appended.
    length: AtomicU64,
}

/// Room that a file gets beyond what is asked for, the largest that the disk has.
const ROOM_AHEAD_BYTES: [usize; 3] = [1 << 20, 64 << 10, 0];
/// Unit in which file systems give room.
const BLOCK_BYTES: usize = 4_096;

impl Segment for FileSegment {
    fn number(&self) -> u64 {
        self.number
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)?;
        self.length.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The blocks lie behind the end of the file, so that readers do not see them
    /// (<https://man7.org/linux/man-pages/man2/fallocate.2.html>).
    fn reserve(&self, length: usize) -> io::Result<usize> {
        let mut refusal = io::Error::from(io::ErrorKind::StorageFull);
        for ahead in ROOM_AHEAD_BYTES {
            let room = length.saturating_add(ahead).next_multiple_of(BLOCK_BYTES);
            let reserved = fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, room as u64);
            match reserved.map_err(io::Error::from) {
                Ok(()) => return Ok(room),
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return Err(e),
                Err(e) => refusal = e,
            }
        }
        Err(refusal)
    }

    fn cut(&self, length: usize) -> io::Result<()> {
        // Setting the length frees the reserved room, even if the length is the same.
        if self.file.metadata()?.len() == length as u64 {
            return Ok(());
        }
        self.file.set_len(length as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let length = self.length.load(Ordering::Relaxed);
        self.file.sync_data()?;
        let (own, found) = (self.file.metadata()?, fs::metadata(&self.path));
        let is_same = |found: &fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        match found {
            Ok(found) if is_same(&found) && own.len() >= length => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Ok(_) | Err(_) => {
                let why =
                    "a file of the journal was deleted, moved or cut short while it was in use";
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
        }
    }
}

impl Drop for FileSegment {
    /// Frees the reserved room that was not used.
    fn drop(&mut self) {
        if let Ok(data) = self.file.metadata() {
            drop(self.file.set_len(data.len()));
        }
    }
}
