//! A backup that is restored: checked as a whole first, then put in place.

use anyhow::Context as _;
use config::Config;
use ledger::SettledCall;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use store::Store;

use super::backup_file::{BackupPart, BackupReader};
use super::sealed_key::{Passphrase, SealedKey};
use super::table_sections::TableReader;
use super::{
    ABOUT, BackupAbout, CALLS, DATABASE, DatabaseKind, SIDE_FILES, TemporaryDatabase, VAULT_KEY,
    aside, beside, database_file, database_kind,
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
            for (name, content) in BackupReader::check(path, is_small)? {
                match name.as_str() {
                    ABOUT => found.about = Some(serde_json::from_slice(&content)?),
                    VAULT_KEY => found.sealed_key = Some(serde_json::from_slice(&content)?),
                    CALLS => found.calls = read_calls(&content)?,
                    _ => {}
                }
            }
            anyhow::ensure!(found.about.is_some(), "it does not say which database it is of");
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
        match (database_file(config), &self.about) {
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
        let part = TemporaryDatabase::new(beside(database, ".restoring"))?;
        self.extract(&part.0).with_context(|| format!("{} cannot be written", part.0.display()))?;
        let copy = Store::open(&part.url()).await;
        let copy = copy.with_context(|| format!("{} is no usable backup", self.path.display()))?;
        let checked = copy.check_file().await;
        copy.close().await;
        checked.with_context(|| format!("{} is no usable backup", self.path.display()))?;
        File::open(&part.0)?.sync_all()?;
        let kept = put_aside(database)?;
        std::fs::rename(&part.0, database)?;
        Ok(kept)
    }

    /// Writes the file of SQLite.
    fn extract(&self, part: &Path) -> anyhow::Result<()> {
        if self.about.is_none() {
            std::fs::copy(&self.path, part)?;
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

/// Keeps a database under another name, which is returned. Its side files move first and always, also if the
/// database itself is missing: SQLite would apply the log of an earlier database to the restored one. The database keeps its
/// name until the restored one replaces it, so that a killed process leaves one of the two.
fn put_aside(database: &Path) -> std::io::Result<Option<PathBuf>> {
    let mut found = SIDE_FILES.into_iter().map(|ending| beside(database, ending));
    if !found.any(|file| file.exists()) {
        return Ok(None);
    }
    let aside = aside(database);
    // Some file systems have no second names.
    if database.exists() && std::fs::hard_link(database, &aside).is_err() {
        std::fs::copy(database, &aside)?;
        File::open(&aside)?.sync_all()?;
    }
    for ending in SIDE_FILES.into_iter().filter(|ending| !ending.is_empty()) {
        let old = beside(database, ending);
        if old.exists() {
            std::fs::rename(old, beside(&aside, ending))?;
        }
    }
    Ok(Some(aside))
}

fn read_calls(content: &[u8]) -> anyhow::Result<Vec<SettledCall>> {
    let lines = content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let calls = lines.map(|line| {
        let entry = serde_json::from_slice::<ledger::LedgerEntry>(line)?;
        Ok(SettledCall { entry: entry.into(), lease: None, shown: true })
    });
    calls.collect()
}
