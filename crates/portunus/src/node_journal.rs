//! The journal of this process, and journals that other processes of the same data folder left.

use config::Config;
use ledger::{
    Clock, DamagedSpan, Disk as _, FileDisk, LeaseClient, LeaseStore as _, OpenCalls,
    OpenedJournal, PostedMark, RecoveredCalls, SegmentDamage, StoreRollback,
};
use relay::NodeFolder;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// Period of looking for journals whose process has ended.
pub(crate) const ADOPTION_PERIOD: Duration = Duration::from_secs(2);

/// Claim of a process on its data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderUse {
    /// No other process may use the folder.
    Alone,
    /// Processes that drain may use it too.
    WithOthers,
}

/// The journal that a process has locked.
pub(crate) struct OwnJournal {
    pub(crate) node: NodeFolder,
    pub(crate) opened: OpenedJournal,
}

/// Opens the journal on a thread that may wait for the disk, so that a signal still ends the start.
pub(crate) async fn open_journal(
    config: &Config,
    clock: &Arc<dyn Clock>,
    folder_use: FolderUse,
) -> anyhow::Result<OwnJournal> {
    let (folder, clock) = (config.data_folder.clone(), Arc::clone(clock));
    let opening = tokio::task::spawn_blocking(move || {
        let locked = lock_journal(&folder, folder_use);
        let (node, disk) = locked.map_err(|e| {
            let hint = match (e.kind(), folder_use) {
                (io::ErrorKind::ResourceBusy, FolderUse::Alone) => {
                    "; stop it, or replace it with `portunus serve --take-over`"
                }
                _ => "",
            };
            anyhow::anyhow!("the data folder {} cannot be used: {e}{hint}", folder.display())
        })?;
        Ok(OwnJournal { node, opened: OpenCalls::open(clock, Arc::new(disk))? })
    });
    opening.await?
}

/// Locks a journal of a data folder: the first one if no other process may use the folder, otherwise
/// the first that is free.
fn lock_journal(data_folder: &Path, folder_use: FolderUse) -> io::Result<(NodeFolder, FileDisk)> {
    match folder_use {
        FolderUse::Alone => {
            let node = NodeFolder::first(data_folder);
            let disk = FileDisk::open(&node.journal())?;
            for other in NodeFolder::existing(data_folder).filter(|other| *other != node) {
                // It is adopted later. Here it only shows that no other process runs.
                drop(FileDisk::open(&other.journal())?);
            }
            Ok((node, disk))
        }
        FolderUse::WithOthers => {
            let mut busy = io::Error::from(io::ErrorKind::ResourceBusy);
            for node in NodeFolder::all(data_folder) {
                match FileDisk::open(&node.journal()) {
                    Err(e) if e.kind() == io::ErrorKind::ResourceBusy => busy = e,
                    opened => return opened.map(|disk| (node, disk)),
                }
            }
            Err(busy)
        }
    }
}

/// Posts the calls of journals whose process has ended, and gives up their nodes. A failure is logged,
/// and the next look tries again.
pub(crate) async fn adopt_journals(
    own: &NodeFolder,
    data_folder: &Path,
    store: &Store,
    clock: &Arc<dyn Clock>,
) {
    for node in NodeFolder::existing(data_folder).filter(|node| node != own) {
        let folder = node.journal();
        match adopt_journal(node, store, clock).await {
            Ok(None) => {}
            Ok(Some(AdoptedCalls { settled, interrupted: 0 })) => tracing::info!(
                calls = settled,
                "the journal {} of a process that ended is posted: {settled} calls",
                folder.display()
            ),
            Ok(Some(AdoptedCalls { settled, interrupted })) => tracing::warn!(
                calls = settled,
                interrupted,
                "the journal {} of a process that ended is posted: {settled} calls, of which \
                 {interrupted} were running when it ended",
                folder.display()
            ),
            Err(e) => {
                tracing::error!("the journal {} could not be posted: {e:#}", folder.display());
            }
        }
    }
}

/// Calls of an adopted journal.
struct AdoptedCalls {
    settled: usize,
    interrupted: usize,
}

/// Posts the calls of a journal. Returns `None` if its process runs, or if it has none to post.
async fn adopt_journal(
    node: NodeFolder,
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<AdoptedCalls>> {
    let left = tokio::task::spawn_blocking(move || lock_left_journal(node));
    let Some(LeftJournal { node, disk, has_records, mark }) = left.await?? else {
        return Ok(None);
    };
    if !has_records && !is_rolled_back(mark, store).await? {
        return Ok(None);
    }
    let name = node.node_name()?;
    let found_at = Arc::clone(clock);
    let opening = tokio::task::spawn_blocking(move || OpenCalls::open(found_at, Arc::new(disk)));
    let opened = opening.await??;
    log_damage(&opened.found);
    let settled = opened.found.settled.len();
    let interrupted = opened.found.interrupted;
    let client = LeaseClient::open(opened, store.clone(), Arc::clone(clock), &name).await?;
    client.leave().await?;
    tokio::task::spawn_blocking(move || client.save_mark()).await??;
    Ok(Some(AdoptedCalls { settled, interrupted }))
}

/// A journal whose process has ended, locked for this one.
struct LeftJournal {
    node: NodeFolder,
    disk: FileDisk,
    has_records: bool,
    mark: Option<PostedMark>,
}

fn lock_left_journal(node: NodeFolder) -> io::Result<Option<LeftJournal>> {
    let disk = match FileDisk::open(&node.journal()) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => return Ok(None),
        opened => opened?,
    };
    let mut has_records = false;
    for segment in disk.segments()? {
        has_records |= !disk.read(segment)?.is_empty();
    }
    let mark = PostedMark::read(&node.journal())?;
    Ok(Some(LeftJournal { node, disk, has_records, mark }))
}

/// Returns true if the store has fewer calls of a node than it once had.
async fn is_rolled_back(mark: Option<PostedMark>, store: &Store) -> anyhow::Result<bool> {
    let Some(own) = mark else { return Ok(false) };
    let stored = store.posted_mark(&own.node_id).await?;
    Ok(stored.store_id == own.store_id && stored.posted < own.posted)
}

/// Logs that the calls of a journal were posted to another database than this one, and records it for
/// `portunus ledger verify`.
pub(crate) async fn report_other_store(node: &NodeFolder, store: &Store) -> anyhow::Result<()> {
    let Some(own) = PostedMark::read(&node.journal())? else { return Ok(()) };
    let stored = store.posted_mark(&own.node_id).await?;
    if stored.store_id == own.store_id || own.posted == 0 {
        return Ok(());
    }
    let missing = own.posted;
    tracing::error!(
        missing,
        "this is another database than the one to which {missing} calls of this data folder were posted: its keys \
         and its money are not here. If it was deleted or `store.url` is wrong, stop the gateway and put it back, \
         or restore a backup; otherwise accept it with `portunus ledger accept-rollback`"
    );
    let lost = StoreRollback { missing, reposted: 0 };
    Ok(store.note_rollback(&own.node_id, lost, false).await?)
}

/// Logs records of a journal that cannot be read.
pub(crate) fn log_damage(found: &RecoveredCalls) {
    if found.torn > 0 {
        tracing::warn!(
            bytes = found.torn,
            "{} bytes of the journal were not written completely and were skipped",
            found.torn
        );
    }
    for SegmentDamage { file, spans, .. } in &found.damage {
        for DamagedSpan { offset, bytes } in spans {
            tracing::error!(
                file,
                offset,
                bytes,
                "the journal is damaged: {bytes} bytes of {file} at byte {offset} cannot be read, and \
                 the cost of a call may be lost"
            );
        }
    }
}
