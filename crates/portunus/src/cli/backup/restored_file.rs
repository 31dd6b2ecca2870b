//! A backup that is restored: checked as a whole first, then put in place.

use anyhow::Context as _;
use config::Config;
use ledger::SettledCall;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use store::Store;

use super::backup_file::{BackupPart, BackupReader};
use super::sealed_key::{Passphrase, SealedKey};
use super::table_sections::{TableReader, is_table};
use super::{
    ABOUT, BackupAbout, CALLS, DATABASE, DatabaseKind, LOG, SHARED_MEMORY, SIDE_FILES,
    TemporaryDatabase, VAULT_KEY, aside, beside, database_kind, sqlite_file,
};

/// First bytes of a file of SQLite (<https://www.sqlite.org/fileformat.html>). Earlier versions wrote
/// backups as such files, without a checksum.
const SQLITE_HEADER: &[u8] = b"SQLite format 3\0";

/// A backup whose checksum is right.
pub(super) struct RestoredFile {
    path: PathBuf,
    /// `None` for a file of SQLite.
    about: Option<BackupAbout>,
    sealed_key: Option<SealedKey>,
    calls: Vec<SettledCall>,
}

impl RestoredFile {
    /// Checks a backup, and that it fits the database of the configuration. Changes nothing.
    pub(super) async fn check(path: &Path, config: &Config) -> anyhow::Result<Self> {
        let mut begin = Vec::new();
        let file = File::open(path).context("it cannot be read")?;
        file.take(SQLITE_HEADER.len() as u64).read_to_end(&mut begin)?;
        anyhow::ensure!(!begin.is_empty(), "it is empty and no backup");
        let mut found =
            Self { path: path.to_owned(), about: None, sealed_key: None, calls: Vec::new() };
        if begin != SQLITE_HEADER {
            let is_small = |name: &str| [ABOUT, VAULT_KEY, CALLS].contains(&name);
            let (mut databases, mut tables) = (0, 0);
            for (name, content) in BackupReader::check(path, is_small)? {
                match name.as_str() {
                    ABOUT => found.about = Some(serde_json::from_slice(&content)?),
                    VAULT_KEY => found.sealed_key = Some(serde_json::from_slice(&content)?),
                    CALLS => found.calls = read_calls(&content)?,
                    DATABASE => databases += 1,
                    other if is_table(other) => tables += 1,
                    _ => {}
                }
            }
            anyhow::ensure!(found.about.is_some(), "it does not say which database it is of");
            let has_content = match found.kind() {
                DatabaseKind::Sqlite => databases == 1,
                DatabaseKind::Postgres => tables > 0,
            };
            anyhow::ensure!(has_content, "it has no database in it");
        }
        let (kind, own) = (found.kind(), database_kind(config));
        anyhow::ensure!(
            kind == own,
            "it is a backup of {}, and `store.url` names {}",
            kind.name(),
            own.name()
        );
        if own == DatabaseKind::Postgres {
            Store::require_empty(&config.store_url).await?;
        }
        Ok(found)
    }

    fn kind(&self) -> DatabaseKind {
        self.about.as_ref().map_or(DatabaseKind::Sqlite, |about| about.kind)
    }

    /// Returns true if the backup has the vault's key.
    pub(super) const fn has_vault_key(&self) -> bool {
        self.sealed_key.is_some()
    }

    /// Opens the vault's key.
    pub(super) fn vault_key(&self, passphrase: &Passphrase) -> anyhow::Result<String> {
        let sealed = self.sealed_key.as_ref();
        sealed.context("the backup has no vault key; leave out --with-vault-key")?.open(passphrase)
    }

    /// Puts the copy in the place of the database. Returns the name under which an earlier one is kept.
    pub(super) async fn put_in_place(&self, config: &Config) -> anyhow::Result<Option<PathBuf>> {
        match (sqlite_file(config), &self.about) {
            (Some(database), _) => self.replace_file(&database).await,
            (None, Some(about)) => {
                let mut tables = TableReader::new(BackupReader::open(&self.path)?);
                Store::load_tables(&config.store_url, about.schema, &mut tables).await?;
                Ok(None)
            }
            (None, None) => anyhow::bail!("it is no backup of PostgreSQL"),
        }
    }

