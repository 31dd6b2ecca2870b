//! The engine: every part of the gateway that a call uses.

use access::keys::KeyCache;
use arc_swap::ArcSwap;
use canon::Micros;
use config::Config;
use http::HeaderValue;
use ledger::Clock;
use std::sync::Arc;
use std::time::Instant;
use telemetry::{GatewayMetrics, Telemetry};
use tokio_util::task::TaskTracker;
use transport::{Connections, ShutdownPhase};
use upstream::{InFlight, SessionLanes};

use crate::file_store::FileStore;
use crate::funds::NodeFunds;
use crate::large_work::HeavyWork;
use crate::mcp::oauth::McpGrants;
use crate::object_book::ObjectBook;
use crate::request_id::RequestIds;
use crate::signature_cache::SignatureCache;

/// Parts of the gateway that a call uses. Administration, sign-in and stored responses are not
/// here.
pub struct Engine {
    config: ArcSwap<Config>,
    /// API keys in memory.
    pub keys: Arc<KeyCache>,
    /// Money of running calls.
    pub funds: NodeFunds,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Source of request ids.
    pub request_ids: RequestIds,
    /// Files stored for callers.
    pub files: FileStore,
    /// Signatures for callers whose format has no field for them.
    pub signatures: SignatureCache,
    /// Objects that providers made for keys.
    pub objects: ObjectBook,
    /// Tokens of MCP servers that people connected.
    pub mcp_grants: Arc<McpGrants>,
    /// Counters for `/metrics`.
    pub metrics: GatewayMetrics,
    /// Exporter of ended calls.
    pub telemetry: Telemetry,
    /// Slots of running calls.
    pub in_flight: InFlight,
    /// Lanes of sessions that moved.
    pub session_lanes: SessionLanes,
    /// Places for work on large bodies.
    pub heavy_work: HeavyWork,
    /// Open connections and the shutdown phase.
    pub connections: Arc<Connections>,
    /// Tasks that must end before the process does.
    pub tasks: TaskTracker,
    /// Random id of this process, sent upstream to detect request loops.
    pub instance: HeaderValue,
    started: Instant,
}

/// Constructor arguments of [`Engine`].
#[expect(missing_docs, reason = "the fields are those of `Engine`")]
pub struct EngineParts {
    pub config: Config,
    pub keys: Arc<KeyCache>,
    pub funds: NodeFunds,
    pub clock: Arc<dyn Clock>,
    pub request_ids: RequestIds,
    pub files: FileStore,
    pub telemetry: Telemetry,
    pub tasks: TaskTracker,
    pub instance: HeaderValue,
}

impl Engine {
    /// Creates an engine.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts {
            config,
            keys,
            funds,
            clock,
            request_ids,
            files,
            telemetry,
            tasks,
            instance,
        } = parts;
        let objects = ObjectBook::new(funds.store().clone(), tasks.clone());
        let metrics = GatewayMetrics::new();
        metrics.note_start(clock.now().as_secs());
        let mcp_grants = McpGrants::new(funds.store().clone(), Arc::clone(&clock), tasks.clone());
        Self {
            mcp_grants: Arc::new(mcp_grants),
            config: ArcSwap::from_pointee(config),
            keys,
            funds,
            clock,
            request_ids,
            files,
            signatures: SignatureCache::default(),
            objects,
            metrics,
            telemetry,
            in_flight: InFlight::default(),
            session_lanes: SessionLanes::default(),
            heavy_work: HeavyWork::default(),
            connections: Arc::default(),
            tasks,
            instance,
            started: Instant::now(),
        }
    }

    /// Returns the current configuration.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Replaces the configuration. Running calls keep the old one.
    pub fn set_config(&self, config: Config) {
        self.config.store(Arc::new(config));
    }

    /// Microseconds since start on a monotonic clock.
    pub fn monotonic_now(&self) -> Micros {
        self.monotonic_at(Instant::now())
    }

    /// The same at that moment.
    pub fn monotonic_at(&self, moment: Instant) -> Micros {
        Micros::from(moment.saturating_duration_since(self.started))
    }

    /// Returns true once running calls must end because the drain timeout is over.
    pub fn must_end_calls(&self) -> bool {
        self.connections.phase() >= ShutdownPhase::End
    }
}
