//! State of this node and of the parts it depends on.

use canon::Micros;
use serde::Serialize;
use std::path::Path;
use transport::ShutdownPhase;

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::stored_config::EntryIssue;

/// Time without a heartbeat after which a node counts as dead.
const DEAD_NODE_SILENCE: Micros = ledger::LEASE_DURATION;
/// Time without contact to the store after which a node of a cluster is not ready.
const MAX_STORE_SILENCE: Micros = Micros::from_secs(4);

/// Warning of a gateway that cannot seal bodies.
pub const PLAIN_BODIES_WARNING: &str = "kept conversations, replays, tasks and files are stored \
    without encryption; set `vault` of `[server]`, the same on every node";

/// State of this node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeHealth {
    /// Version of the program.
    pub version: &'static str,
    /// True if it accepts new work.
    pub ready: bool,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// A plain boolean that monitoring can check first. `database` has the details.
    pub store: bool,
    /// The database.
    pub database: DatabaseHealth,
    /// Name of this node.
    pub node: String,
    /// Every node the store remembers; empty if the store does not answer.
    pub nodes: Vec<ClusterNode>,
    /// The shared limits; `None` if they are not configured.
    pub valkey: Option<ValkeyHealth>,
    /// The journal.
    pub journal: JournalHealth,
    /// Resident memory of the process.
    pub memory_bytes: Option<u64>,
    /// Open connections.
    pub connections: usize,
    /// Running calls.
    pub running: usize,
    /// True if mail is configured.
    pub mail: bool,
    /// Kind of the file store: the scheme of its address.
    pub files: String,
    /// Number of lanes.
    pub lanes: LaneCounts,
    /// Stored entries that cannot be used.
    pub troubles: Vec<EntryIssue>,
}

/// State of the database.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseHealth {
    /// Name of the product.
    pub kind: &'static str,
    /// Time since the last heartbeat it answered.
    pub silent_ms: i64,
}

/// A node of the cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterNode {
    /// True for the node that answers.
    pub this: bool,
    /// Name of the node.
    pub id: String,
    /// Time since its last heartbeat.
    pub silent_ms: i64,
    /// True if its leases are still valid.
    pub alive: bool,
}

/// State of the shared limits.
#[derive(Clone, Debug, Serialize)]
pub struct ValkeyHealth {
    /// True if the server answers.
    pub reachable: bool,
}

/// State of the journal.
#[derive(Clone, Debug, Serialize)]
pub struct JournalHealth {
    /// Size on the disk.
    pub bytes: Option<u64>,
    /// Settled calls that are not in the store yet.
    pub unposted: usize,
}

/// Number of lanes.
#[derive(Clone, Debug, Serialize)]
pub struct LaneCounts {
    /// All lanes.
    pub all: usize,
    /// Lanes in good state.
    pub good: usize,
}

impl Admin {
    /// Returns true if the gateway accepts new work.
    pub fn is_ready(&self) -> bool {
        let leases = &self.engine.funds.lease_client;
        let cut_off = leases.live_nodes() > 1 && leases.time_since_contact() > MAX_STORE_SILENCE;
        !cut_off
            && !self.engine.funds.open_calls.is_stalled()
            && !self.engine.funds.open_calls.is_failing()
            && self.engine.connections.phase() == ShutdownPhase::Serve
    }

    /// Returns the state of this node. It answers while the store does not.
    pub async fn node_health(&self, actor: &Actor) -> Result<NodeHealth, AdminError> {
        actor.require_admin()?;
        let (engine, config) = (&self.engine, self.engine.config());
        let uptime = engine.monotonic_now();
        let lanes = config.lane_health(uptime);
        let good = lanes.iter().filter(|lane| lane.health.state.as_str() == "good").count();
        let leases = &engine.funds.lease_client;
        let shared = self.limiter.shared();
        Ok(NodeHealth {
            version: env!("CARGO_PKG_VERSION"),
            ready: self.is_ready(),
            uptime_s: uptime.to_duration().as_secs(),
            store: self.store.ping().await.is_ok(),
            database: DatabaseHealth {
                kind: self.store.kind(),
                silent_ms: leases.time_since_contact().as_millis(),
            },
            node: leases.node_name(),
            nodes: self.cluster_nodes().await,
            valkey: shared.map(|shared| ValkeyHealth { reachable: !shared.is_unreachable() }),
            journal: JournalHealth {
                bytes: folder_bytes(&config.data_folder.join("journal")),
                unposted: engine.funds.open_calls.unposted_count(),
            },
            memory_bytes: resident_bytes(),
            connections: engine.connections.count(),
            running: engine.funds.open_calls.running_count(),
            mail: config.mailer.is_some(),
            files: config.files.url.split(':').next().unwrap_or_default().to_owned(),
            lanes: LaneCounts { all: lanes.len(), good },
            troubles: self
                .issues()
                .into_iter()
                .chain(self.plain_bodies())
                .chain(self.journal_damage())
                .collect(),
        })
    }

    /// Returns a warning for each damaged file of this node's journal.
    fn journal_damage(&self) -> impl Iterator<Item = EntryIssue> {
        let files = self.engine.funds.open_calls.damaged_files();
        files.into_iter().map(|file| EntryIssue {
            what: "journal".to_owned(),
            why: format!(
                "{file} is damaged and kept: calls may be missing; accept it with `portunus ledger \
                 accept-damage {file}`"
            ),
        })
    }

    /// Returns the warning that bodies are stored as they are.
    fn plain_bodies(&self) -> Option<EntryIssue> {
        let issue =
            || EntryIssue { what: "vault".to_owned(), why: PLAIN_BODIES_WARNING.to_owned() };
        self.vault.is_unset().then(issue)
    }

    async fn cluster_nodes(&self) -> Vec<ClusterNode> {
        let nodes = self.store.nodes().await.unwrap_or_default();
        let own = self.engine.funds.lease_client.node_name();
        let node = |(id, silence): (String, Micros)| ClusterNode {
            this: id == own,
            id,
            silent_ms: silence.max(Micros::ZERO).as_millis(),
            alive: silence < DEAD_NODE_SILENCE,
        };
        nodes.into_iter().map(node).collect()
    }
}

/// Returns the size of the files in a folder; `None` if it cannot be read.
fn folder_bytes(folder: &Path) -> Option<u64> {
    let files = std::fs::read_dir(folder).ok()?;
    let sizes = files.flatten().filter_map(|file| file.metadata().ok()).map(|meta| meta.len());
    Some(sizes.sum())
}

/// Returns the resident memory of this process, from `VmRSS`
/// (<https://man7.org/linux/man-pages/man5/proc_pid_status.5.html>).
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}
