//! The files that the connections to a SQLite database have open: the database, its log and the index of the log.
//!
//! The system keeps a deleted file until it is closed. SQLite reads and writes it without an error, and all of
//! that is lost with the last process that has it open (<https://www.sqlite.org/howtocorrupt.html>, section 4).

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

/// SQLite's name for a database without files.
const IN_MEMORY: &str = ":memory:";
const LOG: &str = "-wal";
const INDEX: &str = "-shm";
/// Beginning of the ending of side files of a lost database, which SQLite does not know.
const LOST: &str = ".lost-";
/// Ending of a log while connections are closed that do not know all of it.
const ASIDE: &str = ".aside";
/// Byte of an index on which every open connection has a lock, and the number of such bytes
/// (<https://www.sqlite.org/walformat.html#wal_locks>).
const INDEX_LOCK: (u64, u64) = (128, 1);
/// The same of a database (`SHARED_FIRST` in <https://www.sqlite.org/src/file/src/os.h>).
const DATABASE_LOCK: (u64, u64) = (0x4000_0002, 510);

/// A file of the system, whatever its name. The number of a deleted file may be given to another one, which was
/// created later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        let created = metadata.created().ok();
        Self { device: metadata.dev(), inode: metadata.ino(), created }
    }

    /// Returns the ending of the side files of this database while it is lost.
    fn lost_ending(&self) -> String {
        let age = self.created.and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        format!("{LOST}{:x}-{:x}", self.inode, age.unwrap_or_default().as_nanos())
    }

    fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|metadata| Self::of(&metadata))
    }
}

/// The file at the path of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseId {
    file: FileId,
    /// The link that leads to it: SQLite keeps its side files beside the file and not beside the link.
    link: Option<FileId>,
}

/// Size and time of a file and of the log beside it.
type FileStamps = [Option<(u64, Option<SystemTime>)>; 2];

/// A file at the path that is not open, as it was seen last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenFile {
    pub(crate) id: DatabaseId,
    stamps: FileStamps,
    /// Time of the first look, or of the last attempt to open it.
    pub(crate) since: Instant,
}

impl SeenFile {
    pub(crate) fn is_unchanged(&self, now: &Self) -> bool {
        (self.id, self.stamps) == (now.id, now.stamps)
    }

