//! The file of a backup: named sections, and a checksum at its end.
//!
//! ```text
//! portunus backup 1\n
//! S <u16 length> <name>      a section begins
//! C <u32 length> <bytes>     a piece of it
//! E <32 bytes>               end: SHA-256 of all bytes before
//! ```
//! Numbers are big-endian. A reader checks the whole file before it uses any of it.

use std::fs::{File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

const MAGIC: &[u8] = b"portunus backup 1\n";
/// Largest piece of a section.
const MAX_PIECE_BYTES: usize = 1 << 20;
const SECTION: u8 = b'S';
const PIECE: u8 = b'C';
const END: u8 = b'E';

/// A backup that is being written, under another name. Dropped before its end, it is deleted.
pub(super) struct BackupWriter {
    file: Option<BufWriter<File>>,
    sum: Context,
    part: PathBuf,
    target: PathBuf,
}

impl BackupWriter {
    /// Begins a backup that will have this name. Only one process at a time writes it. What a killed one left is
    /// overwritten.
    pub(super) fn create(target: &Path, part: PathBuf) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(&part)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => taken("another process writes this backup"),
            TryLockError::Error(error) => error,
        })?;
        // The process before may have finished between the two steps above, and with it the name has gone.
        let is_own = std::fs::metadata(&part)
            .is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
        if !is_own {
            return Err(taken("another process writes this backup"));
        }
        if target.exists() {
            std::fs::remove_file(&part)?;
            return Err(taken("another process wrote this backup"));
        }
        file.set_len(0)?;
        let file = Some(BufWriter::with_capacity(MAX_PIECE_BYTES, file));
        let target = target.to_owned();
        let mut backup = Self { file, sum: Context::new(&SHA256), part, target };
        backup.put(MAGIC)?;
        Ok(backup)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Err(io::Error::other("the backup is finished")),
        }
    }

    /// Begins a section. The pieces that follow belong to it.
    pub(super) fn begin_section(&mut self, name: &str) -> io::Result<()> {
        let length = u16::try_from(name.len()).map_err(io::Error::other)?;
        self.put(&[SECTION])?;
        self.put(&length.to_be_bytes())?;
        self.put(name.as_bytes())
    }

    /// Adds bytes to the section.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(MAX_PIECE_BYTES) {
            let length = u32::try_from(piece.len()).map_err(io::Error::other)?;
            self.put(&[PIECE])?;
            self.put(&length.to_be_bytes())?;
            self.put(piece)?;
        }
        Ok(())
    }

    /// Adds all bytes of a file to the section.
    pub(super) fn add_file(&mut self, file: &Path) -> io::Result<()> {
        let mut file = File::open(file)?;
        let mut buffer = vec![0; MAX_PIECE_BYTES];
        loop {
            let read = file.read(&mut buffer)?;
            let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else {
                return Ok(());
            };
            self.add(piece)?;
        }
    }

    /// Writes the checksum, waits for the disk and gives the backup its name.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.put(&[END])?;
        let sum = self.sum.clone().finish();
        self.put(sum.as_ref())?;
        let Some(file) = self.file.take() else { return Ok(()) };
        let finished = file.into_inner().map_err(io::IntoInnerError::into_error);
        let finished = finished.and_then(|file| file.sync_all());
        let finished = finished.and_then(|()| std::fs::rename(&self.part, &self.target));
        if finished.is_err() {
            drop(std::fs::remove_file(&self.part));
        }
        finished?;
        // The name survives a crash of the machine too, where folders can be synced.
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        drop(File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()));
        Ok(())
    }
}

fn taken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            drop(std::fs::remove_file(&self.part));
        }
    }
}

/// A part of a backup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BackupPart {
    /// A section of this name begins.
    Section(String),
    /// Bytes of the section.
    Piece(Vec<u8>),
}

/// Reads the parts of a backup in their order.
pub(super) struct BackupReader {
    file: BufReader<File>,
    sum: Context,
}

/// Reason a file cannot be used as a backup.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackupError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It begins with other bytes.
    #[error("it is no backup of portunus")]
    Foreign,
    /// It ends too early.
    #[error("it is incomplete: its end is missing")]
    Incomplete,
    /// Its checksum or its structure is wrong.
    #[error("it is damaged: its checksum does not fit its content")]
    Damaged,
}

impl BackupReader {
    /// Opens a backup.
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let file = BufReader::with_capacity(MAX_PIECE_BYTES, File::open(path)?);
        let mut reader = Self { file, sum: Context::new(&SHA256) };
        match reader.take(MAGIC.len()) {
            Ok(magic) if magic == MAGIC => Ok(reader),
            Ok(_) | Err(BackupError::Incomplete) => Err(BackupError::Foreign),
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, BackupError> {
        let mut bytes = vec![0; length];
        self.file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => BackupError::Incomplete,
            _ => BackupError::Io(error),
        })?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn take_number(&mut self, bytes: usize) -> Result<usize, BackupError> {
        let digits = self.take(bytes)?;
        Ok(digits.into_iter().fold(0, |number, digit| (number << 8) | usize::from(digit)))
    }

