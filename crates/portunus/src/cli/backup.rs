//! `portunus backup` and `portunus restore`.

use admin::Actor;
use anyhow::Context as _;
use canon::Money;
use clap::Args;
use config::Config;
use jiff::Timestamp;
use ledger::{
    Clock as _, FileDisk, JournalInspection, LeaseStore, MarkRaise, PostedMark, RetiredSegments,
    SettledCall, SystemClock,
};
use relay::node_name;
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
    let mut added = post_missing(&copy, &config, before).await?;
    added += post_missing(&copy, &config, settled_calls(&config)?).await?;
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
fn settled_calls(config: &Config) -> anyhow::Result<Vec<SettledCall>> {
    Ok(inspect(config)?.settled)
}

fn inspect(config: &Config) -> anyhow::Result<JournalInspection> {
    JournalInspection::read(&journal_folder(config), SystemClock.now())
        .context("the journal cannot be read")
}

fn journal_folder(config: &Config) -> PathBuf {
    config.data_folder.join("journal")
}

/// Posts calls of this node that a database lacks, and returns their number. Each is paid by its lease, or
/// as far as its cap has room if that is closed. The database counts them as if the node had posted them, so that it misses none later.
async fn post_missing(
    store: &Store,
    config: &Config,
    calls: Vec<SettledCall>,
) -> anyhow::Result<usize> {
    let mut posted = 0;
    for batch in calls.chunks(ledger::MAX_BATCH_CALLS) {
        let raise = own_mark(store, config).await?.1;
        posted += LeaseStore::post(store, batch, Some(&raise)).await?.new;
    }
    Ok(posted)
}

/// Returns the identity of a database and the number of calls of this node that it has.
async fn own_mark(store: &Store, config: &Config) -> anyhow::Result<(String, MarkRaise)> {
    let node_id = node_name(&config.data_folder)?;
    let PostedMark { store_id, posted: before, .. } = store.posted_mark(&node_id).await?;
    Ok((store_id, MarkRaise { node_id, before }))
}

/// Posts all calls that this node's journal still has: stored ones, settled ones, and those that were
/// running when the gateway ended. Returns the number of those that the database lacked.
async fn post_journal(store: &Store, config: &Config) -> anyhow::Result<usize> {
    let mut posted = 0;
    for calls in RetiredSegments::find(&journal_folder(config))? {
        let calls = calls.context("the journal cannot be read")?.into_iter();
        let calls =
            calls.map(|entry| SettledCall { entry: entry.into(), lease: None, shown: true });
        posted += post_missing(store, config, calls.collect()).await?;
    }
    let JournalInspection { settled, open, .. } = inspect(config)?;
    Ok(posted + post_missing(store, config, [settled, open].concat()).await?)
}

/// Returns the number of calls that this node had posted and that neither the database nor the journal
/// has any more. They are told now, so that the next start does not tell them again.
async fn give_up_lost(store: &Store, config: &Config) -> anyhow::Result<i64> {
    let Some(saved) = PostedMark::read(&journal_folder(config))? else { return Ok(0) };
    let (store_id, raise) = own_mark(store, config).await?;
    if saved.store_id != store_id {
        return Ok(0);
    }
    store.mark_posted(&raise, saved.posted).await?;
    Ok(saved.posted.saturating_sub(raise.before).max(0))
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
    let posted = post_journal(&store, &config).await?;
    let lost = give_up_lost(&store, &config).await?;
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
