//! Where the journal lies: a folder of segment files, or memory in tests.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A place for segments of the journal. The newest one is written, the others are only read.
pub trait Disk: Send + Sync {
    /// Adds bytes to the newest segment. What was added survives the death of this process.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until everything added survives the death of the machine.
    fn sync(&self) -> io::Result<()>;
    /// Begins a new segment and returns its number.
    fn begin(&self) -> io::Result<u64>;
    /// The numbers of all segments, oldest first.
    fn segments(&self) -> io::Result<Vec<u64>>;
    /// The bytes of a segment.
    fn read(&self, segment: u64) -> io::Result<Vec<u8>>;
    /// Forgets a segment.
    fn remove(&self, segment: u64) -> io::Result<()>;
}

/// A folder on a real disk, held by one process at a time.
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    newest: Mutex<Option<File>>,
    /// Keeps the folder ours for as long as we live.
    _lock: File,
}

impl FileDisk {
    /// Opens the folder, making it if need be. Fails when another process holds it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))?;
        lock.try_lock().map_err(|e| match e {
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another portunus process is using this data folder",
            ),
            fs::TryLockError::Error(e) => e,
        })?;
        Ok(Self { folder: folder.to_owned(), newest: Mutex::new(None), _lock: lock })
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{segment:012}.journal"))
    }
}

impl Disk for FileDisk {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        match &mut *self.newest.lock() {
            Some(file) => file.write_all(bytes),
            None => Err(io::Error::other("no segment was begun")),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let file = match &*self.newest.lock() {
            Some(file) => file.try_clone()?,
            None => return Ok(()),
        };
        // Outside of the lock: calls must not wait for the platter.
        file.sync_data()
    }

    fn begin(&self) -> io::Result<u64> {
        let number = self.segments()?.last().map_or(1, |last| last + 1);
        let file = OpenOptions::new().create_new(true).append(true).open(self.path(number))?;
        *self.newest.lock() = Some(file);
        Ok(number)
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let name = file?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".journal"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(segment))
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        fs::remove_file(self.path(segment))
    }
}

/// A disk in memory that can be made to fail after so many bytes, tearing what is being written.
#[derive(Debug, Default)]
pub struct MemoryDisk(Mutex<Memory>);

#[derive(Clone, Debug, Default)]
struct Memory {
    segments: BTreeMap<u64, Vec<u8>>,
    left: Option<usize>,
}

impl MemoryDisk {
    /// The next bytes beyond that many are lost, and the write fails.
    pub fn fail_after(&self, bytes: usize) {
        self.0.lock().left = Some(bytes);
    }

    /// The same disk after the process died: everything that was added, and it works again.
    #[must_use]
    pub fn after_crash(&self) -> Self {
        let memory = self.0.lock();
        Self(Mutex::new(Memory { segments: memory.segments.clone(), left: None }))
    }
}

impl Disk for MemoryDisk {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut memory = self.0.lock();
        let fits = memory.left.unwrap_or(usize::MAX).min(bytes.len());
        let kept = bytes.get(..fits).unwrap_or_default().to_vec();
        if let Some(left) = &mut memory.left {
            *left -= fits;
        }
        match memory.segments.values_mut().next_back() {
            Some(segment) => segment.extend_from_slice(&kept),
            None => return Err(io::Error::other("no segment was begun")),
        }
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn begin(&self) -> io::Result<u64> {
        let mut memory = self.0.lock();
        let number = memory.segments.keys().next_back().map_or(1, |last| last + 1);
        memory.segments.insert(number, Vec::new());
        Ok(number)
    }

    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(self.0.lock().segments.keys().copied().collect())
    }

    fn read(&self, segment: u64) -> io::Result<Vec<u8>> {
        self.0.lock().segments.get(&segment).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.0.lock().segments.remove(&segment);
        Ok(())
    }
}
