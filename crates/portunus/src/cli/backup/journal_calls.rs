//! Posting of the calls of the journals of a data folder into a copied or restored database.

use anyhow::Context as _;
use config::Config;
use ledger::{
    Clock as _, JournalInspection, LeaseStore, MarkRaise, PostedMark, RetiredSegments, SettledCall,
    SystemClock,
};
use relay::NodeFolder;
use store::Store;

/// Returns the settled calls of each journal of this data folder.
pub(super) fn settled_calls(
    config: &Config,
) -> anyhow::Result<Vec<(NodeFolder, Vec<SettledCall>)>> {
    let nodes = NodeFolder::existing(&config.data_folder);
    nodes.map(|node| inspect(&node).map(|found| (node, found.settled))).collect()
}

fn inspect(node: &NodeFolder) -> anyhow::Result<JournalInspection> {
    JournalInspection::read(&node.journal(), SystemClock.now())
        .context("the journal cannot be read")
}

/// Posts calls of a node that a database lacks, and returns their number. Each is paid by its lease, or
/// as far as its cap has room if that is closed. The database counts them as if the node had posted them, so that it misses none later.
pub(super) async fn post_missing(
    store: &Store,
    node: &NodeFolder,
    calls: Vec<SettledCall>,
) -> anyhow::Result<usize> {
    let mut posted = 0;
    for batch in calls.chunks(ledger::MAX_BATCH_CALLS) {
        let raise = own_mark(store, node).await?.1;
        posted += LeaseStore::post(store, batch, Some(&raise)).await?.new;
    }
    Ok(posted)
}

/// Returns the identity of a database and the number of calls of a node that it has.
async fn own_mark(store: &Store, node: &NodeFolder) -> anyhow::Result<(String, MarkRaise)> {
    let node_id = node.node_name()?;
    let PostedMark { store_id, posted: before, .. } = store.posted_mark(&node_id).await?;
    Ok((store_id, MarkRaise { node_id, before }))
}

/// Posts all calls that a journal still has: stored ones, settled ones, and those that were
/// running when the gateway ended. Returns the number of those that the database lacked.
pub(super) async fn post_journal(store: &Store, node: &NodeFolder) -> anyhow::Result<usize> {
    let mut posted = 0;
    for calls in RetiredSegments::find(&node.journal())? {
        let calls = calls.context("the journal cannot be read")?.into_iter();
        let calls =
            calls.map(|entry| SettledCall { entry: entry.into(), lease: None, shown: true });
        posted += post_missing(store, node, calls.collect()).await?;
    }
    let JournalInspection { settled, open, .. } = inspect(node)?;
    Ok(posted + post_missing(store, node, [settled, open].concat()).await?)
}

/// Returns the number of calls that a node had posted and that neither the database nor the journal
/// has any more. They are told now, so that the next start does not tell them again.
pub(super) async fn give_up_lost(store: &Store, node: &NodeFolder) -> anyhow::Result<i64> {
    let Some(saved) = PostedMark::read(&node.journal())? else { return Ok(0) };
    let (store_id, raise) = own_mark(store, node).await?;
    if saved.store_id != store_id {
        return Ok(0);
    }
    store.mark_posted(&raise, saved.posted).await?;
    Ok(saved.posted.saturating_sub(raise.before).max(0))
}
