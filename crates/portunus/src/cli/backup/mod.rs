//! `portunus backup` and `portunus restore`.

mod backup_file;
mod journal_calls;
mod restored_file;
mod sealed_key;
mod table_sections;

use admin::Actor;
use anyhow::Context as _;
use canon::Money;
use clap::Args;
use config::Config;
use jiff::Timestamp;
use ledger::SettledCall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{AdoptedCounts, LeaseTotal, Store, VaultKeys};

use super::common::{CommonArgs, close_accounts, open_accounts, open_existing, refuse_other_store};
use super::ledger::verify;
use super::output::print_line;
use crate::app::{VAULT_KEY_FILE, open_store, sqlite_file};
use crate::node_journal::LockedFolder;
use backup_file::BackupWriter;
use journal_calls::{give_up_lost, post_journal, post_missing, settled_calls};
use restored_file::RestoredFile;
use sealed_key::{Passphrase, SealedKey};
use table_sections::TableWriter;

/// Files that SQLite keeps beside a database.
const SIDE_FILES: [&str; 3] = ["", LOG, SHARED_MEMORY];
/// Endings of the log of SQLite and of the memory that its processes share.
const LOG: &str = "-wal";
const SHARED_MEMORY: &str = "-shm";
/// Sections of a backup: what it is, the vault's key, calls of the journal, a file of SQLite.
const ABOUT: &str = "about";
const VAULT_KEY: &str = "vault-key";
const CALLS: &str = "calls";
const DATABASE: &str = "database";

/// The vault's key in a backup.
#[derive(Debug, Args)]
struct VaultKeyArgs {
    /// Include the vault's key, sealed by a passphrase
    #[arg(long)]
    with_vault_key: bool,
    /// File with the passphrase. Without it, PORTUNUS_BACKUP_PASSPHRASE or the terminal is read
    #[arg(long, value_name = "FILE", requires = "with_vault_key")]
    passphrase_file: Option<PathBuf>,
}

/// The new backup.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The new file
    file: PathBuf,
    #[command(flatten)]
    vault_key: VaultKeyArgs,
}

/// The source of the restored database.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup
    #[arg(required_unless_present = "adopt", conflicts_with = "adopt")]
    file: Option<PathBuf>,
    /// Take over a database that was restored by other means, for example by pg_restore
    #[arg(long)]
    adopt: bool,
    #[command(flatten)]
    vault_key: VaultKeyArgs,
}

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DatabaseKind {
    Sqlite,
    Postgres,
}

impl DatabaseKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// Description of a backup.
#[derive(Debug, Serialize, Deserialize)]
struct BackupAbout {
    kind: DatabaseKind,
    /// Newest migration of the database.
    schema: i64,
    /// Version of the program that made it.
    version: String,
    created: String,
}

fn database_kind(config: &Config) -> DatabaseKind {
    if sqlite_file(config).is_some() { DatabaseKind::Sqlite } else { DatabaseKind::Postgres }
}

/// Returns the path with that text behind its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// A database that is deleted when the command ends, however it ends.
struct TemporaryDatabase(PathBuf);

impl TemporaryDatabase {
    /// Takes the name, and deletes what an earlier attempt left.
    fn new(path: PathBuf) -> anyhow::Result<Self> {
        remove_database(&path).context("an earlier attempt cannot be removed")?;
        Ok(Self(path))
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0.display())
    }
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        drop(remove_database(&self.0));
    }
}