    /// Returns the next part; `None` at the end, whose checksum is right.
    pub(super) fn next_part(&mut self) -> Result<Option<BackupPart>, BackupError> {
        match self.take(1)?.first() {
            Some(&SECTION) => {
                let length = self.take_number(2)?;
                let name = String::from_utf8(self.take(length)?);
                Ok(Some(BackupPart::Section(name.map_err(|_| BackupError::Damaged)?)))
            }
            Some(&PIECE) => {
                let length = self.take_number(4)?;
                if length > MAX_PIECE_BYTES {
                    return Err(BackupError::Damaged);
                }
                Ok(Some(BackupPart::Piece(self.take(length)?)))
            }
            Some(&END) => {
                let expected = self.sum.clone().finish();
                let found = self.take(SHA256_OUTPUT_LEN)?;
                let is_last = self.file.read(&mut [0])? == 0;
                let is_sound = found == expected.as_ref() && is_last;
                if is_sound { Ok(None) } else { Err(BackupError::Damaged) }
            }
            Some(_) | None => Err(BackupError::Damaged),
        }
    }

    /// Checks a whole backup and returns the content of its small sections, which these are.
    pub(super) fn check(
        path: &Path,
        is_small: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Vec<u8>)>, BackupError> {
        let mut reader = Self::open(path)?;
        let mut sections: Vec<(String, Vec<u8>)> = Vec::new();
        while let Some(part) = reader.next_part()? {
            match (part, sections.last_mut()) {
                (BackupPart::Section(name), _) => sections.push((name, Vec::new())),
                (BackupPart::Piece(bytes), Some((name, content))) => {
                    if is_small(name) {
                        content.extend_from_slice(&bytes);
                    }
                }
                (BackupPart::Piece(_), None) => return Err(BackupError::Damaged),
            }
        }
        Ok(sections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("portunus-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn write(folder: &Path) -> PathBuf {
        let target = folder.join("backup");
        let mut backup = BackupWriter::create(&target, folder.join("part")).unwrap();
        backup.begin_section("about").unwrap();
        backup.add(b"something").unwrap();
        backup.begin_section("large").unwrap();
        backup.add(&vec![7; MAX_PIECE_BYTES + 5]).unwrap();
        backup.begin_section("empty").unwrap();
        backup.finish().unwrap();
        target
    }

    #[test]
    fn a_backup_is_read_as_it_was_written() {
        let folder = folder("read");
        let sections = BackupReader::check(&write(&folder), |_| true).unwrap();
        let sizes: Vec<(&str, usize)> =
            sections.iter().map(|(name, content)| (name.as_str(), content.len())).collect();
        assert_eq!(sizes, [("about", 9), ("large", MAX_PIECE_BYTES + 5), ("empty", 0)]);
        assert!(!folder.join("part").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let folder = folder("damaged");
        let target = folder.join("backup");
        let mut backup = BackupWriter::create(&target, folder.join("part")).unwrap();
        backup.begin_section("about").unwrap();
        backup.add(b"something").unwrap();
        backup.finish().unwrap();
        let sound = std::fs::read(&target).unwrap();
        for place in 0..sound.len() {
            let mut changed = sound.clone();
            changed[place] ^= 1;
            std::fs::write(&target, &changed).unwrap();
            BackupReader::check(&target, |_| true).unwrap_err();
            std::fs::write(&target, &sound[..place]).unwrap();
            BackupReader::check(&target, |_| true).unwrap_err();
        }
        std::fs::write(&target, [&sound[..], b"x"].concat()).unwrap();
        BackupReader::check(&target, |_| true).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_backup_is_written_by_one_process_at_a_time() {
        let folder = folder("at-once");
        let (target, part) = (folder.join("backup"), folder.join("part"));
        std::fs::write(&part, "left by a killed process").unwrap();
        let mut backup = BackupWriter::create(&target, part.clone()).unwrap();
        let Err(refused) = BackupWriter::create(&target, part.clone()) else {
            panic!("two at once")
        };
        assert!(refused.to_string().contains("another process writes"), "{refused}");
        backup.begin_section("about").unwrap();
        backup.finish().unwrap();
        assert_eq!(BackupReader::check(&target, |_| true).unwrap().len(), 1);
        let Err(refused) = BackupWriter::create(&target, part.clone()) else { panic!("replaced") };
        assert!(refused.to_string().contains("wrote this backup"), "{refused}");
        assert!(!part.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_unfinished_backup_leaves_no_file() {
        let folder = folder("unfinished");
        let (target, part) = (folder.join("backup"), folder.join("part"));
        let mut backup = BackupWriter::create(&target, part.clone()).unwrap();
        backup.begin_section("about").unwrap();
        assert!(part.exists());
        drop(backup);
        assert!(!part.exists() && !target.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
