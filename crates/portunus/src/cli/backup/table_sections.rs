//! Tables of PostgreSQL as sections of a backup.

use std::io;
use store::{DumpSink, DumpSource, DumpedTable};

use super::backup_file::{BackupPart, BackupReader, BackupWriter};

/// Begin of the name of a table's section. Its name and columns follow as JSON.
const TABLE: &str = "table ";

/// Writes tables into a backup.
pub(super) struct TableWriter<'a>(pub(super) &'a mut BackupWriter);

impl DumpSink for TableWriter<'_> {
    fn begin_table(&mut self, table: &DumpedTable) -> io::Result<()> {
        let DumpedTable { name, columns } = table;
        let described = serde_json::to_string(&(name, columns))?;
        self.0.begin_section(&format!("{TABLE}{described}"))
    }

    fn add_rows(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.add(bytes)
    }
}

/// Reads the tables of a backup. Other sections are skipped.
pub(super) struct TableReader {
    backup: BackupReader,
    /// The next table, once its section has begun.
    next: Option<DumpedTable>,
    is_in_table: bool,
}

impl TableReader {
    pub(super) const fn new(backup: BackupReader) -> Self {
        Self { backup, next: None, is_in_table: false }
    }

    /// Reads on to the next rows. `None` at the end of a table, whose follower is remembered.
    fn read_on(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.backup.next().map_err(io::Error::other)? {
                Some(BackupPart::Piece(bytes)) if self.is_in_table => return Ok(Some(bytes)),
                Some(BackupPart::Piece(_)) => {}
                Some(BackupPart::Section(name)) => {
                    self.is_in_table = false;
                    if let Some(described) = name.strip_prefix(TABLE) {
                        let (name, columns) = serde_json::from_str(described)?;
                        self.next = Some(DumpedTable { name, columns });
                        return Ok(None);
                    }
                }
                None => {
                    self.is_in_table = false;
                    return Ok(None);
                }
            }
        }
    }
}

impl DumpSource for TableReader {
    fn next_table(&mut self) -> io::Result<Option<DumpedTable>> {
        if self.next.is_none() {
            while self.read_on()?.is_some() {}
        }
        let next = self.next.take();
        self.is_in_table = next.is_some();
        Ok(next)
    }

    fn next_rows(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.is_in_table { self.read_on() } else { Ok(None) }
    }
}
