//! Storage of the journal in memory, for tests.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::disk::segment_name;
use crate::{Disk, Segment};

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
        let files = MemoryFiles { segments, aside, retired, mark, ..MemoryFiles::default() };
        Self(Arc::new(Mutex::new(files)))
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
        let used = files.segments.keys().chain(files.aside.keys()).chain(files.retired.keys());
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

    fn read_mark(&self) -> io::Result<Option<String>> {
        Ok(self.0.lock().mark.clone())
    }

    fn write_mark(&self, mark: &str) -> io::Result<()> {
        self.0.lock().mark = Some(mark.to_owned());
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
