//! The journal of this process, and journals that other processes of the same data folder left.

use config::Config;
use ledger::{
    Clock, DamagedSpan, Disk as _, FileDisk, LeaseClient, LeaseStore as _, OpenCalls,
    OpenedJournal, PostedMark, RecoveredCalls, SegmentDamage, StoreRollback,
};
use relay::NodeFolder;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// Period of looking for journals whose process has ended.
pub(crate) const ADOPTION_PERIOD: Duration = Duration::from_secs(2);

/// File of a data folder that a restore locks.
const RESTORE_LOCK_FILE: &str = "restore.lock";

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
        let locked = lock_for_gateway(&folder, folder_use);
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

/// A data folder that no gateway uses, and in which none starts until this is dropped. The lock of each journal
/// alone would let `serve --take-over` begin a further one.
pub(crate) struct LockedFolder {
    nodes: Vec<NodeFolder>,
    _journals: Vec<FileDisk>,
    _lock: File,
}

impl LockedFolder {
    /// Creates the folder if necessary and locks it. Fails when another process uses it.
    pub(crate) fn lock(data_folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(data_folder)?;
        let file = data_folder.join(RESTORE_LOCK_FILE);
        let lock = File::options().create(true).truncate(false).write(true).open(file)?;
        lock.try_lock().map_err(busy_restore)?;
        // A gateway locks its journal before it looks at the file above.
        let nodes: Vec<NodeFolder> = NodeFolder::existing(data_folder).collect();
        let journals = nodes.iter().map(|node| FileDisk::open(&node.journal()));
        Ok(Self { _journals: journals.collect::<io::Result<_>>()?, nodes, _lock: lock })
    }

    /// Returns the journals of the folder.
    pub(crate) fn nodes(&self) -> &[NodeFolder] {
        &self.nodes
    }
}

/// Fails while a restore works on a data folder.
fn refuse_during_restore(data_folder: &Path) -> io::Result<()> {
    match File::open(data_folder.join(RESTORE_LOCK_FILE)) {
        Ok(lock) => lock.try_lock_shared().map_err(busy_restore),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

fn busy_restore(error: TryLockError) -> io::Error {
    match error {
        TryLockError::WouldBlock => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "`portunus restore` is working on this data folder",
        ),
        TryLockError::Error(error) => error,
    }
}

/// Locks a journal of a data folder, unless a restore works on the folder.
fn lock_for_gateway(
    data_folder: &Path,
    folder_use: FolderUse,
) -> io::Result<(NodeFolder, FileDisk)> {
    let locked = lock_journal(data_folder, folder_use)?;
    refuse_during_restore(data_folder)?;
    Ok(locked)
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

/// Returns the number of calls that the processes of a data folder posted to its database, as far as they are
/// counted.
pub(crate) fn posted_calls(data_folder: &Path) -> anyhow::Result<i64> {
    let mut calls = 0_i64;
    for node in NodeFolder::existing(data_folder) {
        let posted = PostedMark::read(&node.journal())?.map_or(0, |mark| mark.posted);
        calls = calls.saturating_add(posted);
    }
    Ok(calls)
}

/// Returns the number of calls of a journal that were posted to another database than this one, and the name under
/// which they were.
pub(crate) async fn posted_elsewhere(
    node: &NodeFolder,
    store: &Store,
) -> anyhow::Result<Option<(String, i64)>> {
    let Some(own) = PostedMark::read(&node.journal())? else { return Ok(None) };
    let stored = store.posted_mark(&own.node_id).await?;
    let is_elsewhere = stored.store_id != own.store_id && own.posted > 0;
    Ok(is_elsewhere.then_some((own.node_id, own.posted)))
}

/// Logs that the calls of a journal were posted to another database than this one, and records it for
/// `portunus ledger verify`.
pub(crate) async fn report_other_store(node: &NodeFolder, store: &Store) -> anyhow::Result<()> {
    let Some((node_id, missing)) = posted_elsewhere(node, store).await? else { return Ok(()) };
    tracing::error!(
        missing,
        "this is another database than the one to which {missing} calls of this data folder were posted: its keys \
         and its money are not here. If it was deleted or `store.url` is wrong, stop the gateway and put it back, \
         or restore a backup; otherwise accept it with `portunus ledger accept-rollback`"
    );
    let lost = StoreRollback { missing, reposted: 0 };
    Ok(store.note_rollback(&node_id, lost, false).await?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_gateway_starts_during_a_restore_and_no_restore_while_one_runs() {
        let folder = std::env::temp_dir().join(format!("portunus-locked-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        let start = |folder_use| lock_for_gateway(&folder, folder_use);
        let both = [FolderUse::Alone, FolderUse::WithOthers];
        // The folder is new, and a take-over begins a journal that did not exist when the restore began.
        let restore = LockedFolder::lock(&folder).unwrap();
        for folder_use in both {
            let refused = start(folder_use).map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{folder_use:?}");
        }
        assert!(LockedFolder::lock(&folder).is_err(), "one restore at a time");
        drop(restore);
        for folder_use in both {
            let running = start(folder_use).unwrap();
            assert!(LockedFolder::lock(&folder).is_err(), "{folder_use:?}");
            drop(running);
            drop(LockedFolder::lock(&folder).unwrap());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
