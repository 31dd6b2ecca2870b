//! State of this node and of the parts it depends on.

use canon::Micros;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::health_check::{CheckName, CheckState, HealthCheck};
use crate::stored_config::EntryIssue;

/// Time without a heartbeat after which a node counts as dead.
const DEAD_NODE_SILENCE: Micros = ledger::LEASE_DURATION;
/// Time that the database may take to answer. A report must not hang with it.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Results of all health checks.
    pub checks: Vec<HealthCheck>,
    /// Stored entries that cannot be used, and every check that is not good.
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
    /// Returns the state of this node. It answers while the store does not.
    pub async fn node_health(&self, actor: &Actor) -> Result<NodeHealth, AdminError> {
        actor.require_admin()?;
        let (engine, config) = (&self.engine, self.engine.config());
        let uptime = engine.monotonic_now();
        let lanes = config.lane_health(uptime);
        let good = lanes.iter().filter(|lane| lane.health.state.as_str() == "good").count();
        let leases = &engine.funds.lease_client;
        let shared = self.limiter.shared();
        let report = self.health_report();
        let ping = tokio::time::timeout(STORE_TIMEOUT, self.store.ping());
        let nodes = tokio::time::timeout(STORE_TIMEOUT, self.cluster_nodes());
        let (ping, nodes) = tokio::join!(ping, nodes);
        Ok(NodeHealth {
            version: env!("CARGO_PKG_VERSION"),
            ready: report.is_ready(),
            uptime_s: uptime.to_duration().as_secs(),
            store: ping.is_ok_and(|answer| answer.is_ok()),
            database: DatabaseHealth {
                kind: self.store.kind(),
                silent_ms: leases.time_since_contact().as_millis(),
            },
            node: leases.node_name(),
            nodes: nodes.unwrap_or_default(),
            valkey: shared.map(|shared| ValkeyHealth { reachable: !shared.is_unreachable() }),
            journal: JournalHealth {
                bytes: folder_bytes(&engine.funds.node_folder.journal()),
                unposted: engine.funds.open_calls.unposted_count(),
            },
            memory_bytes: resident_bytes(),
            connections: engine.connections.count(),
            running: engine.funds.open_calls.running_count(),
            mail: config.mailer.is_some(),
            files: config.files.url.split(':').next().unwrap_or_default().to_owned(),
            lanes: LaneCounts { all: lanes.len(), good },
            troubles: self.issues().into_iter().chain(troubles(&report.checks)).collect(),
            checks: report.checks,
        })
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

/// Returns the checks that are not good. Stored entries are named one by one elsewhere.
fn troubles(checks: &[HealthCheck]) -> impl Iterator<Item = EntryIssue> {
    let wrong = checks
        .iter()
        .filter(|check| check.state != CheckState::Good && check.name != CheckName::Configuration);
    wrong.map(|HealthCheck { name, message, hint, .. }| EntryIssue {
        what: name.word().to_owned(),
        why: match hint {
            Some(hint) => format!("{message}; {hint}"),
            None => message.clone(),
        },
    })
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
