//! How a call comes by its money, and the work beside the calls that keeps the books of this node
//! and the store together.

use canon::Money;
use ledger::{
    HoldRecord, HoldRefusal, HoldTicket, KeyBalance, LeaseClient, LeaseStoreError, MAX_BATCH_CALLS,
    OpenCalls, SpendStatus, TryHold,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use tokio_util::sync::CancellationToken;

/// How long a call waits for the store to answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a call waits for money that other nodes have and may hand back within a second.
const LEASE_RETURN_WAIT: Duration = Duration::from_millis(2_500);
const LEASE_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a word with the store about leases may take.
const LEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the store may take to record settled calls.
const POST_TIMEOUT: Duration = Duration::from_secs(20);
/// In every so many seconds somebody looks after nodes that are gone.
const CLOSE_DEAD_NODES_SECONDS: u32 = 5;

/// The money of running calls: reservations on this node, and the leases they are taken from.
pub struct NodeFunds {
    /// Reservations and settled calls of this node, in memory and in the journal.
    pub open_calls: Arc<OpenCalls>,
    /// Leases of this node.
    pub lease_client: LeaseClient<Store>,
    store: Store,
    /// The data folder, where the name of the node is kept.
    data_folder: PathBuf,
}

impl NodeFunds {
    /// Funds of a node whose name is kept in that folder.
    pub fn new(
        book: Arc<OpenCalls>,
        teller: LeaseClient<Store>,
        store: Store,
        data: PathBuf,
    ) -> Self {
        Self { open_calls: book, lease_client: teller, store, data_folder: data }
    }

    /// Sets money aside: all of `full`, or what is left if that is at least `least`. Waits for the
    /// store only if this node's lease does not cover it.
    pub async fn reserve(
        &self,
        purse: &Arc<KeyBalance>,
        held: Arc<HoldRecord>,
        full: Money,
        least: Money,
    ) -> Result<HoldTicket, HoldRefusal> {
        let held = match self.lease_client.try_hold(purse, held, full)? {
            TryHold::Held(ticket) => return Ok(ticket),
            TryHold::Short(held) => held,
        };
        let begun = Instant::now();
        loop {
            // Boxed: asking the store is rare and its future large, and every call carries it along.
            let holding = Box::pin(self.lease_client.hold(purse, Arc::clone(&held), full, least));
            match tokio::time::timeout(STORE_TIMEOUT, holding).await {
                Ok(Err(HoldRefusal::Elsewhere { .. })) if begun.elapsed() < LEASE_RETURN_WAIT => {
                    tokio::time::sleep(LEASE_RETRY_PAUSE).await;
                }
                Ok(outcome) => return outcome,
                Err(_) => {
                    return Err(HoldRefusal::Unreachable(
                        "the store did not answer in time".to_owned(),
                    ));
                }
            }
        }
    }

    /// How a key stands over all nodes; as this one knows it while the store is away.
    pub async fn key_status(&self, purse: &KeyBalance) -> SpendStatus {
        match tokio::time::timeout(STORE_TIMEOUT, self.lease_client.key_status(purse)).await {
            Ok(Ok(standing)) => standing,
            Ok(Err(_)) | Err(_) => purse.status(),
        }
    }

    /// What all keys of an account spent, and what is left of its cap for calls to come; `None` while
    /// the store is away.
    pub async fn account_balance(&self, id: &str, cap: Money) -> Option<(Money, Money)> {
        let asked = tokio::time::timeout(STORE_TIMEOUT, self.store.account_spending(id));
        let (spent, _) = asked.await.ok()?.ok()?;
        Some((spent, cap.saturating_sub(spent).max(Money::ZERO)))
    }

    /// Moves settled calls to the store, until the order to stop and nothing is left.
    pub async fn post_settled_calls(&self, stop: &CancellationToken) {
        let mut wait = Duration::from_millis(100);
        loop {
            let posting = tokio::time::timeout(POST_TIMEOUT, self.lease_client.post());
            let posted = posting.await.unwrap_or_else(|_| {
                Err(LeaseStoreError::Unreachable("the store did not answer in time".to_owned()))
            });
            match posted {
                Ok(count) => {
                    let stops = stop.is_cancelled();
                    if count == 0 && stops && self.open_calls.running_count() == 0 {
                        return self.return_leases().await;
                    }
                    wait = Duration::from_millis(100);
                    // Few cost the store nearly as much as many, so more are waited for.
                    if count == 0 || (count < MAX_BATCH_CALLS && !stops) {
                        tokio::time::sleep(wait).await;
                    }
                }
                Err(e) => {
                    tracing::error!("settled calls could not be stored, they wait: {e}");
                    if stop.is_cancelled() {
                        // They are in the journal and are posted at the next start.
                        return;
                    }
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    /// Hands back what this node has, so that the others need not wait for its leases to run out.
    async fn return_leases(&self) {
        match tokio::time::timeout(LEASE_TIMEOUT, self.lease_client.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::warn!("leases could not be handed back, they run out: {e}"),
            Err(_) => tracing::warn!("leases could not be handed back in time, they run out"),
        }
    }

    /// Says once a second that this node lives, renews its leases, closes those of the dead.
    pub async fn run_heartbeats(&self, stop: &CancellationToken) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for second in 0_u32.. {
            seconds.tick().await;
            if stop.is_cancelled() && self.open_calls.running_count() == 0 {
                return;
            }
            self.heartbeat().await;
            if second % CLOSE_DEAD_NODES_SECONDS == 0 {
                self.close_dead_nodes().await;
            }
        }
    }

    /// Tells the store how this node's leases stand. Done every second; a test need not wait.
    pub async fn heartbeat(&self) {
        match tokio::time::timeout(LEASE_TIMEOUT, self.lease_client.heartbeat()).await {
            Ok(Ok(())) => {}
            Ok(Err(LeaseStoreError::Fenced)) => {
                tracing::error!(
                    "another process runs under the name of this node: was its data folder \
                     copied? This one goes on under another name"
                );
                if let Err(e) = write_node_name(&self.data_folder, &self.lease_client.node_name()) {
                    tracing::error!("{e}");
                }
            }
            Ok(Err(e)) => tracing::warn!("leases could not be renewed: {e}"),
            Err(_) => tracing::warn!("leases could not be renewed: no answer in time"),
        }
    }

    async fn close_dead_nodes(&self) {
        match tokio::time::timeout(LEASE_TIMEOUT, self.lease_client.close_dead_nodes()).await {
            Ok(Ok(closed)) if closed.leases + closed.calls > 0 => tracing::warn!(
                leases = closed.leases,
                calls = closed.calls,
                "a node is gone: {} of its calls are settled, {} of its leases closed",
                closed.calls,
                closed.leases
            ),
            Ok(Ok(_)) => {}
            Ok(Err(e)) => tracing::warn!("nodes that are gone could not be looked after: {e}"),
            Err(_) => tracing::warn!("nodes that are gone could not be looked after in time"),
        }
    }
}

/// The name of this node, the same after a restart: what it left in the store is its own again.
pub fn node_name(data: &Path) -> anyhow::Result<String> {
    let file = data.join("node");
    if let Ok(name) = std::fs::read_to_string(&file)
        && !name.trim().is_empty()
    {
        return Ok(name.trim().to_owned());
    }
    let name = uuid::Uuid::now_v7().to_string();
    write_node_name(data, &name)?;
    Ok(name)
}

/// Writes the name of this node into its data folder.
pub fn write_node_name(data: &Path, name: &str) -> anyhow::Result<()> {
    std::fs::write(data.join("node"), format!("{name}\n"))
        .map_err(|e| anyhow::anyhow!("the data folder {} cannot be written: {e}", data.display()))
}
