//! Storage of the journal in memory, for tests.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::disk::segment_name;
use crate::{Disk, ManifestFile, Segment};

/// A disk in memory. A test can make it fail after some bytes, in the middle of a record.
#[derive(Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<MemoryFiles>>);

#[derive(Clone, Debug, Default)]
struct MemoryFiles {
    segments: BTreeMap<u64, Vec<u8>>,
    /// Damaged segments.
    aside: BTreeMap<u64, Vec<u8>>,
    /// Retired segments.
    retired: BTreeMap<u64, Vec<u8>>,
    mark: Option<String>,
    manifest: Option<Vec<u8>>,
    /// Number of times that the machine has started.
    boots: u32,
    /// Number of segments that were created.
    created: u64,
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
        let (retired, mark) = (files.retired.clone(), files.mark.clone());
        let (manifest, boots, created) = (files.manifest.clone(), files.boots, files.created);
        let files = MemoryFiles {
            segments,
            aside,
            retired,
            mark,
            manifest,
            boots,
            created,
            ..MemoryFiles::default()
        };
        Self(Arc::new(Mutex::new(files)))
    }

    /// Returns the disk as a new process finds it after a crash of the machine that lost nothing.
    #[must_use]
    pub fn after_power_loss(&self) -> Self {
        let disk = self.after_crash();
        disk.0.lock().boots += 1;
        disk
    }

    /// Cuts a segment, in use or retired, behind that many bytes.
    pub fn truncate(&self, segment: u64, bytes: usize) {
        let mut files = self.0.lock();
        let MemoryFiles { segments, retired, .. } = &mut *files;
        for file in segments.get_mut(&segment).into_iter().chain(retired.get_mut(&segment)) {
            file.truncate(bytes);
        }
    }

    /// Deletes a segment, in use or retired, behind the back of its process.
    pub fn lose(&self, segment: u64) {
        let mut files = self.0.lock();
        files.segments.remove(&segment);
        files.retired.remove(&segment);
    }

    /// Flips a bit of a segment, in use or retired.
    pub fn flip_bit(&self, segment: u64, bit: usize) {
        let mut files = self.0.lock();
        let MemoryFiles { segments, retired, .. } = &mut *files;
        let file = segments.get_mut(&segment).or_else(|| retired.get_mut(&segment));
        if let Some(byte) = file.and_then(|bytes| bytes.get_mut(bit / 8)) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

impl Disk for MemoryDisk {
    fn create(&self) -> io::Result<Arc<dyn Segment>> {
        let mut files = self.0.lock();
        files.created += 1;
        let number = files.created;
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
        let bytes = bytes.or_else(|| files.retired.remove(&segment)).unwrap_or_default();
        files.aside.insert(segment, bytes);
        Ok(())
    }

    fn damaged_files(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().aside.keys().map(|segment| segment_name(*segment)).collect())
    }

    fn retire(&self, segment: u64) -> io::Result<()> {
        let bytes = self.0.lock().segments.get(&segment).cloned();
        self.remove(segment)?;
        self.0.lock().retired.extend(bytes.map(|bytes| (segment, bytes)));
        Ok(())
    }

    fn retired(&self) -> io::Result<Vec<u64>> {
        Ok(self.0.lock().retired.keys().copied().collect())
    }

    fn read_retired(&self, segment: u64) -> io::Result<Vec<u8>> {
        self.0.lock().retired.get(&segment).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn numbers_aside(&self) -> io::Result<Vec<u64>> {
        Ok(self.0.lock().aside.keys().copied().collect())
    }

    fn read_manifest(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().manifest.clone())
    }

    fn write_manifest(&self, manifest: &[u8]) -> io::Result<Arc<dyn ManifestFile>> {
        self.0.lock().manifest = Some(manifest.to_vec());
        Ok(Arc::new(MemoryManifest(Arc::clone(&self.0))))
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.0.lock().boots)
    }

    fn read_mark(&self) -> io::Result<Option<String>> {
        Ok(self.0.lock().mark.clone())
    }

    fn write_mark(&self, mark: &str) -> io::Result<()> {
        self.0.lock().mark = Some(mark.to_owned());
        Ok(())
    }
}

struct MemoryManifest(Arc<Mutex<MemoryFiles>>);

impl ManifestFile for MemoryManifest {
    fn patch(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut files, offset) = (self.0.lock(), usize::try_from(offset).unwrap_or(usize::MAX));
        let manifest = files.manifest.as_mut().and_then(|all| all.get_mut(offset..));
        let place = manifest.and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or(io::ErrorKind::NotFound)?.copy_from_slice(bytes);
        Ok(())
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
