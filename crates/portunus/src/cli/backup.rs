//! `portunus backup` and `portunus restore`.

use admin::Actor;
use anyhow::Context as _;
use canon::Money;
use clap::Args;
use config::Config;
use jiff::Timestamp;
use ledger::{Clock as _, FileDisk, JournalInspection, LedgerEntry, SystemClock};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{AdoptedCounts, LeaseTotal, Store};

use super::common::{CommonArgs, close_accounts, open_accounts, print_line};
use super::ledger::verify;
use crate::app::open_store;

/// Files that SQLite keeps beside a database.
const SIDE_FILES: [&str; 3] = ["", "-wal", "-shm"];

/// The source of the restored database.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The backup
    #[arg(required_unless_present = "adopt", conflicts_with = "adopt")]
    file: Option<PathBuf>,
    /// Take over a database that was restored by other means, for example by pg_restore
    #[arg(long)]
    adopt: bool,
}

/// Returns the file of the database; an error for PostgreSQL, with the command to use instead.
fn database_file(config: &Config, instead: &str) -> anyhow::Result<PathBuf> {
    match config.store_url.strip_prefix("sqlite:") {
        Some(path) => Ok(PathBuf::from(path.strip_prefix("//").unwrap_or(path))),
        None => anyhow::bail!("the database is PostgreSQL: {instead}; see docs/operate/backup.md"),
    }
}

/// Returns the path with that text behind its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

pub(super) async fn back_up(common: &CommonArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    database_file(&config, "back it up with `pg_dump -Fc`")?;
    anyhow::ensure!(!file.exists(), "{} exists", file.display());
    let part = beside(file, ".part");
    remove_database(&part).context("an earlier attempt cannot be removed")?;
    let store = open_store(&config).await?;
    // Read before the copy too, because a call that is posted afterwards may leave the journal.
    let before = settled_calls(&config)?;
    let copied = store.write_copy(&part).await;
    store.close().await;
    copied.with_context(|| format!("{} cannot be written", part.display()))?;
    let copy = Store::open(&format!("sqlite:{}", part.display())).await?;
    let mut added = post_missing(&copy, &before).await?;
    added += post_missing(&copy, &settled_calls(&config)?).await?;
    copy.close().await;
    let written = std::fs::File::open(&part).and_then(|copy| copy.sync_all());
    written.and_then(|()| std::fs::rename(&part, file))?;
    print_line(&format!(
        "{} is a backup of the database, with {added} calls of the journal",
        file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Returns the settled calls of this node's journal.
fn settled_calls(config: &Config) -> anyhow::Result<Vec<LedgerEntry>> {
    let journal = config.data_folder.join("journal");
    let found = JournalInspection::read(&journal, SystemClock.now())
        .context("the journal cannot be read")?;
    Ok(found.settled.iter().map(|entry| (**entry).clone()).collect())
}

/// Posts calls that a database lacks, and returns their number. Each pays as far as its cap has room.
async fn post_missing(store: &Store, calls: &[LedgerEntry]) -> anyhow::Result<usize> {
    let mut posted = 0;
    for batch in calls.chunks(ledger::MAX_BATCH_CALLS) {
        posted += store.post(batch).await?;
    }
    Ok(posted)
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

pub(super) async fn restore(common: &CommonArgs, args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    std::fs::create_dir_all(&config.data_folder)?;
    // Also keeps a gateway from starting meanwhile.
    let _locked = FileDisk::open(&config.data_folder.join("journal")).with_context(|| {
        format!("the data folder {} cannot be used", config.data_folder.display())
    })?;
    if let Some(file) = &args.file {
        replace_database(&config, file, common.json).await?;
    }
    let accounts = open_accounts(&config).await?;
    let adopted = accounts.adopt_store(&Actor::Operator, args.file.is_some()).await;
    close_accounts(&config, &accounts, false).await?;
    let AdoptedCounts { leases, calls } = adopted?;
    let store = open_store(&config).await?;
    let posted = post_missing(&store, &settled_calls(&config)?).await?;
    let totals = store.lease_totals().await?;
    if !common.json {
        print_line(&format!(
            "{leases} leases are closed, {calls} running calls settled, {posted} calls taken from \
             the journal"
        ));
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

/// Puts a copy of the backup in the place of the database, which is kept under another name.
async fn replace_database(config: &Config, file: &Path, is_json: bool) -> anyhow::Result<()> {
    let database = database_file(config, "restore it with `pg_restore`, then `restore --adopt`")?;
    let part = beside(&database, ".restoring");
    remove_database(&part).context("an earlier attempt cannot be removed")?;
    std::fs::copy(file, &part).with_context(|| format!("{} cannot be read", file.display()))?;
    // SQLite takes an empty file for a new database.
    let is_empty = std::fs::metadata(&part)?.len() == 0;
    anyhow::ensure!(!is_empty, "{} is empty and no backup", file.display());
    let copy = Store::open(&format!("sqlite:{}", part.display())).await;
    let copy = copy.with_context(|| format!("{} is no usable backup", file.display()))?;
    copy.close().await;
    if database.exists() {
        let aside = beside(&database, &format!(".before-{}", Timestamp::now().as_second()));
        for ending in SIDE_FILES {
            let old = beside(&database, ending);
            if old.exists() {
                std::fs::rename(old, beside(&aside, ending))?;
            }
        }
        if !is_json {
            print_line(&format!("the earlier database is {}", aside.display()));
        }
    }
    std::fs::rename(&part, &database)?;
    Ok(())
}