    /// Returns the same file, looked at now.
    pub(crate) fn again(self) -> Self {
        Self { since: Instant::now(), ..self }
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
    fn beside(database: &Path) -> io::Result<Self> {
        let database = database.canonicalize()?;
        let look = |ending| {
            let path = with_ending(&database, ending);
            FileId::at(&path).map(|file| (path, file))
        };
        Ok(Self { log: look(LOG)?, index: look(INDEX)? })
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(ending);
    text.into()
}

/// Returns true if the file at a path is this one. SQLite reports errors other than that there is none.
fn is_at((path, file): &(PathBuf, FileId)) -> bool {
    match FileId::at(path) {
        Ok(found) => found == *file,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Moves a side file away from its path, if it is still there.
fn move_away((path, file): &(PathBuf, FileId), ending: &str) -> io::Result<()> {
    if FileId::at(path).is_ok_and(|found| found == *file) {
        std::fs::rename(path, with_ending(path, ending))?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Opened {
    database: Option<DatabaseId>,
    /// `None` for a database without a log.
    side_files: Option<SideFiles>,
    /// True while the connection that writes is replaced.
    is_reconnecting: bool,
    /// The open index, whose locks can be seen after it was deleted.
    index: Option<IndexHandle>,
    is_lost: bool,
}

/// An index without access to it: closing a file with access would end all locks of this process on it.
#[derive(Debug)]
struct IndexHandle(OwnedFd);

impl IndexHandle {
    #[cfg(target_os = "linux")]
    fn open(path: &Path) -> io::Result<Option<Self>> {
        use rustix::fs::{Mode, OFlags};
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Some(Self(file)))
    }

    #[cfg(not(target_os = "linux"))]
    fn open(_path: &Path) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Returns a process that has a connection with this index. No connection of this process may be open.
    fn other_user(&self) -> io::Result<Option<String>> {
        let file = match File::open(format!("/proc/self/fd/{}", self.0.as_raw_fd())) {
            // There is no `/proc`.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        lock_holder(&file, INDEX_LOCK)
    }
}

/// Returns another process with a lock on these bytes. No connection of this process may be open: closing a file
/// ends all locks of a process on it.
fn lock_holder(file: &File, (start, length): (u64, u64)) -> io::Result<Option<String>> {
    let offset_type = FlockOffsetType::Set;
    let lock = Flock { start, length, pid: None, typ: FlockType::WriteLock, offset_type };
    let found = fcntl_getlk(file, &lock)?;
    Ok(found.map(|found| match found.pid {
        Some(pid) => format!("the process {}", pid.as_raw_nonzero()),
        None => "another process".to_owned(),
    }))
}

/// Open files that are missing at their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLoss {
    /// The database was moved, deleted or replaced.
    Database,
    /// The log was deleted or replaced.
    Log,
    /// Only the index of the log was.
    Index,
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

    /// Looks at the path of the database; `None` if there is no file.
    pub(crate) fn look(&self) -> io::Result<Option<DatabaseId>> {
        let found = std::fs::symlink_metadata(&self.database).and_then(|found| {
            let own = FileId::of(&found);
            let (target, link) = match found.is_symlink() {
                true => (std::fs::metadata(&self.database)?, Some(own)),
                false => (found, None),
            };
            // A pipe would keep whoever opens it.
            if !target.is_file() {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(DatabaseId { file: FileId::of(&target), link })
        });
        match found {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks at that file and at the log beside it more closely.
    pub(crate) fn look_closely(&self, id: DatabaseId) -> SeenFile {
        let stamp = |path: &Path| {
            let found = std::fs::metadata(path).ok();
            found.map(|found| (found.len(), found.modified().ok()))
        };
        let database = self.database.canonicalize().unwrap_or_else(|_| self.database.clone());
        let stamps = [stamp(&database), stamp(&with_ending(&database, LOG))];
        SeenFile { id, stamps, since: Instant::now() }
    }

    /// Notes the files that the connection which writes has just opened, in this journal mode. Fails if somebody has
    /// deleted one of them since.
    pub(crate) fn note_opened(&self, journal_mode: &str) -> io::Result<()> {
        if self.is_in_memory() {
            return Ok(());
        }
        let database = self.look()?.ok_or(io::ErrorKind::NotFound)?;
        // Without shared memory SQLite works without a log.
        let (side_files, index) = if journal_mode == "wal" {
            let found = SideFiles::beside(&self.database)?;
            let index = IndexHandle::open(&found.index.0)?;
            (Some(found), index)
        } else {
            (None, None)
        };
        let mut opened = self.opened.lock();
        // A connection must not mix another file with that of the others.
        if opened.database.is_some_and(|before| before != database) {
            return Err(io::Error::other("the file of the database was replaced"));
        }
        (opened.database, opened.side_files, opened.index) = (Some(database), side_files, index);
        opened.is_reconnecting = false;
        Ok(())
    }

    /// Returns true if a connection that is inside a transaction may be replaced, and expects other side files.
    /// After a loss the path may lead to another database.
    pub(crate) fn may_reconnect(&self) -> bool {
        let mut opened = self.opened.lock();
        opened.is_reconnecting |= !opened.is_lost;
        !opened.is_lost
    }

    /// Returns true if this is the database that was opened.
    pub(crate) fn is_database(&self, id: DatabaseId) -> bool {
        self.opened.lock().database == Some(id)
    }

    /// Returns what is missing at the paths, if the database is still there.
    pub(crate) fn side_file_loss(&self) -> Option<FileLoss> {
        let opened = self.opened.lock();
        let SideFiles { log, index } =
            opened.side_files.as_ref().filter(|_| !opened.is_reconnecting)?;
        match (is_at(log), is_at(index)) {
            (true, true) => None,
            (true, false) => Some(FileLoss::Index),
            (false, _) => Some(FileLoss::Log),
        }
    }

    /// Notes that no connection is made any more. The side files of a lost database leave their paths, because SQLite
    /// would read the log into whatever file is at the path of the database. A log whose index is lost leaves its path
    /// until the connections are closed: the last one deletes it by its name, although others may have written to it.
    pub(crate) fn lose(&self, loss: FileLoss) -> io::Result<()> {
        let mut opened = self.opened.lock();
        opened.is_lost = true;
        let (Some(SideFiles { log, index }), Some(database)) =
            (&opened.side_files, &opened.database)
        else {
            return Ok(());
        };
        let ending = database.file.lost_ending();
        match loss {
            FileLoss::Database => {
                [log, index].into_iter().try_for_each(|file| move_away(file, &ending))
            }
            FileLoss::Index => move_away(log, ASIDE),
            FileLoss::Log => Ok(()),
        }
    }

    /// Moves the side files of a lost database back to their paths, if it is at its path and nobody has made others.
    pub(crate) fn bring_back(&self) {
        if let Ok(Some(database)) = self.look() {
            self.move_back(&database.file.lost_ending());
        }
    }

    /// Moves a log back whose index was lost. No connection of this process may be open: the last one would delete it.
    pub(crate) fn bring_log_back(&self) {
        self.move_back(ASIDE);
    }

    fn move_back(&self, ending: &str) {
        let Ok(path) = self.database.canonicalize() else { return };
        let [log, index] = [LOG, INDEX].map(|side| with_ending(&path, side));
        let lost = with_ending(&log, ending);
        if !lost.exists() || std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return;
        }
        for side in [index, log] {
            // An index is made again.
            if let Err(error) = std::fs::rename(with_ending(&side, ending), &side)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::error!("{} cannot be moved back: {error}", lost.display());
            }
        }
    }

    /// Returns the logs of lost databases that nobody has moved back.
    pub(crate) fn lost_logs(&self) -> Vec<PathBuf> {
        let Ok(path) = self.database.canonicalize() else { return Vec::new() };
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Vec::new();
        };
        let beginning = format!("{}{LOG}{LOST}", name.to_string_lossy());
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_lost = |file: &std::fs::DirEntry| {
            file.file_name().to_string_lossy().starts_with(&beginning)
                && file.metadata().is_ok_and(|log| log.len() > 0)
        };
        files.filter(is_lost).map(|file| file.path()).collect()
    }

    /// Returns true if the log has to be emptied before its connections are closed, because no other connection
    /// will find it. One that was made since then has an index of its own, and would not notice.
    pub(crate) fn must_empty_log(&self, loss: FileLoss) -> bool {
        let opened = self.opened.lock();
        let Some(SideFiles { index, .. }) = &opened.side_files else { return false };
        match loss {
            FileLoss::Database => true,
            FileLoss::Log => FileId::at(&index.0).map_or(true, |found| found == index.1),
            FileLoss::Index => false,
        }
    }

    /// Deletes the side files of a lost database, whose log is empty.
    pub(crate) fn remove_lost(&self) {
        let opened = self.opened.lock();
        let (Some(SideFiles { log, index }), Some(database)) =
            (&opened.side_files, &opened.database)
        else {
            return;
        };
        for (path, file) in [log, index] {
            let lost = (with_ending(path, &database.file.lost_ending()), *file);
            if is_at(&lost) {
                // Only an empty file would stay.
                drop(std::fs::remove_file(&lost.0));
            }
        }
    }

    /// Returns a process that has a connection with the lost index. It would not notice what is written with a new
    /// one. No connection of this process may be open.
    pub(crate) fn other_user(&self) -> io::Result<Option<String>> {
        let opened = self.opened.lock();
        opened.index.as_ref().map_or(Ok(None), IndexHandle::other_user)
    }

    /// Returns true if another process has a connection to the file at the path, so that nobody is copying it. No
    /// connection of this process may be open.
    pub(crate) fn is_in_use(&self) -> bool {
        let found = File::open(&self.database).and_then(|file| lock_holder(&file, DATABASE_LOCK));
        found.is_ok_and(|holder| holder.is_some())
    }

    /// Forgets the lost files, before connections are made to this one.
    pub(crate) fn begin_again(&self, database: DatabaseId) {
        let database = Some(database);
        *self.opened.lock() = Opened { database, ..Opened::default() };
    }
}