    async fn replace_file(&self, database: &Path) -> anyhow::Result<Option<PathBuf>> {
        // A link stays, and leads to the restored file.
        let target = if database.is_symlink() { database.canonicalize().ok() } else { None };
        let database = target.as_deref().unwrap_or(database);
        let part = TemporaryDatabase::new(beside(database, ".restoring"))?;
        self.extract(&part.0).with_context(|| format!("{} cannot be written", part.0.display()))?;
        self.require_schema(&part).await?;
        let copy = Store::open(&part.url()).await;
        let copy = copy.with_context(|| format!("{} is no usable backup", self.path.display()))?;
        let checked = copy.check_file().await;
        copy.close().await;
        checked.with_context(|| format!("{} is no usable backup", self.path.display()))?;
        File::open(&part.0)?.sync_all()?;
        replace_database(database, &part.0).await
    }

    /// Fails if the file is not a database of Portunus, or not the one that the backup describes. Opening it would set
    /// up any database.
    async fn require_schema(&self, part: &TemporaryDatabase) -> anyhow::Result<()> {
        let state = Store::schema_state(&part.url()).await;
        let found =
            state.with_context(|| format!("{} is no usable backup", self.path.display()))?;
        let found = found
            .found
            .with_context(|| format!("{} is no database of Portunus", self.path.display()))?;
        if let Some(about) = &self.about {
            anyhow::ensure!(
                about.schema == found,
                "{} is no usable backup: it says schema {}, and its database has schema {found}",
                self.path.display(),
                about.schema
            );
        }
        Ok(())
    }

    /// Writes the file of SQLite.
    fn extract(&self, part: &Path) -> anyhow::Result<()> {
        if self.about.is_none() {
            // Commits may be in the log only, for instance those of a database that an earlier restore kept.
            for ending in ["", LOG] {
                copy_if_present(&beside(&self.path, ending), &beside(part, ending))?;
            }
            return Ok(());
        }
        let mut file = File::options().write(true).create_new(true).open(part)?;
        let (mut backup, mut is_database) = (BackupReader::open(&self.path)?, false);
        while let Some(part) = backup.next_part()? {
            match part {
                BackupPart::Section(name) => is_database = name == DATABASE,
                BackupPart::Piece(bytes) if is_database => file.write_all(&bytes)?,
                BackupPart::Piece(_) => {}
            }
        }
        file.sync_all()?;
        Ok(())
    }

    /// Posts the calls of the journal that a copy of PostgreSQL lacks, and returns their number.
    pub(super) async fn post_calls(&self, store: &Store) -> anyhow::Result<usize> {
        let mut posted = 0;
        for batch in self.calls.chunks(ledger::MAX_BATCH_CALLS) {
            posted += store.post(batch).await?;
        }
        Ok(posted)
    }
}

/// Puts a restored database in the place of the earlier one, and returns the name under which that is kept. A
/// process that is killed at any point leaves one of the two with all its content, and nothing writes to the kept one.
async fn replace_database(database: &Path, restored: &Path) -> anyhow::Result<Option<PathBuf>> {
    let kept = keep_copy(database).context("the earlier database cannot be kept")?;
    if kept.is_some() {
        remove_log(database).await?;
    }
    std::fs::rename(restored, database)?;
    sync_folder(database);
    Ok(kept)
}

/// Copies a database and its log to a free name, which is returned. A copy has the name only when it is complete.
/// File systems that share blocks between files make it without a second use of the disk.
fn keep_copy(database: &Path) -> io::Result<Option<PathBuf>> {
    if !SIDE_FILES.into_iter().any(|ending| beside(database, ending).exists()) {
        return Ok(None);
    }
    let copy = TemporaryDatabase::new(beside(database, ".keeping")).map_err(io::Error::other)?;
    let aside = aside(database);
    let mut copied = Vec::new();
    for ending in [LOG, ""] {
        let part = beside(&copy.0, ending);
        if copy_if_present(&beside(database, ending), &part)? {
            copied.push((part, beside(&aside, ending)));
        }
    }
    for (part, kept) in &copied {
        std::fs::rename(part, kept)?;
    }
    sync_folder(database);
    Ok((!copied.is_empty()).then_some(aside))
}

