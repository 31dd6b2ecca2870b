//! Versions of files, by which a change is noticed without reading them.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Properties that differ between two states of the file behind a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds of the last change of the content.
    modified: (i64, i64),
    /// The same of the last change of the inode, which no program can set back.
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns the version of the file that the path leads to, through links as well.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}
