//! Tables of PostgreSQL as sections of a backup.

use std::io;
use store::{DumpSink, DumpSource, DumpedTable};

use super::backup_file::{BackupPart, BackupReader, BackupWriter};

/// Begin of the name of a table's section. Its name and columns follow as JSON.
const TABLE: &str = "table ";

/// Returns true if a section of this name is a table.
pub(super) fn is_table(section: &str) -> bool {
    section.starts_with(TABLE)
}

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
    has_ended: bool,
}

impl TableReader {
    pub(super) const fn new(backup: BackupReader) -> Self {
        Self { backup, next: None, is_in_table: false, has_ended: false }
    }

    /// Reads on to the next rows. `None` at the end of a table, whose follower is remembered.
    fn read_on(&mut self) -> io::Result<Option<Vec<u8>>> {
        while !self.has_ended {
            match self.backup.next_part().map_err(io::Error::other)? {
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
                None => self.has_ended = true,
            }
        }
        self.is_in_table = false;
        Ok(None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_were_written_and_other_sections_are_skipped() {
        let name = |end: &str| {
            let name = format!("portunus-tables-{}-{end}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (target, part) = (name("backup"), name("part"));
        let table = |name: &str| DumpedTable {
            name: name.to_owned(),
            columns: vec!["a".to_owned(), "b \"c\"".to_owned()],
        };
        let mut backup = BackupWriter::create(&target, part).unwrap();
        let mut tables = TableWriter(&mut backup);
        tables.begin_table(&table("empty")).unwrap();
        tables.begin_table(&table("full")).unwrap();
        tables.add_rows(b"1\t2\n").unwrap();
        tables.add_rows(b"3\t4\n").unwrap();
        backup.begin_section("other").unwrap();
        backup.add(b"text").unwrap();
        TableWriter(&mut backup).begin_table(&table("last")).unwrap();
        backup.begin_section("about").unwrap();
        backup.add(b"text").unwrap();
        backup.finish().unwrap();

        let mut reader = TableReader::new(BackupReader::open(&target).unwrap());
        let mut found = Vec::new();
        while let Some(DumpedTable { name, columns }) = reader.next_table().unwrap() {
            assert_eq!(columns, table("").columns);
            let mut rows = Vec::new();
            while let Some(bytes) = reader.next_rows().unwrap() {
                rows.extend(bytes);
            }
            found.push((name, String::from_utf8(rows).unwrap()));
        }
        let expected = [("empty", ""), ("full", "1\t2\n3\t4\n"), ("last", "")];
        assert_eq!(found, expected.map(|(name, rows)| (name.to_owned(), rows.to_owned())));
        assert_eq!(reader.next_table().unwrap(), None, "also when it is asked again");
        std::fs::remove_file(&target).unwrap();
    }
}