/// Removes the log of a database, because SQLite would apply it to the restored one. The database gets the content of
/// its log first: a gateway that starts after this finds everything. One that is damaged, or missing, cannot get it.
async fn remove_log(database: &Path) -> anyhow::Result<()> {
    let has_log = std::fs::metadata(beside(database, LOG)).is_ok_and(|log| log.len() > 0);
    if has_log && database.exists() && !Store::merge_log(database).await? {
        tracing::warn!("the earlier database is damaged, and its log is only in the kept copy");
    }
    for ending in [LOG, SHARED_MEMORY] {
        match std::fs::remove_file(beside(database, ending)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Copies a file to the disk; false if there is none.
fn copy_if_present(from: &Path, to: &Path) -> io::Result<bool> {
    match std::fs::copy(from, to) {
        Ok(_) => File::open(to)?.sync_all().map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::NotFound && !from.exists() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Makes the names in the folder of a file survive a crash of the machine, where folders can be synced.
fn sync_folder(file: &Path) {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    drop(File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()));
}

fn read_calls(content: &[u8]) -> anyhow::Result<Vec<SettledCall>> {
    let lines = content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let calls = lines.map(|line| {
        let entry = serde_json::from_slice::<ledger::LedgerEntry>(line)?;
        Ok(SettledCall { entry: entry.into(), lease: None, shown: true })
    });
    calls.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{Connection as _, SqliteConnection};

    /// Makes a database whose rows are in its log only, as a killed process leaves it.
    async fn leave_database(folder: &Path) -> PathBuf {
        let (open, left) = (folder.join("open.db"), folder.join("left.db"));
        let url = format!("sqlite:{}?mode=rwc", open.display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        for sql in ["PRAGMA journal_mode = WAL", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"] {
            sqlx::query(sql).execute(&mut db).await.unwrap();
        }
        for ending in SIDE_FILES {
            std::fs::copy(beside(&open, ending), beside(&left, ending)).unwrap();
        }
        assert!(std::fs::metadata(beside(&left, LOG)).unwrap().len() > 0);
        db.close().await.unwrap();
        left
    }

    /// Returns the rows of a copy of these files, so that looking changes nothing.
    async fn rows(database: &Path) -> i64 {
        let copy = beside(database, ".seen");
        for ending in SIDE_FILES {
            copy_if_present(&beside(database, ending), &beside(&copy, ending)).unwrap();
        }
        let url = format!("sqlite:{}", copy.display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        let rows = sqlx::query_scalar("SELECT COUNT(*) FROM t").fetch_one(&mut db).await.unwrap();
        db.close().await.unwrap();
        super::super::remove_database(&copy).unwrap();
        rows
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("portunus-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[tokio::test]
    async fn the_database_is_whole_after_each_step_and_the_kept_copy_is_a_file_of_its_own() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = folder("replaced");
        let database = leave_database(&folder).await;
        let kept = keep_copy(&database).unwrap().unwrap();
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        assert_ne!(inode(&database), inode(&kept));
        assert_eq!((rows(&database).await, rows(&kept).await), (1, 1));
        remove_log(&database).await.unwrap();
        assert!(!beside(&database, LOG).exists() && !beside(&database, SHARED_MEMORY).exists());
        assert_eq!((rows(&database).await, rows(&kept).await), (1, 1));
        // A gateway that was started here, before the restore is repeated, writes to its own file.
        let mut db =
            SqliteConnection::connect(&format!("sqlite:{}", database.display())).await.unwrap();
        sqlx::query("INSERT INTO t VALUES (2)").execute(&mut db).await.unwrap();
        db.close().await.unwrap();
        assert_eq!((rows(&database).await, rows(&kept).await), (2, 1));
        let restored = folder.join("restored");
        std::fs::write(&restored, "new").unwrap();
        let later = replace_database(&database, &restored).await.unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&database).unwrap(), "new");
        assert_eq!((rows(&later).await, rows(&kept).await), (2, 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_damaged_database_is_kept_with_its_log_and_replaced() {
        let folder = folder("replaced-damaged");
        let database = leave_database(&folder).await;
        std::fs::write(&database, [b"SQLite format 3\0".as_slice(), &[7; 8_000]].concat()).unwrap();
        let restored = folder.join("restored");
        std::fs::write(&restored, "new").unwrap();
        let kept = replace_database(&database, &restored).await.unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&database).unwrap(), "new");
        assert!(!beside(&database, LOG).exists());
        assert!(kept.exists() && beside(&kept, LOG).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_database_that_another_process_reads_is_not_replaced() {
        let folder = folder("replaced-used");
        let database = leave_database(&folder).await;
        let mut reader =
            SqliteConnection::connect(&format!("sqlite:{}", database.display())).await.unwrap();
        let mut reading = reader.begin().await.unwrap();
        let _: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM t").fetch_one(&mut *reading).await.unwrap();
        let restored = folder.join("restored");
        std::fs::write(&restored, "new").unwrap();
        let refused = replace_database(&database, &restored).await.unwrap_err();
        assert!(refused.to_string().contains("another process uses"), "{refused}");
        assert!(restored.exists());
        reading.rollback().await.unwrap();
        reader.close().await.unwrap();
        assert_eq!(rows(&database).await, 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