/// Deletes a database, if there is one.
fn remove_database(path: &Path) -> io::Result<()> {
    for ending in SIDE_FILES {
        match std::fs::remove_file(beside(path, ending)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

pub(super) async fn back_up(common: &CommonArgs, args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    let file = &args.file;
    anyhow::ensure!(file.as_os_str() != "-", "a backup is a file: name one instead of `-`");
    anyhow::ensure!(!file.exists(), "{} exists", file.display());
    let sealed = if args.vault_key.with_vault_key {
        let passphrase = Passphrase::read(args.vault_key.passphrase_file.as_deref())?;
        passphrase.require_long()?;
        Some(SealedKey::seal(&vault_key_text(&config)?, &passphrase)?)
    } else {
        None
    };
    let state = Store::schema_state(&config.store_url).await?;
    if let (Some(found), Some(_)) = (state.found, state.pending.first()) {
        anyhow::bail!(
            "the database has schema {found} and this program would change it to {}; back it up with \
             the version that runs",
            state.known
        );
    }
    let store = open_existing(&config).await?;
    let written = match refuse_other_store(&config, &store).await {
        Ok(()) => write_backup(&config, &store, file, sealed.as_ref()).await,
        Err(error) => Err(error),
    };
    store.close().await;
    let added = written.with_context(|| format!("{} cannot be written", file.display()))?;
    let key = if sealed.is_some() { " and the sealed vault key" } else { "" };
    print_line(&format!(
        "{} is a backup of the database, with {added} calls of the journal{key}",
        file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Writes a backup and returns the number of calls of the journal that the database did not have.
async fn write_backup(
    config: &Config,
    store: &Store,
    file: &Path,
    sealed: Option<&SealedKey>,
) -> anyhow::Result<usize> {
    let mut backup = BackupWriter::create(file, beside(file, ".part"))?;
    // Read before the copy too, because a call that is posted afterwards may leave the journal.
    let before = settled_calls(config)?;
    let kind = database_kind(config);
    let (schema, added) = match kind {
        DatabaseKind::Sqlite => {
            let copied = TemporaryDatabase::new(beside(file, ".part-db"))?;
            store.write_copy(&copied.0).await?;
            let copy = Store::open(&copied.url()).await?;
            let mut added = 0;
            for (node, calls) in before.into_iter().chain(settled_calls(config)?) {
                added += post_missing(&copy, &node, calls).await?;
            }
            copy.close().await;
            backup.begin_section(DATABASE)?;
            backup.add_file(&copied.0)?;
            let state = Store::schema_state(&copied.url()).await?;
            (state.found.unwrap_or(state.known), added)
        }
        DatabaseKind::Postgres => {
            let schema = store.dump_tables(&mut TableWriter(&mut backup)).await?;
            // Those that are in the copy already are told apart when it is restored.
            let found = before.into_iter().chain(settled_calls(config)?);
            let calls: BTreeMap<String, SettledCall> = found
                .flat_map(|(_, calls)| calls)
                .map(|call| (call.entry.request_id.to_string(), call))
                .collect();
            backup.begin_section(CALLS)?;
            for SettledCall { entry, .. } in calls.values() {
                backup.add(serde_json::to_string(&**entry)?.as_bytes())?;
                backup.add(b"\n")?;
            }
            (schema, calls.len())
        }
    };
    if let Some(sealed) = sealed {
        backup.begin_section(VAULT_KEY)?;
        backup.add(serde_json::to_string(sealed)?.as_bytes())?;
    }
    let (version, created) = (env!("CARGO_PKG_VERSION").to_owned(), Timestamp::now().to_string());
    let about = BackupAbout { kind, schema, version, created };
    backup.begin_section(ABOUT)?;
    backup.add(serde_json::to_string(&about)?.as_bytes())?;
    backup.finish()?;
    Ok(added)
}

/// Returns the vault's keys of this gateway.
fn vault_key_text(config: &Config) -> anyhow::Result<String> {
    if let Some(keys) = &config.vault_keys {
        return Ok(keys.secret_text());
    }
    let file = config.data_folder.join(VAULT_KEY_FILE);
    std::fs::read_to_string(&file)
        .with_context(|| format!("the vault's key {} cannot be read", file.display()))
}

pub(super) async fn restore(common: &CommonArgs, args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    // The whole file is checked before anything is changed.
    let backup = match &args.file {
        Some(file) => {
            let checked = RestoredFile::check(file, &config).await;
            Some(checked.with_context(|| format!("{} cannot be restored", file.display()))?)
        }
        None => None,
    };
    let vault_key = match &backup {
        Some(backup) if args.vault_key.with_vault_key => {
            let passphrase = Passphrase::read(args.vault_key.passphrase_file.as_deref())?;
            Some(backup.vault_key(&passphrase)?)
        }
        Some(_) | None => None,
    };
    let locked = LockedFolder::lock(&config.data_folder).with_context(|| {
        format!("the data folder {} cannot be used", config.data_folder.display())
    })?;
    if let Some(backup) = &backup {
        if let Some(aside) = backup.put_in_place(&config).await?
            && !common.json
        {
            print_line(&format!("the earlier database is {}", aside.display()));
        }
        if let Some(text) = &vault_key {
            put_vault_key(&config, text, common.json)?;
        } else if backup.has_vault_key() && !common.json {
            print_line("the sealed vault key is not restored; --with-vault-key does that");
        }
    }
    let accounts = open_accounts(&config).await?;
    let adopted = accounts.adopt_store(&Actor::Operator, args.file.is_some()).await;
    close_accounts(&config, &accounts, false).await?;
    let AdoptedCounts { leases, calls } = adopted?;
    let store = open_store(&config).await?;
    let (mut posted, mut lost) = (0, 0);
    for node in locked.nodes() {
        posted += post_journal(&store, node).await?;
        lost += give_up_lost(&store, node).await?;
    }
    if let Some(backup) = &backup {
        // After the journals: the calls of a journal count as posted by its node, and those of the backup do not.
        posted += backup.post_calls(&store).await?;
    }
    let totals = store.lease_totals().await?;
    if !common.json {
        print_line(&format!(
            "{leases} leases are closed, {calls} running calls settled, {posted} calls taken from \
             the journal"
        ));
        if lost > 0 {
            print_line(&format!(
                "{lost} calls that this node had stored after the backup are not in its journal any more"
            ));
        }
        for LeaseTotal { key_id, cap, spent, leased, .. } in &totals {
            let Some(cap) = cap else { continue };
            let left = cap.saturating_sub(*spent).saturating_sub(*leased).max(Money::ZERO);
            print_line(&format!("key {key_id}: {left} of {cap} USD are left"));
        }
    }
    let proved = verify(common, &config.data_folder, &store).await;
    store.close().await;
    proved
}

/// Returns a free name for a file that is replaced now.
fn aside(path: &Path) -> PathBuf {
    let name = beside(path, &format!(".before-{}", Timestamp::now().as_second()));
    let later = (2..).map(|number| beside(&name, &format!("-{number}")));
    let is_free = |name: &PathBuf| SIDE_FILES.iter().all(|end| !beside(name, end).exists());
    std::iter::once(name.clone()).chain(later).find(is_free).unwrap_or(name)
}

/// Writes the vault's key into the data folder. Another one there is kept under another name.
fn put_vault_key(config: &Config, text: &str, is_json: bool) -> anyhow::Result<()> {
    VaultKeys::read(text).context("the vault's key in the backup is none")?;
    let file = config.data_folder.join(VAULT_KEY_FILE);
    let is_known = std::fs::read_to_string(&file).is_ok_and(|known| known == text);
    if !is_known {
        if file.exists() {
            std::fs::rename(&file, aside(&file))?;
        }
        // New files are readable by their owner only.
        std::fs::write(&file, text)
            .with_context(|| format!("the vault's key {} cannot be written", file.display()))?;
    }
    if !is_json {
        let is_used = config.vault_keys.is_none() && database_kind(config) == DatabaseKind::Sqlite;
        let how = if is_used { "" } else { "; name it in `vault` of `[server]`" };
        print_line(&format!("the vault's key is {}{how}", file.display()));
    }
    Ok(())
}
