//! Storage of the journal: a folder of segment files, or memory in tests.

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Keeps a damaged segment for people to look at. It is a segment no longer.
    fn set_aside(&self, segment: u64) -> io::Result<()>;
    /// Returns the names of the files that were set aside and not accepted yet.
    fn damaged_files(&self) -> io::Result<Vec<String>>;
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
    /// [`io::ErrorKind::NotFound`] if the segment was deleted or moved by somebody else.
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
        // Files that were set aside keep their number.
        let next = numbers_of(folder, |_| true)?.last().map_or(1, |last| last + 1);
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
        Ok(Arc::new(FileSegment { number, path, file }))
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
        let name = format!("{}{DAMAGED_SUFFIX}", segment_name(segment));
        fs::rename(self.path(segment), self.folder.join(name))
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        damaged_files(&self.folder)
    }
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
        (&self.file).write_all(bytes)
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
        self.file.sync_data()?;
        let (own, found) = (self.file.metadata()?, fs::metadata(&self.path));
        let is_same = |found: &fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        match found {
            Ok(found) if is_same(&found) => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Ok(_) | Err(_) => {
                let why = "a file of the journal was deleted or moved while it was in use";
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

/// A disk in memory. A test can make it fail after some bytes, in the middle of a record.
#[derive(Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<MemoryFiles>>);

#[derive(Clone, Debug, Default)]
struct MemoryFiles {
    segments: BTreeMap<u64, Vec<u8>>,
    /// Damaged segments.
    aside: BTreeMap<u64, Vec<u8>>,
    /// Bytes that are neither written nor reserved; `None` for no limit.
    capacity_left: Option<usize>,
    /// Bytes that each segment has reserved and not written.
    reserved: BTreeMap<u64, usize>,
    /// True if a failed write cannot be undone.
    keeps_half_records: bool,
    fails_syncs: bool,
}

impl MemoryFiles {
    /// Frees the room that a segment has reserved and not used.
    fn free_room(&mut self, segment: u64) {
        let room = self.reserved.remove(&segment).unwrap_or_default();
        if let Some(left) = &mut self.capacity_left {
            *left = left.saturating_add(room);
        }
    }
}

impl MemoryDisk {
    /// Accepts that many further bytes, without regard to reserved room. The write that passes the
    /// limit is cut short and fails, and its bytes stay, as if the process died there.
    pub fn fail_after(&self, bytes: usize) {
        let mut files = self.0.lock();
        files.reserved.clear();
        files.capacity_left = Some(bytes);
        files.keeps_half_records = true;
    }

    /// Sets the free space of the disk; `None` for no limit. A write beyond it is cut short and
    /// fails.
    pub fn set_free_space(&self, bytes: Option<usize>) {
        let mut files = self.0.lock();
        files.capacity_left = bytes;
        files.keeps_half_records = false;
    }

    /// Lets every sync fail.
    pub fn fail_syncs(&self, fail: bool) {
        self.0.lock().fails_syncs = fail;
    }

    /// Returns the disk as a new process finds it after a crash: all appended bytes, no limit.
    #[must_use]
    pub fn after_crash(&self) -> Self {
        let files = self.0.lock();
        let (segments, aside) = (files.segments.clone(), files.aside.clone());
        Self(Arc::new(Mutex::new(MemoryFiles { segments, aside, ..MemoryFiles::default() })))
    }

    /// Flips a bit of a segment.
    pub fn flip_bit(&self, segment: u64, bit: usize) {
        let mut files = self.0.lock();
        let byte = files.segments.get_mut(&segment).and_then(|bytes| bytes.get_mut(bit / 8));
        if let Some(byte) = byte {
            *byte ^= 1 << (bit % 8);
        }
    }
}

impl Disk for MemoryDisk {
    fn create(&self) -> io::Result<Arc<dyn Segment>> {
        let mut files = self.0.lock();
        let used = files.segments.keys().chain(files.aside.keys());
        let number = used.max().map_or(1, |last| last + 1);
        files.segments.insert(number, Vec::new());
        Ok(Arc::new(MemorySegment { number, files: Arc::clone(&self.0) }))
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(self.0.lock().segments.keys().copied().collect())
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        self.0.lock().segments.get(&segment).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        let mut files = self.0.lock();
        files.free_room(segment);
        let bytes = files.segments.remove(&segment).unwrap_or_default();
        if let Some(left) = &mut files.capacity_left {
            *left = left.saturating_add(bytes.len());
        }
        Ok(())
    }

    fn set_aside(&self, segment: u64) -> io::Result<()> {
        let mut files = self.0.lock();
        let bytes = files.segments.remove(&segment);
        files.aside.extend(bytes.map(|bytes| (segment, bytes)));
        Ok(())
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().aside.keys().map(|segment| segment_name(*segment)).collect())
    }
}

struct MemorySegment {
    number: u64,
    files: Arc<Mutex<MemoryFiles>>,
}

impl Segment for MemorySegment {
    fn number(&self) -> u64 {
        self.number
    }

    fn reserve(&self, length: usize) -> io::Result<usize> {
        let mut files = self.files.lock();
        let files = &mut *files;
        if files.keeps_half_records {
            return Ok(length);
        }
        let Some(segment) = files.segments.get(&self.number) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let reserved = files.reserved.entry(self.number).or_default();
        let lacks = length.saturating_sub(segment.len() + *reserved);
        if let Some(left) = &mut files.capacity_left {
            *left = left.checked_sub(lacks).ok_or(io::ErrorKind::StorageFull)?;
        }
        *reserved += lacks;
        Ok(length)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.lock();
        let files = &mut *files;
        let reserved = files.reserved.entry(self.number).or_default();
        let from_room = bytes.len().min(*reserved);
        *reserved -= from_room;
        let wanted = bytes.len() - from_room;
        let further = files.capacity_left.unwrap_or(usize::MAX).min(wanted);
        if let Some(left) = &mut files.capacity_left {
            *left -= further;
        }
        let fits = from_room + further;
        let Some(segment) = files.segments.get_mut(&self.number) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        segment.extend_from_slice(bytes.get(..fits).unwrap_or_default());
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&self, length: usize) -> io::Result<()> {
        let mut files = self.files.lock();
        let files = &mut *files;
        if files.keeps_half_records {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let Some(segment) = files.segments.get_mut(&self.number) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if segment.len() > length {
            let freed = segment.len() - length;
            segment.truncate(length);
            if let Some(left) = &mut files.capacity_left {
                *left += freed;
            }
            files.free_room(self.number);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.files.lock().fails_syncs { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Drop for MemorySegment {
    fn drop(&mut self) {
        self.files.lock().free_room(self.number);
    }
}
