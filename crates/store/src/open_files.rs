//! The files that the connections to a SQLite database have open: the database, its log and the index of the log.
//!
//! The system keeps a deleted file until it is closed. SQLite reads and writes it without an error, and all of
//! that is lost with the last process that has it open (<https://www.sqlite.org/howtocorrupt.html>, section 4).

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// SQLite's name for a database without files.
const IN_MEMORY: &str = ":memory:";

/// A file of the system, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::of(&metadata))
    }
}

/// The files beside the database, which SQLite creates with its first connection and deletes with its last one
/// (<https://www.sqlite.org/walformat.html>).
#[derive(Clone, Debug)]
struct SideFiles {
    log: (PathBuf, FileId),
    index: (PathBuf, FileId),
}

impl SideFiles {
    /// Looks at the files beside a database. SQLite follows a link to the database.
    fn beside(database: &Path) -> io::Result<Self> {
        let database = database.canonicalize()?;
        let look = |ending| {
            let mut path = database.clone().into_os_string();
            path.push(ending);
            let path = PathBuf::from(path);
            FileId::at(&path).map(|file| (path, file))
        };
        Ok(Self { log: look("-wal")?, index: look("-shm")? })
    }
}

#[derive(Debug, Default)]
struct Opened {
    database: Option<FileId>,
    /// `None` while the connection that writes is replaced.
    side_files: Option<SideFiles>,
    is_lost: bool,
}

/// The path of a database, and the files that its connections have open.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    database: PathBuf,
    opened: Mutex<Opened>,
}

impl OpenFiles {
    pub(crate) fn new(database: &str) -> Self {
        Self { database: database.into(), opened: Mutex::default() }
    }

    /// Returns the path of the database.
    pub(crate) fn path(&self) -> &Path {
        &self.database
    }

    /// Returns true if the database has no files.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.database.as_os_str() == IN_MEMORY
    }

    /// Looks at the path of the database.
    pub(crate) fn at_path(&self) -> io::Result<Metadata> {
        std::fs::metadata(&self.database)
    }

    /// Notes the files that the connection which writes has just opened.
    pub(crate) fn note_opened(&self) -> io::Result<()> {
        if self.is_in_memory() {
            return Ok(());
        }
        let database = FileId::at(&self.database)?;
        let side_files = SideFiles::beside(&self.database)?;
        let mut opened = self.opened.lock();
        // A connection that replaces one must not mix another file with those of the readers.
        if opened.database.is_some_and(|before| before != database) {
            return Err(io::Error::other("the file of the database was replaced"));
        }
        (opened.database, opened.side_files) = (Some(database), Some(side_files));
        Ok(())
    }

    /// Returns true if a connection that is inside a transaction may be replaced, and expects other side files.
    /// After a loss the path may lead to another database.
    pub(crate) fn may_reconnect(&self) -> bool {
        let mut opened = self.opened.lock();
        if !opened.is_lost {
            opened.side_files = None;
        }
        !opened.is_lost
    }

    /// Returns true if this is the file of the database that was opened.
    pub(crate) fn is_database(&self, file: FileId) -> bool {
        self.opened.lock().database == Some(file)
    }

    /// Returns true if the paths of the side files lead to those that are open.
    pub(crate) fn has_side_files(&self) -> bool {
        let opened = self.opened.lock();
        let Some(SideFiles { log, index }) = &opened.side_files else { return true };
        [log, index].into_iter().all(|(path, open)| match FileId::at(path) {
            Ok(found) => found == *open,
            // SQLite reports other errors.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
    }

    /// Notes that no connection is made any more.
    pub(crate) fn lose(&self) {
        self.opened.lock().is_lost = true;
    }

    /// Forgets the lost files, before new connections are made.
    pub(crate) fn begin_again(&self) {
        *self.opened.lock() = Opened::default();
    }
}
